"""The tensors of torch.save files as columns: where each lies in its storage, what shares a place, what is cut off."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tensormorph import dtypes
from tensormorph.array import StoredSource
from tensormorph.columns import NameColumn, TensorKey, TensorTable, ends
from tensormorph.dtypes import Encoding
from tensormorph.errors import Problem
from tensormorph.fragments import NO_RANK
from tensormorph.model import LocalTensor, LogicalTensor, UnreadableTensor
from tensormorph.quantised import BitView, Compressed, Dense, Dequantised, Listed
from tensormorph.readers._bytes import Bytes
from tensormorph.readers._header import grouped, natural_order
from tensormorph.readers._strided import StridedBytes, row_major
from tensormorph.readers._torch_placed import Placed
from tensormorph.readers._torch_tensors import TensorRef
from tensormorph.readers._torch_tree import Tree
from tensormorph.readers._torchzip import TorchFile
from tensormorph.region import Region, flat_range
from tensormorph.text import count, plural, printable

_MOST_ELEMENTS = (1 << 63) - 1
_EXPANDED_BYTES = 1 << 40
"""A tensor that repeats few bytes to more than this is told of: who reads it whole will not come to an end."""


@dataclass(slots=True)
class HeldBytes:
    """Bytes that a pickle holds itself: as text, so none has a place of its own in the file."""

    name: str
    start: int
    data: bytes

    @property
    def n_bytes(self) -> int:
        return len(self.data)

    @property
    def compression(self) -> str:
        return "inside the pickle"

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from `offset` on."""
        buffer[:] = self.data[offset : offset + len(buffer)]

    def read(self, offset: int, n_bytes: int) -> bytearray:
        """Return `n_bytes` from `offset` on."""
        return bytearray(self.data[offset : offset + n_bytes])


Maker = Callable[[Region, int], StoredSource]
"""``make(box, first)``: the source of a box whose first element is the `first`-th in row-major order."""


@dataclass(slots=True)
class Row:
    """One tensor of a file.

    Fields
    ------
    boxes
        What of it is stored: regions, each with the row-major position of its first element.
    place
        Equal for tensors on the same elements of one storage; None where that has no meaning.
    make
        Makes the source of a box; nothing of the file is looked at before that source reads.
    placed
        What the file records of the tensor that this is one rank's part of.
    """

    name: str
    key: TensorKey
    shape: tuple[int, ...]
    encoding: Encoding
    boxes: list[tuple[Region, int]]
    complete: bool
    place: tuple[object, ...] | None
    make: Maker
    device: str = ""
    placed: Placed | None = None


@dataclass(slots=True)
class FileTensors:
    """The tensors of one file, and those that have a name but no usable description."""

    file: str
    rows: list[Row] = field(default_factory=list)
    lost: list[tuple[str, TensorKey, Problem]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    part: str = ""
    yields_to: Mapping[str, str] = field(default_factory=dict)


def file_tensors(file: TorchFile, tree: Tree) -> FileTensors:
    """Return the tensors of a file with what is wrong with each; no storage is looked at."""
    out = FileTensors(file.name)
    for item in tree.tensors:
        if isinstance(item.found, str):
            told = f"{printable(item.name)} cannot be read: {item.found}"
            out.lost.append((item.name, item.key, Problem("bad-tensor", "error", told, item.name, file.name)))
            out.problems.append(out.lost[-1][2])
            continue
        _add(file, out, item.name, item.key, item.found)
    referenced = {r.place[1] for r in out.rows if r.place is not None}
    out.problems.extend(_parts_of_ranks(file.name, out.rows))
    unused = sum(size for key, size in file.sizes.items() if key not in referenced)
    if unused and file.complete:
        told = f"{count(unused)} bytes of storages are referred to by no tensor that was found"
        out.problems.append(Problem("unreferenced-bytes", "info", told, file=file.name))
    out.problems.extend(_storages_of_two_dtypes(file, tree))
    out.problems = grouped(out.problems, file.name)
    return out


def _parts_of_ranks(file: str, rows: Sequence[Row]) -> list[Problem]:
    """Tell of tensors that are one rank's part of larger ones: alone they are not what their names say."""
    parts = [row for row in rows if row.placed is not None]
    if not parts:
        return []
    first = parts[0].placed
    assert first is not None
    whose = "a rank" if first.rank is None else f"rank {first.rank}"
    of = "" if first.world is None else f" of {first.world:,}"
    return [Problem("rank-part", "info",
        f"{plural(len(parts), 'tensor')} of {printable(file)} are the part that {whose}{of} holds of a larger one "
        f"({printable(parts[0].name)} is {parts[0].shape} of {first.shape}): the folder of all ranks' files joins them",
        file=file)]  # fmt: skip


def _storages_of_two_dtypes(file: TorchFile, tree: Tree) -> list[Problem]:
    """Tell of storages that the pickle calls by two element types: torch refuses one of them."""
    dtypes_of: dict[str, dict[str, str]] = {}
    for item in tree.tensors:
        if isinstance(item.found, TensorRef) and item.found.storage is not None:
            storage = item.found.storage
            dtypes_of.setdefault(storage.key, {}).setdefault(storage.dtype, item.name)
    return [
        Problem("storage-of-two-dtypes", "warning",
            f"Storage {printable(key)} is used as "
            + " and as ".join(f"{dtype} ({printable(name)})" for dtype, name in found.items()), file=file.name)
        for key, found in dtypes_of.items() if len(found) > 1
    ]  # fmt: skip


def local_rows(file: TorchFile, name: str, key: TensorKey, found: TensorRef, problems: list[Problem]) -> list[Row]:
    """Return the rows of what a file holds of one tensor: one, or one for each part of it; adds to `problems`."""
    out = FileTensors(file.name)
    _add(file, out, name, key, found)
    problems.extend(out.problems)
    return out.rows


def _add(file: TorchFile, out: FileTensors, name: str, key: TensorKey, found: TensorRef) -> None:
    if math.prod(found.shape) > _MOST_ELEMENTS:
        told = f"{printable(name)} cannot be read: its shape needs more elements than 64 bits count"
        out.lost.append((name, key, Problem("bad-shape", "error", told, name, file.name)))
        out.problems.append(out.lost[-1][2])
        return
    match found.form:
        case "strided":
            row = _strided(file, out, name, key, found)
        case "inline":
            data = HeldBytes(file.name, file.pickle_at + found.at, found.inline or b"")
            encoding = dtypes.encoding(found.dtype)
            encoding = encoding.big_endian() if found.big_endian and (encoding.bits or 0) > 8 else encoding
            row = _row(name, key, found, encoding, _whole(found.shape), None, _strided_maker(data, found, encoding, 0))
        case "meta":
            out.problems.append(Problem("meta-tensor", "warning",
                f"{printable(name)} is {found.note}: nothing can be read", name, file.name))  # fmt: skip
            row = _row(name, key, found, dtypes.encoding(found.dtype), [], None, _nothing)
        case _:
            _computed(file, out, name, key, found)
            return
    out.rows.append(row)


def _computed(file: TorchFile, out: FileTensors, name: str, key: TensorKey, found: TensorRef) -> None:
    """Add the stored components of a tensor, and what they mean together where that is known."""
    components: dict[str, Row] = {}
    for part, ref in found.parts.items():
        before = len(out.rows)
        _add(file, out, f"{name}.{part}", replace(key, param=f"{key.param}.{part}"), ref)
        if len(out.rows) == before + 1:
            components[part] = out.rows[-1]
    if len(components) < len(found.parts) or not all(row.complete for row in components.values()):
        return
    sources = {part: row.make(Region.whole(row.shape), 0) for part, row in components.items()}
    if found.form == "quantised":
        axis = int(found.numbers["axis"]) if "axis" in found.numbers else None
        scale: float | StoredSource = sources["scale"] if axis is not None else found.numbers["scale"]
        zero: float | StoredSource = sources["zero_point"] if axis is not None else found.numbers["zero_point"]
        whole: StoredSource = Dequantised(sources["int_repr"], scale, zero, axis)
        word = "dequantized"
    elif found.form == "sparse" and found.layout in ("torch.sparse_coo", "torch.sparse_csr", "torch.sparse_csc"):
        values = components["values"]
        if len(values.shape) != 1 or not found.shape:
            return  # blocks or batches: shown by their components
        if found.layout == "torch.sparse_coo":
            if components["indices"].shape != (len(found.shape), values.shape[0]):
                return
            whole = Dense(found.shape, Listed(sources["indices"]), sources["values"], found.layout)
        else:
            axis = 0 if found.layout == "torch.sparse_csr" else 1
            names = ("crow_indices", "col_indices") if axis == 0 else ("ccol_indices", "row_indices")
            coordinates = Compressed(sources[names[0]], sources[names[1]], axis)
            whole = Dense(found.shape, coordinates, sources["values"], found.layout)
        word = "dense"
    else:
        return
    encoding = dtypes.encoding(found.dtype)
    made = partial(_part_of, whole)
    label = f"{name}.{word}"
    key = replace(key, param=f"{key.param}.{word}")
    out.rows.append(Row(label, key, found.shape, encoding, _whole(found.shape), True, None, made))


def _part_of(whole: StoredSource, region: Region, first: int) -> StoredSource:
    """Return a computed array, which has one box only: all of it."""
    assert region == Region.whole(whole.shape)
    assert first == 0
    return whole


def _nothing(region: Region, first: int) -> StoredSource:
    raise AssertionError("a tensor without boxes has no source")


def _whole(shape: tuple[int, ...]) -> list[tuple[Region, int]]:
    return [(Region.whole(shape), 0)]


def _row(
    name: str, key: TensorKey, found: TensorRef, encoding: Encoding, boxes: list[tuple[Region, int]],
    place: tuple[object, ...] | None, make: Maker,
) -> Row:  # fmt: skip
    whole = sum(box.size for box, _ in boxes) == math.prod(found.shape) and bool(boxes)
    whole = whole and encoding.readable
    return Row(name, key, found.shape, encoding, boxes, whole, place, make, found.device, found.placed)


def _strided(file: TorchFile, out: FileTensors, name: str, key: TensorKey, found: TensorRef) -> Row:
    storage = found.storage
    assert storage is not None
    encoding = dtypes.encoding(found.dtype)
    wide = (encoding.bits or 0) > 8
    encoding = encoding.big_endian() if file.byteorder == "big" and wide else encoding
    own = dtypes.encoding(storage.dtype).bits or 8
    offset = found.offset + (storage.view[0] if storage.view is not None else 0) * own // (encoding.bits or own)
    place = ("storage", storage.key, offset, found.shape, found.strides, found.dtype, found.bits)

    def told(code: str, sentence: str) -> Row:
        out.problems.append(Problem(code, "error", sentence, name, file.name))
        return _row(name, key, found, encoding, [], place, _nothing)

    if encoding.bits is None:
        return told("unknown-dtype", f"The dtype {printable(found.dtype)!r} of {printable(name)} is unknown to us")
    data = file.storages(storage.key) if storage.device != "meta" else None
    n = math.prod(found.shape)
    last = offset + sum((extent - 1) * step for extent, step in zip(found.shape, found.strides, strict=True))
    need = 0 if not n else -(-(last + 1) * encoding.bits // 8)
    claimed = (storage.view[0] + storage.view[1] if storage.view else storage.n_elements) * own // 8
    if need > claimed and storage.view is None:
        return told("outside-storage",
            f"{printable(name)} reaches byte {count(need)} of storage {printable(storage.key)}, which the pickle gives "
            f"{count(claimed)}")  # fmt: skip
    if data is None:
        if not n and not claimed:
            return _row(name, key, found, encoding, _whole(found.shape), place, _empty_maker(file, found, encoding))
        return told("missing-record",
            f"Storage {printable(storage.key)} of {printable(name)} is not in the file")  # fmt: skip
    make = _strided_maker(data, found, encoding, offset)
    if (
        n > 1
        and 0 in [s for s, e in zip(found.strides, found.shape, strict=True) if e > 1]
        and n * encoding.bits // 8 > 1 << 40
    ):
        out.problems.append(Problem("expanded", "warning",
            f"{printable(name)} has {count(n)} elements that share {count(need)} bytes (a stride of 0)", name,
            file.name))  # fmt: skip
    if need <= data.n_bytes:
        if data.n_bytes < claimed:
            out.problems.append(Problem("short-storage", "error",
                f"Storage {printable(storage.key)} has {count(data.n_bytes)} bytes where the pickle says "
                f"{count(claimed)}; {printable(name)} lies in those that are there", name, file.name))  # fmt: skip
        return _row(name, key, found, encoding, _whole(found.shape), place, make)
    boxes: list[tuple[Region, int]] = []
    there = 0
    if found.strides == row_major(found.shape) or n == 1:
        there = max(0, min(n, data.n_bytes * 8 // encoding.bits - offset))
        boxes = sorted(flat_range(found.shape, 0, there), key=lambda pair: pair[0].start)
    out.problems.append(Problem("truncated", "error",
        f"Storage {printable(storage.key)} has {count(data.n_bytes)} bytes; {printable(name)} needs {count(need)}: "
        f"{count(there)} of its {plural(n, 'element')} can be read", name, file.name))  # fmt: skip
    return _row(name, key, found, encoding, boxes, place, make)


def _strided_maker(data: Bytes, found: TensorRef, encoding: Encoding, offset: int) -> Maker:
    def make(region: Region, first: int) -> StoredSource:
        whole = region.shape == found.shape
        steps = found.strides if whole else row_major(region.shape)
        source: StoredSource = StridedBytes(data, 0, region.shape, steps, encoding, offset + first)
        for kind in found.bits:
            source = BitView(source, kind)
        return source

    return make


def _empty_maker(file: TorchFile, found: TensorRef, encoding: Encoding) -> Maker:
    return _strided_maker(HeldBytes(file.name, file.pickle_at, b""), found, encoding, 0)


# ---------------------------------------------------------------- all files together


@dataclass(slots=True)
class Built:
    """The table of a checkpoint, and how to make its tensors."""

    table: TensorTable
    rows: list[tuple[FileTensors, Row]]
    aliases: dict[str, str]
    unreadable: dict[str, UnreadableTensor]
    problems: dict[str, list[Problem]]

    def tensor(self, row: int) -> LogicalTensor:
        """Return the tensor of a row of the table."""
        file, item = self.rows[row]
        first = int(self.table.first_fragment[row])

        def open_source(fragment: int) -> StoredSource:
            return item.make(*item.boxes[fragment - first])

        name = self.table.names[row]
        held = [(item.make(*box), item) for box in item.boxes] if item.device not in ("", "cpu") else []
        fragments = self.table.fragments(row, open_source)
        return LogicalTensor(
            name, self.table.keys(row), item.shape, item.encoding, fragments, item.complete,
            tuple(LocalTensor(file.part, None, item.device, item.name, source) for source, _ in held),
            problems=tuple(self.problems.get(name, ())),
        )  # fmt: skip


def build_table(files: Sequence[FileTensors], problems: list[Problem]) -> Built:
    """Return all tensors under unique names, in natural order within their part; equal places become aliases."""
    chosen: list[tuple[str, FileTensors, Row]] = []
    aliases: dict[str, str] = {}
    by_tensor: dict[str, list[Problem]] = {}
    unreadable: dict[str, UnreadableTensor] = {}
    taken: set[str] = set()
    parts = list(dict.fromkeys(file.part for file in files))
    for file in files:
        owners: dict[object, str] = {}
        names: dict[str, str] = {}
        for row in file.rows:
            label = _label(file, row.name, taken)
            names[row.name] = label
            owner = owners.setdefault(row.place, label) if row.place is not None and row.boxes else label
            if owner != label:
                aliases[label] = owner
            else:
                chosen.append((label, file, row))
        for name, key, problem in file.lost:
            label = _label(file, name, taken)
            names[name] = label
            own = replace(key, part=file.part or key.part)
            told = replace(problem, tensor=label)
            unreadable[label] = UnreadableTensor(label, own, None, None, file.file, (told,))
        for problem in file.problems:
            told = replace(problem, tensor=names.get(problem.tensor)) if problem.tensor is not None else problem
            problems.append(told)
            if told.tensor is not None:
                by_tensor.setdefault(told.tensor, []).append(told)
    order = natural_order([label for label, _, _ in chosen])
    if len(parts) > 1:
        order.sort(key=lambda i: parts.index(chosen[i][1].part))
    return _table([chosen[i] for i in order], files, aliases, unreadable, by_tensor)


def _label(file: FileTensors, name: str, taken: set[str]) -> str:
    label = f"{file.part}/{name}" if file.part else name
    if name in file.yields_to or label in taken:
        label = f"{label} [{file.file}]"
    found, n = label, 2
    while found in taken:
        found, n = f"{label} ({n})", n + 1
    taken.add(found)
    return found


def _table(
    rows: list[tuple[str, FileTensors, Row]], files: Sequence[FileTensors], aliases: dict[str, str],
    unreadable: dict[str, UnreadableTensor], by_tensor: dict[str, list[Problem]],
) -> Built:  # fmt: skip
    names: Sequence[str] = [label for label, _, _ in rows]
    if len(names) > 200_000:
        names = NameColumn.of(names)
    encodings: dict[Encoding, int] = {}
    code = [encodings.setdefault(row.encoding, len(encodings)) for _, _, row in rows]
    n_boxes = [len(row.boxes) for _, _, row in rows]
    ndim = [len(row.shape) for _, _, row in rows]
    start = [edge for _, _, row in rows for box, _ in row.boxes for edge in box.start]
    stop = [edge for _, _, row in rows for box, _ in row.boxes for edge in box.stop]
    file_names = tuple(dict.fromkeys(file.file for file in files))
    at = {name: i for i, name in enumerate(file_names)}
    fragments = sum(n_boxes)
    length = [stored_length(row.encoding, box) for _, _, row in rows for box, _ in row.boxes]
    keys = [replace(row.key, part=file.part) if file.part else row.key for _, file, row in rows]
    table = TensorTable(
        names=names, keys=keys.__getitem__, encodings=tuple(encodings), encoding=np.array(code, np.int16),
        n_elements=np.array([math.prod(row.shape) for _, _, row in rows], np.int64),
        complete=np.array([row.complete for _, _, row in rows], np.bool_),
        dims=np.array([n for _, _, row in rows for n in row.shape], np.int64), first_dim=ends(ndim),
        first_fragment=ends(n_boxes), start=np.array(start, np.int64), stop=np.array(stop, np.int64),
        first_coordinate=ends([a * b for a, b in zip(n_boxes, ndim, strict=True)]),
        file=np.repeat(np.array([at[file.file] for _, file, _ in rows], np.int32), n_boxes),
        # Where the bytes lie only the record's own header tells, which is not read before a tensor is.
        offset=np.full(fragments, -1, np.int64), length=np.array(length, np.int64),
        rank=np.full(fragments, NO_RANK, np.int32), term=np.zeros(fragments, np.int32), files=file_names,
    )  # fmt: skip
    return Built(table, [(file, row) for _, file, row in rows], aliases, unreadable, by_tensor)


def stored_length(encoding: Encoding, box: Region) -> int:
    """Return the bytes of a box's elements; -1 where elements share bytes so that 64 bits do not count them."""
    n = encoding.n_bytes(box.size) if encoding.bits else -1
    return n if n <= _MOST_ELEMENTS else -1
