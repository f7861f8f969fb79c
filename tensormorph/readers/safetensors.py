"""safetensors: one file, a set with its index, a set without, variants and several models in one folder.

Whole tensors lie in whole files here; placement fragments that torch's DCP writes into the same container are named
for what they are and not joined.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from tensormorph.columns import NameColumn
from tensormorph.errors import CorruptFileError, LimitError, Problem, TensormorphError
from tensormorph.model import Checkpoint, LazyTensors, StoredObject, UnreadableTensor
from tensormorph.readers import _hf
from tensormorph.readers._bytes import ByteSource, FilePool
from tensormorph.readers._header import REFERENCE_LIMIT, Header, LostEntry, natural_order
from tensormorph.readers._header_json import parse
from tensormorph.readers._process import THRESHOLD_BYTES, Message, Report, call
from tensormorph.readers._sets import (
    SAFETENSORS,
    Contents,
    Part,
    indexed_part,
    missing_numbers,
    model_parts,
    owned_names,
    same_set,
    tell_misnamed,
)
from tensormorph.readers._strangers import stranger
from tensormorph.readers._target import Claim, Stated, Target, look
from tensormorph.readers._whole import Merged, StoredFile, merge
from tensormorph.text import count, listing, plural, printable

NAME = "safetensors"
_OTHER_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".model", "")
_LOOK_INTO = 64
"""So many files of other suffixes are looked into, for safetensors under a wrong name."""
READ_THREADS = 8
"""Headers read at once: on a network disk each costs round trips, not bandwidth."""


def header_limit() -> int:
    """Bytes of header above which a file is refused before anything of that size is made."""
    try:
        return max(1 << 20, int(os.environ["TENSORMORPH_MAX_HEADER_BYTES"]))
    except (KeyError, ValueError):
        return 1 << 30


# ---------------------------------------------------------------- whose is it


def sniff(target: Target) -> Claim | str:
    """Return a claim on a safetensors file, an index or a folder of them; else a sentence saying why not."""
    if not target.is_folder:
        return _sniff_file(target)
    indexes = [n for n in target.names if SAFETENSORS.index.fullmatch(n)]
    files = [n for n in target.names if SAFETENSORS.holds(n)]
    others = [n for n in target.names if not SAFETENSORS.holds(n) and os.path.splitext(n)[1] in _OTHER_SUFFIXES]
    misnamed = [n for n in others[:_LOOK_INTO] if _is_safetensors(target.head(n))]
    if len(files) == 1 and not misnamed and not indexes and (odd := _odd(target.head(files[0]))):
        return f"{printable(files[0])} is named so, but {odd}"
    if not indexes and not files and not misnamed:
        return "no file in the folder is named *.safetensors or begins like one"
    evidence = ", ".join(
        [
            *(f"index {printable(n)}" for n in indexes),
            *([plural(len(files), "file") + " *.safetensors"] if files else []),
        ]
        or [f"{listing(misnamed)} begins with a safetensors header"]
    )
    return Claim(NAME, evidence, frozenset([*indexes, *files, *misnamed]), misnamed)


def _sniff_file(target: Target) -> Claim | str:
    name = target.path.name
    head = target.head(name)
    n_bytes = target.entries[0].n_bytes
    if SAFETENSORS.index.fullmatch(name):
        return Claim(NAME, f"{printable(name)} is an index of a sharded set", frozenset([name]), [])
    odd = _odd(head)
    if _is_safetensors(head):
        misnamed = [] if SAFETENSORS.holds(name) or target.entries[0].link else [name]
        return Claim(NAME, "a header length and '{' stand at its beginning", frozenset([name]), misnamed)
    if SAFETENSORS.holds(name) and not odd:
        return Claim(NAME, "it is named *.safetensors", frozenset([name]), [])
    if odd:
        return f"{odd}"
    return f"its first bytes are no header length followed by '{{' ({n_bytes:,} bytes)"


def _is_safetensors(head: bytes) -> bool:
    if len(head) < 10:
        return False
    n: int = struct.unpack("<Q", head[:8])[0]
    return n < 1 << 40 and head[8:].lstrip(b" \t\r\n")[:1] == b"{"


def _odd(head: bytes) -> str:
    """Return what a file is that is not ours. (A header of 640 bytes begins like a pickle: ours is asked first.)"""
    return "" if _is_safetensors(head) else stranger(head)


# ---------------------------------------------------------------- reading


def read(target: Target, claim: Claim, problems: list[Problem], report: Report, stated: Stated) -> Checkpoint:
    """Open what `sniff` claimed; reads headers, the index and small JSON files, and no tensor data.

    Nothing that can be stated applies: names and places are all in the headers.

    Raises
    ------
    CorruptFileError, LimitError
        If there is one file only and its header cannot be read, or the index that was named cannot be.
    """
    pool = FilePool()
    try:
        return _read(target, claim, problems, report, pool)
    except BaseException:
        pool.close()
        raise


def _read(target: Target, claim: Claim, problems: list[Problem], report: Report, pool: FilePool) -> Checkpoint:
    if target.is_folder:
        indexes = [n for n in target.names if SAFETENSORS.index.fullmatch(n)]
        tell_misnamed(claim.parsed, "safetensors", problems)
        names = [n for n in target.names if SAFETENSORS.holds(n)] + claim.parsed
        parts = model_parts(SAFETENSORS, target, indexes, names, pool, problems, report)
    elif SAFETENSORS.index.fullmatch(target.path.name):
        index_name = target.path.name
        target = look(target.root)
        chosen = indexed_part(SAFETENSORS, target, index_name, pool, report)
        names = [n for n in target.names if SAFETENSORS.holds(n)]
        others = model_parts(SAFETENSORS, target, [], names, pool, problems, report)
        chosen.strays = [n for part in others if same_set(chosen, part) for n in part.files if n not in chosen.files]
        parts = [chosen]
    else:
        parts = [Part(SAFETENSORS, SAFETENSORS.stem(target.path.name), [target.path.name])]
        tell_misnamed(claim.parsed, "safetensors", problems)
    names = [name for part in parts for name in (*part.files, *part.strays)]
    headers, failures = _headers(target, list(dict.fromkeys(names)), pool, report)
    if failures and not headers and len(names) == 1:
        raise failures[names[0]]
    for name, failure in failures.items():
        problems.append(Problem(failure.code, "error", str(failure), file=name))
    several = len(parts) > 1
    files: list[StoredFile] = []
    lost: dict[str, UnreadableTensor] = {}
    contents = {name: _contents(header) for name, header in headers.items()}
    for part in parts:
        label = part.name if several else ""
        owned = owned_names(target, part, label, contents, failures, problems, lost)
        files.extend(StoredFile(n, target.resolve(n), label, headers[n], yields) for n, yields in owned.items())
        missing_numbers(part, problems)
    merged = merge(files, pool)
    return _checkpoint(target, parts, merged, lost, headers, problems, pool)


def _headers(
    target: Target, names: Sequence[str], pool: FilePool, report: Report
) -> tuple[dict[str, Header], dict[str, TensormorphError]]:
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


def _contents(header: Header) -> Contents:
    lost = frozenset(entry.name for entry in header.lost)
    packed = any(dtype.startswith(("U", "I")) for dtype in header.dtypes)
    return Contents(header.names, header.end - header.begin, header.n_elements, lost, packed)


# ---------------------------------------------------------------- the checkpoint


def _checkpoint(
    target: Target,
    parts: list[Part],
    merged: Merged,
    lost: dict[str, UnreadableTensor],
    headers: dict[str, Header],
    problems: list[Problem],
    pool: FilePool,
) -> Checkpoint:
    config = trainer = None
    if target.is_folder:
        config = _hf.read_json(target, pool, "config.json", problems)
        trainer = _hf.read_json(target, pool, "trainer_state.json", problems)
    lost = merged.unreadable | lost
    aliases = dict(merged.aliases)
    if len(parts) == 1:
        ties, told = _hf.declared_ties(config, [*merged.table.names, *lost, *aliases])
        aliases.update(ties)
        problems.extend(told)
    problems.extend(merged.problems)
    _tell_fragments(headers, problems)
    roles = dict.fromkeys(headers, "weights")
    roles.update((name, "stray") for part in parts for name in part.strays)
    roles.update((part.index.file, "index") for part in parts if part.index is not None)
    objects = _metadata_objects(target, parts, headers)
    objects.update(_hf.json_objects(target, pool, frozenset(p.index.file for p in parts if p.index is not None)))
    roles.update((name, "configuration") for name in objects if target.entry(name) is not None)
    problems.extend(_hf.folder_problems(target, frozenset(e.name for e in target.entries if SAFETENSORS.holds(e.name))))
    metadata: dict[str, Any] = next((h.metadata for h in headers.values() if h.metadata), {})
    root = target.root
    return Checkpoint(
        root=root, path=target.path, format=NAME, format_detail=_detail(parts, headers), table=merged.table,
        tensors=LazyTensors(merged.table, merged.sources.tensor), unreadable=lost, aliases=aliases, objects=objects,
        files=_hf.file_infos(target, roles),
        facts=_hf.facts(target, config, trainer, metadata, len(merged.table)), problems=tuple(problems),
        close=pool.close,
        changed_files=lambda: tuple(sorted(os.path.relpath(p, root) for p in pool.changed())),
    )  # fmt: skip


def _detail(parts: list[Part], headers: dict[str, Header]) -> str:
    n = plural(len(headers), "file")
    if len(parts) > 1:
        return f"{count(len(parts))} models, {n}: {listing([p.name for p in parts], 4)}"
    return f"{n} by {printable(parts[0].index.file)}" if parts and parts[0].index is not None else n


def _tell_fragments(headers: dict[str, Header], problems: list[Problem]) -> None:
    # Source: torch.distributed.checkpoint, HuggingFaceStorageWriter: each rank's slice under the tensor's full name.
    fragments = [name for name, header in headers.items() if "DCP_SHARDING_INFO" in header.metadata]
    if fragments:
        problems.append(Problem("dcp-fragments", "warning",
            f"{plural(len(fragments), 'file')} ({listing(fragments)}) hold slices of tensors that DCP cut over ranks; "
            "each file is shown by itself, not joined", file=fragments[0]))  # fmt: skip


def _metadata_objects(target: Target, parts: list[Part], headers: dict[str, Header]) -> dict[str, StoredObject]:
    """Return what headers and indexes say beside tensors; headers that say the same are told once."""
    out: dict[str, StoredObject] = {}
    told = [(name, header) for name, header in headers.items() if header.metadata]
    alike = len(told) > 1 and all(header.metadata == told[0][1].metadata for _, header in told)
    for name, header in told[:1] if alike else told:
        key = "__metadata__" if alike or len(headers) == 1 else f"__metadata__ [{name}]"
        summary = listing([str(k) for k in header.metadata]) + (f", alike in {count(len(told))} files" if alike else "")
        out[key] = StoredObject(
            key, "metadata", summary, header.data_start - 8, name, 8, partial(dict, header.metadata)
        )
    for part in parts:
        if part.index is not None and part.index.metadata:
            key = f"metadata [{part.index.file}]"
            keys = listing([str(k) for k in part.index.metadata]) if isinstance(part.index.metadata, dict) else "JSON"
            entry = target.entry(part.index.file)
            n_bytes = entry.n_bytes if entry is not None else 0
            out[key] = StoredObject(
                key, "metadata", keys, n_bytes, part.index.file, 0, partial(copy, part.index.metadata)
            )
    return out


# ---------------------------------------------------------------- big headers, in the helper


def _in_helper(source: ByteSource, report: Report) -> Header:
    argument = {"path": str(source.path), "name": source.name}
    found = call("safetensors:parse_file", argument, report, source.name)
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
