"""Opens a DCP directory: metadata, files beside it, what the names tell; no stored tensor is looked into."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tensormorph.columns import TensorKey
from tensormorph.errors import CancelledError, CorruptFileError, Problem, TensormorphError
from tensormorph.model import Checkpoint, Facts, FileInfo, LazyTensors, UnreadableTensor
from tensormorph.readers import _dcp_metadata, _hf
from tensormorph.readers._bytes import FilePool, pool_of_a_checkpoint
from tensormorph.readers._dcp_items import ItemOpener, ItemPlace, ItemStore
from tensormorph.readers._dcp_metadata import Columns
from tensormorph.readers._dcp_names import states_of, step_names, weights_of
from tensormorph.readers._dcp_objects import Objects, not_looked_into, objects_of, within_budget, worth_a_look
from tensormorph.readers._dcp_scan import scan
from tensormorph.readers._dcp_table import Built, build
from tensormorph.readers._layouts import lay_out
from tensormorph.readers._process import THRESHOLD_BYTES, Report, call
from tensormorph.readers._target import Claim, Stated, Target, look
from tensormorph.readers._torchzip import SUM_BYTES
from tensormorph.region import Region
from tensormorph.text import count, listing, plural, printable, size

NAME = "dcp"
ONE = ".metadata"
RANK_METADATA = re.compile(r"__([0-9]{1,9})\.metadata")
DATA = re.compile(r"__([0-9]{1,9})_([0-9]{1,9})\.distcp")
MOST_METADATA = 2 << 30


def open_claim(target: Target, claim: Claim, problems: list[Problem], report: Report, stated: Stated) -> Checkpoint:
    """Open what the reader claimed. Raises as its `read`."""
    del claim
    with pool_of_a_checkpoint() as pool:
        folder = target if target.is_folder else look(target.root)
        return _read(target, folder, problems, report, pool, stated)


def _read(
    given: Target, folder: Target, problems: list[Problem], report: Report, pool: FilePool, stated: Stated
) -> Checkpoint:
    store = ItemStore(pool, folder)
    sizes = {entry.name: entry.n_bytes for entry in folder.entries if entry.kind == "file"}
    outside = frozenset(entry.name for entry in folder.entries if entry.kind == "outside")
    names = [ONE] if ONE in sizes else sorted(n for n in sizes if RANK_METADATA.fullmatch(n))
    found = _metadata(folder, names, pool, problems, report)
    for file, one in found:
        problems.extend(Problem(code, severity, told, tensor, file) for code, severity, told, tensor in one.notes)
    committed, evidence = _committed(folder, names, stated, problems)
    objects = objects_of(found, sizes, store, problems)
    problems += objects.look_into(worth_a_look(objects), report)
    if not names and stated.scan:
        data = [name for name, n_bytes in _data_files(folder) if n_bytes]
        objects.inner.update(scan(folder, data, pool, store, problems, report))
    built = build(found, objects.inner, sizes, outside, ItemOpener(store), problems)
    laid = lay_out(built.table, _world(folder, built), stated.mesh, problems)
    built.layouts = laid.layouts
    _other_files(folder, built, objects, names, sizes, problems)
    problems.extend(_hf.folder_problems(folder, frozenset(built.table.files)))
    paths = {name: path for _, one in found for name, path in one.paths.items()}
    facts = _facts(folder, found, built, objects, paths, committed, evidence)
    root = folder.root
    known = set(built.table.names)
    lost = {
        p.tensor: UnreadableTensor(p.tensor, TensorKey("", p.tensor), None, None, p.file, (p,))
        for p in problems if p.code == "bad-shape" and p.tensor is not None and p.tensor not in known
    }  # fmt: skip
    return Checkpoint(
        root=root, path=given.path, format=NAME, format_detail=_detail(found, facts), table=built.table,
        tensors=LazyTensors(built.table, built.tensor), unreadable=lost, aliases={}, objects=objects.stored(),
        files=_files(folder, built, objects, names), facts=facts, problems=tuple(problems), close=pool.close,
        changed_files=lambda: tuple(sorted(os.path.relpath(p, root) for p in pool.changed())),
        mesh=laid.mesh, meshes=laid.meshes, mesh_candidates=laid.candidates, mesh_evidence=laid.words,
        verify=partial(_verify, built, objects), read_facts=partial(_with_step, facts, built, objects, paths),
    )  # fmt: skip


# ---------------------------------------------------------------- metadata


def _metadata(
    folder: Target, names: Sequence[str], pool: FilePool, problems: list[Problem], report: Report
) -> list[tuple[str, Columns]]:
    """Read the metadata files; of several, one that cannot be read costs only what it told.

    Raises
    ------
    CorruptFileError, LimitError
        If there is one and it cannot be read, or none can.
    """
    out: list[tuple[str, Columns]] = []
    errors: list[TensormorphError] = []
    for name in names:
        try:
            out.append((name, _columns(folder, name, pool, report)))
        except CancelledError:
            raise
        except TensormorphError as error:
            errors.append(error)
            problems.append(Problem(error.code, "error", str(error), file=name))
    if errors and not out:
        raise errors[0]
    return out


def _columns(folder: Target, name: str, pool: FilePool, report: Report) -> Columns:
    path = folder.resolve(name)
    n_bytes = pool.identity(path).n_bytes
    if not n_bytes:
        raise CorruptFileError(name, "The file is empty (0 bytes): the save broke off, or is still being written")
    if n_bytes > THRESHOLD_BYTES:
        answer = call("_dcp_metadata:columns", {"path": str(path), "name": name}, report, str(path))
        pool.read_into(path, 0, memoryview(bytearray(1)))  # raises if it is no longer the file that the helper read
        return _dcp_metadata.from_message(answer)
    data = bytearray(n_bytes)
    pool.read_into(path, 0, memoryview(data))
    return _dcp_metadata.parse(bytes(data), name, report)


def _committed(folder: Target, names: Sequence[str], stated: Stated, problems: list[Problem]) -> tuple[bool, str]:
    """Return whether the save was finished, and what tells so: the metadata is written last, and renamed into place.

    Source: torch/distributed/checkpoint/filesystem.py, `finish`: ``.metadata.tmp`` is renamed to ``.metadata``.
    """
    data = [n for n in folder.names if DATA.fullmatch(n)]
    if not names:
        total = sum(e.n_bytes for e in folder.entries if e.name in data)
        began = "; .metadata.tmp is there, so the save broke off while it was being finished" * (
            ".metadata.tmp" in folder.names
        )
        before = _earlier(folder)
        told = (
            f"The save is not complete: {plural(len(data), 'data file')} ({size(total)}) and no .metadata, which is "
            f"written last{began}. Names, shapes and places are only there"
        )
        hint = f"The save before it is complete: {printable(before)}" if before else ""
        scanned = "" if stated.scan else ". --scan looks through the files for whole tensors, which have no names then"
        problems.append(Problem("uncommitted", "error", told + scanned, hint=hint))
        return False, "there is no .metadata, which is written last"
    if names == [ONE]:
        if ".metadata.tmp" in folder.names:
            problems.append(Problem("unfinished-overwrite", "warning",
                "A .metadata.tmp lies beside .metadata: a later save into this folder broke off, and data files may be "
                "its own", file=".metadata.tmp"))  # fmt: skip
        return True, ".metadata is there; it is written last"
    ranks = sorted(int(RANK_METADATA.fullmatch(n)[1]) for n in names)  # type: ignore[index]
    writers = sorted({int(DATA.fullmatch(n)[1]) for n in data})  # type: ignore[index]
    missing = sorted({*range(max(ranks) + 1), *writers} - set(ranks))
    if missing:
        problems.append(Problem("missing-rank-metadata", "error",
            f"The metadata of {plural(len(missing), 'rank')} is not there ({listing([str(r) for r in missing])}): what "
            "they stored is unknown"))  # fmt: skip
    return (
        not missing,
        f"each of {plural(len(ranks), 'rank')} has its own metadata" if not missing else "ranks are missing",
    )


def _earlier(folder: Target) -> str:
    """Return the nearest earlier folder of the same kind (``step-900`` before ``step-1000``) that has its metadata."""
    found = re.fullmatch(r"(.*?)([0-9]+)(\D*)", folder.root.name)
    if found is None:
        return ""
    best = -1
    name = ""
    try:
        beside = os.listdir(folder.root.parent)
    except OSError:
        return ""
    for other in beside:
        match = re.fullmatch(r"(.*?)([0-9]+)(\D*)", other)
        if match is None or (match[1], match[3]) != (found[1], found[3]) or not best < int(match[2]) < int(found[2]):
            continue
        if (folder.root.parent / other / ONE).is_file():
            best, name = int(match[2]), other
    return name


# ---------------------------------------------------------------- files


def _other_files(
    folder: Target, built: Built, objects: Objects, names: Sequence[str], sizes: dict[str, int],
    problems: list[Problem],
) -> None:  # fmt: skip
    """Tell of data files that nothing refers to: leftovers of another save. An empty one is a rank without items."""
    used = {*built.table.files, *(place.file for place in objects.places.values())}
    orphans = [n for n in folder.names if DATA.fullmatch(n) and n not in used and sizes[n] and names]
    if orphans:
        total = sum(sizes[n] for n in orphans)
        problems.append(Problem("orphan-file", "warning",
            f"{plural(len(orphans), 'data file')} ({size(total)}) belong to no tensor of the metadata: "
            f"{listing(orphans, 8)}. They are left of another save, by more ranks or under other names",
            file=orphans[0]))  # fmt: skip
    written = {e.name: e.mtime_ns for e in folder.entries if e.name in used and e.kind == "file"}
    saved = [e.mtime_ns for e in folder.entries if e.name in names]
    later = [n for n, at in written.items() if saved and at > max(saved) + 60_000_000_000]
    if later and len(later) < len(written):
        problems.append(Problem("newer-than-metadata", "warning",
            f"{plural(len(later), 'data file')} of {count(len(written))} were written more than a minute after the "
            f"metadata ({listing(later)}): they may be of a later save", file=later[0]))  # fmt: skip


def _files(folder: Target, built: Built, objects: Objects, names: Sequence[str]) -> tuple[FileInfo, ...]:
    roles = {n: ("data" if n_bytes else "empty") for n, n_bytes in _data_files(folder)}
    used = {*built.table.files, *(place.file for place in objects.places.values())}
    roles = {n: role if n in used or role == "empty" else "orphan" for n, role in roles.items()}
    return _hf.file_infos(folder, {**roles, **dict.fromkeys(names, "metadata")})


def _data_files(folder: Target) -> list[tuple[str, int]]:
    return [(e.name, e.n_bytes) for e in folder.entries if e.kind == "file" and DATA.fullmatch(e.name)]


# ---------------------------------------------------------------- facts


def _facts(
    folder: Target, found: Sequence[tuple[str, Columns]], built: Built, objects: Objects,
    paths: dict[str, list[str | int]], committed: bool, evidence: str,
) -> Facts:  # fmt: skip
    table = built.table
    weights = set(weights_of(table.names, built.keys, paths))
    kinds = {table.encodings[int(table.encoding[i])].name for i, name in enumerate(table.names) if name in weights}
    floats = frozenset(kind for kind in kinds if kind.startswith(("float", "bfloat")))
    states = states_of(table.names, built.keys, list(objects.places), paths, weights, floats)
    return Facts(
        committed, evidence, None, "nothing records a step",
        _world(folder, built), _software(found), states,
    )  # fmt: skip


def _world(folder: Target, built: Built) -> int | None:
    """Return the number of ranks that wrote, by the names of all data files; empty ones count."""
    files = {*built.table.files, *(n for n, _ in _data_files(folder))}
    ranks = [rank for rank in map(built.opener.rank_of, files) if rank >= 0]
    return 1 + max(ranks) if ranks else None


def _software(found: Sequence[tuple[str, Columns]]) -> str:
    """Return which torch wrote the metadata, as far as its fields tell.

    Source: git history of torch/distributed/checkpoint/metadata.py.
    """
    fields = {key for _, one in found for key in one.facts.get("fields", ())}
    transformed = any(len(one.transforms) > 1 for _, one in found)
    if "version" in fields:
        return "torch DCP, 2.9 or later"
    if transformed:
        return "torch DCP, 2.7 or later"
    if "storage_meta" in fields:
        return "torch DCP, 2.4 or later"
    return "torch DCP, before 2.4" if fields else "torch DCP"


def _detail(found: Sequence[tuple[str, Columns]], facts: Facts) -> str:
    ranks = f"written by {plural(facts.world_size, 'rank')} (by file names)" if facts.world_size else "no data files"
    if not found:
        return f"{ranks}, no metadata"
    kind = "one metadata file" if found[0][0] == ONE else f"{plural(len(found), 'metadata file')}, one a rank"
    return f"{ranks}, {kind}"


def _with_step(facts: Facts, built: Built, objects: Objects, paths: dict[str, list[str | int]]) -> Facts:
    """Return the facts with the step: of an object that is called so, else of the optimizer's own count."""
    for name in step_names(list(objects.places), paths):
        try:
            value = objects.load(name)
        except CancelledError:
            raise
        except TensormorphError:
            continue
        if type(value) is int and 0 <= value < 1 << 60:
            return replace(facts, step=value, step_evidence=f"{name} in {objects.places[name].file}")
    for row, key in enumerate(built.keys):
        if key.slot != "step" or built.table.n_elements[row] != 1 or not built.table.complete[row]:
            continue
        tensor = built.tensor(row)
        out = np.empty(tensor.shape, tensor.dtype)
        try:
            tensor.read_into(Region.whole(tensor.shape), out)
        except CancelledError:
            raise
        except TensormorphError:
            continue
        value = out.reshape(-1)[0].item()
        if float(value).is_integer() and 0 <= value < 1 << 60:
            told = f"the optimizer's own count, {tensor.name}"
            return replace(facts, step=int(value), step_evidence=told)
    return facts


# ---------------------------------------------------------------- verifying


def _verify(built: Built, objects: Objects, budget: int | None, report: Report) -> list[Problem]:
    """Look into the objects, and compare stored tensors with the CRC-32 in their items, up to `budget` bytes.

    torch writes the sums and does not look at them when it loads.
    """
    left = [name for name in objects.places if name not in objects.summaries]
    out = objects.look_into(within_budget(objects, left), report)
    large = not_looked_into(objects)
    out += [] if large is None else [large]
    done = 0
    chunks = built.chunks
    total = int(chunks.length.sum())
    for row in np.lexsort((chunks.offset, chunks.file)).tolist():
        n_bytes = int(chunks.length[row])
        if chunks.lost[row]:
            continue
        if budget is not None and done + n_bytes > budget:
            break
        report("Comparing checksums", done, total)
        name = built.table.names[int(chunks.tensor[row])]
        out += _checksums(objects.store, chunks.place(row), name, chunks.region(row))
        done += n_bytes
    return out


def _checksums(store: ItemStore, place: ItemPlace, name: str, region: Region) -> list[Problem]:
    out: list[Problem] = []
    try:
        archive = store.archive(place)
        for row in archive.first.values():
            size_of, crc, at = int(archive.size[row]), 0, 0
            record = archive.open(row)
            while at < size_of:
                step = min(SUM_BYTES, size_of - at)
                crc = zlib.crc32(record.read(at, step), crc)
                at += step
            if crc != int(archive.crc[row]):
                first = record.start
                out.append(Problem("crc", "warning",
                    f"{printable(name)}, region {region} in {printable(place.file)}: record "
                    f"{printable(archive.text(row))} has CRC-32 {crc:08x}, its directory says "
                    f"{int(archive.crc[row]):08x}: its bytes changed since they were written; torch does not look",
                    name, place.file, (first, first + size_of), region))  # fmt: skip
    except CancelledError:
        raise
    except TensormorphError:
        pass  # the look at the item's place tells it
    return out
