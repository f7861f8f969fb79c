"""The tensors of a DCP checkpoint as one table: boxes checked against the shape, items against the files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, overload

import numpy as np

from tensormorph.array import StoredSource
from tensormorph.columns import NameColumn, TensorKey, TensorTable, ends
from tensormorph.coverage import MOST_TOLD
from tensormorph.dtypes import Encoding
from tensormorph.errors import Problem
from tensormorph.fragments import NO_RANK
from tensormorph.mesh import Layout
from tensormorph.model import LocalTensor, LogicalTensor
from tensormorph.readers._dcp_chunks import (
    DOUBT,
    Chunks,
    Ints,
    Tensors,
    chunks_of,
    cover,
    doubt,
    look_at_files,
    lost_by_file,
    lost_problem,
)
from tensormorph.readers._dcp_items import ItemPlace, Refused
from tensormorph.readers._dcp_metadata import Columns
from tensormorph.readers._dcp_names import keys_of
from tensormorph.readers._header import natural_order
from tensormorph.readers._torch_table import Row

RANK_EVIDENCE = "the names of the files"


class Opener(Protocol):
    """How the items of one kind of checkpoint are opened.

    Fields
    ------
    in_items
        Whether only an item itself tells where its elements lie in it.
    """

    @property
    def in_items(self) -> bool: ...
    def rank_of(self, file: str) -> int:
        """Return the rank that wrote a file, by its name; NO_RANK where the name tells none."""
        ...

    def source(self, place: ItemPlace, shape: tuple[int, ...], encoding: Encoding) -> StoredSource:
        """Return the elements of an item that is said to be a box of this shape; looks into no file."""
        ...

    def stored(self, place: ItemPlace, shape: tuple[int, ...], encoding: Encoding) -> StoredSource:
        """Return the elements of an item as it stores them, whatever is said of them."""
        ...


@dataclass(slots=True)
class Built:
    """The table, and how to make its tensors."""

    table: TensorTable
    chunks: Chunks
    opener: Opener
    inner: Mapping[str, Row]
    keys: list[TensorKey]
    by_tensor: dict[str, list[Problem]]
    layouts: dict[int, Layout] = field(default_factory=dict)

    def tensor(self, row: int) -> LogicalTensor:
        """Return the tensor of a row of the table."""
        table = self.table
        first, last = int(table.first_fragment[row]), int(table.first_fragment[row + 1])

        name = table.names[row]
        inner = self.inner.get(name)
        encoding = table.encodings[int(table.encoding[row])]

        def open_source(fragment: int) -> StoredSource:
            if inner is not None:
                return inner.make(*inner.boxes[fragment - first])
            place, shape = self.chunks.place(fragment), self.chunks.region(fragment).shape
            code, why = self.chunks.reasons[int(self.chunks.lost[fragment])]
            if code == DOUBT:
                return Refused(shape, place.file, why)
            return self.opener.source(place, shape, encoding)

        lost = first + np.flatnonzero(self.chunks.lost[first:last])[:MOST_TOLD]
        return LogicalTensor(
            name, table.keys(row), table.shape(row), encoding, table.fragments(row, open_source),
            bool(table.complete[row]), Locals(self, name, encoding, first, last - first),
            problems=(
                *self.by_tensor.get(name, ()), *(lost_problem(self.chunks, name, i) for i in lost.tolist()),
            ),
            layout=self.layouts.get(row), rank_evidence=RANK_EVIDENCE,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Locals(Sequence[LocalTensor]):
    """The stored pieces of a tensor, each made when it is asked for."""

    built: Built
    name: str
    encoding: Encoding
    first: int
    n: int

    def __len__(self) -> int:
        return self.n

    @overload
    def __getitem__(self, index: int) -> LocalTensor: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LocalTensor]: ...
    def __getitem__(self, index: int | slice) -> LocalTensor | Sequence[LocalTensor]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.n))]
        if not -self.n <= index < self.n:
            raise IndexError(index)
        row = self.first + index % self.n
        built = self.built
        item = built.chunks.place(row)
        rank = built.opener.rank_of(item.file)
        inner = built.inner.get(self.name)
        if inner is not None:
            source = inner.make(*inner.boxes[index % self.n])
        else:
            source = built.opener.stored(item, built.chunks.region(row).shape, self.encoding)
        return LocalTensor("", None if rank == NO_RANK else rank, None, self.name, source, (index % self.n,))


# ---------------------------------------------------------------- building


def build(
    found: Sequence[tuple[str, Columns]], inner: Mapping[str, tuple[Row, ItemPlace]], sizes: Mapping[str, int],
    outside: frozenset[str], opener: Opener, problems: list[Problem],
) -> Built:  # fmt: skip
    """Return the table of one metadata file, or of several that each tell of one rank.

    Parameters
    ----------
    found
        Name and content of each metadata file.
    inner
        Tensors inside stored objects, by their names, each with the place of its item.
    sizes, outside
        Bytes of each file in the folder; links that lead out of it.
    problems
        What is known already; what is found is added.
    """
    tensors = Tensors()
    columns = [(one, tensors.add(file, one, problems)) for file, one in found]
    columns.append(_columns_of(inner, tensors))
    paths = {name: path for _, one in found for name, path in one.paths.items()}
    all_keys = keys_of(tensors.names, paths)
    for name, (row, _) in inner.items():
        if not row.key.named:
            all_keys[tensors.at[name]] = row.key
    # A parameter and its optimizer state stand together: by the parameter's name, the weight first.
    order = natural_order([f"{key.part}\0{key.param}\0{key.slot}" for key in all_keys])
    names, keys = [tensors.names[i] for i in order], [all_keys[i] for i in order]
    shapes, encodings_of = [tensors.shapes[i] for i in order], [tensors.encodings[i] for i in order]
    chunks = chunks_of(columns, order, tensors, problems)
    look_at_files(chunks, sizes, outside)
    doubt(chunks, names, {str(p.tensor) for p in problems if p.code == DOUBT})
    by_tensor: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.tensor is not None:
            by_tensor.setdefault(problem.tensor, []).append(problem)
    complete, holes = cover(chunks, names, shapes, by_tensor)
    for problem in holes:
        by_tensor.setdefault(str(problem.tensor), []).append(problem)
    problems += [*holes, *lost_by_file(chunks, names)]
    encodings: dict[Encoding, int] = {}
    codes = np.array([encodings.setdefault(e, len(encodings)) for e in encodings_of], np.int16)
    complete &= np.array([e.readable for e in encodings_of], np.bool_)
    ndim = np.array([len(shape) for shape in shapes], np.int64)
    n_chunks = np.bincount(chunks.tensor, minlength=len(names)).astype(np.int64)
    ranks = np.array([opener.rank_of(file) for file in chunks.files] or [NO_RANK], np.int32)
    table = TensorTable(
        names=NameColumn.of(names) if len(names) > 200_000 else names, keys=keys.__getitem__,
        encodings=tuple(encodings), encoding=codes,
        n_elements=np.array([math.prod(shape) for shape in shapes], np.int64), complete=complete,
        dims=np.array([n for shape in shapes for n in shape], np.int64), first_dim=ends(ndim),
        first_fragment=ends(n_chunks), start=chunks.start, stop=chunks.stop,
        first_coordinate=ends(n_chunks * ndim), file=chunks.file.astype(np.int32), offset=chunks.offset,
        length=chunks.length, rank=ranks[chunks.file], term=np.zeros(len(chunks.file), np.int32),
        files=tuple(chunks.files), in_items=opener.in_items,
    )  # fmt: skip
    return Built(table, chunks, opener, {name: row for name, (row, _) in inner.items()}, keys, by_tensor)


def _columns_of(inner: Mapping[str, tuple[Row, ItemPlace]], tensors: Tensors) -> tuple[Columns, Ints]:
    """Return the tensors inside stored objects in the form of a metadata file's."""
    out = Columns()
    files: dict[str, int] = {}
    transforms: dict[tuple[str, ...], int] = {(): 0}
    rows = [(name, row, place, box) for name, (row, place) in inner.items() for box, _ in row.boxes]
    places = [place for _, _, place, _ in rows]
    out.numbers = {
        "n_dims": np.array([len(row.shape) for row, _ in inner.values()], np.int64),
        "n_chunks": np.array([len(row.boxes) for row, _ in inner.values()], np.int64),
        "start": np.array([n for *_, box in rows for n in box.start], np.int64),
        "stop": np.array([n for *_, box in rows for n in box.stop], np.int64),
        "file": np.array([files.setdefault(p.file, len(files)) for p in places], np.int64),
        "offset": np.array([p.offset for p in places], np.int64),
        "length": np.array([p.length for p in places], np.int64),
        "transform": np.array([transforms.setdefault(p.transforms, len(transforms)) for p in places], np.int64),
    }
    out.files, out.transforms = list(files), [list(chain) for chain in transforms]
    where = [tensors.put(name, row.shape, row.encoding) for name, (row, _) in inner.items()]
    return out, np.array(where, np.int64)
