"""The JSON of a safetensors header, parsed into columns; an entry that breaks a rule costs only its own tensor."""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.errors import CorruptFileError, Problem
from tensormorph.fragments import Ints
from tensormorph.readers._header import (
    LOST_KEPT,
    NUMPY_AXES,
    REFERENCE_LIMIT,
    Header,
    LostEntry,
    encoding_of,
    grouped,
    problem,
    settle,
)
from tensormorph.readers._json import JsonObject, plain_json, strict_json
from tensormorph.text import count, listing, plural, printable

_INT64 = (1 << 63) - 1

_Row = tuple[str, list[int], int, int, int, int]
"""dtype, shape, elements, begin, end (relative to the data) and readable elements of an entry."""


class _Packed:
    """An entry of the usual form, as a row of packed columns."""

    __slots__ = ("row",)

    def __init__(self, row: int) -> None:
        self.row = row


class _Packer:
    """The JSON hook: entries of the usual form become rows of columns at once, so a million of them cost no objects."""

    def __init__(self) -> None:
        self.dtypes: dict[str, int] = {}
        self.dtype = array("h")
        self.ndim = array("q")
        self.dims = array("q")
        self.begin = array("q")
        self.end = array("q")

    def __call__(self, pairs: list[tuple[str, Any]]) -> Any:
        if len(pairs) == 3:
            (k0, dtype), (k1, shape), (k2, span) = pairs
            if (
                k0 == "dtype" and k1 == "shape" and k2 == "data_offsets"
                and type(dtype) is str and type(shape) is list and type(span) is list and len(span) == 2
                and len(shape) <= NUMPY_AXES and all(type(n) is int and 0 <= n <= _INT64 for n in shape)
                and all(type(n) is int and 0 <= n <= _INT64 for n in span) and len(self.dtypes) < 1000
            ):  # fmt: skip
                self.dtype.append(self.dtypes.setdefault(dtype, len(self.dtypes)))
                self.ndim.append(len(shape))
                self.dims.extend(shape)
                self.begin.append(span[0])
                self.end.append(span[1])
                return _Packed(len(self.ndim) - 1)
        return JsonObject(pairs)

    def unpack(self, value: Any, firsts: Ints) -> Any:
        """Return the JSON object that became a row; any other value as it is."""
        if not isinstance(value, _Packed):
            return value
        row = value.row
        at = int(firsts[row])
        return JsonObject((
            ("dtype", list(self.dtypes)[self.dtype[row]]),
            ("shape", list(self.dims[at : at + self.ndim[row]])),
            ("data_offsets", [self.begin[row], self.end[row]]),
        ))  # fmt: skip


def parse(raw: bytes | bytearray, file_bytes: int, file: str) -> Header:
    """Parse the JSON part of a header.

    Parameters
    ----------
    raw
        The N bytes of JSON.
    file_bytes
        Size of the whole file.
    file
        Its name, for problems and errors.

    Raises
    ------
    CorruptFileError
        If the header is not UTF-8, not JSON, or not an object: then nothing in the file has a name.
    """
    data_start = 8 + len(raw)
    problems: list[Problem] = []
    packer = _Packer()
    pairs = strict_json(raw, file, "header", 8, packer)
    if not isinstance(pairs, JsonObject):
        raise CorruptFileError(file, "The header is one tensor's entry, not an object of names and entries", 8)
    if raw[:1] in (b" ", b"\t", b"\r", b"\n"):
        problems.append(problem("header-leading-space", "warning",
            "Blanks stand before the header's '{': the format's text forbids it, the reference reader opens it",
            file))  # fmt: skip
    header = _columns(pairs, packer, data_start, file_bytes, file, problems)
    settle(header, file)
    if len(raw) > REFERENCE_LIMIT:
        problems.insert(0, problem("header-over-reference-limit", "warning",
            f"The header has {count(len(raw))} bytes; above {count(REFERENCE_LIMIT)} the reference reader refuses the "
            "file", file))  # fmt: skip
    header.problems = grouped(problems, file)
    return header


def _columns(
    pairs: JsonObject, packer: _Packer, data_start: int, file_bytes: int, file: str, problems: list[Problem]
) -> Header:
    """Return the entries as columns in the order of the header; entries that break a rule are looked at one by one."""
    ndim = np.array(packer.ndim, np.int64)
    firsts = np.concatenate([[0], np.cumsum(ndim)]).astype(np.int64)
    sound, sizes = _sound(packer, ndim, firsts, file_bytes - data_start)
    lost: list[LostEntry] = []
    metadata: dict[str, Any] = {}
    n_metadata = 0
    names: list[str] = []
    rows: list[int] = []
    odd: dict[int, _Row] = {}
    for name, value in pairs:
        if name == "__metadata__":
            n_metadata += 1
            metadata = _metadata(packer.unpack(value, firsts), file, problems)
            continue
        if isinstance(value, _Packed) and sound[value.row]:
            rows.append(value.row)
        else:
            found = _entry(name, packer.unpack(value, firsts), file_bytes - data_start, file, problems)
            if isinstance(found, LostEntry):
                problems.append(found.why)
                if len(lost) < LOST_KEPT:
                    lost.append(found)
                continue
            odd[len(names)] = found
            rows.append(-1)
        names.append(name)
    if n_metadata > 1:
        problems.append(problem("duplicate-metadata", "warning",
            f"__metadata__ stands {n_metadata} times in the header; the last is shown, the reference reader refuses",
            file))  # fmt: skip
    problems.extend(
        problem("name-not-unicode", "warning",
                 f"The name {printable(name)} holds half a surrogate pair: other readers may refuse it", file, name)
        for name in names if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name)
    )  # fmt: skip
    for found in odd.values():
        packer.dtypes.setdefault(found[0], len(packer.dtypes))
    return _gather(packer, names, rows, odd, firsts, sizes, data_start, file_bytes, lost, problems, metadata)


def _sound(packer: _Packer, ndim: Ints, firsts: Ints, data_bytes: int) -> tuple[NDArray[np.bool_], Ints]:
    """Return which packed rows keep every rule by themselves, and the number of elements of each row that does."""
    n = len(ndim)
    dims = np.array(packer.dims, np.int64)
    # A leading 1 for each row, so that a product exists for 0-d too; in float64 to see what 64 bits cannot hold.
    at = firsts[:-1] + np.arange(n)
    padded = np.ones(len(dims) + n, np.int64)
    padded[np.delete(np.arange(len(padded)), at)] = dims
    wide = np.multiply.reduceat(padded.astype(np.float64), at) if n else np.empty(0)
    sizes = np.multiply.reduceat(padded, at) if n else np.empty(0, np.int64)
    code = np.array(packer.dtype, np.int64)
    bits = np.array([(e.bits or 0) if e.readable else 0 for e in map(encoding_of, packer.dtypes)] or [0], np.int64)[
        code
    ]
    begin, end = np.array(packer.begin, np.int64), np.array(packer.end, np.int64)
    fits = (wide * np.maximum(bits, 1) < 2.0**62) & (bits > 0) & (begin <= end) & (end <= data_bytes)
    need = np.where(fits, sizes, 0) * bits
    return fits & (need % 8 == 0) & (need // 8 == end - begin), sizes


def _gather(
    packer: _Packer, names: list[str], rows: list[int], odd: dict[int, _Row], firsts: Ints, sizes: Ints,
    data_start: int, file_bytes: int, lost: list[LostEntry], problems: list[Problem], metadata: dict[str, Any],
) -> Header:  # fmt: skip
    """Return the header's columns: packed rows by position, the odd ones put in their places."""
    place = np.array(rows, np.int64)
    usual = place >= 0
    chosen = place[usual]

    def column(packed: Any, position: int) -> NDArray[Any]:
        out = np.zeros(len(place), np.int64)
        out[usual] = np.asarray(packed, np.int64)[chosen]
        for at, found in odd.items():
            out[at] = found[position]
        return out

    n_elements = column(sizes, 2)
    begin, end = column(packer.begin, 3), column(packer.end, 4)
    readable = n_elements.copy()
    ndim = np.zeros(len(place), np.int64)
    ndim[usual] = np.diff(firsts)[chosen]
    dtype = np.zeros(len(place), np.int16)
    dtype[usual] = np.array(packer.dtype, np.int16)[chosen]
    for at, found in odd.items():
        dtype[at], ndim[at], readable[at] = packer.dtypes[found[0]], len(found[1]), found[5]
    first_dim = np.concatenate([[0], np.cumsum(ndim)]).astype(np.int64)
    starts = np.zeros(len(place), np.int64)
    starts[usual] = firsts[:-1][chosen]
    dims = np.zeros(int(first_dim[-1]), np.int64)
    spread = np.repeat(usual, ndim)
    source = np.repeat(starts - first_dim[:-1], ndim) + np.arange(len(dims))
    dims[spread] = np.array(packer.dims, np.int64)[source[spread]]
    for at, found in odd.items():
        dims[int(first_dim[at]) : int(first_dim[at + 1])] = found[1]
    return Header(
        data_start, file_bytes, names, np.zeros(len(names), np.bool_), tuple(packer.dtypes), dtype, dims, first_dim,
        n_elements, begin + data_start, end + data_start, readable, {}, lost, problems, metadata,
    )  # fmt: skip


def _metadata(value: Any, file: str, problems: list[Problem]) -> dict[str, Any]:
    if not isinstance(value, JsonObject):
        problems.append(problem("metadata-not-text", "warning",
            "__metadata__ is not an object of texts; the reference reader refuses the file", file)
            if value is not None else problem("metadata-null", "info", "__metadata__ is null", file))  # fmt: skip
        return {} if value is None else {"": plain_json(value)}
    wrong = [key for key, entry in value if not isinstance(entry, str)]
    if wrong:
        problems.append(problem("metadata-not-text", "warning",
            f"Metadata values must be text; {listing(wrong)} is not, so the reference reader refuses the file",
            file))  # fmt: skip
    return {key: plain_json(entry) for key, entry in value}


def _entry(name: str, value: Any, data_bytes: int, file: str, problems: list[Problem]) -> _Row | LostEntry:
    """Return dtype, shape, elements, begin, end and readable elements of a header entry; offsets are relative."""
    if not isinstance(value, JsonObject):
        return _lost(name, None, None, "its entry is not an object", file)
    fields = dict(value)
    if len(fields) != len(value):
        twice = [key for key, _ in value]
        repeated = listing([key for key in fields if twice.count(key) > 1])
        return _lost(name, None, None, f"{repeated} stands twice in its entry", file, "duplicate-key")
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str):
        return _lost(name, None, None, "its entry has no dtype", file)
    if type(shape) is not list or not all(type(n) is int and n >= 0 for n in shape):
        shown = "missing" if shape is None else f"{_short(shape)}: dimensions must be whole numbers of 0 or more"
        return _lost(name, dtype, None, f"its shape is {shown}", file, "bad-shape")
    if offsets is None or type(offsets) is not list or len(offsets) != 2 or not all(type(n) is int for n in offsets):
        shown = "missing" if offsets is None else f"{_short(offsets)}, not two whole numbers"
        return _lost(name, dtype, tuple(shape), f"its data_offsets are {shown}", file, "bad-offsets")
    begin, end = offsets
    if not 0 <= begin <= end <= _INT64 // 2:
        return _lost(name, dtype, tuple(shape), f"its data_offsets {begin} to {end} are no byte range of a file",
                     file, "bad-offsets")  # fmt: skip
    n = math.prod(shape)
    if n > _INT64 or any(extent > _INT64 for extent in shape):
        return _lost(name, dtype, tuple(shape), "its shape needs more elements than 64 bits count", file, "bad-shape")
    if len(shape) > NUMPY_AXES:
        problems.append(problem("too-many-axes", "warning",
            f"{printable(name)} has {count(len(shape))} dimensions; it is shown flat, as {count(n)} elements",
            file, name))  # fmt: skip
        shape = [n]
    bits = encoding_of(dtype).bits
    if bits is None:
        problems.append(problem("unknown-dtype", "error",
            f"The dtype {printable(dtype)!r} of {printable(name)} is unknown to us; its "
            f"{count(end - begin)} bytes are there, its values are not shown", file, name))  # fmt: skip
    elif not encoding_of(dtype).readable:
        problems.append(problem("unreadable-dtype", "error",
            f"{printable(name)} is {printable(dtype)}, whose packing no publication fixes; its "
            f"{count(end - begin)} bytes are there, its values are not shown", file, name))  # fmt: skip
    if bits is not None and n * bits % 8:
        problems.append(problem("half-byte", "error",
            f"{printable(name)} has {plural(n, 'element')} of {bits} bits, which do not fill whole bytes", file,
            name))  # fmt: skip
        return dtype, shape, n, begin, end, 0
    if bits is not None and n * bits // 8 != end - begin:
        problems.append(problem("size-mismatch", "error",
            f"{printable(name)} needs {count(n * bits // 8)} bytes for its shape and dtype; its range holds "
            f"{count(end - begin)}", file, name))  # fmt: skip
        return dtype, shape, n, begin, end, 0
    if end <= data_bytes:
        return dtype, shape, n, begin, end, n
    there = max(0, data_bytes - begin) * 8 // bits if bits else 0
    problems.append(problem("truncated", "error",
        f"The file ends {count(end - data_bytes)} bytes before the end of {printable(name)}: "
        f"{count(min(there, n))} of its {plural(n, 'element')} are there", file, name))  # fmt: skip
    return dtype, shape, n, begin, end, min(there, n)


def _lost(
    name: str, dtype: str | None, shape: tuple[int, ...] | None, why: str, file: str, code: str = "bad-entry"
) -> LostEntry:
    return LostEntry(name, dtype, shape, problem(code, "error", f"{printable(name)} cannot be read: {why}", file, name))


def _short(value: Any) -> str:
    text = repr(plain_json(value))
    return printable(text if len(text) < 80 else text[:77] + "...")
