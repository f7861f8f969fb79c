"""The header of a safetensors file, parsed so that damage is diagnosed by name and the rest still opens.

Layout: a little-endian u64 N, N bytes of UTF-8 JSON ``{name: {dtype, shape, data_offsets}}``, then the data, to which
the offsets are relative. Source: safetensors 0.8.0, src/tensor.rs (`Metadata::validate`), which refuses a file whole
where we mark a tensor; each such rule is a warning or an error here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph import dtypes
from tensormorph.dtypes import Encoding
from tensormorph.errors import Problem
from tensormorph.fragments import Ints
from tensormorph.text import count, listing, plural, printable

REFERENCE_LIMIT = 100_000_000
"""Bytes of header above which the reference reader refuses a file. Source: tensor.rs, MAX_HEADER_SIZE."""
NUMPY_AXES = 64
LOST_KEPT = 100_000
"""Most broken entries of one file that are kept by name; more are only counted."""
GROUP_ABOVE = 20
"""From so many problems of one code in one file on, they are told as one."""
_INT64 = (1 << 63) - 1
_DIGITS = re.compile(r"\d+")

# Source: tensor.rs, enum Dtype, and torch's names for the same.
_TORCH_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "C128": "complex128", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
    "F4": "float4_e2m1fn", "F6_E2M3": "float6_e2m3fn", "F6_E3M2": "float6_e3m2fn",
}  # fmt: skip


def encoding_of(stored: str) -> Encoding:
    """Return the encoding of a safetensors dtype; an unknown one keeps its stored name and is unreadable."""
    return dtypes.encoding(_TORCH_NAMES[stored]) if stored in _TORCH_NAMES else dtypes.encoding(stored)


@dataclass(slots=True)
class LostEntry:
    """A header entry without usable shape or place. `shape` is what was declared where it is at least a shape."""

    name: str
    dtype: str | None
    shape: tuple[int, ...] | None
    why: Problem


@dataclass(slots=True)
class Header:
    """What one file's header says, as columns in the order of the data.

    Fields
    ------
    names
        Stored names; not unique where the header declares one twice.
    shadowed
        Whether a later entry of the same name hides this one from the reference reader.
    dtype
        Position in `dtypes`.
    dims, first_dim
        Extents of all tensors, and where each tensor's begin (one more entry at the end).
    begin, end
        Bytes in the file, not relative to the data.
    readable
        Elements of each tensor, from the first on, whose bytes the file holds and which we trust.
    natural
        Whether the rows were put in the natural order of their names.
    """

    data_start: int
    file_bytes: int
    names: Sequence[str]
    shadowed: NDArray[np.bool_]
    dtypes: tuple[str, ...]
    dtype: NDArray[np.int16]
    dims: Ints
    first_dim: Ints
    n_elements: Ints
    begin: Ints
    end: Ints
    readable: Ints
    aliases: dict[str, str] = field(default_factory=dict)
    lost: list[LostEntry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    natural: bool = False

    def encodings(self) -> tuple[Encoding, ...]:
        """Return the encodings that `dtype` counts in."""
        return tuple(encoding_of(name) for name in self.dtypes)

    def permute(self, order: NDArray[np.intp]) -> None:
        """Put the rows in another order."""
        names = self.names
        self.names = [names[i] for i in order.tolist()]
        lengths = np.diff(self.first_dim)[order]
        starts = self.first_dim[:-1][order]
        self.first_dim = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        # Each tensor's extents, gathered from where they stood: its old start, counted up.
        self.dims = self.dims[np.repeat(starts - self.first_dim[:-1], lengths) + np.arange(int(lengths.sum()))]
        for name in ("shadowed", "dtype", "n_elements", "begin", "end", "readable"):
            setattr(self, name, getattr(self, name)[order])


def problem(
    code: str, severity: Any, sentence: str, file: str, tensor: str | None = None, byte_range: Any = None
) -> Problem:
    return Problem(code, severity, sentence, tensor, file, byte_range)


def grouped(problems: Iterable[Problem], file: str) -> list[Problem]:
    """Return the problems with those of a code that stands very often told once, after a few examples."""
    by_code: dict[str, list[Problem]] = {}
    for found in problems:
        by_code.setdefault(found.code, []).append(found)
    out: list[Problem] = []
    for code, alike in by_code.items():
        out.extend(alike[:GROUP_ABOVE])
        rest = alike[GROUP_ABOVE:]
        if rest:
            names = [p.tensor for p in rest if p.tensor is not None]
            told = f" ({listing(names)})" if names else ""
            out.append(replace(rest[0], tensor=None, byte_range=None,
                sentence=f"{plural(len(rest), 'more problem')} of this kind ({code}) in this file{told}"))  # fmt: skip
    return out


def natural_order(names: Iterable[str]) -> list[int]:
    """Return the positions of names in natural order: ``layer.2`` before ``layer.10``."""
    keys = [_DIGITS.sub(lambda m: m[0].zfill(8), name) for name in names]
    return sorted(range(len(keys)), key=keys.__getitem__)


def settle(header: Header, file: str) -> None:
    """Put the rows in the order of their bytes, and report names declared twice, holes, overlaps and bytes behind."""
    _duplicates(header, file)
    order = np.lexsort((header.end, header.begin))
    if not np.array_equal(order, np.arange(len(order))):
        header.permute(order)
    _ranges(header, file)


def _duplicates(header: Header, file: str) -> None:
    """Mark all but the last entry of a name: the reference reader keeps the last."""
    if len(set(header.names)) == len(header.names):
        return
    last: dict[str, int] = {}
    for row, name in enumerate(header.names):
        earlier = last.get(name)
        if earlier is not None:
            header.shadowed[earlier] = True
            told = " and ".join(
                f"{header.dtypes[header.dtype[r]]} at bytes {header.begin[r]:,} to {header.end[r]:,}"
                for r in (earlier, row)
            )
            header.problems.append(problem("duplicate-name", "error",
                f"{printable(name)!r} is declared twice: {told}. The reference reader keeps the last; both are shown",
                file, name))  # fmt: skip
        last[name] = row


def _ranges(header: Header, file: str) -> None:
    """Report holes, overlaps, equal ranges and bytes behind the last tensor."""
    begin, end = header.begin, header.end
    filled = begin < end
    rows = np.flatnonzero(filled)
    reach = np.maximum.accumulate(np.concatenate([[header.data_start], end[rows]])) if len(rows) else np.array(
        [header.data_start], np.int64
    )  # fmt: skip
    for i in np.flatnonzero(begin[rows] > reach[:-1]).tolist():
        row = int(rows[i])
        header.problems.append(problem("hole", "warning",
            f"Bytes {count(int(reach[i]))} to {count(int(begin[row]))}, before {printable(header.names[row])}, belong "
            "to no tensor; the reference reader refuses the file", file, None,
            (int(reach[i]), int(begin[row]))))  # fmt: skip
    _overlaps(header, rows, reach, file)
    trailing = header.file_bytes - int(reach[-1])
    if trailing > 0:
        header.problems.append(problem("trailing-bytes", "warning",
            f"{plural(trailing, 'byte')} stand behind the last tensor; the reference reader refuses the file", file,
            None, (int(reach[-1]), header.file_bytes)))  # fmt: skip


def _overlaps(header: Header, rows: NDArray[np.intp], reach: Ints, file: str) -> None:
    """Two names on exactly the same bytes, of one dtype and shape, are aliases; any other sharing is an error."""
    # For each row the earlier one that reaches furthest: where a row begins before that, the two share bytes.
    furthest = np.maximum.accumulate(np.where(header.end[rows] > reach[:-1], np.arange(len(rows)), 0))
    first_of: dict[tuple[int, int], int] = {}
    for i in np.flatnonzero(header.begin[rows] < reach[:-1]).tolist():
        row, previous = int(rows[i]), int(rows[i - 1])
        span = (int(header.begin[row]), int(header.end[row]))
        if span == (int(header.begin[previous]), int(header.end[previous])):
            before = first_of.setdefault(span, previous)
        else:
            before = int(rows[furthest[i - 1]])
        name, other = header.names[row], header.names[before]
        if name == other:
            continue
        if _alike(header, row, before) and not header.shadowed[row] and not header.shadowed[before]:
            header.aliases[name] = other
            header.problems.append(problem("same-bytes", "warning",
                f"{printable(name)} and {printable(other)} are the same {count(span[1] - span[0])} bytes; they are "
                "shown as aliases, the reference reader refuses the file", file, name, span))  # fmt: skip
        else:
            header.problems.append(problem("overlap", "error",
                f"{printable(name)} (bytes {count(span[0])} to {count(span[1])}) shares bytes with {printable(other)} "
                f"({count(int(header.begin[before]))} to {count(int(header.end[before]))}): one of them is wrong",
                file, name, span))  # fmt: skip


def _alike(header: Header, row: int, other: int) -> bool:
    """Whether two rows are of one range, dtype and shape."""
    columns = (header.begin, header.end, header.dtype)
    return all(column[row] == column[other] for column in columns) and _shape(header, row) == _shape(header, other)


def _shape(header: Header, row: int) -> list[int]:
    found: list[int] = header.dims[int(header.first_dim[row]) : int(header.first_dim[row + 1])].tolist()
    return found
