"""Which meshes and placements explain the boxes that ranks stored: a guess with its evidence, and all its rivals.

A file that records boxes and writers, and no mesh, still tells much: on a mesh of 2 x 4 only some boxes can come from a
given rank. All tensors are asked together; the coarsest meshes that explain every one of them are the candidates.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.mesh import DeviceMesh, Layout, Placement, Provenance, Replicate, Shard

Ints = NDArray[np.int64]
MOST_AXES = 4
BUDGET_SECONDS = 2.0
_MOST_RANKS = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """The solid boxes of one tensor that is stored whole.

    Fields
    ------
    start, stop
        Boxes, of shape (boxes, axes).
    rank
        Who wrote each.
    """

    shape: tuple[int, ...]
    start: Ints
    stop: Ints
    rank: Ints

    def key(self) -> tuple[Any, ...]:
        """Return what is equal for tensors that any layout explains alike."""
        return (self.shape, self.start.tobytes(), self.stop.tobytes(), self.rank.tobytes())


Choice = tuple[tuple[Placement, ...], tuple[int, ...]]
"""Placements, one a mesh axis, and the order in which their splits were applied."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """What was found for one set of ranks.

    Fields
    ------
    candidates
        The coarsest meshes that explain all tensors; the first is used if it is the only one.
    layouts
        For each tensor, in the order asked: its layout on the only candidate; None where there are several, or no
        placement on it fits.
    words
        How it was found, or why not, as one sentence without its full stop.
    """

    candidates: tuple[DeviceMesh, ...]
    layouts: tuple[Layout | None, ...]
    words: str

    @property
    def mesh(self) -> DeviceMesh | None:
        """The mesh, where only one explains everything."""
        return self.candidates[0] if len(self.candidates) == 1 else None


def infer(tensors: Sequence[Stored], ranks: Sequence[int], budget: float = BUDGET_SECONDS) -> Inferred:
    """Return the meshes over `ranks` that explain the stored boxes.

    Parameters
    ----------
    ranks
        All ranks that are known to have taken part, in rising order.
    budget
        Seconds after which the answer is that nothing was inferred.
    """
    nothing = (None,) * len(tensors)
    n = len(ranks)
    if not n or n > _MOST_RANKS:
        return Inferred((), nothing, f"{n:,} ranks are not looked at" if n else "no file names a rank")
    deadline = time.monotonic() + budget
    patterns: dict[tuple[Any, ...], int] = {}
    which = [patterns.setdefault(tensor.key(), len(patterns)) for tensor in tensors]
    firsts = [tensors[which.index(i)] for i in range(len(patterns))]
    asked = [_Pattern.of(stored, ranks) for stored in firsts]
    usable = [pattern for pattern in asked if pattern is not None]
    if not usable:
        return Inferred((), nothing, "no tensor is stored in a grid of boxes")
    found: list[tuple[tuple[int, ...], list[list[Choice]]]] = []
    for axes in range(1, MOST_AXES + 1):
        for shape in _factorisations(n, axes):
            fits: list[list[Choice]] = []
            for pattern in usable:
                if time.monotonic() > deadline:
                    return Inferred((), nothing, f"not inferred: {budget:g} s were not enough")
                fits.append(list(pattern.choices(shape)))
                if not fits[-1]:
                    break
            else:
                found.append((shape, fits))
        if found:
            break
    if not found:
        return Inferred((), nothing, f"no mesh of {n:,} ranks with up to {MOST_AXES} axes explains the stored boxes")
    candidates = tuple(_mesh(shape, ranks) for shape, _ in found)
    everything = all(pattern.whole for pattern in usable)
    words = f"it explains the boxes and writers of {len(tensors):,} tensors ({len(patterns):,} different)"
    if everything:
        words = f"every rank holds everything: any mesh of {n:,} ranks explains that"
    if len(found) > 1:
        return Inferred(candidates, nothing, f"{len(found)} meshes explain the stored boxes")
    layouts = _layouts(asked, found[0][1], candidates[0], "inferred", words)
    return Inferred(candidates, tuple(layouts[i] for i in which), words)


def agree(tensors: Sequence[Stored], mesh: DeviceMesh) -> list[Layout | None]:
    """Return the layout of each tensor on a stated mesh; None where no placement on it gives the stored boxes.

    Where several do, the one that other tensors are known to have; None where that does not decide.
    """
    patterns: dict[tuple[Any, ...], int] = {}
    which = [patterns.setdefault(tensor.key(), len(patterns)) for tensor in tensors]
    asked = [_Pattern.of(tensors[which.index(i)], mesh.ranks) for i in range(len(patterns))]
    fits = [list(pattern.choices(mesh.shape)) for pattern in asked if pattern is not None]
    layouts = _layouts(asked, fits, mesh, "stated", "the stated mesh explains the stored boxes and their writers")
    return [layouts[i] for i in which]


def _mesh(shape: tuple[int, ...], ranks: Sequence[int]) -> DeviceMesh:
    return DeviceMesh(tuple(f"axis{i}" for i in range(len(shape))), shape, tuple(ranks))


def _factorisations(n: int, axes: int) -> Iterator[tuple[int, ...]]:
    """Yield every ordered product of `axes` factors of at least 2 that gives n; (n,) for one axis."""
    if axes == 1:
        yield (n,)
        return
    for first in range(2, n // 2 + 1):
        if n % first == 0:
            yield from ((first, *rest) for rest in _factorisations(n // first, axes - 1) if rest[0] >= 2)


def _layouts(
    asked: Sequence[_Pattern | None], fits: Sequence[Sequence[Choice]], mesh: DeviceMesh, provenance: Provenance,
    words: str,
) -> list[Layout | None]:  # fmt: skip
    """Return the layout of each pattern; None for those that are no grid, and where no placement fits."""
    known = {choices[0] for choices in fits if len(choices) == 1 and _cuts(choices[0])}
    chosen = iter(fits)
    out: list[Layout | None] = []
    for pattern in asked:
        choices = next(chosen) if pattern is not None else []
        if not choices:
            out.append(None)
            continue
        # Where several fit: what all others have; else the outer axes replicate, as hybrid sharding does.
        same = [choice for choice in choices if {choice} == known]
        best = same[0] if same else min(choices, key=_outer_first)
        rivals = f"; of {len(choices)} placements that fit, " if len(choices) > 1 else ""
        rivals += ("the one that all others have" if same else "the one that replicates outermost") if rivals else ""
        out.append(Layout(mesh, *best, provenance, words + rivals))
    return out


def _cuts(choice: Choice) -> bool:
    return any(isinstance(placement, Shard) for placement in choice[0])


def _outer_first(choice: Choice) -> tuple[list[bool], tuple[int, ...]]:
    return [not isinstance(placement, Replicate) for placement in choice[0]], choice[1]


@dataclass(frozen=True, slots=True, eq=False)
class _Pattern:
    """Boxes that many tensors have, as a grid.

    Fields
    ------
    parts
        Number of different boxes along each axis.
    boxes
        Start and stop of each stored box, of shape (boxes, 2 * axes).
    at
        Which of the ranks wrote each; -1 where it is not known.
    n_distinct
        Different boxes.
    """

    shape: tuple[int, ...]
    parts: tuple[int, ...]
    boxes: Ints
    at: Ints
    n_distinct: int
    n_ranks: int

    @classmethod
    def of(cls, stored: Stored, ranks: Sequence[int]) -> _Pattern | None:
        """Return the pattern of a tensor; None if its boxes are no grid."""
        boxes = np.concatenate([stored.start, stored.stop], axis=1)
        parts = tuple(len(np.unique(stored.start[:, k])) for k in range(len(stored.shape)))
        n_distinct = len(np.unique(boxes, axis=0)) if boxes.shape[1] else min(1, len(boxes))
        if n_distinct and math.prod(parts) != n_distinct:
            return None
        position = {rank: i for i, rank in enumerate(ranks)}
        at = np.array([position.get(rank, -1) for rank in stored.rank.tolist()], np.int64)
        return cls(stored.shape, parts, boxes, at, n_distinct, len(ranks))

    @property
    def whole(self) -> bool:
        """Whether it is one box at most: the whole tensor, or nothing."""
        return self.n_distinct <= 1

    def choices(self, mesh: tuple[int, ...]) -> Iterator[Choice]:
        """Yield every placement on a mesh of this shape that predicts the stored boxes, each from its writer."""
        ndim = len(self.shape)
        if not self.n_distinct:  # without elements there is nothing to place
            yield (Replicate(),) * len(mesh), tuple(range(len(mesh)))
            return
        coordinates = np.indices(mesh).reshape(len(mesh), -1)
        for assigned in itertools.product(range(-1, ndim), repeat=len(mesh)):
            if not self._may(mesh, assigned):
                continue
            groups = [[axis for axis, dim in enumerate(assigned) if dim == d] for d in range(ndim)]
            for orders in itertools.product(*(itertools.permutations(group) for group in groups)):
                if self._predicts(mesh, coordinates, orders):
                    placements = tuple(Replicate() if dim < 0 else Shard(dim) for dim in assigned)
                    yield placements, _joined(orders, len(mesh))

    def _may(self, mesh: tuple[int, ...], assigned: tuple[int, ...]) -> bool:
        """Whether cuts along these axes can give as many boxes as are stored."""
        for d, (extent, parts) in enumerate(zip(self.shape, self.parts, strict=True)):
            cuts = math.prod(size for size, dim in zip(mesh, assigned, strict=True) if dim == d)
            if cuts < parts or (cuts > parts and extent >= cuts and extent % cuts == 0):
                return False
        return True

    def _predicts(self, mesh: tuple[int, ...], coordinates: Ints, orders: Sequence[Sequence[int]]) -> bool:
        """Whether the boxes of all ranks are the stored ones, and each stored box is its writer's."""
        n, ndim = self.n_ranks, len(self.shape)
        predicted = np.empty((n, 2 * ndim), np.int64)
        solid = np.ones(n, np.bool_)
        for d, (extent, order) in enumerate(zip(self.shape, orders, strict=True)):
            start, length = np.zeros(n, np.int64), np.full(n, extent, np.int64)
            for axis in order:
                step = -(-length // mesh[axis])
                low = np.minimum(length, coordinates[axis] * step)
                length = np.minimum(length, low + step) - low
                start = start + low
            predicted[:, d], predicted[:, ndim + d] = start, start + length
            solid &= length > 0
        told = self.at >= 0
        if not np.array_equal(predicted[self.at[told]], self.boxes[told]):
            return False
        return (len(np.unique(predicted[solid], axis=0)) if ndim else 1) == self.n_distinct


def _joined(orders: Sequence[Sequence[int]], n: int) -> tuple[int, ...]:
    """Return one order of all mesh axes in which the axes of each cut stand in theirs; ascending where they may."""
    after: dict[int, set[int]] = {axis: set() for axis in range(n)}
    for order in orders:
        for i, axis in enumerate(order):
            after[axis] |= set(order[:i])
    out: list[int] = []
    while len(out) < n:
        out.append(next(axis for axis in range(n) if axis not in out and after[axis] <= set(out)))
    return tuple(out)
