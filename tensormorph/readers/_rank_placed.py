"""Tensors whose ranks record where their parts belong: each part put there, and checked against it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tensormorph import dtypes
from tensormorph.array import Narrowed
from tensormorph.columns import TensorKey
from tensormorph.coverage import coverage
from tensormorph.errors import Problem
from tensormorph.mesh import Layout, Partial, Replicate
from tensormorph.model import LocalTensor
from tensormorph.placement import in_order, part_of
from tensormorph.readers._rank_parts import Held, Made, Stored, stored_boxes, whole
from tensormorph.readers._torch_placed import Placed
from tensormorph.region import Region
from tensormorph.text import count, listing, plural, printable


def placed_tensor(name: str, key: TensorKey, many: Sequence[Held], world: int, problems: list[Problem]) -> Made:
    """Return a tensor whose ranks record where their parts belong."""
    first = many[0].placed
    assert first is not None
    encoding = next((row.encoding for one in many for row in one.rows), None)
    shape = first.shape
    one = Made(name, key, shape, encoding or dtypes.encoding("unknown"), [], [])
    for held in many:
        placed = held.placed
        assert placed is not None
        if (placed.shape, placed.placements) != (shape, first.placements) or placed.kind != first.kind:
            one.tell(problems, Problem("ranks-disagree", "error",
                f"{printable(name)} is a {placed.kind} of shape {placed.shape} by rank {held.rank}, of {shape} by rank "
                f"{many[0].rank}: the part of the former is left out", name, held.file))  # fmt: skip
            one.complete = False
            continue
        _add_part(one, held, placed, problems)
    if first.kind == "DTensor" and first.mesh is not None:
        words = "recorded in the tensor of each rank"
        layout = Layout(first.mesh, first.placements, first.order, "recorded", words)
        one.layout = in_order(layout, shape) if len(first.mesh.ranks) <= 4096 else layout
        partial = [p.op for p in first.placements if isinstance(p, Partial)]
        one.reduction = partial[0] if partial else None
    _cover(one, first, many, world, problems)
    return one


def _add_part(one: Made, held: Held, placed: Placed, problems: list[Problem]) -> None:
    """Add what one rank holds, at the place that its file records."""
    at = len(one.locals)
    for row in held.rows:
        source = whole(row, held.file)
        one.locals.append(LocalTensor(one.key.part, held.rank, row.device or None, row.name, source))
        if row.encoding != one.encoding:
            one.tell(problems, Problem("ranks-disagree", "error",
                f"{printable(one.name)} is {row.encoding.name} by rank {held.rank}, {one.encoding.name} by others: the "
                "part of the former is left out", one.name, held.file))  # fmt: skip
            one.complete = False
            held = replace(held, rows=[])
    if placed.kind == "ShardedTensor":
        for i, (row, box) in enumerate(zip(held.rows, placed.held, strict=False)):
            region = Region(box.offsets, tuple(map(int.__add__, box.offsets, box.sizes)))
            inside = all(high <= extent for high, extent in zip(region.stop, one.shape, strict=True))
            if row.shape != box.sizes or not inside:
                _contradiction(one, held, f"shape {row.shape}", f"[{region}] of {one.shape}", problems)
                continue
            for stored, source in stored_boxes(row):
                placed_at = stored.offset_by(region.start)
                one.fragments.append(Stored(placed_at, held.file, held.rank, 0, source, at + i))
        return
    if not held.rows or placed.mesh is None:
        if placed.note:
            one.tell(problems, Problem("placement-unknown", "error",
                f"{printable(one.name)} of rank {held.rank} records no usable place: {placed.note}; it is shown as "
                "stored only", one.name, held.file))  # fmt: skip
            one.complete = False
        return
    row = held.rows[0]
    layout = Layout(placed.mesh, placed.placements, placed.order, "recorded")
    try:
        part = part_of(layout, one.shape, held.rank)
    except ValueError as error:
        _contradiction(one, held, f"shape {row.shape}", f"no part ({error})", problems)
        return
    if len(row.shape) != len(part.shape) or any(a < b for a, b in zip(row.shape, part.shape, strict=False)):
        _contradiction(one, held, f"shape {row.shape}", f"shape {part.shape}", problems)
        return
    term = _term(layout, held.rank)
    for stored, source in stored_boxes(row):
        for local, region in part.boxes():
            shared = local.intersect(stored)
            if shared is not None:
                inner = source if shared == stored else Narrowed(source, shared.within(stored))
                where = shared.within(local).offset_by(region.start)
                one.fragments.append(Stored(where, held.file, held.rank, term, inner, at))
    padding = math.prod(row.shape) - math.prod(part.shape)
    if padding:
        one.tell(problems, Problem("padding", "info",
            f"{printable(one.name)}: rank {held.rank} stores {row.shape}, its part is {part.shape}: "
            f"{plural(padding, 'element')} of padding, which local() shows and full() leaves out", one.name,
            held.file))  # fmt: skip


def _contradiction(one: Made, held: Held, stored: str, recorded: str, problems: list[Problem]) -> None:
    """Tell that what is stored is not what the record says: which of them is right no file tells."""
    one.complete = False
    one.tell(problems, Problem("placement-contradicts", "error",
        f"{printable(one.name)}: rank {held.rank} stores {stored}, but its recorded placement gives it {recorded}: "
        "placement and local shape disagree, so its part is used for neither; local pieces show it as stored",
        one.name, held.file))  # fmt: skip


def _term(layout: Layout, rank: int) -> int:
    """Return which summand a rank holds: its place along the axes that hold terms."""
    at = layout.mesh.coordinate(rank)
    term = 0
    for placement, index, extent in zip(layout.placements, at, layout.mesh.shape, strict=True):
        if isinstance(placement, Partial):
            term = term * extent + index
    return term


def n_terms(one: Made) -> int:
    if one.layout is None:
        return 1
    sizes = zip(one.layout.placements, one.layout.mesh.shape, strict=True)
    return math.prod(extent for placement, extent in sizes if isinstance(placement, Partial))


def _cover(one: Made, first: Placed, many: Sequence[Held], world: int, problems: list[Problem]) -> None:
    """Tell what no file holds, and of absent ranks whose part a replica serves."""
    ndim = len(one.shape)
    absent = sorted(set(range(first.world or world)) - {held.rank for held in many})
    terms = n_terms(one)
    for term in range(terms):
        here = [f.box for f in one.fragments if f.term == term]
        start = np.array([box.start for box in here], np.int64).reshape(len(here), ndim)
        stop = np.array([box.stop for box in here], np.int64).reshape(len(here), ndim)
        found = coverage(one.shape, start, stop)
        if found.whole and not found.overlaps:
            continue
        one.complete = one.complete and found.whole
        if found.whole:
            continue
        where = f", at [{found.gaps[0]}]" if found.gaps else ""
        n = (
            "elements"
            if found.n_missing is None
            else f"{count(found.n_missing)} of {count(math.prod(one.shape))} elements"
        )
        what = f" of term {term}" if terms > 1 else ""
        who = f"; rank {listing([str(r) for r in absent], 4)} is absent" if absent else ""
        region = found.gaps[0] if found.gaps else None
        one.tell(problems, Problem("gap", "error",
            f"{printable(one.name)}: {n}{what} are in no rank's file{where}{who}", one.name,
            region=region))  # fmt: skip
    if absent and one.complete and one.layout is not None and one.fragments:
        lost = [r for r in absent if r in one.layout.mesh.ranks and not part_of(one.layout, one.shape, r).empty]
        if lost:
            one.tell(problems, Problem("served-by-replica", "info",
                f"{printable(one.name)}: the part of absent rank {listing([str(r) for r in lost], 4)} is read from a "
                "replica that another rank stores", one.name))  # fmt: skip


def lift(made: Sequence[Made]) -> None:
    """Put layouts on a slice of the mesh (``mesh["fsdp"]``) onto the whole of it: along its other axes they replicate.

    The ranks of a slice are those of one row of the mesh; each row's ranks record their own.
    """
    meshes = {one.layout.mesh for one in made if one.layout is not None}
    for one in made:
        layout = one.layout
        if layout is None:
            continue
        larger = [
            mesh for mesh in meshes
            if len(mesh.shape) > len(layout.mesh.shape) and set(layout.mesh.names) <= set(mesh.names)
            and set(layout.mesh.ranks) <= set(mesh.ranks)
        ]  # fmt: skip
        if len(larger) != 1:
            continue
        whole = larger[0]
        by_name = dict(zip(layout.mesh.names, layout.placements, strict=True))
        cut = [whole.names.index(layout.mesh.names[axis]) for axis in layout.order]
        others = [axis for axis in range(len(whole.shape)) if axis not in cut]
        words = (
            f"{layout.evidence}, on the axes {', '.join(layout.mesh.names)} of the mesh; along the others it replicates"
        )
        placements = tuple(by_name.get(name, Replicate()) for name in whole.names)
        one.layout = Layout(whole, placements, (*cut, *others), "recorded", words)
