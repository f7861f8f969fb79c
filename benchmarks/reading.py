"""How long a region takes, against numpy that reads the tensor's bytes whole and cuts the region out of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.measure import Result, ratio
from benchmarks.sets import Shape, write_file
from tensormorph.readers import open_checkpoint

_DTYPES: dict[str, Any] = {"F32": np.float32, "BF16": ml_dtypes.bfloat16}
_ALL = slice(None)
_CASES: tuple[tuple[str, str, Shape, tuple[slice, ...]], ...] = (
    ("all of it", "F32", (4096, 4096), (_ALL, _ALL)),
    ("256 rows", "F32", (4096, 4096), (slice(1000, 1256), _ALL)),
    ("one column, rows of 16 kB", "F32", (4096, 4096), (_ALL, slice(77, 78))),
    ("one column, rows of 16 kB", "BF16", (4096, 8192), (_ALL, slice(77, 78))),
    ("256 columns, rows of 1 MB", "F32", (64, 262_144), (_ALL, slice(1000, 1256))),
    ("a box of 64 x 64 x 64", "F32", (256, 256, 256), (slice(64, 128),) * 3),
)


def regions(folder: Path) -> Iterator[Result]:
    """Regions of tensors of 67 MB, warm."""
    random = np.random.default_rng(2)
    for i, (what, kind, shape, region) in enumerate(_CASES):
        path = folder / f"region-{i}.safetensors"
        dtype = np.dtype(_DTYPES[kind])
        values = random.standard_normal(shape, np.float32).astype(dtype)
        start = write_file(path, {"w": shape}, kind, values.tobytes())

        whole = partial(_whole, path, start, dtype, shape, region)

        with open_checkpoint(path) as checkpoint:
            view = checkpoint["w"].full()

            ours = partial(view.__getitem__, region)
            assert ours().tobytes() == values[region].tobytes() == whole().tobytes()
            yield ratio(f"{what} of {kind} {' × '.join(map(str, shape))}", ours, whole, "numpy, whole tensor")


def _whole(path: Path, start: int, dtype: np.dtype[Any], shape: Shape, region: tuple[slice, ...]) -> Any:
    with path.open("rb") as stream:
        stream.seek(start)
        return np.frombuffer(stream.read(), dtype).reshape(shape)[region].copy()
