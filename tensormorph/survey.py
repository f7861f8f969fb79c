"""A first look at a plane: in which range its values lie; small planes are read whole and kept in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import Piece
from tensormorph.errors import CancelledError, Problem
from tensormorph.pyramid import (
    READ_BYTES,
    LevelOfDetail,
    Plane,
    numbers,
    pieces,
    problem_of,
    rows_are_lines,
    samples,
    sampling,
)
from tensormorph.region import Region

HELD_BYTES = 8 << 20
"""Planes of at most this many bytes, stored and decoded, are read whole and kept."""
SURVEY_BYTES = 1 << 20
"""About how many bytes of a larger plane are read to learn its range."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A plane's elements in memory, as an ArraySource; pieces of it take nothing from storage.

    Fields
    ------
    values
        In the axes of the source it was read from; the axes that the plane does not show have one element.
    lost
        Boxes of it that could not be read, each with its Problem.
    """

    values: NDArray[Any]
    lost: Sequence[Piece]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out` with a region; ask `pieces` which parts hold values."""
        out[...] = self.values[region.slices()]

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region into what was read, and what was not."""
        left = [] if region.empty else [region]
        for piece in self.lost:
            shared = piece.region.intersect(region) if left else None
            if shared is not None:
                yield Piece(shared, 0, piece.problem)
                left = [rest for part in left for rest in part.minus(shared)]
        for part in left:
            yield Piece(part, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What a first look at a plane found.

    Fields
    ------
    low, high
        Lowest and highest finite value seen; both 0 if there was none.
    most
        The 99 % of the magnitudes: 99 in 100 of the finite values seen are no farther from 0.
    mean, deviation
        Of all finite values; None where only a sample was seen, or they have no finite ones.
    count
        Finite values seen.
    step
        1 where every readable element was seen, or N where one element of N was.
    plane
        The plane to read tiles from: one that is held in memory, or the one that was asked about.
    along_rows
        What `rows_are_lines` says of that plane.
    problems
        Why elements could not be read.
    """

    low: float
    high: float
    most: float
    mean: float | None
    deviation: float | None
    count: int
    step: int
    plane: Plane
    along_rows: bool
    problems: tuple[Problem, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether every readable element was seen."""
        return self.step == 1

    @property
    def held(self) -> bool:
        """Whether the plane is in memory."""
        return isinstance(self.plane.source, Held)


def survey(plane: Plane, cancelled: Callable[[], bool], on_read: Callable[[int], None]) -> Survey:
    """Read a plane of at most HELD_BYTES whole, or a sample of a larger one.

    Parameters
    ----------
    cancelled
        Asked about each MB read.
    on_read
        Told the bytes of each piece that was read.

    Raises
    ------
    CancelledError
        If `cancelled` said so.
    UnsupportedDtypeError
        If nothing decodes the elements.
    """
    rows, cols = plane.shape
    n_elements = rows * cols
    numbers(np.empty(0, plane.source.dtype))  # refuses bytes that nothing decodes, before any are read
    if max(plane.n_bytes(n_elements), n_elements * plane.source.dtype.itemsize) <= HELD_BYTES:
        return _hold(plane, cancelled, on_read)
    level = LevelOfDetail()
    most = LevelOfDetail(rows.bit_length(), cols.bit_length())
    along_rows = rows_are_lines(plane)
    while level != most and sampling(plane, level, (0, rows), (0, cols), along_rows).n_bytes > SURVEY_BYTES:
        level = LevelOfDetail(min(level.rows + 1, most.rows), min(level.cols + 1, most.cols))
    seen: list[NDArray[Any]] = []
    problems: dict[Problem, None] = {}
    how = sampling(plane, level, (0, rows), (0, cols), along_rows)
    for down, right in samples(plane, level, (0, rows), (0, cols), how):
        if cancelled():
            raise CancelledError
        region = plane.region(down, right)
        # A line is read in one go where it can be: asking for its pieces costs as much again.
        values = _read(plane, Piece(region, plane.n_bytes(region.size)), {}, on_read)
        if values is not None:
            seen.append(values.reshape(-1))
            continue
        for piece in pieces(plane.source, region, READ_BYTES):
            values = _read(plane, piece, problems, on_read)
            if values is not None:
                seen.append(values.reshape(-1))
    n_seen = sum(part.size for part in seen)
    return _summary(seen, plane, max(2, round(n_elements / max(1, n_seen))), problems, along_rows)


def _hold(plane: Plane, cancelled: Callable[[], bool], on_read: Callable[[int], None]) -> Survey:
    whole = plane.region((0, plane.shape[0]), (0, plane.shape[1]))
    values = np.zeros(whole.shape, plane.source.dtype)
    lost: list[Piece] = []
    problems: dict[Problem, None] = {}
    readable: list[NDArray[Any]] = []
    for piece in [] if whole.empty else pieces(plane.source, whole, READ_BYTES):
        if cancelled():
            raise CancelledError
        here = piece.region.within(whole)
        part = _read(plane, piece, problems, on_read)
        if part is None:
            lost.append(Piece(here, 0, next(reversed(problems))))
        else:
            values[here.slices()] = part
            readable.append(part.reshape(-1))
    held = Plane(Held(values, tuple(lost)), plane.rows, plane.cols, (0,) * len(plane.at))
    return _summary(readable, held, 1, problems, True)


def _read(
    plane: Plane, piece: Piece, problems: dict[Problem, None], on_read: Callable[[int], None]
) -> NDArray[Any] | None:
    """Return a piece's values, or None and its Problem as the last of `problems`."""
    problem = piece.problem
    if problem is None:
        try:
            values = np.empty(piece.region.shape, plane.source.dtype)
            plane.source.read_into(piece.region, values)
        except CancelledError:
            raise
        except Exception as error:  # one piece costs that piece, whatever went wrong
            problem = problem_of(error, piece.region)
        else:
            on_read(piece.nbytes)
            return values
    problems.pop(problem, None)
    problems[problem] = None
    return None


def _summary(
    parts: list[NDArray[Any]], plane: Plane, step: int, problems: dict[Problem, None], along_rows: bool
) -> Survey:
    real = [numbers(part) for part in parts]
    # Whole numbers go through float64, where the magnitude of the lowest int64 exists.
    finite = [part[np.isfinite(part)] if part.dtype.kind == "f" else part.astype(np.float64) for part in real]
    values = np.concatenate(finite) if finite else np.empty(0)
    if not values.size:
        return Survey(0.0, 0.0, 0.0, None, None, 0, step, plane, along_rows, tuple(problems))
    low, high = float(values.min()), float(values.max())
    with np.errstate(all="ignore"):
        mean, deviation = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
    told = step == 1 and math.isfinite(mean) and math.isfinite(deviation)
    at = math.ceil(0.99 * values.size) - 1
    np.abs(values, out=values)
    values.partition(at)
    return Survey(
        low, high, float(values[at]), mean if told else None, deviation if told else None, values.size, step, plane,
        along_rows, tuple(problems),
    )  # fmt: skip
