"""What each rank of a mesh holds of a tensor, by its layout or as it stored it, and what is wrong with it. No Qt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensormorph.fragments import NO_RANK, FragmentTable
from tensormorph.gui.shards import TINTS
from tensormorph.mesh import DeviceMesh, Layout, Partial, Replicate
from tensormorph.model import Checkpoint, LogicalTensor
from tensormorph.placement import part_at
from tensormorph.region import Region

Ints = NDArray[np.int64]
Boxes: TypeAlias = tuple[Region, ...]
MOST_RANKS = 1 << 14
"""Ranks that are drawn."""
MOST_COMPARED = 50_000_000
"""Parts times fragments up to which it is looked for who wrote what."""
_MOST_BOXES = 64
_MOST_ROWS = 4


class Mark(IntEnum):
    """What is to be said of a rank, the worse the higher."""

    HOLDS = 0
    REPLICA = 1
    EMPTY = 2
    NOTHING = 3
    GAP = 4
    UNREADABLE = 5
    MISSING = 6


WORDS: dict[Mark, str] = {
    Mark.HOLDS: "holds a part",
    Mark.REPLICA: "replica: others hold the same",
    Mark.EMPTY: "empty, as it should be",
    Mark.NOTHING: "wrote nothing of it",
    Mark.GAP: "stored by no one",
    Mark.UNREADABLE: "cannot be read",
    Mark.MISSING: "file missing",
}


@dataclass(frozen=True, slots=True)
class Share:
    """What one or several ranks hold.

    Fields
    ------
    boxes
        In the tensor; no more than can be drawn.
    size
        Elements.
    tint
        By what is held, so that replicas share one.
    rows, n_rows
        The first fragments that store something of it, and how many there are.
    writers
        Ranks whose files store something of it, rising; None where that was not looked for.
    first
        The first rank that wrote it; where that is not known, the first of the mesh that holds it.
    """

    boxes: Boxes
    size: int
    tint: int
    rows: tuple[int, ...]
    n_rows: int
    writers: tuple[int, ...] | None
    first: int


@dataclass(frozen=True, slots=True, eq=False)
class RankMap:
    """The ranks of one tensor.

    Fields
    ------
    mesh
        Where they stand; None where that is not known: then they stand in a row.
    ranks
        In row-major order of the mesh.
    by_layout
        Whether `shares` are what the layout gives; else they are what each rank stored.
    which
        Place of each rank's share in `shares`; -1 where it holds nothing.
    """

    tensor: LogicalTensor
    mesh: DeviceMesh | None
    ranks: tuple[int, ...]
    by_layout: bool
    shares: tuple[Share, ...]
    which: Ints
    marks: Ints

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the mesh, or of the row."""
        return (len(self.ranks),) if self.mesh is None else self.mesh.shape

    def share(self, at: int) -> Share | None:
        """Return what the rank at a place of the mesh holds."""
        which = int(self.which[at])
        return None if which < 0 else self.shares[which]

    def mark(self, at: int) -> Mark:
        """Return what is to be said of the rank at a place of the mesh."""
        return Mark(int(self.marks[at]))

    def coordinate(self, at: int) -> tuple[int, ...]:
        """Return the indices of a place of the mesh."""
        return tuple(int(i) for i in np.unravel_index(at, self.shape))

    def word(self, at: int) -> str:
        """Return the most that is to be said of a rank in few words; empty for one that just holds its part."""
        mark, share, rank = self.mark(at), self.share(at), self.ranks[at]
        if mark in (Mark.EMPTY, Mark.NOTHING, Mark.GAP, Mark.UNREADABLE, Mark.MISSING):
            return {Mark.EMPTY: "empty", Mark.NOTHING: "wrote nothing", Mark.GAP: "gap", Mark.UNREADABLE: "unreadable",
                    Mark.MISSING: "no file"}[mark]  # fmt: skip
        if share is None:
            return ""
        if share.writers and rank not in share.writers:
            return f"written by {share.writers[0]}"
        return f"copy of {share.first}" if mark is Mark.REPLICA and rank != share.first else ""


def rank_map(checkpoint: Checkpoint, tensor: LogicalTensor) -> RankMap | None:
    """Return what each rank holds of a tensor; None where nothing names a rank, or there are too many to draw."""
    layout = tensor.layout
    if layout is not None:
        return None if len(layout.mesh.ranks) > MOST_RANKS else _by_layout(tensor, layout)
    mesh = checkpoint.mesh
    if mesh is not None:
        ranks: tuple[int, ...] = mesh.ranks
    else:
        ranks = tuple(int(rank) for rank in np.unique(tensor.fragments.rank) if rank != NO_RANK)
    return None if not ranks or len(ranks) > MOST_RANKS else _by_stored(tensor, mesh, ranks)


def _by_layout(tensor: LogicalTensor, layout: Layout) -> RankMap:
    mesh, fragments = layout.mesh, tensor.fragments
    n = len(mesh.ranks)
    places = np.array(np.unravel_index(np.arange(n), mesh.shape), np.int64).reshape(len(mesh.shape), n)
    kept = [axis for axis, placed in enumerate(layout.placements) if not isinstance(placed, Replicate)]
    group = np.zeros(n, np.int64)
    for axis in kept:
        group = group * mesh.shape[axis] + places[axis]
    groups, first, of_group = np.unique(group, return_index=True, return_inverse=True)
    lost, lost_of = _lost(tensor)
    compared = len(groups) * max(1, len(fragments)) <= MOST_COMPARED
    terms = any(isinstance(placed, Partial) for placed in layout.placements)
    found: list[tuple[Boxes, int, Ints]] = []
    state = np.zeros(len(groups), np.int64)
    for i, at in enumerate(first.tolist()):
        part = part_at(mesh.shape, layout.placements, layout.order, tensor.shape, places[:, at].tolist())
        boxes: list[Region] = []
        stored: list[Ints] = []
        n_elements = 0
        for _, whole in part.boxes():
            n_elements += whole.size
            if len(boxes) < _MOST_BOXES:
                boxes.append(whole)
            if compared:
                stored.append(fragments.overlapping(whole))
        held: Ints = np.unique(np.concatenate(stored)) if stored else np.empty(0, np.int64)
        if terms and len(held):
            held = held[fragments.rank[held] == mesh.ranks[at]]
        found.append((tuple(boxes), n_elements, held))
        if part.empty:
            state[i] = Mark.EMPTY
        elif compared and (not len(held) or not tensor.complete or lost[held].any()):
            state[i] = _trouble(fragments, boxes, held, lost)
    several = np.bincount(of_group, minlength=len(groups)) > 1
    state = np.where((state == Mark.HOLDS) & several, int(Mark.REPLICA), state)
    marks = state[of_group]
    for at, rank in enumerate(mesh.ranks):
        marks[at] = lost_of.get(rank, marks[at])
    tints = _tints([boxes for boxes, _, _ in found])
    shares: list[Share] = []
    for i, (held_boxes, size, rows) in enumerate(found):
        by = tuple(sorted({int(rank) for rank in fragments.rank[rows]} - {NO_RANK})) if compared else None
        origin = by[0] if by else mesh.ranks[int(first[i])]
        some = tuple(rows[:_MOST_ROWS].tolist())
        shares.append(Share(held_boxes, size, tints[i], some, len(rows), by, origin))
    return RankMap(tensor, mesh, mesh.ranks, True, tuple(shares), of_group.reshape(-1).astype(np.int64), marks)


def _by_stored(tensor: LogicalTensor, mesh: DeviceMesh | None, ranks: tuple[int, ...]) -> RankMap:
    fragments = tensor.fragments
    _, lost_of = _lost(tensor)
    order = np.argsort(fragments.rank, kind="stable")
    sorted_ranks = fragments.rank[order]
    edges = np.searchsorted(sorted_ranks, [ranks, [rank + 1 for rank in ranks]])
    keys: dict[bytes, int] = {}
    found: list[tuple[Boxes, int, Ints, int]] = []
    which = np.full(len(ranks), -1, np.int64)
    marks = np.full(len(ranks), int(Mark.NOTHING), np.int64)
    for at, rank in enumerate(ranks):
        rows = np.sort(order[edges[0, at] : edges[1, at]])
        if len(rows):
            solid = rows[np.all(fragments.start[rows] < fragments.stop[rows], axis=1)]
            key = fragments.start[solid].tobytes() + b"|" + fragments.stop[solid].tobytes()
            if key not in keys:
                keys[key] = len(found)
                boxes = tuple(fragments.region(int(row)) for row in solid[:_MOST_BOXES])
                extents = fragments.stop[solid] - fragments.start[solid]
                found.append((boxes, int(np.prod(extents, axis=1).sum()), rows, rank))
            which[at] = keys[key]
            marks[at] = int(Mark.HOLDS if len(solid) else Mark.EMPTY)
    times = np.bincount(which[which >= 0], minlength=len(found))
    several = np.array([which[at] >= 0 and times[which[at]] > 1 for at in range(len(ranks))], np.bool_)
    marks[several & (marks == Mark.HOLDS)] = int(Mark.REPLICA)
    for at, rank in enumerate(ranks):
        marks[at] = lost_of.get(rank, marks[at])
    tints = _tints([boxes for boxes, _, _, _ in found])
    shares = tuple(
        Share(boxes, size, tints[i], tuple(rows[:_MOST_ROWS].tolist()), len(rows), None, rank)
        for i, (boxes, size, rows, rank) in enumerate(found)
    )
    return RankMap(tensor, mesh, ranks, False, shares, which, marks)


def _lost(tensor: LogicalTensor) -> tuple[Ints, dict[int, int]]:
    """Return the mark of each fragment that cannot be read, 0 for the others; and the worst of each rank's own."""
    fragments = tensor.fragments
    lost = np.zeros(len(fragments), np.int64)
    files = {name: at for at, name in enumerate(fragments.files)}
    told: dict[tuple[int, Region | None], int] = {}
    for problem in tensor.problems:
        if problem.severity == "error" and problem.file in files:
            mark = int(Mark.MISSING if problem.code == "missing-file" else Mark.UNREADABLE)
            place = (files[problem.file], problem.region)
            told[place] = max(told.get(place, 0), mark)
    for row in np.flatnonzero(np.isin(fragments.file, list({file for file, _ in told}))).tolist():
        file = int(fragments.file[row])
        lost[row] = max(told.get((file, None), 0), told.get((file, fragments.region(row)), 0))
    worst: dict[int, int] = {}
    for row in np.flatnonzero(lost).tolist():
        rank = int(fragments.rank[row])
        worst[rank] = max(worst.get(rank, 0), int(lost[row]))
    worst.pop(NO_RANK, None)
    return lost, worst


def _trouble(fragments: FragmentTable, boxes: Sequence[Region], held: Ints, lost: Ints) -> Mark:
    """Return why a share cannot be read in full from what is left of its fragments; HOLDS if it can."""
    good = np.sort(held[lost[held] == 0])
    left = FragmentTable(
        fragments.start[good], fragments.stop[good], fragments.file[good], fragments.offset[good],
        fragments.length[good], fragments.rank[good], fragments.term[good], fragments.files, fragments.open_source,
    )  # fmt: skip
    if not any(left.gaps(box) for box in boxes):
        return Mark.HOLDS
    return Mark(int(lost[held].max(initial=0)) or int(Mark.GAP))


def _tints(held: Sequence[Boxes]) -> list[int]:
    """Return a tint for each share, equal for equal boxes; the neutral one for all where there are too many."""
    distinct = sorted({_edges(boxes) for boxes in held if boxes})
    if len(distinct) > TINTS:
        return [TINTS - 1] * len(held)
    at = {edges: tint for tint, edges in enumerate(distinct)}
    return [at.get(_edges(boxes), TINTS - 1) for boxes in held]


def _edges(boxes: Iterable[Region]) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    return tuple((box.start, box.stop) for box in boxes)
