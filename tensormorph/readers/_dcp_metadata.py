"""The metadata of a DCP checkpoint as columns: which boxes each tensor has, and in which file and byte each lies.

Source: torch 2.0 to 2.14, torch/distributed/checkpoint/metadata.py (``Metadata`` and what it holds), filesystem.py
(``_StorageInfo``). Classes are known by their name and the form of their state, whatever module they come from: other
frameworks have their own under the same names. Nothing of them is imported.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any

import numpy as np

from tensormorph.errors import CorruptFileError, Severity
from tensormorph.readers._pickle import interpret
from tensormorph.readers._pickle_machine import Limits
from tensormorph.readers._pickle_names import effect
from tensormorph.readers._pickle_nodes import Call, Dict, Global, List, Tuple, Value, describe, is_global
from tensormorph.readers._pickle_packed import Form, Kind, Packed
from tensormorph.readers._process import Message, Report
from tensormorph.text import count, listing, plural, printable

_INT64 = (1 << 63) - 1
_HOME = re.compile(r"torch\.distributed\.(_shard\.)?(checkpoint|sharded_tensor|_shard\.sharded_tensor)\b")
_OF_INDEX = re.compile(r"(torch|collections|pathlib|builtins)(\.|$)")
_LIVING: list[object] = []
_LIMITS = Limits(opcodes=500_000_000, nodes=100_000_000)
_TOLD = 20
"""So many problems of one kind are told one by one; the others are counted."""


@dataclass(slots=True)
class Columns:
    """What one metadata file says, as it crosses from the helper process.

    Fields
    ------
    names, dtypes, dtype
        Names of tensors; the names of element types in use, and each tensor's position among them (-1: unknown).
    dims, n_dims
        Extents of all tensors, one behind the other, and how many each has.
    start, stop
        Boxes of all chunks, one behind the other: as many numbers a chunk as its tensor has axes.
    n_chunks
        Chunks of each tensor.
    file, offset, length, transform
        Of each chunk: position in `files` (-1: the metadata has no storage record for it), bytes of its item, and
        position in `transforms` (0 is none).
    objects
        Names of what is no tensor; `object_file`, `object_offset`, `object_length`, `object_transform` as above.
    files, transforms
        Relative paths as stored; lists of transformations, in the order in which they are to be undone.
    paths
        Name -> the keys that lead to it in the saved state dict, where the planner recorded them.
    notes
        Problems as (code, severity, sentence, tensor).
    facts
        ``version``, ``checkpoint_id``, ``save_id``, ``modules``, ``fields``: what the writer tells of itself.
    """

    names: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    transforms: list[list[str]] = field(default_factory=lambda: [[]])
    objects: list[str] = field(default_factory=list)
    paths: dict[str, list[str | int]] = field(default_factory=dict)
    notes: list[tuple[str, Severity, str, str | None]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = field(default_factory=dict)


_NUMBERS = (
    "dtype", "dims", "n_dims", "n_chunks", "start", "stop", "file", "offset", "length", "transform", "object_file",
    "object_offset", "object_length", "object_transform",
)  # fmt: skip
_LISTS = ("names", "dtypes", "files", "transforms", "objects", "paths", "notes", "facts")


def columns(argument: Message, report: Report) -> Message:
    """Read a metadata file, as the helper process is asked to: ``{"path", "name"}`` in, Columns as a message out.

    Raises
    ------
    CorruptFileError
        If it is no metadata of DCP, or its pickle breaks off: an index that is cut short cannot be trusted.
    LimitError, CancelledError
    """
    with open(str(argument["path"]), "rb") as file:
        data = file.read()
    found = parse(data, str(argument["name"]), report, _LIVING)
    return {**{key: getattr(found, key) for key in _LISTS}, **found.numbers}


def from_message(message: Message) -> Columns:
    """Return what the helper process sent."""
    found = Columns(**{key: message[key] for key in _LISTS})
    found.notes = [(code, severity, told, tensor) for code, severity, told, tensor in found.notes]
    found.numbers = {key: message[key] for key in _NUMBERS}
    return found


def parse(data: bytes, name: str, report: Report, living: list[object] | None = None) -> Columns:
    """Return what a metadata file says. Raises as `columns`.

    Parameters
    ----------
    living
        Takes the nodes, so that they are not freed: that takes a tenth of the time, and a helper process just ends.
    """
    collecting = gc.isenabled()
    gc.disable()  # a million nodes live until the columns are made: looking among them for garbage takes as long again
    try:
        return _parse(data, name, report, living)
    finally:
        if collecting:
            gc.enable()


def _parse(data: bytes, name: str, report: Report, living: list[object] | None) -> Columns:
    if data[:1] != b"\x80":
        raise CorruptFileError(name, f"It is no pickle: it begins with {data[:8].hex(' ') or 'nothing'}", 0)
    pickle = interpret(data, limits=_LIMITS, report=report, name=name, forms=_forms())
    if not pickle.complete:
        told = pickle.problems[-1].sentence
        raise CorruptFileError(name, f"{told}. An index that is cut short is not read", pickle.end)
    if living is not None:
        living.append(pickle)
    root = pickle.value
    if not (_is(root, "Metadata") and isinstance(root, Call) and isinstance(root.state, Dict)):
        raise CorruptFileError(name, f"It is no metadata of DCP: the object in it is {describe(root)}")
    reader = _Reader(name, report)
    reader.tell_code(pickle.globals)
    reader.notes += [(p.code, p.severity, p.sentence, None) for p in pickle.problems]
    return reader.read(root.state)


# ---------------------------------------------------------------- nodes


def _is(node: Value, name: str) -> bool:
    """Whether a node is an object of a class of this name, whatever its module."""
    return isinstance(node, Call) and isinstance(node.function, Global) and node.function.name.split(".")[-1] == name


def _fields(node: Value) -> Dict | None:
    """Return the fields of an object: its state, also where slots or a tuple of the two forms hold it."""
    state = node.state if isinstance(node, Call) else None
    if isinstance(state, Tuple) and len(state) == 2 and isinstance(state[1], Dict):
        state = state[1]
    return state if isinstance(state, Dict) else None


def _forms() -> list[Form]:
    """Return the forms of what a metadata of torch 2.0 to 2.14 repeats for every chunk."""
    place: list[tuple[str, Kind]] = [("relative_path", "text"), ("offset", "int"), ("length", "int")]
    return [
        Form("ChunkStorageMetadata", [("offsets", "size"), ("sizes", "size")]),
        Form("MetadataIndex", [("fqn", "text"), ("index", "int?"), ("offset", "size?")]),
        Form("_StorageInfo", place),
    ]


def _numbers(node: Value) -> tuple[int, ...] | None:
    """Return a torch.Size, tuple or list of whole numbers."""
    if isinstance(node, Call) and is_global(node.function, "torch", "Size") and isinstance(node.args, Tuple):
        node = node.args[0] if node.args else Tuple(())
    if not isinstance(node, Tuple | List) or not all(type(n) is int for n in node):
        return None
    return tuple(n for n in node if type(n) is int)


_DTYPE_ALIASES = {"double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32",
                  "short": "int16"}  # fmt: skip


def _dtype_of(properties: Value) -> str:
    """Return torch's name of a tensor's element type; empty where it is not told.

    The state of TensorProperties is a tuple (dtype, layout, ...); subclasses of other frameworks keep a dict.
    """
    state = properties.state if isinstance(properties, Call) else None
    found: Value = None
    if isinstance(state, Tuple) and state:
        found = state[0]
    elif isinstance(state, Dict):
        found = state.get("dtype")
    if isinstance(found, Global) and found.module == "torch":
        return _DTYPE_ALIASES.get(found.name, found.name)
    return ""


def _path(node: Value) -> list[str | int] | None:
    """Return the keys of a planner's path; None if they are of other kinds."""
    if not isinstance(node, Tuple | List) or not all(isinstance(part, str | int) for part in node):
        return None
    return [part for part in node if isinstance(part, str | int)]


# ---------------------------------------------------------------- reading


_Stored = tuple[int, int, int, int]
"""One storage record: file, offset, length, transformation."""
_NOWHERE: _Stored = (-1, -1, -1, 0)


class _Reader:
    def __init__(self, name: str, report: Report) -> None:
        self.name = name
        self.report = report
        self.notes: list[tuple[str, Severity, str, str | None]] = []
        self.files: dict[str, int] = {}
        self.transforms: dict[tuple[str, ...], int] = {(): 0}
        self._told: dict[str, int] = {}

    def note(self, code: str, severity: Severity, sentence: str, tensor: str | None = None) -> None:
        self._told[code] = self._told.get(code, 0) + 1
        if self._told[code] <= _TOLD:
            self.notes.append((code, severity, sentence, tensor))

    def tell_code(self, globals_: Sequence[Global]) -> None:
        """Tell which names of the metadata Python would import and run, and which classes are not torch's own."""
        foreign: list[str] = []
        for reference in globals_:
            found = effect(*reference.known_as)
            dotted_name = printable(f"{reference.module}.{reference.name}", 120)
            if found is not None and found[0] == "warning":
                self.note("code-reference", "warning",
                    f"The metadata names {dotted_name} at byte {count(reference.at)}, which {found[1]}; loading it "
                    "with torch would run that")  # fmt: skip
            elif not _OF_INDEX.match(reference.module):
                foreign.append(f"{reference.module}.{reference.name}")
        if foreign:
            self.note("foreign-classes", "info",
                f"The metadata is made of {plural(len(foreign), 'class', 'classes')} that torch does not define: "
                f"{listing(foreign)}; they are read by their names and fields")  # fmt: skip

    def read(self, state: Dict) -> Columns:
        out = Columns()
        described = state.get("state_dict_metadata")
        stored = self._storage(state.get("storage_data"))
        if not isinstance(described, Dict):
            raise CorruptFileError(self.name, f"Its list of tensors is {describe(described)}, not a dict")
        dtypes: dict[str, int] = {}
        numbers: dict[str, list[int]] = {key: [] for key in ("dtype", "dims", "n_dims", "n_chunks", "start", "stop")}
        places: list[_Stored] = []
        object_places: list[_Stored] = []
        total = len(described)
        for done, (key, value) in enumerate(described.pairs()):
            if not done % 256:
                self.report("Reading tensors of the metadata", done, total)
            if not isinstance(key, str):
                self.note("odd-name", "warning", f"A name in the metadata is {describe(key)}, not a text: left out")
            elif _is(value, "BytesStorageMetadata"):
                out.objects.append(key)
                object_places.append(stored.pop((key, None), _NOWHERE))
            elif (fields := _fields(value)) is not None and "chunks" in fields:
                self._tensor(out, numbers, dtypes, key, fields, stored, places)
            else:
                self.note("unknown-entry", "warning",
                    f"{printable(key)} is {describe(value)} in the metadata, neither a tensor nor an object: left out",
                    key)  # fmt: skip
        if stored:
            names = listing([name for name, _ in list(stored)[:4]])
            self.note("unused-record", "info",
                f"{plural(len(stored), 'storage record')} of the metadata belong to no chunk ({names})")  # fmt: skip
        for code, n in self._told.items():
            if n > _TOLD:
                worst = next(severity for c, severity, _, _ in self.notes if c == code)
                self.notes.append((code, worst, f"{count(n - _TOLD)} more of this kind ({code})", None))
        out.dtypes, out.files = list(dtypes), list(self.files)
        out.transforms = [list(chain) for chain in self.transforms]
        out.paths = dict(self._paths(state.get("planner_data")))
        out.notes, out.facts = self.notes, self._facts(state)
        out.numbers = {key: np.array(values, np.int64) for key, values in numbers.items()}
        for prefix, held in (("", places), ("object_", object_places)):
            table = np.array(held, np.int64).reshape(len(held), 4)
            for i, key in enumerate(("file", "offset", "length", "transform")):
                out.numbers[prefix + key] = np.ascontiguousarray(table[:, i])
        return out

    def _tensor(
        self, out: Columns, numbers: dict[str, list[int]], dtypes: dict[str, int], name: str, fields: Dict,
        stored: dict[tuple[str, tuple[int, ...] | None], _Stored], places: list[_Stored],
    ) -> None:  # fmt: skip
        shape = _numbers(fields.get("size"))
        chunks = fields.get("chunks")
        if shape is None or not all(0 <= n <= _INT64 for n in shape) or not isinstance(chunks, List | Tuple):
            self.note("bad-shape", "error",
                f"{printable(name)} has size {describe(fields.get('size'), 60)} and chunks "
                f"{describe(chunks, 60)}: nothing can be read by that", name)  # fmt: skip
            return
        if math.prod(shape) > _INT64:
            self.note("bad-shape", "error",
                f"{printable(name)} has size {shape}: more elements than 64 bits count", name)  # fmt: skip
            return
        dtype = _dtype_of(fields.get("properties"))
        out.names.append(name)
        numbers["dtype"].append(dtypes.setdefault(dtype, len(dtypes)))
        numbers["dims"].extend(shape)
        numbers["n_dims"].append(len(shape))
        start, stop = numbers["start"], numbers["stop"]
        ndim = len(shape)
        kept = 0
        for chunk in chunks:
            box = self._chunk(chunk)
            if box is None or len(box[0]) != ndim or len(box[1]) != ndim:
                told = "of no usual form" if box is None else f"of {len(box[0])} and {len(box[1])} axes"
                self.note("chunk-form", "error",
                    f"{printable(name)} of shape {shape} has a chunk {told} "
                    f"({describe(chunk, 60) if box is None else f'offsets {box[0]}, sizes {box[1]}'})",
                    name)  # fmt: skip
                continue
            low, extent = box
            found = stored.pop((name, low), _NOWHERE)
            high = tuple(map(add, low, extent))
            if low and (min(low) < 0 or min(extent) < 0 or max(high) > _INT64):
                self.note("chunk-outside", "error",
                    f"{printable(name)} of shape {shape} has a chunk at {low} of sizes {extent}, which is no box in it",
                    name)  # fmt: skip
                continue
            start.extend(low)
            stop.extend(high)
            places.append(found)
            kept += 1
        numbers["n_chunks"].append(kept)

    def _chunk(self, node: Value) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        if type(node) is Packed and node.form.name == "ChunkStorageMetadata":
            low, extent = node.values
            return low, extent
        fields = _fields(node)
        if fields is None:
            return None
        low, extent = _numbers(fields.get("offsets")), _numbers(fields.get("sizes"))
        return None if low is None or extent is None else (low, extent)

    # ------------------------------------------------------------ storage records

    def _storage(self, node: Value) -> dict[tuple[str, tuple[int, ...] | None], _Stored]:
        """Return the storage records by what they are about: name and first coordinates, None for an object."""
        out: dict[tuple[str, tuple[int, ...] | None], _Stored] = {}
        if not isinstance(node, Dict):
            self.note("no-storage", "error", f"The metadata's list of places is {describe(node)}, not a dict")
            return out
        total = len(node)
        for done, (key, value) in enumerate(node.pairs()):
            if not done % 4096:
                self.report("Reading places of the metadata", done, total)
            if (
                type(key) is type(value) is Packed
                and key.form.name == "MetadataIndex"
                and value.form.name == "_StorageInfo"
            ):
                name, _, low = key.values
                path, offset, length = value.values
                at = self.files.setdefault(path, len(self.files))
                if offset >= 0 and length >= 0 and offset + length <= _INT64 and (name, low) not in out:
                    out[name, low] = (at, offset, length, 0)
                    continue
            name, low = self._about(key)
            place = self._record(value)
            if name is None:
                self.note("bad-record", "error", f"A storage record is about {describe(key)}: it is left out")
                continue
            if isinstance(place, str):
                self.note("bad-record", "error", f"The storage record of {printable(name)} at {low} {place}", name)
                continue
            if out.setdefault((name, low), place) is not place:
                self.note("record-twice", "error",
                    f"{printable(name)} has two storage records for the chunk at {low}: the first is used",
                    name)  # fmt: skip
        return out

    def _about(self, node: Value) -> tuple[str | None, tuple[int, ...] | None]:
        """Return what a storage record is about: name and first coordinates; no name where it is of no usual form."""
        if type(node) is Packed and node.form.name == "MetadataIndex":
            name, _, low = node.values
            return name, low
        fields = _fields(node)
        found, offset = (None, None) if fields is None else (fields.get("fqn"), fields.get("offset"))
        low = None if offset is None else _numbers(offset)
        return (found if isinstance(found, str) and (offset is None or low is not None) else None), low

    def _record(self, node: Value) -> _Stored | str:
        """Return a storage record, or what is wrong with it."""
        chain: Value = None
        if type(node) is Packed and node.form.name == "_StorageInfo":
            path, offset, length = node.values
        else:
            fields = _fields(node)
            if fields is None:
                return f"is {describe(node)}"
            path, offset, length = fields.get("relative_path"), fields.get("offset"), fields.get("length")
            chain = fields.get("transform_descriptors")
        if not isinstance(path, str) or type(offset) is not int or type(length) is not int:
            return f"is {describe(node)} without file, offset and length"
        if offset < 0 or length < 0 or offset + length > _INT64:
            return f"says bytes {count(offset)} to {count(offset + length)} of {printable(path)}: no place in a file"
        names: tuple[str, ...] = ()
        if isinstance(chain, List | Tuple):
            names = tuple(part if isinstance(part, str) else describe(part, 60) for part in chain)
        elif chain is not None:
            names = (describe(chain, 60),)
        file = self.files.setdefault(path, len(self.files))
        return file, offset, length, self.transforms.setdefault(names, len(self.transforms))

    # ------------------------------------------------------------ what the writer tells of itself

    def _paths(self, node: Value) -> Iterator[tuple[str, list[str | int]]]:
        if isinstance(node, Dict):
            for key, value in node.pairs():
                found = _path(value)
                if isinstance(key, str) and found is not None:
                    yield key, found

    def _facts(self, state: Dict) -> dict[str, Any]:
        out: dict[str, Any] = {"fields": [key for key in state.keys() if isinstance(key, str)]}  # noqa: SIM118
        out["planned"] = isinstance(state.get("planner_data"), Dict)
        version = state.get("version")
        if isinstance(version, str):
            out["version"] = version
        meta = _fields(state.get("storage_meta"))
        if meta is not None:
            place = meta.get("checkpoint_id")
            if isinstance(place, Call) and isinstance(place.args, Tuple):
                place = "/".join(str(part) for part in place.args).replace("//", "/")
            told = (("checkpoint_id", place), ("save_id", meta.get("save_id")))
            out.update((key, value) for key, value in told if isinstance(value, str))
            modules = meta.get("modules")
            if isinstance(modules, List | Tuple):
                out["modules"] = [describe(part, 60) if not isinstance(part, str) else part for part in modules]
        return out
