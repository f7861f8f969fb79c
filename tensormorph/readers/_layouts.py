"""Layouts for tensors whose files record boxes and writers only: inferred from them, or stated and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tensormorph.columns import TensorTable
from tensormorph.errors import Problem
from tensormorph.inference import Inferred, Stored, agree, infer
from tensormorph.mesh import DeviceMesh, Layout
from tensormorph.text import plural


@dataclass(slots=True)
class LaidOut:
    """The meshes of a checkpoint, and the layout of each tensor by its row.

    Fields
    ------
    mesh
        The one mesh of all ranks, where there is one.
    meshes
        Every mesh in use: the one, or one for each set of ranks that share no tensor.
    candidates
        All that explain what is stored, where several do.
    words
        How it was found, or why not.
    """

    mesh: DeviceMesh | None = None
    meshes: tuple[DeviceMesh, ...] = ()
    candidates: tuple[DeviceMesh, ...] = ()
    layouts: dict[int, Layout] = field(default_factory=dict)
    words: str = ""


def lay_out(table: TensorTable, world: int | None, stated: DeviceMesh | None, problems: list[Problem]) -> LaidOut:
    """Return the layouts that explain the stored boxes, on a stated mesh or on one that is looked for.

    Only tensors that are stored whole are asked: what is missing contradicts every layout.
    """
    rows = np.flatnonzero(table.complete).tolist()
    tensors = [_stored(table, row) for row in rows]
    ranks = sorted({*range(world or 0), *(int(r) for r in np.unique(table.rank) if r >= 0)})
    if stated is not None:
        return _stated(tensors, rows, stated, ranks, problems)
    found = infer(tensors, ranks)
    apart = _stages(tensors, ranks)
    if len(apart) > 1 and found.mesh is not None:
        return _apart(tensors, rows, apart, found)
    laid = LaidOut(found.mesh, words=found.words, candidates=found.candidates)
    laid.meshes = () if found.mesh is None else (found.mesh,)
    laid.layouts = {row: layout for row, layout in zip(rows, found.layouts, strict=True) if layout is not None}
    return laid


def _stored(table: TensorTable, row: int) -> Stored:
    first, last = int(table.first_fragment[row]), int(table.first_fragment[row + 1])
    shape = table.shape(row)
    at = int(table.first_coordinate[row])
    end = at + (last - first) * len(shape)
    start = table.start[at:end].reshape(last - first, len(shape))
    stop = table.stop[at:end].reshape(last - first, len(shape))
    solid = np.all(start < stop, axis=1)
    return Stored(shape, start[solid], stop[solid], table.rank[first:last][solid].astype(np.int64))


def _stated(
    tensors: Sequence[Stored], rows: Sequence[int], mesh: DeviceMesh, ranks: Sequence[int], problems: list[Problem]
) -> LaidOut:
    beyond = [rank for rank in ranks if rank not in mesh.ranks]
    if beyond:
        problems.append(Problem("stated-mesh", "warning",
            f"The stated mesh has {plural(len(mesh.ranks), 'rank')}; files name {plural(len(beyond), 'rank')} beyond, "
            f"the first is {beyond[0]}: it is not used"))  # fmt: skip
        return LaidOut(words="the stated mesh has too few ranks")
    layouts = agree(tensors, mesh)
    n = sum(layout is None for layout in layouts)
    if n:
        problems.append(Problem("stated-mesh", "warning",
            f"The stated mesh ({mesh}) does not explain the stored boxes of {plural(n, 'tensor')} of {len(tensors):,}: "
            "those have no layout"))  # fmt: skip
    laid = LaidOut(mesh, (mesh,), words="stated")
    laid.layouts = {row: layout for row, layout in zip(rows, layouts, strict=True) if layout is not None}
    return laid


def _stages(tensors: Sequence[Stored], ranks: Sequence[int]) -> list[list[int]]:
    """Return the sets of ranks that share no tensor: pipeline stages, or replicas that took turns in writing."""
    owner = {rank: rank for rank in ranks}

    def root(rank: int) -> int:
        while owner[rank] != rank:
            owner[rank] = owner[owner[rank]]
            rank = owner[rank]
        return rank

    for tensor in tensors:
        writers = [int(r) for r in np.unique(tensor.rank) if r >= 0]
        for rank in writers[1:]:
            owner[root(rank)] = root(writers[0])
    sets: dict[int, list[int]] = {}
    for rank in ranks:
        sets.setdefault(root(rank), []).append(rank)
    return [found for found in sets.values() if len(found) > 1] if len(sets) > 1 else []


def _apart(tensors: Sequence[Stored], rows: Sequence[int], stages: Sequence[Sequence[int]], whole: Inferred) -> LaidOut:
    """Return both readings of ranks that share no tensor: one mesh that replicates, or a mesh for each set.

    The files do not tell them apart, so no tensor has a layout.
    """
    meshes: list[DeviceMesh] = []
    for stage in stages:
        here = [t for t in tensors if len(t.rank) and set(t.rank.tolist()) <= set(stage)]
        found = infer(here, stage)
        if found.mesh is None:
            laid = LaidOut(whole.mesh, (whole.candidates), whole.candidates, words=whole.words)
            laid.layouts = {row: one for row, one in zip(rows, whole.layouts, strict=True) if one is not None}
            return laid
        meshes.append(found.mesh)
    words = (
        f"two readings fit: one mesh of {plural(len(whole.candidates[0].ranks), 'rank')} that replicates, "
        f"or {plural(len(meshes), 'mesh', 'meshes')} apart, as pipeline stages are"
    )
    return LaidOut(None, tuple(meshes), (*whole.candidates, *meshes), words=words)
