"""What torch.save writes: a zip of a pickle and storages, the older stream of five pickles, or a bare pickle.

Sources: torch 2.13, torch/serialization.py (`_save`, `_legacy_save`) and caffe2/serialize/inline_container.cc.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tensormorph import dtypes
from tensormorph.errors import CancelledError, CorruptFileError, LimitError, Problem, TensormorphError
from tensormorph.readers._bytes import Bytes, Extent
from tensormorph.readers._pickle import Pickle, interpret
from tensormorph.readers._pickle_machine import Limits
from tensormorph.readers._pickle_nodes import Global, List, Persistent, Tuple, Value
from tensormorph.readers._pickle_show import held_by
from tensormorph.readers._process import Report
from tensormorph.readers._zip import Record, ZipArchive, read_directory
from tensormorph.text import count, listing, plural, printable

MAGIC = 0x1950A86A20F9469CFC6C
"""First object of the older stream. Source: torch/serialization.py, MAGIC_NUMBER."""
FIRST_READ = 1 << 20
SUM_BYTES = 4 << 20
BOMB_BYTES = 64 << 20
BOMB_RATIO = 100
_LEGACY_PROTOCOL = 1001

Container = Literal["zip", "stream", "pickle"]

# Bytes of an element of torch's storage classes. Source: torch/storage.py, _dtype_to_storage_type_map.
STORAGE_DTYPES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128", "QInt8Storage": "int8", "QUInt8Storage": "uint8", "QInt32Storage": "int32",
    "QUInt4x2Storage": "uint8", "QUInt2x4Storage": "uint8", "UntypedStorage": "uint8",
}  # fmt: skip


@dataclass(slots=True)
class Storage:
    """A storage as the pickle refers to it.

    Fields
    ------
    key
        Names the bytes; equal keys are one storage.
    dtype
        torch's name of the element type; uint8 of an untyped storage.
    n_elements
        Elements that the pickle claims.
    device
        Where it was, as recorded: text only.
    view
        (offset, elements) where it is a view into a larger one (older stream only).
    """

    key: str
    dtype: str
    n_elements: int
    device: str
    view: tuple[int, int] | None = None


@dataclass(slots=True)
class TorchFile:
    """One opened file.

    Fields
    ------
    root
        The object that was saved.
    pickle_at
        Byte of the file at which its pickle begins.
    storages
        Storage key -> its bytes, None where the file has none.
    byteorder
        ``little`` or ``big``: of every element of a zip; the stream is always little.
    script
        Whether it is a TorchScript archive.
    complete
        Whether the pickle reached its end.
    archive
        The zip, where there is one.
    sizes
        Storage key -> bytes that the file holds of it.
    """

    name: str
    container: Container
    root: Value
    pickle_at: int
    storages: Callable[[str], Bytes | None]
    byteorder: Literal["little", "big"]
    globals: tuple[Global, ...]
    problems: list[Problem]
    script: bool = False
    complete: bool = True
    archive: ZipArchive | None = None
    sizes: dict[str, int] = field(default_factory=dict)


def open_torch(source: Extent, report: Report, limits: Limits | None = None) -> TorchFile:
    """Open what torch.save wrote into `source`; reads its directory and pickle, and no storage.

    Raises
    ------
    CorruptFileError
        If it is neither a zip nor a pickle, or the zip holds no pickle.
    LimitError, CancelledError, ReadError
    """
    limits = limits or Limits()
    head = bytes(source.read(0, min(4, source.n_bytes)))
    if head[:2] == b"PK" or not _looks_like_pickle(source):
        return _open_zip(source, report, limits)
    return _open_stream(source, report, limits)


def _looks_like_pickle(source: Extent) -> bool:
    """Whether the beginning interprets as opcodes for a while: text protocols have no signature."""
    n = min(source.n_bytes, 4096)
    start = bytes(source.read(0, n))
    if start[:1] == b"\x80" and len(start) > 1 and start[1] <= 255:
        return True
    tried = interpret(start, name=source.name)
    return n > 0 and (tried.complete or tried.truncated) and tried.n_opcodes > 0


# ---------------------------------------------------------------- zip


def _open_zip(source: Extent, report: Report, limits: Limits) -> TorchFile:
    archive = read_directory(source)
    pickles = [row for row, name in enumerate(archive.names) if _is_main_pickle(name)]
    if not pickles:
        some = listing([archive.text(i) for i in range(min(4, len(archive.names)))]) or "nothing"
        raise CorruptFileError(source.name, f"The zip holds no data.pkl, so it is not torch's (it holds {some})")
    row = pickles[0]
    stem = archive.names[row][: -len(b"data.pkl")]
    problems = list(archive.problems)
    others = sorted({archive.text(i) for i in pickles if archive.names[i] != archive.names[row]})
    if others:
        problems.append(Problem("second-pickle", "warning",
            f"The archive holds a second top folder with a pickle ({listing(others)}); torch refuses it, the first is "
            "shown", file=source.name))  # fmt: skip
    _odd_names(archive, stem, problems, source.name)
    _packed(archive, problems, source.name)
    if archive.local_name(row) != archive.names[row]:
        told = archive.local_name(row).decode("utf-8", "backslashreplace")
        problems.append(Problem("record-name", "warning",
            f"The directory calls a record {printable(archive.text(row))}, its own header {printable(told)}",
            file=source.name))  # fmt: skip
    record = archive.open(row)
    if record.n_bytes > limits.n_bytes:
        raise LimitError(source.name, "The pickle", record.n_bytes, limits.n_bytes, "pickle_bytes")
    report("Reading the pickle", 0, record.n_bytes)
    pickle = interpret(bytes(record.read(0, record.n_bytes)), limits=limits, report=report, name=source.name)
    problems += pickle.problems
    order = _text_record(archive, stem + b"byteorder") or "little"
    if order not in ("little", "big"):
        problems.append(Problem("byteorder", "error",
            f"The byteorder record says {printable(order)!r}, neither little nor big", file=source.name))  # fmt: skip

    def storages(key: str) -> Bytes | None:
        for folder in (b"data/", b"constants/", b"tensors/"):
            found = archive.first.get(stem + folder + key.encode("utf-8", "surrogatepass"))
            if found is not None:
                return Record(archive, found)
        return None

    prefix = stem + b"data/"
    sizes = {
        name[len(prefix) :].decode("utf-8", "surrogateescape"): int(archive.size[row])
        for name, row in archive.first.items() if name.startswith(prefix)
    }  # fmt: skip
    script = any(name.startswith(stem + b"code/") for name in archive.names)
    return TorchFile(
        source.name, "zip", pickle.value, record.start, storages, "big" if order == "big" else "little",
        pickle.globals, problems, script, pickle.complete, archive, sizes,
    )  # fmt: skip


def _is_main_pickle(name: bytes) -> bool:
    return name == b"data.pkl" or (name.endswith(b"/data.pkl") and name.count(b"/") == 1)


def _odd_names(archive: ZipArchive, stem: bytes, problems: list[Problem], file: str) -> None:
    odd = [
        archive.text(i) for i, name in enumerate(archive.names)
        if not name.startswith(stem) or b".." in name or b"\\" in name or name.startswith(b"/")
    ]  # fmt: skip
    if odd:
        problems.append(Problem("odd-record-names", "warning",
            f"{plural(len(odd), 'record')} of the archive stand outside its folder ({listing(odd)}): names only, no "
            "path is made of them", file=file))  # fmt: skip


def _packed(archive: ZipArchive, problems: list[Problem], file: str) -> None:
    """Tell of records that inflate a hundredfold: every read of them costs inflating what stands before."""
    size, packed = archive.size, archive.packed
    large = [archive.text(int(i)) for i in np.flatnonzero((size > BOMB_BYTES) & (size > BOMB_RATIO * packed))]
    if large:
        problems.append(Problem("inflated-record", "warning",
            f"{plural(len(large), 'record')} of the archive inflate more than {BOMB_RATIO}-fold ({listing(large)}): "
            "they are read in pieces, never whole", file=file))  # fmt: skip


def verify(archive: ZipArchive, budget: int | None, report: Report) -> tuple[list[Problem], int]:
    """Compare records with the CRC-32 that the directory stores, until `budget` bytes are read (None: all).

    torch writes the sums and does not look at them when it loads. Returns what disagrees, and the bytes read.
    """
    out: list[Problem] = []
    done = 0
    file = archive.source.name
    for row in archive.first.values():
        size = int(archive.size[row])
        if budget is not None and done + size > budget:
            continue
        try:
            record, crc, at = archive.open(row), 0, 0
            while at < size:
                step = min(SUM_BYTES, size - at)
                crc = zlib.crc32(record.read(at, step), crc)
                at, done = at + step, done + step
                report(f"Summing {file}", done, int(archive.size.sum()))
        except CancelledError:
            raise
        except TensormorphError as error:
            out.append(Problem(error.code, "error", f"{printable(archive.text(row))}: {error}", file=file))
            continue
        if crc != int(archive.crc[row]):
            out.append(Problem("crc", "warning",
                f"Record {printable(archive.text(row))} has CRC-32 {crc:08x}, the directory says "
                f"{int(archive.crc[row]):08x}: its bytes changed since they were written; torch does not look",
                file=file))  # fmt: skip
    return out, done


def _text_record(archive: ZipArchive, name: bytes) -> str:
    row = archive.first.get(name)
    if row is None or archive.size[row] > 4096:
        return ""
    record = archive.open(row)
    return bytes(record.read(0, record.n_bytes)).decode("utf-8", "backslashreplace").strip()


# ---------------------------------------------------------------- the older stream, and bare pickles


def _open_stream(source: Extent, report: Report, limits: Limits) -> TorchFile:
    n_bytes = min(FIRST_READ, source.n_bytes)
    while True:
        data = bytes(source.read(0, n_bytes))
        pickles: list[Pickle] = []
        at = 0
        while len(pickles) < 5:
            pickle = interpret(data, at, limits=limits, report=report, name=source.name)
            pickles.append(pickle)
            if not pickle.complete or pickles[0].value != MAGIC:
                break
            at = pickle.end
        if pickles[-1].complete or not pickles[-1].truncated or n_bytes >= source.n_bytes:
            break
        n_bytes = min(n_bytes * 4, source.n_bytes)
        if n_bytes > limits.n_bytes:
            raise LimitError(source.name, "The pickle", n_bytes, limits.n_bytes, "pickle_bytes")
    problems = [p for pickle in pickles for p in pickle.problems]
    if pickles[0].value != MAGIC:
        return _bare(source, pickles[0], problems)
    globals_ = tuple(g for pickle in pickles for g in pickle.globals)
    value = pickles[3].value if len(pickles) > 3 else pickles[-1].value
    complete = len(pickles) == 5 and pickles[4].complete
    start = pickles[2].end if len(pickles) > 3 else pickles[-1].end
    if len(pickles) > 1 and pickles[1].complete and pickles[1].value != _LEGACY_PROTOCOL:
        problems.append(Problem("protocol", "warning",
            f"The stream is of protocol {printable(str(pickles[1].value))}; {_LEGACY_PROTOCOL} is known",
            file=source.name))  # fmt: skip
    places: dict[str, Bytes] = {}
    if complete:
        keys = pickles[4].value
        places = _places(source, pickles[4].end, keys, _storages_of(value), problems)
    return TorchFile(
        source.name, "stream", value, start, places.get, "little", globals_, problems, False, complete, None,
        {key: place.n_bytes for key, place in places.items()},
    )  # fmt: skip


def _bare(source: Extent, pickle: Pickle, problems: list[Problem]) -> TorchFile:
    behind = source.n_bytes - pickle.end
    if pickle.complete and behind:
        problems.append(Problem("bytes-behind-pickle", "info",
            f"{plural(behind, 'byte')} stand behind the pickle", file=source.name,
            byte_range=(pickle.end, source.n_bytes)))  # fmt: skip
    return TorchFile(
        source.name, "pickle", pickle.value, 0, lambda key: None, "little", pickle.globals, problems, False,
        pickle.complete,
    )  # fmt: skip


def _storages_of(value: Value) -> dict[str, Storage]:
    """Return every storage that a pickle refers to, by key; iterative, each node once."""
    found: dict[str, Storage] = {}
    seen: set[int] = set()
    stack: list[Value] = [value]
    while stack:
        node = stack.pop()
        if id(node) in seen or node is None or isinstance(node, str | bytes | int | float):
            continue
        seen.add(id(node))
        if isinstance(node, Persistent):
            storage = parse_storage(node)
            if storage is not None:
                found.setdefault(storage.key, storage)
                continue
        stack.extend(value for _, _, value in held_by(node))
    return found


def _places(
    source: Extent, at: int, keys: Value, storages: dict[str, Storage], problems: list[Problem]
) -> dict[str, Bytes]:
    """Return where each storage of the stream lies: i64 elements and the elements, in the order of the key list.

    Always little-endian, whatever the stream's flag: torch converts on writing (THP_encodeInt32Buffer).
    """
    places: dict[str, Bytes] = {}
    if not isinstance(keys, List | Tuple):
        problems.append(Problem("stream-keys", "error", "The stream's list of storages is no list", file=source.name))
        return places
    for key in keys:
        if not isinstance(key, str):
            problems.append(Problem("stream-keys", "error", "A storage key is no text", file=source.name))
            return places
        storage = storages.get(key)
        if at + 8 > source.n_bytes:
            problems.append(Problem("truncated", "error",
                f"The file ends at byte {count(source.n_bytes)}, before storage {printable(key)} and what follows",
                file=source.name))  # fmt: skip
            return places
        n: int = struct.unpack("<q", source.read(at, 8))[0]
        at += 8
        if storage is None:
            problems.append(Problem("stream-storage", "error",
                f"Nothing refers to storage {printable(key)}: its element size, and so the place of what follows, is "
                "unknown", file=source.name))  # fmt: skip
            return places
        width = (dtypes.encoding(storage.dtype).bits or 8) // 8
        if n < 0 or n != storage.n_elements:
            problems.append(Problem("storage-size", "error",
                f"Storage {printable(key)} says {count(n)} elements; the pickle says {count(storage.n_elements)}",
                file=source.name))  # fmt: skip
            n = max(0, min(n, storage.n_elements))
        there = min(n * width, source.n_bytes - at)
        if there < n * width:
            problems.append(Problem("truncated", "error",
                f"The file ends {count(n * width - there)} bytes before the end of storage {printable(key)}",
                file=source.name))  # fmt: skip
        places[key] = source.part(at, there)
        at += n * width
    return places


def parse_storage(node: Value) -> Storage | None:
    """Return the storage that a persistent id names; None if it names something else.

    Source: torch/serialization.py, `persistent_id`: ``("storage", class, key, location, elements[, view])``; of an
    UntypedStorage the elements are bytes.
    """
    if not isinstance(node, Persistent) or not isinstance(node.value, Tuple) or len(node.value) < 5:
        return None
    kind, cls, key, device, n, *more = node.value
    if kind != "storage" or not isinstance(cls, Global) or type(n) is not int or n < 0:
        return None
    if not isinstance(key, str) or not isinstance(device, str) or not cls.module.startswith("torch"):
        return None
    dtype = STORAGE_DTYPES.get(cls.name)
    if dtype is None:
        return None
    view = None
    if more and isinstance(more[0], Tuple) and len(more[0]) == 3:
        _, offset, size = more[0]
        if type(offset) is int and type(size) is int and offset >= 0 and size >= 0:
            view = (offset, size)
    return Storage(key, dtype, n, device, view)
