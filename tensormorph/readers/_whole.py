"""Whole tensors spread over safetensors files, merged into the columns of one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import StoredSource
from tensormorph.columns import NameColumn, TensorKey, TensorTable, ends
from tensormorph.dtypes import Encoding
from tensormorph.errors import Problem
from tensormorph.fragments import NO_RANK, Ints
from tensormorph.model import LogicalTensor, UnreadableTensor
from tensormorph.readers._bytes import ByteSource, FilePool
from tensormorph.readers._header import Header, natural_order
from tensormorph.readers._strided import StridedBytes, row_major
from tensormorph.region import flat_range

NAMES_AS_LIST = 200_000
"""Up to so many names are kept as strings; more as one run of bytes."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file whose header was read, and the part that it belongs to.

    Fields
    ------
    name, path
        Relative to the root, and on disk.
    part
        Model or file that its tensors belong to; empty where the checkpoint has only one.
    yields_to
        Stored name -> file that owns it: this file's copy of such a tensor gets its file name behind its own.
    """

    name: str
    path: Path
    part: str
    header: Header
    yields_to: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Merged:
    """Tensors of several files as one table, and what could not become one."""

    table: TensorTable
    sources: TensorSources
    aliases: dict[str, str]
    unreadable: dict[str, UnreadableTensor]
    problems: list[Problem]


def merge(files: Sequence[StoredFile], pool: FilePool) -> Merged:
    """Return the tensors of all files, each under a unique name, in natural order within their part."""
    plain = len(files) == 1 and not files[0].part and _all_as_stored(files[0])
    if plain:
        header = files[0].header
        rows = range(len(header.names)) if header.natural else natural_order(header.names)
        order = np.array(rows, np.int64)
        names: Sequence[str] = header.names if header.natural else [header.names[i] for i in rows]
        aliases: dict[str, str] = {}
        renamed: dict[tuple[str, str], str] = {}
        params, parts = names, [""]
        part_of = np.zeros(len(order), np.int32)
    else:
        names, params, parts, part_of, order, aliases, renamed = _named(files)
    columns = _gather(files, order)
    if len(names) > NAMES_AS_LIST and not isinstance(names, NameColumn):
        names = NameColumn.of(names)
        params = names if plain else params
    table = TensorTable(names, lambda row: TensorKey(parts[int(part_of[row])], params[row]), **columns)
    problems, by_tensor = _relabel(files, renamed)
    unreadable: dict[str, UnreadableTensor] = {}
    for file in files:
        for entry in file.header.lost:
            label = _unique(_prefixed(file.part, entry.name), unreadable, file.name)
            told = replace(entry.why, tensor=label)
            unreadable[label] = UnreadableTensor(
                label, TensorKey(file.part, entry.name), entry.dtype, entry.shape, file.name, (told,)
            )  # fmt: skip
    sources = TensorSources(table, pool, tuple(files), by_tensor)
    return Merged(table, sources, aliases, unreadable, problems)


def _all_as_stored(file: StoredFile) -> bool:
    """Whether every tensor of a file goes by its stored name."""
    return not file.header.aliases and not file.yields_to and not file.header.shadowed.any()


_Named = tuple[list[str], list[str], list[str], NDArray[np.int32], Ints, dict[str, str], dict[tuple[str, str], str]]


def _named(files: Sequence[StoredFile]) -> _Named:
    """Return unique names, stored names, parts and each row's part, the rows in order, aliases, and renamings.

    Rows count over all files one behind the other; an alias has none. A renaming is (file, stored name) -> name where
    the two differ.
    """
    labels: list[str] = []
    stored: list[str] = []
    rows: list[int] = []
    part_of: list[int] = []
    parts = {part: i for i, part in enumerate(dict.fromkeys(file.part for file in files))}
    taken: set[str] = set()
    aliases: dict[str, str] = {}
    renamed: dict[tuple[str, str], str] = {}
    before = 0
    for file in files:
        header = file.header
        shadowed = header.shadowed.tolist()
        part = parts[file.part]
        for row, name in enumerate(header.names):
            if name in header.aliases and not shadowed[row]:
                continue
            wanted = label = _prefixed(file.part, name)
            if shadowed[row]:
                label = _unique(f"{label} [{file.name}, first declaration]", taken)
            elif name in file.yields_to or label in taken:
                label = _unique(f"{label} [{file.name}]", taken)
            taken.add(label)
            labels.append(label)
            stored.append(name if label == wanted else label)
            rows.append(before + row)
            part_of.append(part)
            if label != wanted and not shadowed[row]:
                renamed[file.name, name] = label
        before += len(header.names)
        for alias, owner in header.aliases.items():
            label = _unique(_prefixed(file.part, alias), taken, file.name)
            taken.add(label)
            aliases[label] = renamed.get((file.name, owner), _prefixed(file.part, owner))
            renamed[file.name, alias] = label
    order = natural_order(labels)
    if len(parts) > 1:
        order.sort(key=part_of.__getitem__)  # stable: natural order stays within a part
    return (
        [labels[i] for i in order], [stored[i] for i in order], list(parts), np.array(part_of, np.int32)[order],
        np.array(rows, np.int64)[order], aliases, renamed,
    )  # fmt: skip


def _prefixed(part: str, name: str) -> str:
    return f"{part}/{name}" if part else name


def _unique(label: str, taken: Mapping[str, object] | set[str], file: str = "") -> str:
    if label not in taken:
        return label
    stem = f"{label} [{file}]" if file else label
    found, n = stem, 2
    while found in taken:
        found, n = f"{stem} ({n})", n + 1
    return found


def _gather(files: Sequence[StoredFile], order: Ints) -> dict[str, Any]:
    """Return the columns of a TensorTable for the rows `order`, counted over all files one behind the other."""
    encodings: dict[Encoding, int] = {}
    code: list[NDArray[np.int16]] = []
    for file in files:
        local = [encodings.setdefault(e, len(encodings)) for e in file.header.encodings()]
        code.append(np.array(local, np.int16)[file.header.dtype] if local else np.empty(0, np.int16))
    headers = [file.header for file in files]
    file_of = np.repeat(np.arange(len(files), dtype=np.int32), [len(h.names) for h in headers])[order]
    encoding = _joined(code, np.int16)[order]
    n_elements = _joined([h.n_elements for h in headers])[order]
    begin = _joined([h.begin for h in headers])[order]
    end = _joined([h.end for h in headers])[order]
    readable = _joined([h.readable for h in headers])[order]
    ndim = _joined([np.diff(h.first_dim) for h in headers])[order]
    dims_before = np.cumsum([0, *(len(h.dims) for h in headers)])
    first = _joined([h.first_dim[:-1] + dims_before[i] for i, h in enumerate(headers)])[order]
    first_dim = ends(ndim)
    dims = _joined([h.dims for h in headers])[np.repeat(first - first_dim[:-1], ndim) + np.arange(int(ndim.sum()))]

    # Fragments: one where all elements are there; where the file ends inside, the boxes of the run that is there.
    full = readable == n_elements
    boxes: dict[int, list[tuple[tuple[int, ...], tuple[int, ...], int]]] = {}
    for row in np.flatnonzero(~full & (readable > 0)).tolist():
        shape = dims[int(first_dim[row]) : int(first_dim[row + 1])].tolist()
        boxes[row] = [(box.start, box.stop, at) for box, at in flat_range(shape, 0, int(readable[row]))]
        boxes[row].sort()
    n_fragments = full.astype(np.int64)
    for row, found in boxes.items():
        n_fragments[row] = len(found)
    first_fragment, first_coordinate = ends(n_fragments), ends(n_fragments * ndim)
    start = np.zeros(int(first_coordinate[-1]), np.int64)
    stop = np.zeros(int(first_coordinate[-1]), np.int64)
    owner = np.repeat(np.arange(len(order)), ndim)
    whole = full[owner]
    place = first_coordinate[owner] + np.arange(len(dims)) - first_dim[owner]
    stop[place[whole]] = dims[whole]
    fragment_owner = np.repeat(np.arange(len(order)), n_fragments)
    offset, length = begin[fragment_owner], (end - begin)[fragment_owner]
    for row, found in boxes.items():
        bits = next(e for e, i in encodings.items() if i == int(encoding[row])).bits or 0
        for k, (low, high, at) in enumerate(found):
            c = int(first_coordinate[row]) + k * len(low)
            start[c : c + len(low)], stop[c : c + len(low)] = low, high
            f = int(first_fragment[row]) + k
            size = int(np.prod(np.subtract(high, low), dtype=np.int64))
            offset[f] = begin[row] + at * bits // 8
            length[f] = -(-size * bits // 8)
    known = np.array([e.readable for e in encodings] or [True], np.bool_)
    return {
        "encodings": tuple(encodings), "encoding": encoding, "n_elements": n_elements,
        "complete": full & known[encoding] if len(order) else full, "dims": dims, "first_dim": first_dim,
        "first_fragment": first_fragment, "start": start, "stop": stop, "first_coordinate": first_coordinate,
        "file": file_of[fragment_owner], "offset": offset, "length": length,
        "rank": np.full(len(fragment_owner), NO_RANK, np.int32), "term": np.zeros(len(fragment_owner), np.int32),
        "files": tuple(file.name for file in files),
    }  # fmt: skip


def _joined(columns: Sequence[NDArray[Any]], dtype: type[np.generic] = np.int64) -> NDArray[Any]:
    return np.concatenate(columns) if columns else np.empty(0, dtype)


def _relabel(
    files: Sequence[StoredFile], renamed: Mapping[tuple[str, str], str]
) -> tuple[list[Problem], dict[str, list[Problem]]]:
    """Return the headers' problems under the unique names, and by tensor."""
    problems: list[Problem] = []
    by_tensor: dict[str, list[Problem]] = {}
    for file in files:
        for problem in file.header.problems:
            label = None
            if problem.tensor is not None:
                label = renamed.get((file.name, problem.tensor), _prefixed(file.part, problem.tensor))
                problem = replace(problem, tensor=label)
            problems.append(problem)
            if label is not None:
                by_tensor.setdefault(label, []).append(problem)
    return problems, by_tensor


@dataclass(frozen=True, slots=True, eq=False)
class TensorSources:
    """Makes the LogicalTensor of a row of the table, and the source of each of its fragments."""

    table: TensorTable
    pool: FilePool
    files: tuple[StoredFile, ...]
    problems: Mapping[str, list[Problem]]

    def tensor(self, row: int) -> LogicalTensor:
        """Return the tensor of a row."""
        name = self.table.names[row]
        shape = self.table.shape(row)

        def open_source(fragment: int) -> StoredSource:
            return self._source(row, shape, fragment)

        return LogicalTensor(
            name,
            self.table.keys(row),
            shape,
            self.table.encodings[int(self.table.encoding[row])],
            self.table.fragments(row, open_source),
            bool(self.table.complete[row]),
            problems=tuple(self.problems.get(name, ())),
        )

    def _source(self, row: int, shape: tuple[int, ...], fragment: int) -> StoredSource:
        file = self.files[int(self.table.file[fragment])]
        first = int(self.table.first_fragment[row])
        at = int(self.table.first_coordinate[row]) + (fragment - first) * len(shape)
        start = self.table.start[at : at + len(shape)].tolist()
        stop = self.table.stop[at : at + len(shape)].tolist()
        box = tuple(high - low for low, high in zip(start, stop, strict=True))
        # Each box of a run is itself a run: its first element, counted from the tensor's, places it.
        element = sum(low * step for low, step in zip(start, row_major(shape), strict=True))
        begin = int(self.table.offset[first])
        # A tensor sees its own bytes only; of a tensor that the file's end cuts, those that are there.
        whole = bool(self.table.n_elements[row] == np.prod(box, dtype=np.int64))
        n_bytes = int(self.table.length[first]) if whole else file.header.file_bytes - begin
        data = ByteSource(self.pool, file.path, file.name, begin, n_bytes)
        encoding = self.table.encodings[int(self.table.encoding[row])]
        return StridedBytes(data, 0, box, row_major(box), encoding, element)
