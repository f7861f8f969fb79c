"""Whether boxes tile a tensor: what none of them holds, and where two of them meet that should not.

Nothing here compares every box with every other: boxes that form a grid are known by their edges, others are met in one
sweep along the axis with the most different starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.region import Region

Ints = NDArray[np.int64]
MOST_TOLD = 64
"""So many gaps and overlaps are located; what lies beyond is only counted."""
_MOST_STEPS = 200_000
"""Gaps are located with so many cuts of a box at most: a hostile file can ask every box to cut every other."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How boxes cover a tensor.

    Fields
    ------
    gaps
        Disjoint boxes of elements that no box holds, in row-major order; at most MOST_TOLD.
    n_missing
        Elements that no box holds; None if locating them all would take too long.
    overlaps
        Two rows and the box that both hold, for boxes that meet without being equal; at most MOST_TOLD.
    """

    gaps: tuple[Region, ...]
    n_missing: int | None
    overlaps: tuple[tuple[int, int, Region], ...]

    @property
    def whole(self) -> bool:
        """Whether every element is held."""
        return self.n_missing == 0


def tiles(shape: Sequence[int], start: Ints, stop: Ints) -> bool:
    """Whether boxes hold every element of a tensor once; equal boxes (copies) count as one, empty ones as none.

    Parameters
    ----------
    start, stop
        Boxes in elements, of shape (boxes, axes), all inside the tensor.
    """
    low, high = _distinct(start, stop)
    if sum(math.prod(edge) for edge in (high - low).tolist()) != math.prod(shape):
        return False
    return len(low) < 2 or _is_grid(shape, low, high) or not _overlaps(low, high, 1)


def coverage(shape: Sequence[int], start: Ints, stop: Ints) -> Coverage:
    """Locate what boxes leave out and where they overlap. Parameters as in `tiles`."""
    if tiles(shape, start, stop):
        return Coverage((), 0, ())
    size = math.prod(shape)
    solid = np.flatnonzero(np.all(start < stop, axis=1)) if start.shape[1] else np.arange(len(start))
    overlaps = tuple(
        (int(solid[a]), int(solid[b]), box) for a, b, box in _overlaps(start[solid], stop[solid], MOST_TOLD)
    )
    low, high = _distinct(start, stop)
    held = sum(math.prod(edge) for edge in (high - low).tolist())
    gaps = _outside(Region.whole(tuple(shape)), low, high)
    if gaps is None:
        return Coverage((), None if overlaps else size - held, overlaps)
    return Coverage(tuple(gaps[:MOST_TOLD]), sum(gap.size for gap in gaps), overlaps)


def _distinct(start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Return the boxes that hold something, each once, in row-major order of their first elements."""
    if not start.shape[1]:
        return start[:1], stop[:1]  # a 0-d tensor: any box holds its one element
    solid = np.all(start < stop, axis=1)
    edges = np.concatenate([start[solid], stop[solid]], axis=1)
    if len(edges) > 1:
        edges = np.unique(edges, axis=0)
    return edges[:, : start.shape[1]], edges[:, start.shape[1] :]


def _is_grid(shape: Sequence[int], low: Ints, high: Ints) -> bool:
    """Whether distinct boxes are the cells of a grid over the whole tensor."""
    n_cells = 1
    for axis, extent in enumerate(shape):
        edges, which = np.unique(low[:, axis], return_inverse=True)
        ends = np.append(edges[1:], extent)
        if edges[0] != 0 or not np.array_equal(high[:, axis], ends[which]):
            return False
        n_cells *= len(edges)
    return n_cells == len(low)


def _overlaps(low: Ints, high: Ints, most: int) -> list[tuple[int, int, Region]]:
    """Return pairs of solid boxes that meet without being equal, found by a sweep along one axis."""
    n, ndim = low.shape
    if n < 2 or not ndim:
        return []
    axis = max(range(ndim), key=lambda k: len(np.unique(low[:, k])))
    order = np.argsort(low[:, axis], kind="stable")
    found: list[tuple[int, int, Region]] = []
    active: NDArray[Any] = np.empty(0, np.int64)
    for row in order.tolist():
        active = active[high[active, axis] > low[row, axis]]
        near = active[np.all((low[active] < high[row]) & (high[active] > low[row]), axis=1)]
        for other in near.tolist():
            if np.array_equal(low[other], low[row]) and np.array_equal(high[other], high[row]):
                continue
            shared = Region(
                tuple(np.maximum(low[other], low[row]).tolist()), tuple(np.minimum(high[other], high[row]).tolist())
            )
            found.append((min(other, row), max(other, row), shared))
            if len(found) == most:
                return found
        active = np.append(active, row)
    return found


def _outside(whole: Region, low: Ints, high: Ints) -> list[Region] | None:
    """Return disjoint boxes of what no box holds, in row-major order; None if that takes too many cuts."""
    left = [whole] if not whole.empty else []
    done: list[Region] = []
    steps = 0
    for a, b in zip(low.tolist(), high.tolist(), strict=True):
        box = Region(tuple(a), tuple(b))
        rest: list[Region] = []
        for part in left:
            steps += 1
            if part.ndim and part.stop[0] <= box.start[0]:
                done.append(part)  # later boxes begin no earlier
            else:
                rest.extend(part.minus(box))
        left = rest
        if steps > _MOST_STEPS:
            return None
    return sorted(done + left, key=lambda gap: gap.start)
