"""Look inside neural-network checkpoints: sharded tensors as one, where every element lives, and what changed.

>>> import tensormorph as tm
>>> with tm.open("resources/demo/llama-docstrings") as ck:
...     t = ck["model.norm.weight"]
...     t.shape, t.full()[0:2].shape
((128,), (2,))
"""

from __future__ import annotations

import os

# Imported at once although `ls` needs no check: a later import would put the module in the place of the function.
from tensormorph.check import CheckReport
from tensormorph.check import check as _check
from tensormorph.model import Checkpoint, LogicalTensor
from tensormorph.readers import open_checkpoint as open  # noqa: A004  tm.open is the contract's name

__version__ = "0.1.0"


def check(
    path: str | os.PathLike[str], *, quick: bool = False, values: bool = False, hashes: bool = False
) -> CheckReport:
    """Say what of a checkpoint is missing, damaged or odd, and what it can be used for.

    Parameters
    ----------
    quick
        Metadata only: no file is opened beyond what opening the checkpoint needs.
    values
        Read every element; report NaN and infinities, and parts that cannot be read.
    hashes
        Read every byte, and compare with the hashes that the files themselves record.

    Raises
    ------
    TensormorphError
        Whatever `open` raises.
    """
    with open(path) as checkpoint:
        return _check(checkpoint, quick=quick, values=values, hashes=hashes)


__all__ = ["CheckReport", "Checkpoint", "LogicalTensor", "check", "open"]
