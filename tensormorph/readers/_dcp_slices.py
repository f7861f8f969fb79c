"""Opens the shards that DCP writes as safetensors: headers, the boxes that they record, and the table over them all."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tensormorph.array import StoredSource
from tensormorph.columns import TensorKey
from tensormorph.dtypes import Encoding
from tensormorph.errors import CancelledError, CorruptFileError, Problem, TensormorphError
from tensormorph.fragments import NO_RANK
from tensormorph.model import STATES, Checkpoint, Facts, LazyTensors, State, StateFact, StoredObject, UnreadableTensor
from tensormorph.readers import _hf
from tensormorph.readers._bytes import ByteSource, FilePool, pool_of_a_checkpoint
from tensormorph.readers._dcp_items import ItemPlace
from tensormorph.readers._dcp_metadata import Columns
from tensormorph.readers._dcp_table import Built, build
from tensormorph.readers._header import Header
from tensormorph.readers._header_files import read_headers
from tensormorph.readers._header_json import parse
from tensormorph.readers._layouts import lay_out
from tensormorph.readers._pickle_show import to_plain
from tensormorph.readers._process import THRESHOLD_BYTES, Report, silent
from tensormorph.readers._strided import StridedBytes, row_major
from tensormorph.readers._target import Stated, Target
from tensormorph.readers._torchzip import open_torch
from tensormorph.region import flat_range
from tensormorph.text import listing, plural, printable, size

NAME = "dcp_safetensors"
_SHARD = re.compile(r"shard-([0-9]{5,9})-.*")
INFO = "DCP_SHARDING_INFO"
SEARCHED_BYTES = 64 << 20
"""So far into a file that begins as a zip its safetensors body is looked for."""


@dataclass(frozen=True, slots=True)
class _Opener:
    """Slices lie plain in their files."""

    pool: FilePool
    paths: Mapping[str, Path]
    in_items: bool = False

    def rank_of(self, file: str) -> int:
        """Return the rank that wrote a shard, by its name, which counts from one."""
        found = _SHARD.fullmatch(file)
        return int(found[1]) - 1 if found is not None and int(found[1]) > 0 else NO_RANK

    def source(self, place: ItemPlace, shape: tuple[int, ...], encoding: Encoding) -> StoredSource:
        """Return the elements of a slice."""
        data = ByteSource(self.pool, self.paths[place.file], place.file, place.offset, place.length)
        return StridedBytes(data, 0, shape, row_major(shape), encoding)

    stored = source


@dataclass(slots=True)
class _Shard:
    """One file: its header, and where the header's first byte stands in it."""

    header: Header
    body_at: int = 0


def open_claim(
    target: Target, names: Sequence[str], problems: list[Problem], report: Report, stated: Stated
) -> Checkpoint:
    """Open the shards of a folder. Raises as the reader's `read`."""
    with pool_of_a_checkpoint() as pool:
        return _read(target, names, problems, report, pool, stated)


def _read(
    target: Target, names: Sequence[str], problems: list[Problem], report: Report, pool: FilePool, stated: Stated
) -> Checkpoint:
    headers, failures = read_headers(target, names, pool, report)
    shards = {name: _Shard(header) for name, header in headers.items()}
    objects: dict[str, StoredObject] = {}
    for name, failure in list(failures.items()):
        found = _behind_archive(target, name, pool, problems, objects)
        if found is not None:
            shards[name] = found
            del failures[name]
        else:
            problems.append(Problem(failure.code, "error", str(failure), file=name))
    if failures and not shards and len(names) == 1:
        raise failures[names[0]]
    offsets = {name: _offsets(name, shard.header, problems) for name, shard in shards.items()}
    sizes_of = _sizes(shards, offsets, problems)
    found_columns = [(name, _columns(name, shards[name], offsets[name], sizes_of)) for name in names if name in shards]
    for shard in shards.values():
        problems.extend(shard.header.problems)
    sizes = {entry.name: entry.n_bytes for entry in target.entries if entry.kind == "file"}
    outside = frozenset(entry.name for entry in target.entries if entry.kind == "outside")
    paths = {name: target.resolve(name) for name in shards}
    built = build(found_columns, {}, sizes, outside, _Opener(pool, paths), problems)
    facts = _facts(built)
    laid = lay_out(built.table, facts.world_size, stated.mesh, problems)
    built.layouts = laid.layouts
    _tell_sizes(built, failures, names, problems)
    problems.extend(_hf.folder_problems(target, frozenset(names)))
    _tell_folder(target, problems)
    lost = {
        entry.name: UnreadableTensor(
            entry.name, TensorKey("", entry.name), entry.dtype, entry.shape, name, (entry.why,)
        )
        for name, shard in shards.items() for entry in shard.header.lost if entry.name not in built.by_tensor
    }  # fmt: skip
    objects.update(_hf.json_objects(target, pool, frozenset()))
    root = target.root
    return Checkpoint(
        root=root, path=target.path, format=NAME, format_detail=_detail(built, names), table=built.table,
        tensors=LazyTensors(built.table, built.tensor), unreadable=lost, aliases={}, objects=objects,
        files=_hf.file_infos(target, dict.fromkeys(names, "shard")), facts=facts, problems=tuple(problems),
        close=pool.close, mesh=laid.mesh, meshes=laid.meshes, mesh_candidates=laid.candidates,
        mesh_evidence=laid.words,
        changed_files=lambda: tuple(sorted(os.path.relpath(p, root) for p in pool.changed())),
    )  # fmt: skip


# ---------------------------------------------------------------- a body behind an archive


def _behind_archive(
    target: Target, name: str, pool: FilePool, problems: list[Problem], objects: dict[str, StoredObject]
) -> _Shard | None:
    """Return the safetensors body of a file that begins with an archive of torch.save; None if none is found.

    A value of the state dict that is no tensor is written in front of the body, and no reader of safetensors opens the
    file again. Source: torch 2.13, hf_storage.py, `_write_data` (BYTE_IO items into the same stream).
    """
    try:
        if target.head(name)[:4] != b"PK\x03\x04":
            return None
        path = target.resolve(name)
        source = ByteSource(pool, path, name, 0, pool.identity(path).n_bytes)
        searched = bytes(source.read(0, min(source.n_bytes, SEARCHED_BYTES)))
        found = re.search(rb"PK\x05\x06.{18}", searched, re.DOTALL)
        while found is not None:
            at = found.start() + 22 + int.from_bytes(searched[found.end() - 2 : found.end()], "little")
            shard = _body(source, at)
            if shard is not None:
                problems.append(Problem("archive-before-header", "warning",
                    f"{printable(name)} begins with {size(at)} of torch.save archive, a value of the state dict that "
                    "is no tensor; readers of safetensors refuse the file. Its tensors are read from behind it",
                    file=name, byte_range=(0, at)))  # fmt: skip
                label = f"object [{name}]"
                objects[label] = StoredObject(
                    label, "object", f"not looked into, {size(at)}", at, name, 0, partial(_load, source, at)
                )
                return shard
            found = re.compile(rb"PK\x05\x06.{18}", re.DOTALL).search(searched, found.start() + 1)
    except CancelledError:
        raise
    except TensormorphError:
        pass  # what read the header says what is wrong with the file
    return None


def _load(source: ByteSource, n_bytes: int) -> Any:
    return to_plain(open_torch(source.part(0, n_bytes), silent).root)


def _body(source: ByteSource, at: int) -> _Shard | None:
    if at + 10 > source.n_bytes:
        return None
    n: int = struct.unpack("<Q", source.read(at, 8))[0]
    if n > min(source.n_bytes - at - 8, THRESHOLD_BYTES):
        return None
    raw = source.read(at + 8, n)
    if raw[:1] != b"{":
        return None
    try:
        return _Shard(parse(raw, source.n_bytes - at, source.name), at)
    except CorruptFileError:
        return None


# ---------------------------------------------------------------- boxes


def _offsets(file: str, header: Header, problems: list[Problem]) -> dict[str, tuple[int, ...]]:
    """Return where each slice of a file begins in its tensor, as the header records it."""
    raw = header.metadata.get(INFO)
    try:
        told = json.loads(raw) if isinstance(raw, str) else None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        problems.append(Problem("no-sharding-info", "error",
            f"{printable(file)} records no usable {INFO}: where its slices belong is unknown", file=file))  # fmt: skip
        return {}
    out: dict[str, tuple[int, ...]] = {}
    for name, entry in told.items():
        low = entry.get("saved_offsets") if isinstance(entry, dict) else None
        if isinstance(low, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in low):
            out[name] = tuple(low)
    return out


def _rows(header: Header) -> list[tuple[str, int]]:
    """Return every name of a header with its row; names that share bytes too."""
    rows = [(name, i) for i, name in enumerate(header.names) if not header.shadowed[i]]
    at = dict(rows)
    return rows + [(alias, at[name]) for alias, name in header.aliases.items() if name in at]


def _shape(header: Header, row: int) -> tuple[int, ...]:
    return tuple(header.dims[int(header.first_dim[row]) : int(header.first_dim[row + 1])].tolist())


def _sizes(
    shards: Mapping[str, _Shard], offsets: Mapping[str, Mapping[str, tuple[int, ...]]], problems: list[Problem]
) -> dict[str, tuple[int, ...]]:
    """Return the size of each tensor: the farthest end of its slices, for nothing records it."""
    out: dict[str, tuple[int, ...]] = {}
    for file, shard in shards.items():
        for name, row in _rows(shard.header):
            shape, low = _shape(shard.header, row), offsets[file].get(name)
            if low is None or len(low) != len(shape):
                problems.append(Problem("no-saved-offset", "error",
                    f"{printable(file)} holds a slice of {printable(name)} of shape {shape} and records "
                    f"{'no place' if low is None else f'the place {low}'} for it: it is not used",
                    name, file))  # fmt: skip
                continue
            end = tuple(map(int.__add__, low, shape))
            known = out.get(name, end)
            if len(known) == len(end):
                out[name] = tuple(map(max, known, end))
    return out


def _columns(
    file: str, shard: _Shard, offsets: Mapping[str, tuple[int, ...]], sizes: Mapping[str, tuple[int, ...]]
) -> Columns:
    """Return the slices of a file as boxes; of a slice that the file cuts short what is there."""
    header = shard.header
    out = Columns(files=[file])
    dtypes: dict[str, int] = {}
    numbers: dict[str, list[int]] = {
        key: [] for key in ("dtype", "dims", "n_dims", "n_chunks", "start", "stop", "file", "offset", "length",
                            "transform")
    }  # fmt: skip
    encodings = header.encodings()
    for name, row in _rows(header):
        shape, low = _shape(header, row), offsets.get(name)
        if low is None or name not in sizes or len(low) != len(shape) or len(sizes[name]) != len(shape):
            continue
        encoding = encodings[int(header.dtype[row])]
        out.names.append(name)
        numbers["dtype"].append(dtypes.setdefault(encoding.name, len(dtypes)))
        numbers["dims"].extend(sizes[name])
        numbers["n_dims"].append(len(shape))
        n_elements, readable = int(header.n_elements[row]), int(header.readable[row])
        boxes = list(flat_range(shape, 0, readable)) if n_elements else []
        for box, first in boxes:
            placed = box.offset_by(low)
            numbers["start"].extend(placed.start)
            numbers["stop"].extend(placed.stop)
            numbers["file"].append(0)
            numbers["offset"].append(shard.body_at + int(header.begin[row]) + encoding.n_bytes(first))
            numbers["length"].append(encoding.n_bytes(box.size))
            numbers["transform"].append(0)
        numbers["n_chunks"].append(len(boxes))
    out.dtypes = list(dtypes)
    out.numbers = {key: np.array(values, np.int64) for key, values in numbers.items()}
    return out


# ---------------------------------------------------------------- what is told


def _tell_sizes(
    built: Built, failures: Mapping[str, TensormorphError], names: Sequence[str], problems: list[Problem]
) -> None:
    n = len(built.table)
    if failures:
        built.table.complete[:] = False
        problems.append(Problem("size-unknown", "error",
            f"{plural(len(failures), 'shard')} cannot be read ({listing(sorted(failures))}), and no file records "
            f"sizes: each of {plural(n, 'tensor')} may be larger than what the others hold",
            file=min(failures)))  # fmt: skip
    problems.append(Problem("inferred-size", "info",
        f"No file records the sizes of {plural(n, 'tensor')}: each is taken as the end of its farthest slice. If the "
        "shard with the last slice is lost, nothing in the others shows it"))  # fmt: skip
    ranks = sorted({rank for rank in map(built.opener.rank_of, names) if rank >= 0})
    absent = sorted(set(range(max(ranks, default=-1) + 1)) - set(ranks))
    if absent:
        problems.append(Problem("shard-numbers-skip", "info",
            f"No shard is there of {plural(len(absent), 'rank')} ({listing([str(r) for r in absent])}): a rank without "
            "items writes none, or it is lost"))  # fmt: skip


def _tell_folder(target: Target, problems: list[Problem]) -> None:
    """Tell of a consolidation that did not come to its end.

    Source: torch 2.13, _consolidate_hf_safetensors.py: it runs after the shards are written, and raises for integers.
    """
    if target.root.name != "sharded":
        return
    try:
        beside = os.listdir(target.root.parent)
    except OSError:
        return
    if not any(name.endswith((".safetensors", ".safetensors.index.json")) for name in beside):
        problems.append(Problem("not-consolidated", "info",
            "The folder is the sharded part of a save that consolidates, and no consolidated file is beside it: the "
            "consolidation failed (as it does for integer and bool tensors) or has not run. The shards stand for "
            "themselves"))  # fmt: skip


def _detail(built: Built, names: Sequence[str]) -> str:
    ranks = {rank for rank in map(built.opener.rank_of, names) if rank >= 0}
    return f"{plural(len(names), 'safetensors file')} of {plural(len(ranks), 'rank')} (by file names), sizes inferred"


def _facts(built: Built) -> Facts:
    states: dict[State, StateFact] = dict.fromkeys(STATES, StateFact("no", "these files hold named tensors only"))
    n = len(built.table)
    states["weights"] = StateFact("yes" if n else "no", f"{plural(n, 'tensor')} in shards")
    ranks = [rank for rank in map(built.opener.rank_of, built.table.files) if rank >= 0]
    return Facts(
        None, "shards have no commit marker", None, "nothing records a step", 1 + max(ranks) if ranks else None,
        "torch DCP with Hugging Face storage, 2.7 or later", states,
    )  # fmt: skip
