"""Elements for the clipboard: exact texts that another program reads back bit for bit. No Qt here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensormorph.gui.table_cells import flattened, texts_slowly
from tensormorph.model import LogicalTensor
from tensormorph.pyramid import READ_BYTES, Plane, Span, pieces

MOST = 100_000
"""Most elements that are copied."""
Form = Literal["TSV", "NumPy"]
_NUMPY_NAMES = {"NaN": "np.nan", "Inf": "np.inf", "-Inf": "-np.inf"}


@dataclass(frozen=True, slots=True)
class Copied:
    """What goes to the clipboard, and the bytes that were read for it."""

    text: str
    n_bytes: int


def read_copy(tensor: LogicalTensor, plane: Plane, rows: Span, cols: Span, form: Form) -> Copied:
    """Read a rectangle of a plane and write it down: all of it or nothing.

    Raises
    ------
    TensormorphError
        If an element of it cannot be read.
    """
    region = plane.region(rows, cols)
    values = np.empty(region.shape, tensor.dtype)
    tensor.read_into(region, values)
    n_bytes = sum(piece.nbytes for piece in pieces(tensor, region, READ_BYTES))
    flat = flattened(plane, values, (rows[1] - rows[0], cols[1] - cols[0]))
    if form == "TSV":
        return Copied(tab_separated(flat), n_bytes)
    return Copied(numpy_expression(flat, len(plane.rows) + len(plane.cols)), n_bytes)


def tab_separated(values: NDArray[Any]) -> str:
    """Return rows and columns as lines of texts with tabs between them."""
    return "\n".join("\t".join(texts_slowly(row)) for row in values)


def numpy_expression(values: NDArray[Any], ndim: int) -> str:
    """Return rows and columns as a Python expression of an array of `ndim` axes, as ``np`` and ``ml_dtypes`` name it.

    A plane of one axis gives a vector, one of none a 0-d array.
    """
    dtype = values.dtype
    name = f"np.{dtype.type.__name__}" if dtype.type.__module__ == "numpy" else f"ml_dtypes.{dtype.name}"
    rows = [", ".join(_literals(row)) for row in values]
    if ndim == 0:
        body = rows[0]
    elif ndim == 1:
        body = f"[{', '.join(rows)}]"
    else:
        lines = ",\n          ".join(f"[{row}]" for row in rows)
        body = f"[{lines}]"
    return f"np.array({body}, dtype={name})"


def _literals(values: NDArray[Any]) -> list[str]:
    if values.dtype.kind == "c":
        # Not as a sum: adding a part of zero would lose the sign of the other.
        pairs = zip(_literals(values.real), _literals(values.imag), strict=True)
        return [f"complex({real}, {imaginary})" for real, imaginary in pairs]
    return [_NUMPY_NAMES.get(found, found) for found in texts_slowly(values)]
