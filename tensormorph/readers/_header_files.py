"""The headers of safetensors files: fetched several at a time, a big one parsed in the helper process."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensormorph.columns import NameColumn
from tensormorph.errors import CorruptFileError, LimitError, Problem, TensormorphError
from tensormorph.readers._bytes import ByteSource, FilePool
from tensormorph.readers._header import REFERENCE_LIMIT, Header, LostEntry, natural_order
from tensormorph.readers._header_json import parse
from tensormorph.readers._process import THRESHOLD_BYTES, Message, Report, call
from tensormorph.readers._strangers import stranger
from tensormorph.readers._target import Target
from tensormorph.text import count

READ_THREADS = 8
"""Headers read at once: on a network disk each costs round trips, not bandwidth."""


def header_limit() -> int:
    """Bytes of header above which a file is refused before anything of that size is made."""
    try:
        return max(1 << 20, int(os.environ["TENSORMORPH_MAX_HEADER_BYTES"]))
    except (KeyError, ValueError):
        return 1 << 30


def read_headers(
    target: Target, names: Sequence[str], pool: FilePool, report: Report
) -> tuple[dict[str, Header], dict[str, TensormorphError]]:
    """Return the headers of files by name, and what failed; few at once where there are many, in order of the names.

    Raises
    ------
    CancelledError
    """
    headers: dict[str, Header] = {}
    failures: dict[str, TensormorphError] = {}

    def fetch(name: str) -> tuple[ByteSource, bytes | bytearray]:
        path = target.resolve(name)
        source = ByteSource(pool, path, name, 0, pool.identity(path).n_bytes)
        return source, _raw_header(source)

    def finish(name: str, source: ByteSource, raw: bytes | bytearray) -> None:
        headers[name] = parse(raw, source.n_bytes, name) if raw else _in_helper(source, report)

    if len(names) <= READ_THREADS // 2:
        for i, name in enumerate(names):
            report("Reading headers", i, len(names))
            try:
                finish(name, *fetch(name))
            except TensormorphError as error:
                _keep(failures, name, error)
        return headers, failures
    from concurrent.futures import Future, ThreadPoolExecutor  # a small set needs no pool, and starts sooner without

    executor = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="headers")
    try:
        ahead: list[Future[tuple[ByteSource, bytes | bytearray]]] = [executor.submit(fetch, name) for name in names]
        for i, (name, future) in enumerate(zip(names, ahead, strict=True)):
            report("Reading headers", i, len(names))
            try:
                finish(name, *future.result())
            except TensormorphError as error:
                _keep(failures, name, error)
            ahead[i] = Future()  # its bytes are not needed any more
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    return headers, failures


def _keep(failures: dict[str, TensormorphError], name: str, error: TensormorphError) -> None:
    if error.code == "cancelled":
        raise error
    failures[name] = error


def _raw_header(source: ByteSource) -> bytes | bytearray:
    """Return the JSON of a header; empty where it is big and the helper shall read it."""
    size = source.n_bytes
    if size < 8:
        what = "The file is empty (0 bytes); maybe it is still being written" if not size else (
            f"The file has {size} bytes; a header length alone takes 8"
        )  # fmt: skip
        raise CorruptFileError(source.name, what)
    start = bytes(source.read(0, 8))
    n: int = struct.unpack("<Q", start)[0]
    if n > size - 8:
        raise CorruptFileError(source.name, _impossible_length(source, n))
    if n > header_limit():
        raise LimitError(source.name, "The header", n, header_limit(), "TENSORMORPH_MAX_HEADER_BYTES")
    return source.read(8, n) if n <= THRESHOLD_BYTES else b""


def _impossible_length(source: ByteSource, n: int) -> str:
    head = bytes(source.read(0, min(source.n_bytes, 4096)))
    told = stranger(head)
    if told:
        return f"This is no safetensors file: {told}"
    over = f"; above {count(REFERENCE_LIMIT)} the reference reader refuses it too" if n > REFERENCE_LIMIT else ""
    return f"The header length {count(n)} is larger than the file, which has {count(source.n_bytes)} bytes{over}"


# ---------------------------------------------------------------- big headers, in the helper


def _in_helper(source: ByteSource, report: Report) -> Header:
    argument = {"path": str(source.path), "name": source.name}
    found = call("_header_files:parse_file", argument, report, source.name)
    lost = [LostEntry(e["name"], e["dtype"], e["shape"] and tuple(e["shape"]), _told(e["why"])) for e in found["lost"]]
    return Header(
        found["data_start"], found["file_bytes"], NameColumn(found["blob"].tobytes(), found["ends"]), found["shadowed"],
        tuple(found["dtypes"]), found["dtype"], found["dims"], found["first_dim"], found["n_elements"],
        found["begin"], found["end"], found["readable"], found["aliases"], lost,
        [_told(p) for p in found["problems"]], found["metadata"], natural=True,
    )  # fmt: skip


def _told(fields: dict[str, Any]) -> Problem:
    span = fields["byte_range"]
    return Problem(**{**fields, "byte_range": None if span is None else (int(span[0]), int(span[1]))})


def parse_file(argument: Message, report: Report) -> Message:
    """Parse the header of the file at ``argument["path"]``: the helper's side of a big header."""
    import gc

    gc.disable()  # millions of small objects that all live to the end: collecting among them triples the time
    with open(argument["path"], "rb") as stream:
        n: int = struct.unpack("<Q", stream.read(8))[0]
        report("Reading the header", 0, n)
        raw = stream.read(n)
        size = os.fstat(stream.fileno()).st_size
    report("Parsing the header", 0, n)
    header = parse(raw, size, argument["name"])
    header.permute(np.array(natural_order(header.names), np.int64))
    report("Parsing the header", n, n)
    blob, ends = NameColumn.of(header.names).parts
    return {
        "data_start": header.data_start, "file_bytes": header.file_bytes, "blob": np.frombuffer(blob, np.uint8),
        "ends": ends, "shadowed": header.shadowed, "dtypes": header.dtypes, "dtype": header.dtype, "dims": header.dims,
        "first_dim": header.first_dim, "n_elements": header.n_elements, "begin": header.begin, "end": header.end,
        "readable": header.readable, "aliases": header.aliases, "metadata": header.metadata,
        "problems": [_fields(p) for p in header.problems],
        "lost": [{"name": e.name, "dtype": e.dtype, "shape": e.shape, "why": _fields(e.why)} for e in header.lost],
    }  # fmt: skip


def _fields(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code, "severity": problem.severity, "sentence": problem.sentence, "tensor": problem.tensor,
        "file": problem.file, "byte_range": problem.byte_range and [int(b) for b in problem.byte_range],
    }  # fmt: skip
