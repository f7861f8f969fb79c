"""Tensors out of ranks' files: each part put where its file records it, or compared where nothing is recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tensormorph import dtypes
from tensormorph.array import Narrowed, StoredSource
from tensormorph.columns import NameColumn, TensorKey, TensorTable
from tensormorph.coverage import coverage
from tensormorph.dtypes import Encoding
from tensormorph.errors import Problem
from tensormorph.mesh import Layout, Partial, Replicate
from tensormorph.model import LocalTensor, LogicalTensor, UnreadableTensor
from tensormorph.placement import in_order, part_of
from tensormorph.readers._agreed import Agreed
from tensormorph.readers._dcp_items import Refused
from tensormorph.readers._header import natural_order
from tensormorph.readers._torch_placed import Placed
from tensormorph.readers._torch_table import Row
from tensormorph.region import Region
from tensormorph.text import count, listing, plural, printable


@dataclass(slots=True)
class Held:
    """What one rank's file holds under a name.

    Fields
    ------
    rows
        The stored arrays: one, or one for each part of a ShardedTensor; none where the rank holds nothing.
    """

    file: str
    rank: int
    key: TensorKey
    rows: list[Row]
    placed: Placed | None


@dataclass(slots=True)
class _Stored:
    """One fragment: its box, and how its source is made."""

    box: Region
    file: str
    rank: int
    term: int
    source: StoredSource
    local: int


@dataclass(slots=True)
class _Made:
    """One logical tensor ready for the table."""

    name: str
    key: TensorKey
    shape: tuple[int, ...]
    encoding: Encoding
    fragments: list[_Stored]
    locals: list[LocalTensor]
    layout: Layout | None = None
    reduction: str | None = None
    complete: bool = True
    problems: list[Problem] = field(default_factory=list)

    def tell(self, problems: list[Problem], problem: Problem) -> None:
        """Add a problem of this tensor."""
        self.problems.append(problem)
        problems.append(problem)


@dataclass(slots=True)
class Built:
    """The table, and how to make its tensors."""

    table: TensorTable
    made: list[_Made]
    unreadable: dict[str, UnreadableTensor]

    def tensor(self, row: int) -> LogicalTensor:
        """Return the tensor of a row of the table."""
        one = self.made[row]
        first = int(self.table.first_fragment[row])
        sources = [fragment.source for fragment in one.fragments]
        fragments = self.table.fragments(row, lambda i: sources[i - first])
        rows: dict[int, list[int]] = {}
        for i, fragment in enumerate(one.fragments):
            rows.setdefault(fragment.local, []).append(i)
        held = [replace(local, rows=tuple(rows.get(i, ()))) for i, local in enumerate(one.locals)]
        fragments = replace(fragments, n_terms=_n_terms(one) if one.reduction is not None else 0)
        return LogicalTensor(
            one.name, one.key, one.shape, one.encoding, fragments, one.complete, held, one.layout, one.reduction,
            tuple(one.problems),
        )  # fmt: skip


def build(
    held: Mapping[tuple[str, str], Sequence[Held]], joins: Mapping[str, int], world: int, problems: list[Problem]
) -> Built:
    """Return all tensors of the files; what is wrong with them is added to `problems`."""
    made: list[_Made] = []
    for (label, name), many in held.items():
        shown = f"{label}/{name}" if label else name
        usable = sorted((one for one in many if one.rows or one.placed is not None), key=lambda one: one.rank)
        if not usable:
            continue
        key = replace(usable[0].key, part=label) if label else usable[0].key
        if all(one.placed is not None for one in usable):
            made.append(_placed(shown, key, usable, world, problems))
        elif any(one.placed is not None for one in usable):
            made.extend(_apart(shown, key, usable, "some ranks record a place, others none", problems))
        else:
            made.extend(_plain(shown, key, usable, joins.get(shown, joins.get(name)), world, problems))
    _lift(made)
    order = natural_order([f"{one.key.part}\0{one.key.param}\0{one.key.slot}" for one in made])
    made = [made[i] for i in order]
    for one in made:
        one.fragments.sort(key=lambda fragment: fragment.box.start[:1])
    return Built(_table(made), made, {})


def _lift(made: Sequence[_Made]) -> None:
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


# ---------------------------------------------------------------- placed tensors


def _placed(name: str, key: TensorKey, many: Sequence[Held], world: int, problems: list[Problem]) -> _Made:
    """Return a tensor whose ranks record where their parts belong."""
    first = many[0].placed
    assert first is not None
    encoding = next((row.encoding for one in many for row in one.rows), None)
    shape = first.shape
    one = _Made(name, key, shape, encoding or dtypes.encoding("unknown"), [], [])
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


def _add_part(one: _Made, held: Held, placed: Placed, problems: list[Problem]) -> None:
    """Add what one rank holds, at the place that its file records."""
    at = len(one.locals)
    for row in held.rows:
        source = _whole(row, held.file)
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
            for stored, source in _stored_boxes(row):
                placed_at = stored.offset_by(region.start)
                one.fragments.append(_Stored(placed_at, held.file, held.rank, 0, source, at + i))
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
    for stored, source in _stored_boxes(row):
        for local, region in part.boxes():
            shared = local.intersect(stored)
            if shared is not None:
                inner = source if shared == stored else Narrowed(source, shared.within(stored))
                where = shared.within(local).offset_by(region.start)
                one.fragments.append(_Stored(where, held.file, held.rank, term, inner, at))
    padding = math.prod(row.shape) - math.prod(part.shape)
    if padding:
        one.tell(problems, Problem("padding", "info",
            f"{printable(one.name)}: rank {held.rank} stores {row.shape}, its part is {part.shape}: "
            f"{plural(padding, 'element')} of padding, which local() shows and full() leaves out", one.name,
            held.file))  # fmt: skip


def _contradiction(one: _Made, held: Held, stored: str, recorded: str, problems: list[Problem]) -> None:
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


def _n_terms(one: _Made) -> int:
    if one.layout is None:
        return 1
    sizes = zip(one.layout.placements, one.layout.mesh.shape, strict=True)
    return math.prod(extent for placement, extent in sizes if isinstance(placement, Partial))


def _cover(one: _Made, first: Placed, many: Sequence[Held], world: int, problems: list[Problem]) -> None:
    """Tell what no file holds, and of absent ranks whose part a replica serves."""
    ndim = len(one.shape)
    absent = sorted(set(range(first.world or world)) - {held.rank for held in many})
    n_terms = _n_terms(one)
    for term in range(n_terms):
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
        what = f" of term {term}" if n_terms > 1 else ""
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


# ---------------------------------------------------------------- plain tensors


def _plain(
    name: str, key: TensorKey, many: Sequence[Held], dim: int | None, world: int, problems: list[Problem]
) -> list[_Made]:
    """Return a tensor of which the files record nothing but values: one copy if all agree, joined if that is stated."""
    rows = [(held, row) for held in many for row in held.rows]
    shapes = {row.shape for _, row in rows}
    encodings = {row.encoding for _, row in rows}
    if dim is not None and len(encodings) == 1:
        joined = _joined(name, key, rows, dim)
        if joined is not None:
            return [joined]
        problems.append(Problem("stated-join", "warning",
            f"The stated join of {printable(name)} along axis {dim} does not fit its parts of shapes "
            f"{listing([str(s) for s in sorted(shapes)], 4)}: it is not used", name))  # fmt: skip
    if len(rows) == 1 or (len(shapes) == 1 and len(encodings) == 1):
        first = rows[0][1]
        locals_ = [
            LocalTensor(key.part, held.rank, row.device or None, row.name, _whole(row, held.file)) for held, row in rows
        ]
        complete = all(row.complete for _, row in rows)
        one = _Made(name, key, first.shape, first.encoding, [], locals_, complete=complete)
        region, ranks = Region.whole(first.shape), tuple(held.rank for held, _ in rows)
        sources = tuple(local.source for local in locals_)
        for i, (held, _) in enumerate(rows if complete else []):
            source = Agreed(name, ranks, sources, i) if len(rows) > 1 else sources[0]
            one.fragments.append(_Stored(region, held.file, held.rank, 0, source, i))
        return [one]
    return _apart(name, key, many, f"its shapes or dtypes differ ({listing([str(s) for s in sorted(shapes)], 4)})",
                  problems)  # fmt: skip


def _joined(name: str, key: TensorKey, rows: Sequence[tuple[Held, Row]], dim: int) -> _Made | None:
    """Return the ranks' parts put side by side along an axis; None where their other extents differ."""
    first = rows[0][1]
    others = {(*row.shape[:dim], *row.shape[dim + 1 :]) for _, row in rows}
    if dim >= len(first.shape) or len(others) != 1 or len({len(row.shape) for _, row in rows}) != 1:
        return None
    extent = sum(row.shape[dim] for _, row in rows)
    shape = (*first.shape[:dim], extent, *first.shape[dim + 1 :])
    one = _Made(name, key, shape, first.encoding, [], [], complete=all(row.complete for _, row in rows))
    at = 0
    for i, (held, row) in enumerate(rows):
        start = tuple(at if k == dim else 0 for k in range(len(shape)))
        region = Region(start, tuple(map(int.__add__, start, row.shape)))
        at += row.shape[dim]
        source = _whole(row, held.file)
        one.locals.append(LocalTensor(key.part, held.rank, row.device or None, row.name, source))
        one.fragments.append(_Stored(region, held.file, held.rank, 0, source, i))
    return one


def _apart(name: str, key: TensorKey, many: Sequence[Held], why: str, problems: list[Problem]) -> list[_Made]:
    """Return each rank's tensor by itself, for nothing records how they belong together."""
    problems.append(Problem("not-joined", "warning",
        f"{printable(name)} is shown rank by rank: {why}, and nothing records how the parts belong together; a join "
        "along an axis can be stated", name))  # fmt: skip
    out: list[_Made] = []
    for held in many:
        for row in held.rows:
            part = f"{key.part}/rank {held.rank}" if key.part else f"rank {held.rank}"
            local = LocalTensor(part, held.rank, row.device or None, row.name, _whole(row, held.file))
            one = _Made(f"rank {held.rank}/{name}", replace(key, part=part), row.shape, row.encoding, [], [local],
                        complete=row.complete)  # fmt: skip
            if row.complete:
                one.fragments = [_Stored(Region.whole(row.shape), held.file, held.rank, 0, local.source, 0)]
            out.append(one)
    return out


def _whole(row: Row, file: str) -> StoredSource:
    """Return the source of all that a row stores; one that raises where the file does not hold all of it."""
    if sum(box.size for box, _ in row.boxes) != math.prod(row.shape):
        return Refused(row.shape, file, "the file does not hold all of what its pickle says: see the problems")
    return row.make(Region.whole(row.shape), 0)


def _stored_boxes(row: Row) -> list[tuple[Region, StoredSource]]:
    """Return what a file holds of a row, in the row's coordinates: all of it, or what is there of one cut short."""
    return [(box, row.make(box, first)) for box, first in row.boxes]


# ---------------------------------------------------------------- the table


def _table(made: Sequence[_Made]) -> TensorTable:
    encodings: dict[Encoding, int] = {}
    codes = [encodings.setdefault(one.encoding, len(encodings)) for one in made]
    all_fragments = [fragment for one in made for fragment in one.fragments]
    files: dict[str, int] = {}
    file = [files.setdefault(fragment.file, len(files)) for fragment in all_fragments]
    ndim = np.array([len(one.shape) for one in made], np.int64)
    n = np.array([len(one.fragments) for one in made], np.int64)
    names: Sequence[str] = _unique([one.name for one in made])
    keys = [one.key for one in made]
    return TensorTable(
        names=NameColumn.of(names) if len(names) > 200_000 else names, keys=keys.__getitem__,
        encodings=tuple(encodings), encoding=np.array(codes, np.int16),
        n_elements=np.array([math.prod(one.shape) for one in made], np.int64),
        complete=np.array([one.complete and one.encoding.readable for one in made], np.bool_),
        dims=np.array([extent for one in made for extent in one.shape], np.int64), first_dim=_ends(ndim),
        first_fragment=_ends(n), start=np.array([x for f in all_fragments for x in f.box.start], np.int64),
        stop=np.array([x for f in all_fragments for x in f.box.stop], np.int64), first_coordinate=_ends(n * ndim),
        file=np.array(file, np.int32), offset=np.full(len(file), -1, np.int64),
        length=np.array([_length(one.encoding, f.box) for one in made for f in one.fragments], np.int64),
        rank=np.array([f.rank for f in all_fragments], np.int32),
        term=np.array([f.term for f in all_fragments], np.int32),
        files=tuple(files),
    )  # fmt: skip


def _unique(names: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    out: list[str] = []
    for name in names:
        found, n = name, 2
        while found in taken:
            found, n = f"{name} [{n}]", n + 1
        taken.add(found)
        out.append(found)
    return out


def _length(encoding: Encoding, box: Region) -> int:
    n = encoding.n_bytes(box.size) if encoding.bits else -1
    return n if n < 1 << 63 else -1


def _ends(lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
