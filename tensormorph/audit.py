"""What `check` looks at beyond the metadata: the files, the places of stored items, the values, the hashes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tensormorph.errors import CancelledError, CannotOpenError, Problem, Severity, TensormorphError
from tensormorph.fragments import FragmentTable
from tensormorph.model import Checkpoint, LogicalTensor
from tensormorph.readers._target import Target, look, open_regular, os_words
from tensormorph.region import Region
from tensormorph.stats import PIECE_BYTES, Statistics, statistics, unread_problem
from tensormorph.text import count, listing, plural, printable

Report = Callable[[str, int, int], None]

_HASH_BYTES = 1 << 20
_RESOLVERS = 8


# ---------------------------------------------------------------- files


def locator(checkpoint: Checkpoint) -> Callable[[str], Path]:
    """Return the function from a file's name in the checkpoint to its path, by the readers' own rules for links.

    It raises OutsideRootError or CannotOpenError where a name must not be followed or leads nowhere.
    """
    named = checkpoint.path.name if checkpoint.path.is_file() else None
    folder: list[Target] = []

    def path_of(name: str) -> Path:
        if name == named:
            return checkpoint.path  # the very file that the person named: wherever its link leads
        if not folder:
            folder.append(look(checkpoint.root))
        return folder[0].resolve(name)

    return path_of


def check_files(checkpoint: Checkpoint, known: Sequence[Problem], report: Report) -> tuple[list[Problem], int]:
    """Open every file of the checkpoint and compare its length with what its tensors need. Reads no data.

    A file that an error among the `known` problems names already gets no second one.
    """
    table = checkpoint.table
    needed = np.zeros(len(table.files), np.int64)
    told = (table.offset >= 0) & (table.length >= 0)
    np.maximum.at(needed, table.file[told], table.offset[told] + table.length[told])
    used = np.unique(table.file).tolist()
    ends = {info.name: 0 for info in checkpoint.files} | {table.files[i]: int(needed[i]) for i in used}
    stored = {table.files[i] for i in used}
    named = {problem.file for problem in known if problem.severity == "error"}
    path_of = locator(checkpoint)
    found: list[Problem] = []
    for done, (name, end) in enumerate(ends.items()):
        report("Opening files", done, len(ends))
        problem = _look_at(path_of, name, end, name in stored)
        if problem is not None and name not in named:
            found.append(problem)
    return found, len(ends)


def _look_at(path_of: Callable[[str], Path], name: str, end: int, holds_tensors: bool) -> Problem | None:
    shown = printable(name)
    try:
        fd = open_regular(path_of(name))
        try:
            length = os.fstat(fd).st_size
        finally:
            os.close(fd)
    except (CannotOpenError, OSError) as error:
        severity: Severity = "error" if holds_tensors else "warning"
        why = error.why if isinstance(error, CannotOpenError) else os_words(error)
        code = error.code if isinstance(error, CannotOpenError) else "cannot-open"
        return Problem(code, severity, f"{shown} cannot be opened: {why}", file=name)
    if length < end:
        sentence = f"{shown} ends at byte {count(length)}; its tensors need {count(end)} bytes"
        return Problem("short-file", "error", sentence, file=name, byte_range=(length, end))
    return None


def resolve_places(checkpoint: Checkpoint, report: Report) -> list[Problem]:
    """Look up every stored item whose place only the item itself tells, several at a time."""
    table = checkpoint.table
    unknown = np.flatnonzero((table.offset < 0) | table.in_items)
    if not len(unknown):
        return []
    from concurrent.futures import ThreadPoolExecutor

    rows = np.unique(np.searchsorted(table.first_fragment, unknown, "right") - 1).tolist()
    found: list[Problem] = []
    pool = ThreadPoolExecutor(_RESOLVERS)
    try:
        for done, problems in enumerate(pool.map(lambda row: _resolve(checkpoint, checkpoint.tensors.at(row)), rows)):
            report("Looking up stored items", done, len(rows))
            found += problems
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def _resolve(checkpoint: Checkpoint, tensor: LogicalTensor) -> list[Problem]:
    found: list[Problem] = []
    known = {problem.region for problem in tensor.problems if problem.severity == "error"}
    for row in range(len(tensor.fragments)):
        region = tensor.fragments.region(row)
        if region in known:
            continue
        file = tensor.fragments.files[int(tensor.fragments.file[row])]
        what = f"{printable(tensor.name)}, region {region} in {printable(file)}"
        try:
            source = tensor.fragments.open_source(row)
            place = source.place()
        except CancelledError:
            raise
        except TensormorphError as error:
            found.append(Problem(error.code, "error", f"{what}: {error.sentence}", tensor.name, file, region=region))
            continue
        if source.dtype != tensor.dtype:
            found.append(Problem("fragment-dtype", "error",
                f"{what}: the stored item is {source.dtype}, the tensor is recorded as {tensor.encoding.name}; nothing "
                "is cast", tensor.name, file, region=region))  # fmt: skip
        elif place.compression == "deflate" and checkpoint.table.in_items:
            found.append(Problem("compressed-item", "warning",
                f"{what}: the stored item is compressed; torch writes none, and readers that map files refuse it",
                tensor.name, file, region=region))  # fmt: skip
    return found


# ---------------------------------------------------------------- values


def check_values(checkpoint: Checkpoint, known: Sequence[Problem], report: Report) -> tuple[list[Problem], int]:
    """Read every tensor, piece by piece and in the order of storage, and every copy of a stored part.

    Returns what was found and the bytes read. A part that the metadata calls unreadable is told only if no error among
    the `known` problems names its tensor.
    """
    table = checkpoint.table
    total = sum(table.n_bytes(row) or 0 for row in range(len(table)))
    named = {problem.tensor for problem in known if problem.severity == "error"}
    found: list[Problem] = []
    done = 0
    for row in _in_storage_order(checkpoint):
        tensor = checkpoint.tensors.at(row)
        if not tensor.encoding.readable:
            continue

        def read(n_bytes: int, before: int = done) -> None:
            report("Reading values", before + n_bytes, total)

        held = statistics(tensor, report=read, piece_bytes=PIECE_BYTES)
        done += held.n_bytes
        found += _not_finite(tensor, held)
        lost = unread_problem(tensor, held, tensor.name in named)
        found += [] if lost is None else [lost]
        if tensor.reduction is None:
            found += _copies_that_differ(tensor, partial(report, "Comparing copies", done, total))
    return found, done


def _in_storage_order(checkpoint: Checkpoint) -> list[int]:
    table = checkpoint.table
    n_fragments = np.diff(table.first_fragment)
    stored, nowhere = np.flatnonzero(n_fragments), np.flatnonzero((n_fragments == 0) & (table.n_elements > 0))
    first = table.first_fragment[stored]
    rows = np.concatenate([stored[np.lexsort((table.offset[first], table.file[first]))], nowhere])
    return [int(row) for row in rows]


def _not_finite(tensor: LogicalTensor, held: Statistics) -> list[Problem]:
    first = held.first_bad
    if first is None:
        return []
    numbers = ((held.n_nan, "NaN"), (held.n_posinf + held.n_neginf, "Inf"))
    kinds = " and ".join(f"{count(n)} {kind}" for n, kind in numbers if n)
    span = None
    where = ""
    if first.file is not None and first.offset is not None and first.n_bytes is not None:
        where = f", {printable(first.file)} at byte {count(first.offset)}"
        span = (first.offset, first.offset + first.n_bytes)
    index = f" at [{', '.join(map(str, first.index))}]" if first.index else ""
    sentence = (
        f"{printable(tensor.name)} holds {kinds} among {plural(held.n_elements, 'value')}; the first is "
        f"{'NaN' if first.kind == 'nan' else 'Inf'}{index}{where}"
    )
    region = Region(first.index, tuple(i + 1 for i in first.index))
    return [Problem("non-finite", "warning", sentence, tensor.name, first.file, span, region)]


def _copies_that_differ(tensor: LogicalTensor, listen: Callable[[], None]) -> list[Problem]:
    """Compare parts that are stored several times, byte by byte of their decoded values."""
    found: list[Problem] = []
    for first, *others in _copies(tensor.fragments):
        box = tensor.fragments.region(first)
        for other in others:
            files = [tensor.fragments.files[int(tensor.fragments.file[row])] for row in (first, other)]
            try:
                differs = _first_difference(tensor, first, other, listen)
            except CancelledError:
                raise
            except TensormorphError as error:
                sentence = f"{printable(tensor.name)}, region {box}: a copy cannot be read: {error.sentence}"
                found.append(Problem("unreadable-copy", "warning", sentence, tensor.name, files[1], region=box))
                continue
            if differs is not None:
                sentence = (
                    f"{printable(tensor.name)}, region {box}: the copies in {listing(files)} differ, "
                    f"first in {differs}; which one is right cannot be told"
                )
                found.append(Problem("copies-differ", "error", sentence, tensor.name, files[1], region=differs))
    return found


def _copies(fragments: FragmentTable) -> list[list[int]]:
    """Return the rows that store the same box as the same term, for every box that is stored more than once."""
    if len(fragments) < 2:
        return []
    keys = np.concatenate([fragments.start, fragments.stop, fragments.term[:, None]], axis=1)
    _, group, n = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    return [np.flatnonzero(group == i).tolist() for i in np.flatnonzero(n > 1).tolist()]


def _first_difference(tensor: LogicalTensor, a: int, b: int, listen: Callable[[], None]) -> Region | None:
    left, right = tensor.fragments.open_source(a), tensor.fragments.open_source(b)
    origin = tensor.fragments.region(a).start
    for piece in left.pieces(Region.whole(left.shape), PIECE_BYTES):
        listen()
        if piece.problem is not None:
            continue
        values = [np.empty(piece.region.shape, tensor.dtype) for _ in range(2)]
        left.read_into(piece.region, values[0])
        right.read_into(piece.region, values[1])
        if values[0].tobytes() != values[1].tobytes():
            return piece.region.offset_by(origin)
    return None


# ---------------------------------------------------------------- hashes


def check_hashes(checkpoint: Checkpoint, report: Report) -> tuple[list[Problem], int]:
    """Compare each file's hash with the one that the layout records; return what was found and how many are equal.

    The Hugging Face cache records one: a file is a link to a blob that is named by its sha256 (large files) or by its
    git blob sha1.
    """
    recorded: dict[str, Path] = {}
    silent: list[str] = []
    path_of = locator(checkpoint)
    for info in checkpoint.files:
        try:
            blob = path_of(info.name).resolve()
        except (CannotOpenError, OSError):
            continue  # the look at the files tells it
        if blob.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{40}", blob.name):
            recorded[info.name] = blob
        else:
            silent.append(info.name)
    total = sum(info.n_bytes for info in checkpoint.files if info.name in recorded)
    done = 0
    n_equal = 0
    found: list[Problem] = []
    for name, blob in recorded.items():
        wanted = blob.name
        kind = "sha256" if len(wanted) == 64 else "git blob sha1"
        before = done

        def hashed(n: int, before: int = before) -> None:
            report("Hashing files", before + n, total)

        try:
            digest, n_bytes = _hash(blob, kind, hashed)
        except (CannotOpenError, OSError) as error:
            why = error.why if isinstance(error, CannotOpenError) else os_words(error)
            sentence = f"{printable(name)} cannot be read: {why}"
            found.append(Problem("read-failed", "error", sentence, file=name))
            continue
        done += n_bytes
        if digest == wanted:
            n_equal += 1
        else:
            sentence = f"{printable(name)} does not hold what its {kind} records: {wanted} expected, {digest} found"
            found.append(Problem("hash-mismatch", "error", sentence, file=name))
    if silent:
        sentence = f"No hash is recorded for {plural(len(silent), 'file')} ({listing(silent)}): nothing to compare with"
        found.append(Problem("no-recorded-hash", "info", sentence))
    return found, n_equal


def _hash(path: Path, kind: str, hashed: Callable[[int], None]) -> tuple[str, int]:
    """Return a file's hash and length; `hashed` hears the bytes done so far."""
    import hashlib

    fd = open_regular(path)
    try:
        if kind == "sha256":
            state = hashlib.sha256()
        else:
            state = hashlib.sha1(b"blob %d\0" % os.fstat(fd).st_size, usedforsecurity=False)
        done = 0
        while block := os.read(fd, _HASH_BYTES):
            state.update(block)
            done += len(block)
            hashed(done)
    finally:
        os.close(fd)
    return state.hexdigest(), done
