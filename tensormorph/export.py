"""Write a region of a tensor to a file of its own: npy, safetensors or csv, in bounded memory, whole or not at all.

The target is replaced only once its successor lies complete on disk beside it. A file of the checkpoint is never
written to, whatever name leads there. No value is converted: a format without the element's type refuses.
"""

from __future__ import annotations

import csv
import io
import json
import math
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import ArrayView, Axis, select
from tensormorph.atomic import Write, real_target, refuse_full_disk, write_atomically
from tensormorph.dtypes import text
from tensormorph.errors import UnsupportedDtypeError, UsageError
from tensormorph.model import LogicalTensor
from tensormorph.text import printable

Report = Callable[[str, int, int], None]
Blocks = Iterator[NDArray[Any]]
Format = Literal["npy", "safetensors", "csv"]

_NON_FINITE = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}  # as in dtypes.text

BLOCK_BYTES = 4 << 20
"""Most bytes of values that are held at a time."""
CSV_BLOCK_CELLS = 1 << 17
"""The same for csv, where each value is a Python text of some 60 bytes."""

_SUFFIXES: dict[str, Format] = {".npy": "npy", ".safetensors": "safetensors", ".csv": "csv"}
_NPY_KINDS = "biufc"
_SAFETENSORS = {
    "bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn": "F4",
}  # fmt: skip
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "＝", "＋", "－", "＠")


def write_region(
    source: ArrayView | LogicalTensor,
    key: Any,
    target: Path,
    *,
    forbidden: Iterable[Path],
    name: str | None = None,
    report: Report | None = None,
) -> None:
    """Write what a numpy basic index selects; the suffix of `target` names the format.

    Parameters
    ----------
    key
        Integers (which drop their axis), slices and ``...``.
    forbidden
        Files and folders of the checkpoint: `target` must not be one of them, lie in one, or be a link to one.
    name
        Name of the tensor in the file; by default the one of `source`, or ``tensor``.
    report
        Called as ``report(what, bytes done, bytes in all)`` between blocks; may raise CancelledError.

    Raises
    ------
    UsageError
        If the target is part of the checkpoint, its suffix names no format, or the format has no such elements.
    BadIndexError
        If `key` does not fit the shape.
    WriteError
        If the disk is full or a write fails; the old file, if any, is untouched.
    TensormorphError
        Whatever reading the values raises.
    """
    view = source.full() if isinstance(source, LogicalTensor) else source
    inner = view.source
    if name is None:
        name = inner.name if isinstance(inner, LogicalTensor) else "tensor"
    axes = select(key, view.shape)
    shape = tuple(a.count for a in axes if not a.drop)
    fmt = _format_of(target)
    _refuse_dtype(view, inner, fmt, shape)
    target = real_target(target, forbidden)
    total = math.prod(shape) * view.dtype.itemsize
    if fmt != "csv":
        refuse_full_disk(target, total // 2 if _is_packed(view.dtype) else total)
    step = report or _no_report

    def body(write: Write) -> None:
        most = CSV_BLOCK_CELLS if fmt == "csv" else max(1, BLOCK_BYTES // view.dtype.itemsize)
        blocks = _reported(_blocks(view, axes, most), f"Writing {printable(target.name)}", total, step)
        if fmt == "npy":
            _write_npy(write, blocks, view.dtype, shape)
        elif fmt == "safetensors":
            _write_safetensors(write, blocks, view.dtype, shape, name)
        else:
            _write_csv(write, blocks, view.dtype, axes, name)

    write_atomically(target, body)


# ---------------------------------------------------------------- what is refused


def _format_of(target: Path) -> Format:
    found = _SUFFIXES.get(target.suffix.lower())
    if found is None:
        raise UsageError("The file to write must end in .npy, .safetensors or .csv", path=str(target))
    return found


def _refuse_dtype(view: ArrayView, inner: Any, fmt: Format, shape: tuple[int, ...]) -> None:
    encoding = inner.encoding if isinstance(inner, LogicalTensor) else None
    if encoding is not None and not encoding.readable:
        raise UnsupportedDtypeError(encoding.name)
    dtype = view.dtype
    if fmt == "npy" and (dtype.kind not in _NPY_KINDS or dtype.isbuiltin != 1):
        raise UsageError(
            f"npy has no {dtype.name}, and values are never converted silently: write .safetensors (or .csv as text)"
        )
    if fmt == "safetensors":
        if dtype.name not in _SAFETENSORS:
            raise UsageError(f"safetensors has no {dtype.name}, and values are never converted silently: write .npy")
        if _is_packed(dtype) and math.prod(shape) % 2:
            raise UsageError(
                f"safetensors stores two {dtype.name} values a byte, and {math.prod(shape):,} is odd: "
                "choose a region with an even number of values (or write .csv as text)"
            )


def _is_packed(dtype: np.dtype[Any]) -> bool:
    return dtype.name.startswith("float4")


# ---------------------------------------------------------------- values, block by block


def _blocks(view: ArrayView, axes: tuple[Axis, ...], most: int) -> Blocks:
    """Yield the selection in C order, at most so many elements at a time; blocks keep all axes, dropped ones too."""
    counts = tuple(a.count for a in axes)
    for first, extent in _boxes(counts, most):
        keys = tuple(_slice(a, at, n) for a, at, n in zip(axes, first, extent, strict=True))
        yield np.ascontiguousarray(view[keys])


def _boxes(counts: tuple[int, ...], most: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cut an array of this shape into boxes of at most `most` elements that follow one another in C order."""
    if 0 in counts:
        return
    if math.prod(counts) <= most:
        yield (0,) * len(counts), counts
        return
    head, rest = counts[0], counts[1:]
    below = math.prod(rest)
    step = max(1, most // below)
    for at in range(0, head, step):
        n = min(step, head - at)
        if below * n <= most:
            yield (at, *(0,) * len(rest)), (n, *rest)
        else:
            yield from (((at, *first), (1, *extent)) for first, extent in _boxes(rest, most))


def _slice(axis: Axis, at: int, n: int) -> slice:
    start = axis.start + at * axis.step
    stop = start + n * axis.step
    return slice(start, None if stop < 0 else stop, axis.step)


def _reported(blocks: Blocks, what: str, total: int, report: Report) -> Blocks:
    done = 0
    report(what, done, total)
    for block in blocks:
        yield block
        done += block.nbytes
        report(what, done, total)


def _no_report(what: str, done: int, total: int) -> None:
    del what, done, total


def _little_endian(block: NDArray[Any]) -> memoryview:
    if sys.byteorder == "big" and block.dtype.itemsize > 1:
        width = block.dtype.itemsize // (2 if block.dtype.kind == "c" else 1)
        block = block.reshape(-1).view(f"u{width}").byteswap()
    return block.reshape(-1).view(np.uint8).data


# ---------------------------------------------------------------- formats


def _write_npy(write: Write, blocks: Blocks, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    head = io.BytesIO()
    descr = dtype.newbyteorder("<").str
    np.lib.format.write_array_header_1_0(head, {"descr": descr, "fortran_order": False, "shape": shape})
    write(head.getvalue())
    for block in blocks:
        write(_little_endian(block))


def _write_safetensors(
    write: Write,
    blocks: Blocks,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    name: str,
) -> None:
    n = math.prod(shape)
    n_bytes = n // 2 if _is_packed(dtype) else n * dtype.itemsize
    entry = {"dtype": _SAFETENSORS[dtype.name], "shape": list(shape), "data_offsets": [0, n_bytes]}
    try:
        head = json.dumps({name: entry}, ensure_ascii=False).encode()
        if name == "__metadata__":
            raise UsageError("safetensors keeps the name '__metadata__' for itself: write .npy")
    except UnicodeEncodeError:
        raise UsageError(f"safetensors names are UTF-8, and {printable(name)!r} holds a lone surrogate") from None
    head += b" " * (-len(head) % 8)  # the data begins at a multiple of 8 bytes, as the reference writer has it
    write(struct.pack("<Q", len(head)) + head)
    left = np.empty(0, np.uint8)  # a half byte that waits for its other half
    for block in blocks:
        if not _is_packed(dtype):
            write(_little_endian(block))
            continue
        codes = np.concatenate([left, block.reshape(-1).view(np.uint8)])
        whole = codes.size & ~1
        if whole:
            write((codes[0:whole:2] | codes[1:whole:2] << 4).data)
        left = codes[whole:]


def _write_csv(
    write: Write,
    blocks: Blocks,
    dtype: np.dtype[Any],
    axes: tuple[Axis, ...],
    name: str,
) -> None:
    """Write one line a row (the last axis runs along it); a 1-d tensor is one column.

    The first lines begin with ``#`` and say what it is; numpy.loadtxt and pandas skip them. A cell of text that a
    spreadsheet would take for a formula gets an apostrophe before it. Numbers are the shortest text that reads back.
    """
    shape = tuple(a.count for a in axes if not a.drop)
    head = io.StringIO()
    lines = csv.writer(head, lineterminator="\n")
    lines.writerow(["# tensor", _cell(name)])
    lines.writerow(["# dtype", dtype.name])
    lines.writerow(["# shape", *shape])
    lines.writerow(["# region", *(_range_text(a) for a in axes)])
    lines.writerow(["# cells of text that begin like a formula have ' before them"])
    write(head.getvalue().encode())
    width = shape[-1] if len(shape) > 1 else 1
    column = 0
    for block in blocks:
        out: list[str] = []
        for cell in texts(block):
            column += 1
            out.append(cell)
            out.append("\n" if column == width else ",")
            if column == width:
                column = 0
        write("".join(out).encode())


def _range_text(axis: Axis) -> str:
    if axis.drop:
        return str(axis.start)
    stop = axis.start + axis.count * axis.step
    return f"{axis.start}:{stop if stop >= 0 else ''}" + (f":{axis.step}" if axis.step != 1 else "")


def _cell(words: str) -> str:
    """Return text from a file as a cell that no spreadsheet runs."""
    quoted = printable(words)
    return f"'{quoted}" if words.startswith(_FORMULA_STARTS) else quoted


def texts(values: NDArray[Any]) -> list[str]:
    """Return each value's shortest text that reads back in its dtype; equal values share the work."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind in "iub":
        return [str(v) for v in flat.tolist()]
    if flat.dtype.kind == "c":
        return [text(v) for v in flat]
    if flat.dtype.itemsize > 2:
        # numpy's own text of a float32 has the fewest digits that are unique in float32.
        words = (repr(float(word)) for word in flat.astype("U").tolist())
        return [_NON_FINITE.get(word, word) for word in words]
    unique, places = np.unique(flat.view(f"u{flat.dtype.itemsize}"), return_inverse=True)
    table = [text(v) for v in unique.view(flat.dtype)]
    return [table[i] for i in places.tolist()]
