"""Who stores which rectangle of a plane, and what nobody stores. No Qt here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensormorph.fragments import NO_RANK, FragmentTable
from tensormorph.model import LogicalTensor
from tensormorph.pyramid import Plane
from tensormorph.region import Region
from tensormorph.text import listing, printable

Ints = NDArray[np.int64]
Box = tuple[int, int, int, int]
"""A rectangle of elements of a plane: top, bottom, left, right."""
TINTS = 8
"""Shards that have a tint each; where there are more, all have the last, neutral one."""
MOST_TINTED = 4096
"""Fragments of a tensor from which on no tints are told apart."""
MOST_SEARCHED = 16_384
"""Fragments of a plane from which on its gaps are hatched as they are read, and not named."""
_MOST_GAPS = 200


@dataclass(frozen=True, slots=True)
class Gap:
    """A rectangle of a plane that nobody stores, and its region as it is written."""

    box: Box
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Shards:
    """The rectangles of one plane.

    Fields
    ------
    boxes
        Top, bottom, left and right, in elements of the plane, as four rows; one column a rectangle.
    tints
        Which tint each has.
    rows, first
        Rows of `fragments` that store rectangle i: ``rows[first[i]:first[i + 1]]``; several are copies, or terms.
    gaps
        What nobody stores, as far as it was looked for.
    """

    fragments: FragmentTable
    boxes: Ints
    tints: Ints
    rows: Ints
    first: Ints
    gaps: tuple[Gap, ...]

    def __len__(self) -> int:
        return int(self.boxes.shape[1])

    @property
    def parted(self) -> bool:
        """Whether there is a border to draw: a plane that one rectangle covers has none."""
        return len(self) > 1 or bool(self.gaps)

    def box(self, box: int) -> Box:
        """Return a rectangle."""
        top, bottom, left, right = self.boxes[:, box].tolist()
        return top, bottom, left, right

    def holders(self, box: int) -> Ints:
        """Return the rows of the fragments of a rectangle."""
        return self.rows[self.first[box] : self.first[box + 1]]

    def box_of(self, row: int) -> int | None:
        """Return the rectangle of a fragment, or None where the plane does not cut it."""
        at = np.flatnonzero(self.rows == row)
        return int(np.searchsorted(self.first, at[0], "right")) - 1 if len(at) else None

    def stored_around(self, part: Box, file: str | None) -> Box | None:
        """Return the rectangle of a file that holds a part, or the part itself; None where it lies in a gap."""
        top, bottom, left, right = part
        for gap in self.gaps:
            if gap.box[0] <= top < gap.box[1] and gap.box[2] <= left < gap.box[3]:
                return None
        boxes = self.boxes
        around = (boxes[0] <= top) & (boxes[1] >= bottom) & (boxes[2] <= left) & (boxes[3] >= right)
        for box in np.flatnonzero(around).tolist():
            if file is None or file in self.files(box):
                return self.box(box)
        return part

    def files(self, box: int) -> tuple[str, ...]:
        """Return the files that store a rectangle."""
        held = dict.fromkeys(self.fragments.file[self.holders(box)].tolist())
        return tuple(self.fragments.files[file] for file in held)

    def owner(self, box: int) -> str:
        """Return who stores a rectangle: ``rank 3``, ``ranks 0, 4``, or the file where no rank is known."""
        rows = self.holders(box)
        ranks = sorted({int(rank) for rank in self.fragments.rank[rows] if rank != NO_RANK})
        if ranks:
            return f"rank{'s' if len(ranks) > 1 else ''} {listing([str(rank) for rank in ranks], 4)}"
        return listing([printable(name.rpartition("/")[2], 28) for name in self.files(box)], 1)


def shards_of(tensor: LogicalTensor, plane: Plane) -> Shards:
    """Return the rectangles of a plane of a tensor. Reads nothing; may take long for many fragments."""
    fragments = tensor.fragments
    down, right = plane.shape
    whole = plane.region((0, down), (0, right))
    rows = fragments.overlapping(whole)
    n = len(rows)
    sides: list[Ints] = []
    for axes in (plane.rows, plane.cols):
        sides.append(fragments.start[rows, axes[0]] if axes else np.zeros(n, np.int64))
        sides.append(fragments.stop[rows, axes[0]] if axes else np.ones(n, np.int64))
    edges = np.array(sides, np.int64).reshape(4, n)
    # Sorted column by column: `unique` along an axis would keep all other threads waiting while it sorts.
    order = np.lexsort(edges[::-1])
    edges, rows = edges[:, order], rows[order]
    new = np.ones(n, np.bool_)
    new[1:] = (edges[:, 1:] != edges[:, :-1]).any(axis=0)
    boxes, first = edges[:, new], np.append(np.flatnonzero(new), n)
    gaps: Sequence[Region] = ()
    if not tensor.complete and n <= MOST_SEARCHED:
        gaps = fragments.gaps(whole)[:_MOST_GAPS]
    found = tuple(Gap(box_of(plane, gap), region_text(gap, tensor.shape)) for gap in gaps)
    return Shards(fragments, boxes, tints(fragments)[rows[first[:-1]]], rows, first, found)


def box_of(plane: Plane, region: Region) -> Box:
    """Return the rectangle of a region that lies in a plane."""
    down, right = plane.spans(region)
    return (*down, *right)


def tints(fragments: FragmentTable) -> Ints:
    """Return each fragment's tint: by its box, so that copies share one."""
    n = len(fragments)
    neutral = np.full(n, TINTS - 1, np.int64)
    if n > MOST_TINTED or not fragments.ndim:
        return neutral
    edges = np.concatenate([fragments.start, fragments.stop], axis=1)
    boxes, which = np.unique(edges, axis=0, return_inverse=True)
    return neutral if len(boxes) > TINTS else which.reshape(-1).astype(np.int64)


def region_text(region: Region, shape: Sequence[int]) -> str:
    """Return a region as numpy writes it, without the last axes where it takes all: ``9412:15262``."""
    spans = list(zip(region.start, region.stop, shape, strict=True))
    while len(spans) > 1 and spans[-1][:2] == (0, spans[-1][2]):
        spans.pop()
    return ", ".join(f"{low}:{high}" for low, high, _ in spans) or "all"
