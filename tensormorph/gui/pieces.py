"""The stored pieces of a tensor, each as a tensor of its own: what `local()` shows. No Qt here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensormorph import dtypes
from tensormorph.fragments import NO_RANK, FragmentTable
from tensormorph.model import LogicalTensor
from tensormorph.region import Region
from tensormorph.text import printable

_MOST_SEARCHED = 4096


@dataclass(frozen=True, slots=True)
class PieceName:
    """What is known of a piece without a look into its file.

    Fields
    ------
    short
        ``local(3)``, or ``local()`` where no rank is known.
    place
        Rank, file and device in words.
    region
        Part of the logical tensor that it stores, None where that is not known.
    """

    short: str
    place: str
    region: Region | None


def fragment_of(tensor: LogicalTensor, piece: int) -> int | None:
    """Return the row of the one fragment that lies in a piece; None where there are several, or nothing tells."""
    rows = tensor.locals[piece].rows
    if rows is None:
        return 0 if len(tensor.locals) == len(tensor.fragments) == 1 else None
    return rows[0] if len(rows) == 1 else None


def piece_of(tensor: LogicalTensor, row: int) -> int | None:
    """Return the piece in which just one fragment lies; None where that is not so, or nothing tells."""
    near = (row,) if row < len(tensor.locals) else ()
    # Readers mostly give them in one order; looking through all of them is for few.
    others = range(len(tensor.locals)) if len(tensor.locals) <= _MOST_SEARCHED else ()
    return next((piece for piece in (*near, *others) if fragment_of(tensor, piece) == row), None)


def name_of(tensor: LogicalTensor, piece: int) -> PieceName:
    """Return what a piece is called. Reads nothing."""
    local, row = tensor.locals[piece], fragment_of(tensor, piece)
    words: list[str] = []
    if local.rank is not None:
        words.append(f"rank {local.rank}")
    if row is not None:
        words.append(printable(tensor.fragments.files[int(tensor.fragments.file[row])].rpartition("/")[2], 60))
    if local.device:
        words.append(printable(local.device, 20))
    short = "local()" if local.rank is None else f"local({local.rank})"
    return PieceName(
        short, "  ".join(words) or f"piece {piece + 1}", None if row is None else tensor.fragments.region(row)
    )


def as_tensor(tensor: LogicalTensor, piece: int) -> LogicalTensor:
    """Return a stored piece as a tensor of its own shape, in one fragment. May look into its file.

    Raises
    ------
    TensormorphError
        If the file cannot tell what lies there.
    """
    local = tensor.locals[piece]
    source = local.source
    shape, place = source.shape, source.place()
    encoding = place.encoding
    if encoding.readable and encoding.dtype != source.dtype:  # computed from what is stored there
        encoding = dtypes.encoding(source.dtype.name)
    small = np.zeros(1, np.int32)
    fragments = FragmentTable(
        np.zeros((1, len(shape)), np.int64), np.array(shape, np.int64).reshape(1, len(shape)), small,
        np.array([place.offset], np.int64), np.array([place.n_bytes], np.int64),
        small + (NO_RANK if local.rank is None else local.rank), small, (place.file,), lambda row: source,
    )  # fmt: skip
    return LogicalTensor(tensor.name, tensor.key, shape, encoding, fragments, True)


def shifted(tensor: LogicalTensor, piece: int, local: LogicalTensor, index: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the place in the logical tensor of an element of a piece; None where nothing tells."""
    row = fragment_of(tensor, piece)
    if row is None:
        return None
    region = tensor.fragments.region(row)
    if region.shape != local.shape:
        return None
    return tuple(low + i for low, i in zip(region.start, index, strict=True))


def within(tensor: LogicalTensor, piece: int, local: LogicalTensor, index: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the place in a piece of an element of the logical tensor; None where it is not in it, or nothing tells."""
    row = fragment_of(tensor, piece)
    if row is None:
        return None
    region = tensor.fragments.region(row)
    inside = all(low <= i < high for low, i, high in zip(region.start, index, region.stop, strict=True))
    if not inside or region.shape != local.shape:
        return None
    return tuple(i - low for low, i in zip(region.start, index, strict=True))
