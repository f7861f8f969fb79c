"""Elements as the table shows them: read as far as they can be, as texts of bounded length. No Qt here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.dtypes import text
from tensormorph.errors import CancelledError, ChangedOnDiskError, MissingRegionError, Problem
from tensormorph.model import LogicalTensor
from tensormorph.pyramid import READ_BYTES, Plane, Span, pieces, problem_of
from tensormorph.region import Region

VALUE, NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY, GAP, LOST = range(6)
"""What an element is: a number; not a number; infinite; stored by no file; stored, but not to be read."""
WORDS = {GAP: "gap", LOST: "no value"}
_AT_ONCE, _PAUSE_SECONDS = 64, 1e-5
_MOST_BITS_KNOWN = 16
_STRING_BYTES = 74  # of one that is not all ASCII, and so takes two bytes a character


# ---------------------------------------------------------------- texts


_known: dict[str, dict[int, str]] = {}


def texts(values: NDArray[Any]) -> list[str]:
    """Return each element's shortest text that reads back in its dtype, in row-major order."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind in "biuc" or 8 * flat.dtype.itemsize > _MOST_BITS_KNOWN:
        return [text(value) for value in flat]
    # Of a small type there are at most 65,536 texts, and finding one takes longer than looking it up.
    known = _known.setdefault(flat.dtype.name, {})
    codes = flat.view(f"u{flat.dtype.itemsize}").tolist()
    for code, value in zip(codes, flat, strict=True):
        if code not in known:
            known[code] = text(value)
    return [known[code] for code in codes]


def texts_slowly(values: NDArray[Any]) -> list[str]:
    """Return what `texts` does, letting other threads run now and then: a long run holds up the frames of the window.

    To sleep for no time at all would not do: this thread would be the first to go on.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    found: list[str] = []
    for first in range(0, flat.size, _AT_ONCE):
        found += texts(flat[first : first + _AT_ONCE])
        time.sleep(_PAUSE_SECONDS)
    return found


def part_room(dtype: np.dtype[Any]) -> int:
    """Return the most characters that a number of a type takes in the table; of a complex type, its real part."""
    if dtype.kind == "b":
        return len("False")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return max(len(str(limits.min)), len(str(limits.max)))
    if dtype.kind == "c":
        return part_room(np.empty(0, dtype).real.dtype)
    if dtype.type in (np.float16, np.float32, np.float64):
        bits = np.finfo(dtype).nmant + 1
    else:
        import ml_dtypes  # loaded by whoever made the type

        finfo: Any = ml_dtypes.finfo  # its stub has no types
        bits = int(finfo(dtype).nmant) + 1
    digits = math.ceil(1 + bits * math.log10(2))  # enough to tell any two apart
    # Sign, point and exponent; written out from 0.0001 on, where a sign, "0." and three zeros take no more.
    return digits + (7 if dtype.type is np.float64 else 6)


def room(dtype: np.dtype[Any]) -> int:
    """Return the most characters of a cell."""
    part = part_room(dtype)
    return max(2 * part + 1 if dtype.kind == "c" else part, *map(len, WORDS.values()))


def fitted(whole: str, value: Any, most: int) -> str:
    """Return a text of at most `most` characters, the same digits with an exponent where it is longer written out."""
    if len(whole) <= most:
        return whole
    if np.iscomplexobj(value):
        real = text(value.real)
        part = (most - 1) // 2
        imaginary = whole[len(real) : -1]
        return f"{_with_exponent(real, part)}{imaginary[0]}{_with_exponent(imaginary[1:], part - 1)}j"
    return _with_exponent(whole, most)


def _with_exponent(whole: str, most: int) -> str:
    if len(whole) <= most:
        return whole
    sign, digits, exponent = Decimal(whole).as_tuple()
    figures = "".join(map(str, digits))
    shown = figures.rstrip("0")
    power = int(exponent) + len(figures) - 1
    point = "." if len(shown) > 1 else ""
    return f"{'-' if sign else ''}{shown[0]}{point}{shown[1:]}e{power:+03d}"


# ---------------------------------------------------------------- blocks


class Block:
    """Elements of a rectangle as the table draws them; the texts are found when they are asked for.

    Parameters
    ----------
    values, kinds
        The elements, and what each is.
    problems, why
        Why elements have no value, and which of the problems is each element's.
    room
        Most characters of a text, as `room` gives them.
    n_read
        Bytes that were read from storage.
    """

    def __init__(
        self,
        values: NDArray[Any],
        kinds: NDArray[np.uint8],
        problems: tuple[Problem, ...],
        why: NDArray[np.int16],
        room: int,
        n_read: int,
    ) -> None:
        self.kinds, self.problems, self.n_read = kinds, problems, n_read
        self.plain = not kinds.any()
        """Whether all elements are finite numbers."""
        self.lossy = bool((kinds >= GAP).any())
        """Whether an element has no value."""
        self._values, self._why, self._room = values, why, room
        rows, cols = kinds.shape
        self._cells: list[list[str | None]] = [[None] * cols for _ in range(rows)]

    @property
    def n_bytes(self) -> int:
        """Memory that it takes, when all texts have been found."""
        cell = 8 + _STRING_BYTES + 2 * (self._room + 2)
        return self._values.nbytes + 3 * self.kinds.size + cell * self.kinds.size + 500 * (1 + len(self.problems))

    def line(self, row: int, first: int, last: int) -> str:
        """Return texts side by side, right-aligned between two blanks; blank where there is no value."""
        cells = self._cells[row]
        absent = [col for col in range(first, last) if cells[col] is None]
        if absent:
            values = self._values[row, absent]
            for col, whole, value in zip(absent, texts(values), values, strict=True):
                shown = fitted(whole, value, self._room) if self.kinds[row, col] < GAP else ""
                cells[col] = f" {shown:>{self._room}} ".replace("-", "−")
        return "".join(cells[first:last])  # type: ignore[arg-type]  # none is None now

    def words(self, row: int, first: int, last: int) -> str:
        """Return the same for elements that have no value: the word for it."""
        kinds = self.kinds[row, first:last].tolist()
        return "".join(f" {WORDS.get(kind, ''):>{self._room}} " for kind in kinds)

    def text(self, row: int, col: int) -> str:
        """Return the text of an element, empty if it has no value."""
        return self.line(row, col, col + 1).strip()

    def problem(self, row: int, col: int) -> Problem | None:
        """Return why an element has no value, or None."""
        return self.problems[self._why[row, col]] if self.kinds[row, col] >= GAP else None


def read_block(
    tensor: LogicalTensor, plane: Plane, rows: Span, cols: Span, most: int, cancelled: Callable[[], bool]
) -> Block:
    """Read a rectangle of a plane of a tensor; elements that cannot be read carry the reason, whatever it is.

    Parameters
    ----------
    most
        Most characters of a text.

    Raises
    ------
    CancelledError
        If `cancelled` said so between two reads.
    """
    region = plane.region(rows, cols)
    shape = (rows[1] - rows[0], cols[1] - cols[0])
    values = np.zeros(region.shape, tensor.dtype)
    kinds = np.zeros(shape, np.uint8)
    why = np.zeros(shape, np.int16)
    problems: list[Problem] = []
    n_read = 0

    def at(part: Region) -> tuple[slice, slice]:
        down, right = plane.spans(part)
        return slice(down[0] - rows[0], down[1] - rows[0]), slice(right[0] - cols[0], right[1] - cols[0])

    for part, n_bytes, problem in _read(tensor, region, values, cancelled):
        n_read += n_bytes
        if problem is not None:
            kinds[at(part)], why[at(part)] = LOST, len(problems)
            problems.append(problem)
    if problems:
        for gap in tensor.fragments.gaps(region):
            kinds[at(gap)] = GAP
    flat = flattened(plane, values, shape)
    _classify(flat, kinds)
    return Block(flat, kinds, tuple(problems), why, most, n_read)


def lost_block(shape: tuple[int, int], problem: Problem, most: int) -> Block:
    """Return the block of elements none of which can be shown, all for one reason."""
    kinds = np.full(shape, LOST, np.uint8)
    return Block(np.zeros(shape, np.bool_), kinds, (problem,), np.zeros(shape, np.int16), most, 0)


def flattened(plane: Plane, values: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Return values in the axes of the source as rows and columns of the plane."""
    return values.reshape(shape[::-1]).T if plane.transposed else values.reshape(shape)


def _classify(values: NDArray[Any], kinds: NDArray[np.uint8]) -> None:
    """Mark what is no finite number among the elements that were read; a complex one counts by its magnitude."""
    if values.dtype.kind in "biu":
        return
    there = kinds == VALUE
    if values.dtype.kind == "c":
        nan, infinite = np.isnan(values), np.isinf(values)
        negative = np.zeros_like(nan)
    else:
        with np.errstate(invalid="ignore"):  # raised by signalling NaNs, which a file may hold
            wide = values.astype(np.float64)
        nan, infinite, negative = np.isnan(wide), np.isinf(wide), wide < 0
    kinds[there & infinite & ~negative] = POSITIVE_INFINITY
    kinds[there & infinite & negative] = NEGATIVE_INFINITY
    kinds[there & nan] = NAN


def _read(
    tensor: LogicalTensor, region: Region, out: NDArray[Any], cancelled: Callable[[], bool]
) -> Iterator[tuple[Region, int, Problem | None]]:
    """Fill `out` as far as that can be; give parts of the region, the bytes read, and why a part has no value."""
    parts = list(pieces(tensor, region, READ_BYTES))
    if all(piece.problem is None for piece in parts):
        left = [(region, sum(piece.nbytes for piece in parts))]
    else:
        left = [(piece.region, piece.nbytes) for piece in parts if piece.problem is None]
    for piece in parts:
        if piece.problem is not None:
            yield piece.region, 0, piece.problem
    while left:
        if cancelled():
            raise CancelledError
        part, n_bytes = left.pop()
        try:
            tensor.read_into(part, out[part.within(region).slices()] if region.ndim else out)
        except CancelledError:
            raise
        except Exception as error:  # shown in the cells; one bad byte must not hide its neighbours
            bad = _bad(error, part)
            left += [(rest, 0) for rest in part.minus(bad)] if part.ndim else []
            lines = _lines(bad) if bad == part and not isinstance(error, ChangedOnDiskError) else [bad]
            if len(lines) > 1:
                left += [(line, 0) for line in lines]
            elif bad != part and bad.size > 1:
                left.append((bad, 0))
            else:
                yield bad, 0, problem_of(error, bad)
        else:
            yield part, n_bytes or tensor.encoding.n_bytes(part.size), None


def _bad(error: Exception, part: Region) -> Region:
    """Return the part of a failed read that the error is about; all of it where that is not known."""
    told = error.region if isinstance(error, MissingRegionError) else None
    found = part.intersect(told) if told is not None and told.ndim == part.ndim else None
    return part if found is None else found


def _lines(region: Region) -> list[Region]:
    """Cut a region along its first axis of several elements, if another axis has several too."""
    several = [axis for axis, extent in enumerate(region.shape) if extent > 1]
    if len(several) < 2:
        return [region]
    axis = several[0]
    start, stop = list(region.start), list(region.stop)
    lines = []
    for at in range(region.start[axis], region.stop[axis]):
        start[axis], stop[axis] = at, at + 1
        lines.append(Region(tuple(start), tuple(stop)))
    return lines
