"""Look inside neural-network checkpoints: sharded tensors as one, where every element lives, and what changed.

>>> import tensormorph as tm
>>> with tm.open("resources/demo/llama-docstrings") as ck:
...     t = ck["model.norm.weight"]
...     t.shape, t.full()[0:2].shape
((128,), (2,))
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensormorph.checks import CheckReport
    from tensormorph.model import Checkpoint, LogicalTensor
    from tensormorph.readers import open_checkpoint as open  # noqa: A004  tm.open is the contract's name

__version__ = "0.1.0"

_LATER = {
    "CheckReport": ("tensormorph.checks", "CheckReport"),
    "Checkpoint": ("tensormorph.model", "Checkpoint"),
    "LogicalTensor": ("tensormorph.model", "LogicalTensor"),
    "open": ("tensormorph.readers", "open_checkpoint"),
}


def __getattr__(name: str) -> Any:
    """Import what the package offers when it is first asked for: the window shows before the readers are there."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


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
    from tensormorph.checks import check as check_opened
    from tensormorph.readers import open_checkpoint

    with open_checkpoint(path) as checkpoint:
        return check_opened(checkpoint, quick=quick, values=values, hashes=hashes)


__all__ = ["CheckReport", "Checkpoint", "LogicalTensor", "check", "open"]
