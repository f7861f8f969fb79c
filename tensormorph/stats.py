"""Exact statistics of a tensor in one pass over its storage.

A source is read piece by piece in the order of storage, and each piece leaves `Moments` behind, which merge: neither
the order nor the number of threads matters. Counts, minimum, maximum and the first element that is not finite come out
the same whatever the order; mean and deviation agree to the last few bits of a float64. All numbers are over the
finite elements, with complex ones by their magnitude: `moments` says it in full.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from tensormorph.array import ArraySource, Piece
from tensormorph.errors import CancelledError, Problem, TensormorphError
from tensormorph.model import LogicalTensor
from tensormorph.moments import BadKind, Moments
from tensormorph.pyramid import pieces, problem_of
from tensormorph.region import Region
from tensormorph.text import count, printable

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

PIECE_BYTES = 4 << 20
"""Most bytes of storage that are read at a time; between two pieces a cancel is heard."""
_BATCH_BYTES = 4 << 20  # what one task of an executor reads
_PIECE_COST = 4 << 10  # what reading even the smallest piece costs, in bytes
_HEARTBEAT = 0.1  # seconds after which `report` is called at the latest

# ---------------------------------------------------------------- results


@dataclass(frozen=True, slots=True)
class FirstBad:
    """The element that is first in row-major order among those that are not finite.

    Fields
    ------
    kind
        What it is; a complex element with an infinite part and no NaN is ``+inf``.
    file, offset, n_bytes, rank
        The element's own bytes, and whose part they are; None where the source cannot tell.
    """

    index: tuple[int, ...]
    kind: BadKind
    file: str | None = None
    offset: int | None = None
    n_bytes: int | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """A part that could not be read. `foreseen` where the metadata told so and no read was tried."""

    region: Region
    problem: Problem
    foreseen: bool


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a source, over its finite elements; a number is None where there is none.

    Fields
    ------
    exact
        Whether every element was read. If not, all numbers and counts are about what was read.
    n_elements
        Elements of the source, read or not.
    std
        Of the whole: divided by the number of elements, not by one less.
    l2
        Euclidean norm; infinite where it is longer than the longest float64.
    unread
        What could not be read, and why.
    n_bytes
        Bytes read from storage.
    """

    exact: bool
    n_elements: int
    n_finite: int
    min: int | float | None
    max: int | float | None
    mean: float | None
    std: float | None
    rms: float | None
    abs_max: int | float | None
    l2: float | None
    n_nan: int
    n_posinf: int
    n_neginf: int
    n_zero: int
    first_bad: FirstBad | None
    unread: tuple[Unread, ...]
    n_bytes: int

    @property
    def n_unread(self) -> int:
        """Elements that could not be read."""
        return sum(lost.region.size for lost in self.unread)


def _finished(source: ArraySource, found: Moments, unread: Sequence[Unread], n_bytes: int) -> Statistics:
    n, low, high = found.n_finite, found.low, found.high
    mean = std = rms = l2 = largest = None
    if low is not None and high is not None:
        largest = max(abs(low), abs(high))
        variance, middle = found.squares / n, found.mean + found.rest
        mean_square = variance + middle * middle
        mean = _enlarged(middle, found.exponent)
        # Neither is ever longer than the longest element, whatever the last bit says.
        std = float(min(largest, _enlarged(math.sqrt(variance), found.exponent)))
        rms = float(min(largest, _enlarged(math.sqrt(mean_square), found.exponent)))
        l2 = max(float(largest), _enlarged(math.sqrt(mean_square) * math.sqrt(n), found.exponent))
    n_elements = math.prod(source.shape)
    n_read = n + found.n_nan + found.n_posinf + found.n_neginf
    return Statistics(
        exact=n_read == n_elements,
        n_elements=n_elements,
        n_finite=n,
        min=low,
        max=high,
        mean=mean,
        std=std,
        rms=rms,
        abs_max=largest,
        l2=l2,
        n_nan=found.n_nan,
        n_posinf=found.n_posinf,
        n_neginf=found.n_neginf,
        n_zero=found.n_zero,
        first_bad=None if found.first is None else _placed(source, *found.first),
        unread=tuple(unread),
        n_bytes=n_bytes,
    )


def _enlarged(number: float, exponent: int) -> float:
    try:
        return math.ldexp(number, exponent)
    except OverflowError:
        return math.inf


def _placed(source: ArraySource, index: tuple[int, ...], kind: BadKind) -> FirstBad:
    """Return the place of an element: of several copies or terms the first whose own element is not finite."""
    if not isinstance(source, LogicalTensor):
        return FirstBad(index, kind)
    element = Region(index, tuple(i + 1 for i in index))
    places: list[FirstBad] = []
    for row in source.fragments.overlapping(element).tolist():
        try:
            fragment = source.fragments[row]
            part = element.within(fragment.region)
            value = np.empty(part.shape, fragment.source.dtype)
            fragment.source.read_into(part, value)
            offset = fragment.source.bit_of(part.start) // 8
            n_bytes = fragment.source.place().encoding.n_bytes(1)
        except TensormorphError:
            continue  # the element was read from another copy
        places.append(FirstBad(index, kind, fragment.file, offset, n_bytes, fragment.rank))
        with np.errstate(invalid="ignore"):  # a NaN may be one that signals
            finite = bool(np.isfinite(value).all())
        if not finite:
            return places[-1]
    return places[0] if places else FirstBad(index, kind)


def unread_problem(tensor: LogicalTensor, found: Statistics, told: bool) -> Problem | None:
    """Return what could not be read as one Problem, however many parts it is.

    Parameters
    ----------
    told
        Whether an error about the tensor is known already: then what the metadata foresaw is not told again.
    """
    if not found.unread or (told and all(lost.foreseen for lost in found.unread)):
        return None
    first = found.unread[0].problem
    if len(found.unread) == 1:
        return first
    lost = f"{count(found.n_unread)} of {count(found.n_elements)} values cannot be read"
    sentence = f"{printable(tensor.name)}: {lost}; the first: {first.sentence}"
    return Problem(first.code, "error", sentence, tensor.name, first.file, None, first.region)


# ---------------------------------------------------------------- reading


@dataclass(slots=True)
class _Pass:
    """What a pass has found so far."""

    moments: Moments
    unread: list[Unread]
    n_bytes: int = 0

    def add(self, other: _Pass) -> None:
        self.moments = self.moments.merge(other.moments)
        self.unread += other.unread
        self.n_bytes += other.n_bytes


def _silent(n_bytes: int) -> None:
    del n_bytes


def statistics(
    source: ArraySource,
    *,
    report: Callable[[int], None] = _silent,
    executor: Executor | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> Statistics:
    """Read a source once, piece by piece, and return its statistics. A part that cannot be read costs only itself.

    Parameters
    ----------
    report
        Told the bytes read so far, in this thread: before each piece of a small source, and of a large one whenever
        a task ends, at least ten times a second. It may raise CancelledError; then nothing is being read any more
        when that leaves this function.
    executor
        Where to read a source of more than one task; by default a pool of as many threads as there are processors.
        Partial results are merged in the order of storage, so that the answer does not depend on who was faster. An
        executor of processes needs a source that pickles.
    piece_bytes
        Most bytes of storage that are read at a time.

    Raises
    ------
    CancelledError
        If `report` or a read did.
    """
    found = _Pass(Moments(), [])
    batches = _batches(pieces(source, Region.whole(source.shape), piece_bytes))
    first = next(batches, [])
    second = next(batches, None)
    if second is None:
        for piece in first:
            report(found.n_bytes)
            found.add(_read(source, [piece]))
    else:
        _spread(source, chain([first, second], batches), found, report, executor)
    return _finished(source, found.moments, found.unread, found.n_bytes)


def _batches(parts: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Group neighbouring pieces into tasks: a checkpoint may hold a million small ones."""
    batch: list[Piece] = []
    cost = 0
    for piece in parts:
        batch.append(piece)
        cost += max(piece.nbytes, _PIECE_COST)
        if cost >= _BATCH_BYTES:
            yield batch
            batch, cost = [], 0
    if batch:
        yield batch


def _spread(
    source: ArraySource,
    batches: Iterable[list[Piece]],
    found: _Pass,
    report: Callable[[int], None],
    executor: Executor | None,
) -> None:
    """Read batches in an executor, a few ahead of the one whose result is merged next."""
    from concurrent.futures import ThreadPoolExecutor, wait  # most tensors need none

    cores = os.cpu_count() or 1
    own = ThreadPoolExecutor(cores, "statistics") if executor is None else None
    pool = executor or own
    assert pool is not None
    waiting: deque[Future[_Pass]] = deque()

    def take_first() -> None:
        report(found.n_bytes)
        while wait([waiting[0]], _HEARTBEAT).not_done:
            report(found.n_bytes)
        found.add(waiting[0].result())
        waiting.popleft()

    try:
        for batch in batches:
            waiting.append(pool.submit(_read, source, batch))
            if len(waiting) > 2 * cores:
                take_first()
        while waiting:
            take_first()
    finally:
        # What runs is waited for: the caller may close the files next.
        wait([future for future in waiting if not future.cancel()])
        if own is not None:
            own.shutdown()


def _read(source: ArraySource, batch: Sequence[Piece]) -> _Pass:
    """Read pieces one after another; one that fails is kept as unread."""
    found = _Pass(Moments(), [])
    for piece in batch:
        if piece.problem is not None:
            found.unread.append(Unread(piece.region, piece.problem, foreseen=True))
            continue
        values = np.empty(piece.region.shape, source.dtype)
        try:
            source.read_into(piece.region, values)
        except CancelledError:
            raise
        except Exception as error:
            # Whatever goes wrong in one piece costs that piece; an error that is not ours says that it is a bug.
            problem = problem_of(error, piece.region)
            code = problem.code if problem.code == "internal-error" else "unreadable-values"
            name = source.name if isinstance(source, LogicalTensor) else None
            found.unread.append(Unread(piece.region, replace(problem, code=code, tensor=name), foreseen=False))
            continue
        found.moments = found.moments.merge(Moments.of(values, piece.region.start))
        found.n_bytes += piece.nbytes
    return found
