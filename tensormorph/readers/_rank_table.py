"""Tensors out of ranks' files: each part put where its file records it, or compared where nothing is recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensormorph.columns import NameColumn, TensorKey, TensorTable, ends
from tensormorph.dtypes import Encoding
from tensormorph.errors import Problem
from tensormorph.model import LocalTensor, LogicalTensor, UnreadableTensor
from tensormorph.readers._agreed import Agreed
from tensormorph.readers._header import natural_order
from tensormorph.readers._rank_parts import Held, Made, Stored, whole
from tensormorph.readers._rank_placed import lift, n_terms, placed_tensor
from tensormorph.readers._torch_table import Row, stored_length
from tensormorph.region import Region
from tensormorph.text import listing, printable


@dataclass(slots=True)
class Built:
    """The table, and how to make its tensors."""

    table: TensorTable
    made: list[Made]
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
        fragments = replace(fragments, n_terms=n_terms(one) if one.reduction is not None else 0)
        return LogicalTensor(
            one.name, one.key, one.shape, one.encoding, fragments, one.complete, held, one.layout, one.reduction,
            tuple(one.problems),
        )  # fmt: skip


def build(
    held: Mapping[tuple[str, str], Sequence[Held]], joins: Mapping[str, int], world: int, problems: list[Problem]
) -> Built:
    """Return all tensors of the files; what is wrong with them is added to `problems`."""
    made: list[Made] = []
    for (label, name), many in held.items():
        shown = f"{label}/{name}" if label else name
        usable = sorted((one for one in many if one.rows or one.placed is not None), key=lambda one: one.rank)
        if not usable:
            continue
        key = replace(usable[0].key, part=label) if label else usable[0].key
        if all(one.placed is not None for one in usable):
            made.append(placed_tensor(shown, key, usable, world, problems))
        elif any(one.placed is not None for one in usable):
            made.extend(_apart(shown, key, usable, "some ranks record a place, others none", problems))
        else:
            made.extend(_plain(shown, key, usable, joins.get(shown, joins.get(name)), world, problems))
    lift(made)
    order = natural_order([f"{one.key.part}\0{one.key.param}\0{one.key.slot}" for one in made])
    made = [made[i] for i in order]
    for one in made:
        one.fragments.sort(key=lambda fragment: fragment.box.start[:1])
    return Built(_table(made), made, {})


# ---------------------------------------------------------------- plain tensors


def _plain(
    name: str, key: TensorKey, many: Sequence[Held], dim: int | None, world: int, problems: list[Problem]
) -> list[Made]:
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
            LocalTensor(key.part, held.rank, row.device or None, row.name, whole(row, held.file)) for held, row in rows
        ]
        complete = all(row.complete for _, row in rows)
        one = Made(name, key, first.shape, first.encoding, [], locals_, complete=complete)
        region, ranks = Region.whole(first.shape), tuple(held.rank for held, _ in rows)
        sources = tuple(local.source for local in locals_)
        for i, (held, _) in enumerate(rows if complete else []):
            source = Agreed(name, ranks, sources, i) if len(rows) > 1 else sources[0]
            one.fragments.append(Stored(region, held.file, held.rank, 0, source, i))
        return [one]
    return _apart(name, key, many, f"its shapes or dtypes differ ({listing([str(s) for s in sorted(shapes)], 4)})",
                  problems)  # fmt: skip


def _joined(name: str, key: TensorKey, rows: Sequence[tuple[Held, Row]], dim: int) -> Made | None:
    """Return the ranks' parts put side by side along an axis; None where their other extents differ."""
    first = rows[0][1]
    others = {(*row.shape[:dim], *row.shape[dim + 1 :]) for _, row in rows}
    if dim >= len(first.shape) or len(others) != 1 or len({len(row.shape) for _, row in rows}) != 1:
        return None
    extent = sum(row.shape[dim] for _, row in rows)
    shape = (*first.shape[:dim], extent, *first.shape[dim + 1 :])
    one = Made(name, key, shape, first.encoding, [], [], complete=all(row.complete for _, row in rows))
    at = 0
    for i, (held, row) in enumerate(rows):
        start = tuple(at if k == dim else 0 for k in range(len(shape)))
        region = Region(start, tuple(map(int.__add__, start, row.shape)))
        at += row.shape[dim]
        source = whole(row, held.file)
        one.locals.append(LocalTensor(key.part, held.rank, row.device or None, row.name, source))
        one.fragments.append(Stored(region, held.file, held.rank, 0, source, i))
    return one


def _apart(name: str, key: TensorKey, many: Sequence[Held], why: str, problems: list[Problem]) -> list[Made]:
    """Return each rank's tensor by itself, for nothing records how they belong together."""
    problems.append(Problem("not-joined", "warning",
        f"{printable(name)} is shown rank by rank: {why}, and nothing records how the parts belong together; a join "
        "along an axis can be stated", name))  # fmt: skip
    out: list[Made] = []
    for held in many:
        for row in held.rows:
            part = f"{key.part}/rank {held.rank}" if key.part else f"rank {held.rank}"
            local = LocalTensor(part, held.rank, row.device or None, row.name, whole(row, held.file))
            one = Made(f"rank {held.rank}/{name}", replace(key, part=part), row.shape, row.encoding, [], [local],
                        complete=row.complete)  # fmt: skip
            if row.complete:
                one.fragments = [Stored(Region.whole(row.shape), held.file, held.rank, 0, local.source, 0)]
            out.append(one)
    return out


# ---------------------------------------------------------------- the table


def _table(made: Sequence[Made]) -> TensorTable:
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
        dims=np.array([extent for one in made for extent in one.shape], np.int64), first_dim=ends(ndim),
        first_fragment=ends(n), start=np.array([x for f in all_fragments for x in f.box.start], np.int64),
        stop=np.array([x for f in all_fragments for x in f.box.stop], np.int64), first_coordinate=ends(n * ndim),
        file=np.array(file, np.int32), offset=np.full(len(file), -1, np.int64),
        length=np.array([stored_length(one.encoding, f.box) for one in made for f in one.fragments], np.int64),
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
