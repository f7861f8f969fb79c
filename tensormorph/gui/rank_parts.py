"""The part of a tensor that its layout gives a rank, as a tensor of its own: what `local(rank=3)` shows. No Qt here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import Piece, Place, StoredSource
from tensormorph.errors import LayoutError
from tensormorph.fragments import NO_RANK, FragmentTable
from tensormorph.gui.pieces import as_tensor
from tensormorph.mesh import Layout, Partial
from tensormorph.model import LogicalTensor
from tensormorph.placement import Part, part_of
from tensormorph.region import Region
from tensormorph.text import listing

EMPTY = "empty, as it should be"
_MOST_COMPARED = 4_000_000
"""Boxes times fragments up to which it is found at once who stores a part."""


@dataclass(frozen=True, slots=True, eq=False)
class Narrowed:
    """The elements of a stored array that lie in a region of it, as a stored array of their own."""

    source: StoredSource
    region: Region

    @property
    def shape(self) -> tuple[int, ...]:
        return self.region.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        self.source.read_into(region.offset_by(self.region.start), out)

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        for piece in self.source.pieces(region.offset_by(self.region.start), max_bytes):
            yield replace(piece, region=piece.region.within(self.region))

    def place(self) -> Place:
        place = self.source.place()
        first = self.bit_of((0,) * self.region.ndim)
        last = self.bit_of(tuple(extent - 1 for extent in self.shape)) + (place.encoding.bits or 8)
        return replace(place, offset=first // 8, n_bytes=-(-last // 8) - first // 8)

    def bit_of(self, index: Sequence[int], /) -> int:
        return self.source.bit_of(tuple(low + i for low, i in zip(self.region.start, index, strict=True)))


def sums_up(layout: Layout) -> bool:
    """Whether what ranks hold are terms that add up, not parts."""
    return any(isinstance(placement, Partial) for placement in layout.placements)


def rank_part(tensor: LogicalTensor, rank: int) -> Part | None:
    """Return what the layout of a tensor gives a rank; None without one, or where the rank is not on its mesh."""
    layout = tensor.layout
    return None if layout is None or rank not in layout.mesh.ranks else part_of(layout, tensor.shape, rank)


def part_as_tensor(tensor: LogicalTensor, rank: int) -> LogicalTensor:
    """Return what the layout gives a rank as a tensor of its own shape, in the parts of the fragments that store it.

    Raises
    ------
    LayoutError
        If no layout is known, the rank is not on its mesh, or the rank's own term is stored nowhere.
    TensormorphError
        If the file of its own term cannot tell what lies there.
    """
    part = rank_part(tensor, rank)
    if part is None or tensor.layout is None:
        raise LayoutError(f"No layout tells which part of this tensor rank {rank} holds")
    if sums_up(tensor.layout):
        for piece, local in enumerate(tensor.locals):
            if local.rank == rank:
                return as_tensor(tensor, piece)
        raise LayoutError(f"The term of rank {rank} is stored nowhere")
    fragments = tensor.fragments
    found: list[tuple[Region, int, Region]] = []
    for here, whole in part.boxes():
        for row in fragments.overlapping(whole).tolist():
            box = fragments.region(row)
            shared = whole.intersect(box)
            if shared is not None:
                found.append((shared.within(whole).offset_by(here.start), row, shared.within(box)))
    found.sort(key=lambda entry: entry[0].start[:1])
    rows = np.array([row for _, row, _ in found], np.int64)
    n, ndim = len(found), len(tensor.shape)
    table = FragmentTable(
        np.array([box.start for box, _, _ in found], np.int64).reshape(n, ndim),
        np.array([box.stop for box, _, _ in found], np.int64).reshape(n, ndim),
        fragments.file[rows], fragments.offset[rows], fragments.length[rows], fragments.rank[rows],
        fragments.term[rows], fragments.files, lambda i: Narrowed(fragments.open_source(found[i][1]), found[i][2]),
    )  # fmt: skip
    complete = part.empty or tensor.complete or not table.gaps(Region.whole(part.shape))
    return LogicalTensor(
        tensor.name, tensor.key, part.shape, tensor.encoding, table, complete, problems=tensor.problems,
        rank_evidence=tensor.rank_evidence,
    )  # fmt: skip


def rows_of(tensor: LogicalTensor, part: Part) -> list[int]:
    """Return the fragments that store something of a part; none where that takes too long to be found at once."""
    n_boxes = math.prod(len(runs) for runs in part.axes)
    if n_boxes * len(tensor.fragments) > _MOST_COMPARED:
        return []
    rows: dict[int, None] = {}
    for _, whole in part.boxes():
        rows.update(dict.fromkeys(tensor.fragments.overlapping(whole).tolist()))
    return list(rows)


def writers(tensor: LogicalTensor, part: Part) -> tuple[int, ...]:
    """Return the ranks whose files store something of a part, rising; none where that is not known."""
    ranks = {int(tensor.fragments.rank[row]) for row in rows_of(tensor, part)}
    return tuple(sorted(ranks - {NO_RANK}))


def stored_words(tensor: LogicalTensor, part: Part, rank: int) -> str:
    """Return who stores the part of a rank, where it is not the rank itself; that it is empty; or nothing."""
    if part.empty:
        return EMPTY
    by = writers(tensor, part)
    return writer_words(by) if by and rank not in by else ""


def writer_words(by: Sequence[int]) -> str:
    """Return ``written by rank 0``, ``written by ranks 0, 4``."""
    return f"written by rank{'s' if len(by) > 1 else ''} {listing([str(other) for other in by], 4)}"


def regions_text(part: Part, most: int = 3) -> str:
    """Return the regions of the whole tensor that a part is: ``[0:2, 0:4] and [4:6, 0:4]``."""
    shown: list[str] = []
    for n, (_, whole) in enumerate(part.boxes()):
        if n == most:
            return f"{', '.join(shown)} and more"
        shown.append(f"[{whole}]")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def shifted(part: Part, index: Sequence[int]) -> tuple[int, ...]:
    """Return the place in the tensor of an element of a part."""
    place: list[int] = []
    for runs, i in zip(part.axes, index, strict=True):
        for start, stop in runs:
            if i < stop - start:
                place.append(start + i)
                break
            i -= stop - start
    return tuple(place)


def within(part: Part, index: Sequence[int]) -> tuple[int, ...] | None:
    """Return the place in a part of an element of the tensor; None where it is not in it."""
    place: list[int] = []
    for runs, i in zip(part.axes, index, strict=True):
        at = 0
        for start, stop in runs:
            if start <= i < stop:
                place.append(at + i - start)
                break
            at += stop - start
        else:
            return None
    return tuple(place)
