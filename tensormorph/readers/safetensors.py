"""safetensors: one file, a set with its index, a set without, variants and several models in one folder.

Whole tensors lie in whole files here; placement fragments that torch's DCP writes into the same container are named
for what they are and not joined.
"""

from __future__ import annotations

import os
import re
import struct
from copy import copy
from functools import partial
from typing import Any

from tensormorph.errors import Problem
from tensormorph.model import Checkpoint, LazyTensors, StoredObject, UnreadableTensor
from tensormorph.readers import _hf
from tensormorph.readers._bytes import FilePool, pool_of_a_checkpoint
from tensormorph.readers._header import Header
from tensormorph.readers._header_files import read_headers
from tensormorph.readers._process import Report
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
_SOME_OFFSET = re.compile(r'"saved_offsets"\s*:\s*\[[^\]]*[1-9]')


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
    with pool_of_a_checkpoint() as pool:
        return _read(target, claim, problems, report, pool)


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
    headers, failures = read_headers(target, list(dict.fromkeys(names)), pool, report)
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
    # Source: torch.distributed.checkpoint, HuggingFaceStorageWriter: each rank's slice under the tensor's full name. It
    # writes the same record beside whole tensors that rank 0 saves alone: all begin at 0, no file is named a shard.
    fragments = [
        name for name, header in headers.items()
        if (info := header.metadata.get("DCP_SHARDING_INFO")) is not None
        and (name.rpartition("/")[2].startswith("shard-") or _SOME_OFFSET.search(str(info)))
    ]  # fmt: skip
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
