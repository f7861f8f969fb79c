"""Any two axes of a tensor as a plane, cut into tiles at levels of detail that lose no value.

A plane of R x C elements is folded into blocks of 2^r x 2^c elements, anchored at its first element: block (i, j)
covers rows ``i << r`` up to ``(i + 1) << r`` and columns likewise. Blocks at the far edges are short; none is dropped.
A tile holds up to 256 x 256 neighbouring blocks. Each block keeps its lowest and highest finite value, sums, and how
many NaN, +Inf and -Inf it holds: these are never mixed into the sums, and no zoom hides them.

Everything derived is float64. Each value of at most 32 bits, and each float64, is held exactly; whole numbers of 64
bits beyond 2^53 are rounded to the nearest float64, after they were compared in their own type. Complex elements
count by their magnitude. The squares of float64 values beyond 1.3e154 overflow, and so may sums near 1.8e308.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import ArraySource, Piece
from tensormorph.errors import CancelledError, LimitError, Problem, TensormorphError, UnsupportedDtypeError
from tensormorph.model import LogicalTensor
from tensormorph.region import Region

TILE = 256
"""Most blocks along each axis of a tile."""
READ_BYTES = 1 << 20
"""Bytes read between two looks at `cancelled`."""
EXACT_BYTES = 32 << 20
"""Most bytes that `tile` reads unless told otherwise."""
LINE_BYTES = 16 << 20
"""Most bytes of whole lines that a sample of neighbouring tiles reads, unless 1/128 of all are more; above, it reads
runs of RUN_BYTES. A longer line is never read whole: a tensor of stride 0 may claim lines of many gigabytes."""
RUN_BYTES = 4096
"""Shortest run that sampling reads: less costs a disk the same."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Span = tuple[int, int]
"""Half-open range of elements along one axis."""


def _nothing(n_bytes: int) -> None:
    return None


# ---------------------------------------------------------------- geometry


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """A source seen in two dimensions.

    Fields
    ------
    rows, cols
        The axis of the source that runs down, and the one that runs to the right; or none, which is one element.
    at
        Where the plane lies on each remaining axis, in the order of the axes.

    Raises
    ------
    ValueError
        If the axes are not a partition of the source's axes, or `at` is outside them.
    """

    source: ArraySource
    rows: tuple[int, ...]
    cols: tuple[int, ...]
    at: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        ndim = len(self.source.shape)
        shown = (*self.rows, *self.cols)
        if len(self.rows) > 1 or len(self.cols) > 1 or len(set(shown)) != len(shown):
            raise ValueError(f"rows {self.rows} and columns {self.cols}: one axis or none each, and not the same")
        if not all(0 <= axis < ndim for axis in shown):
            raise ValueError(f"axes {shown} of a source of {ndim} axes")
        extents = [self.source.shape[axis] for axis in self.fixed]
        # Along an empty axis no place exists: 0 stands for it, and the plane holds no element.
        fits = len(self.at) == len(extents)
        if not fits or not all(0 <= i < max(n, 1) for i, n in zip(self.at, extents, strict=True)):
            raise ValueError(f"place {self.at} on axes of {tuple(extents)} elements")

    @classmethod
    def of(cls, source: ArraySource) -> Plane:
        """Return the last two axes of a source, at 0 on all others; a vector becomes one row, a scalar one element."""
        ndim = len(source.shape)
        return cls(source, (ndim - 2,) if ndim > 1 else (), (ndim - 1,) if ndim else (), (0,) * max(0, ndim - 2))

    @property
    def fixed(self) -> tuple[int, ...]:
        """The axes that are not shown, in order."""
        return tuple(axis for axis in range(len(self.source.shape)) if axis not in (*self.rows, *self.cols))

    @property
    def shape(self) -> tuple[int, int]:
        """Elements down and to the right."""
        if any(self.source.shape[axis] == 0 for axis in self.fixed):
            return (0, 0)
        down = self.source.shape[self.rows[0]] if self.rows else 1
        right = self.source.shape[self.cols[0]] if self.cols else 1
        return (down, right)

    @property
    def transposed(self) -> bool:
        """Whether the axis of the rows stands behind that of the columns in the source."""
        return bool(self.rows and self.cols and self.rows[0] > self.cols[0])

    def region(self, rows: Span, cols: Span) -> Region:
        """Return a rectangle of the plane in the coordinates of the source."""
        spans: dict[int, Span] = {axis: (i, i + 1) for axis, i in zip(self.fixed, self.at, strict=True)}
        spans.update(dict.fromkeys(self.rows, rows))
        spans.update(dict.fromkeys(self.cols, cols))
        axes = range(len(self.source.shape))
        return Region(tuple(spans[axis][0] for axis in axes), tuple(spans[axis][1] for axis in axes))

    def spans(self, region: Region) -> tuple[Span, Span]:
        """Return the rows and columns of a region of the source that lies in this plane."""
        down, right = (
            (region.start[axes[0]], region.stop[axes[0]]) if axes else (0, 1) for axes in (self.rows, self.cols)
        )
        return down, right

    def cutting(self, region: Region) -> Plane:
        """Return this plane if it holds an element of a region, else the like one through the region's first."""
        spans = [(region.start[axis], region.stop[axis]) for axis in self.fixed]
        if all(low <= i < high for i, (low, high) in zip(self.at, spans, strict=True)):
            return self
        return replace(self, at=tuple(low for low, _ in spans))

    def index(self, row: int, col: int) -> tuple[int, ...]:
        """Return the index in the source of an element of the plane."""
        return self.region((row, row + 1), (col, col + 1)).start

    def cell(self, index: Sequence[int]) -> tuple[int, int] | None:
        """Return the row and column of an element of the source, or None where this plane does not hold it."""
        if tuple(index[axis] for axis in self.fixed) != self.at:
            return None
        return (index[self.rows[0]] if self.rows else 0, index[self.cols[0]] if self.cols else 0)

    def n_bytes(self, n_elements: int) -> int:
        """Return the bytes that so many elements take in storage."""
        if isinstance(self.source, LogicalTensor) and self.source.encoding.bits is not None:
            return self.source.encoding.n_bytes(n_elements)
        return n_elements * self.source.dtype.itemsize


@dataclass(frozen=True, slots=True, order=True)
class LevelOfDetail:
    """A block is 2^rows x 2^cols elements; (0, 0) is full detail."""

    rows: int = 0
    cols: int = 0


@dataclass(frozen=True, slots=True)
class TileKey:
    """Which tile: number of the plane, level, and place in the grid of tiles of that level."""

    plane: int
    level: LevelOfDetail
    row: int
    col: int

    def spans(self, shape: tuple[int, int]) -> tuple[Span, Span]:
        """Return the rows and columns of elements that it covers in a plane of that shape."""
        high, wide = TILE << self.level.rows, TILE << self.level.cols
        down = (min(self.row * high, shape[0]), min((self.row + 1) * high, shape[0]))
        right = (min(self.col * wide, shape[1]), min((self.col + 1) * wide, shape[1]))
        return down, right


def keys(plane: int, level: LevelOfDetail, rows: Span, cols: Span) -> list[TileKey]:
    """Return the tiles of a level that hold a rectangle of elements, row by row."""
    if rows[0] >= rows[1] or cols[0] >= cols[1]:
        return []
    high, wide = TILE << level.rows, TILE << level.cols
    return [
        TileKey(plane, level, row, col)
        for row in range(rows[0] // high, -(-rows[1] // high))
        for col in range(cols[0] // wide, -(-cols[1] // wide))
    ]


# ---------------------------------------------------------------- tiles


_ARRAYS = ("low", "high", "total", "squares", "count", "n_nan", "n_posinf", "n_neginf", "missing")


@dataclass(slots=True, eq=False)
class Tile:
    """What the blocks of a tile hold. All arrays have one entry a block.

    Fields
    ------
    low, high
        Lowest and highest finite value; +inf and -inf where `count` is 0.
    total, squares
        Sum of the finite values, and of their squares.
    count
        Finite values.
    n_nan, n_posinf, n_neginf
        Values that are not finite.
    missing
        Whether any element of the block cannot be read.
    exact
        Whether every readable element was read.
    step
        1, or for a sample the N of 1:N: elements covered for each one read.
    problems
        Why elements are missing.
    """

    low: Floats
    high: Floats
    total: Floats
    squares: Floats
    count: Counts
    n_nan: Counts
    n_posinf: Counts
    n_neginf: Counts
    missing: NDArray[np.bool_]
    exact: bool = True
    step: int = 1
    problems: tuple[Problem, ...] = field(default=())

    @classmethod
    def blank(cls, shape: tuple[int, int]) -> Tile:
        """Return a tile of blocks that hold nothing yet."""

        def zeros() -> Counts:
            return np.zeros(shape, np.int64)

        return cls(
            low=np.full(shape, np.inf),
            high=np.full(shape, -np.inf),
            total=np.zeros(shape),
            squares=np.zeros(shape),
            count=zeros(),
            n_nan=zeros(),
            n_posinf=zeros(),
            n_neginf=zeros(),
            missing=np.zeros(shape, np.bool_),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Blocks down and to the right."""
        return (self.low.shape[0], self.low.shape[1])

    @property
    def n_bytes(self) -> int:
        """Memory that the arrays take; an array that several fields share counts once."""
        held = [a if a.base is None else a.base for a in (getattr(self, name) for name in _ARRAYS)]
        return sum({id(a): int(a.nbytes) for a in held}.values())

    def merge(self, other: Tile) -> Tile:
        """Return what both hold together: two disjoint sets of elements of the same blocks."""
        if self.shape != other.shape:
            raise ValueError(f"tiles of {self.shape} and {other.shape} blocks")
        with np.errstate(all="ignore"):  # sums of float64 near the end of its range
            return Tile(
                np.minimum(self.low, other.low),
                np.maximum(self.high, other.high),
                self.total + other.total,
                self.squares + other.squares,
                self.count + other.count,
                self.n_nan + other.n_nan,
                self.n_posinf + other.n_posinf,
                self.n_neginf + other.n_neginf,
                self.missing | other.missing,
                self.exact and other.exact,
                max(self.step, other.step),
                (*self.problems, *(p for p in other.problems if p not in self.problems)),
            )

    def regroup(self, row_starts: NDArray[np.intp], col_starts: NDArray[np.intp]) -> Tile:
        """Fold neighbouring blocks into larger ones that begin at the given rows and columns of blocks.

        The starts rise from 0; the last group reaches to the end. Nothing is dropped.
        """

        def grouped(op: np.ufunc, a: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(_group(op, _group(op, a, row_starts).T, col_starts).T)

        folds = dict.fromkeys(_ARRAYS, np.add) | {"low": np.minimum, "high": np.maximum, "missing": np.logical_or}
        with np.errstate(all="ignore"):
            return self._with({name: grouped(op, getattr(self, name)) for name, op in folds.items()})

    def _with(self, arrays: dict[str, NDArray[Any]]) -> Tile:
        changed: dict[str, Any] = dict(arrays)
        return replace(self, **changed)

    def _transposed(self) -> Tile:
        return self._with({name: np.ascontiguousarray(getattr(self, name).T) for name in _ARRAYS})

    def _slim(self) -> Tile:
        """Return the same with equal arrays shared, and counts that are one number everywhere held as one."""

        def constant(a: NDArray[Any]) -> NDArray[Any]:
            first = a[:1, :1]
            return np.broadcast_to(first.copy(), a.shape) if a.size and bool((a == first).all()) else a

        slim = {name: constant(getattr(self, name)) for name in ("count", "n_nan", "n_posinf", "n_neginf", "missing")}
        slim["high"] = self.low if np.array_equal(self.low, self.high) else self.high
        slim["total"] = self.low if np.array_equal(self.low, self.total) else self.total
        return self._with(slim)


def _group(op: np.ufunc, a: NDArray[Any], starts: NDArray[np.intp]) -> NDArray[Any]:
    """Fold rows of `a` into groups; faster than ``reduceat`` for the few rows a group that a screen needs."""
    sizes = np.diff(starts, append=len(a))
    out = a[starts]
    for k in range(1, int(sizes.max(initial=1))):
        longer = np.flatnonzero(sizes > k)
        out[longer] = op(out[longer], a[starts[longer] + k])
    return out


# ---------------------------------------------------------------- folding


@dataclass(frozen=True, slots=True)
class _Cut:
    """How `n` elements from position `at` of an axis fall into blocks of ``1 << shift`` elements."""

    at: int
    n: int
    shift: int

    @property
    def blocks(self) -> slice:
        return slice(self.at >> self.shift, -(-(self.at + self.n) >> self.shift))

    @property
    def lead(self) -> int:
        """Elements before the first border between blocks, 0 if `at` lies on one."""
        return min(-self.at % (1 << self.shift), self.n)

    @property
    def sizes(self) -> Counts:
        """Elements in each block."""
        edges = np.arange(self.blocks.start, self.blocks.stop + 1, dtype=np.int64) << self.shift
        sizes: Counts = np.diff(np.clip(edges, self.at, self.at + self.n))
        return sizes


def _fold_rows(op: np.ufunc, a: NDArray[Any], cut: _Cut) -> NDArray[Any]:
    """Fold rows into blocks. Whole rows are combined with one another, which a processor does many lanes at a time."""
    if cut.shift == 0:
        return a
    whole = (cut.n - cut.lead) >> cut.shift
    end = cut.lead + (whole << cut.shift)
    parts = []
    if cut.lead:
        parts.append(op.reduce(a[: cut.lead], axis=0, keepdims=True))
    if whole:
        parts.append(op.reduce(a[cut.lead : end].reshape(whole, 1 << cut.shift, a.shape[1]), axis=1))
    if end < cut.n:
        parts.append(op.reduce(a[end:], axis=0, keepdims=True))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _fold_cols(op: np.ufunc, a: NDArray[Any], cut: _Cut) -> NDArray[Any]:
    """Fold columns into blocks, by halves: ``reduce`` along short contiguous runs is 10 to 40 times slower."""
    if cut.shift == 0:
        return a
    end = cut.lead + ((cut.n - cut.lead) >> cut.shift << cut.shift)
    parts = []
    if cut.lead:
        parts.append(op.reduce(a[:, : cut.lead], axis=1, keepdims=True))
    if end > cut.lead:
        middle = a[:, cut.lead : end]
        for _ in range(cut.shift):
            middle = op(middle[:, ::2], middle[:, 1::2])
        parts.append(middle)
    if end < cut.n:
        parts.append(op.reduce(a[:, end:], axis=1, keepdims=True))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Return elements as real numbers that numpy compares fast: small floats as float32, complex by magnitude.

    A complex element with a NaN in either part is NaN. Raises UnsupportedDtypeError for bytes that nothing decodes.
    """
    dtype = values.dtype
    if dtype.type is np.void:
        raise UnsupportedDtypeError(str(dtype))
    if dtype.kind == "b":
        return values.view(np.uint8)
    if dtype.kind == "c":
        with np.errstate(all="ignore"):
            size = np.abs(values.astype(np.complex128))
            # C's hypot says Inf for (NaN, Inf), and overflows where a finite pair is longer than the longest float64.
            size[np.isnan(values)] = np.nan
            size[np.isinf(size) & np.isfinite(values)] = np.finfo(np.float64).max
        return size
    if dtype.name == "bfloat16":
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype.kind in "iu" or dtype.type in (np.float32, np.float64):
        return values
    if dtype.itemsize == 1:
        looked_up: NDArray[Any] = _codes(dtype)[values.view(np.uint8)]
        return looked_up
    return values.astype(np.float32)


@cache
def _codes(dtype: np.dtype[Any]) -> NDArray[np.float32]:
    """Return the values of all 256 codes of a one-byte type: looking them up is 7 times as fast as converting."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)


def _add(tile: Tile, values: NDArray[Any], row: int, col: int, level: LevelOfDetail) -> None:
    """Fold a 2-D array into a tile, in place; its first element is element (row, col) of the tile."""
    if not values.size:
        return
    v = numbers(values)
    down, right = _Cut(row, v.shape[0], level.rows), _Cut(col, v.shape[1], level.cols)
    at = (down.blocks, right.blocks)

    def fold_by(op: np.ufunc, a: NDArray[Any]) -> NDArray[Any]:
        return _fold_cols(op, _fold_rows(op, a, down), right)

    with np.errstate(all="ignore"):
        low, high = fold_by(np.minimum, v), fold_by(np.maximum, v)
        # NaN passes through minimum and maximum, so the folded arrays tell whether anything is not finite.
        if v.dtype.kind != "f" or (bool(np.isfinite(low).all()) and bool(np.isfinite(high).all())):
            wide = v.astype(np.float64)
            tile.count[at] += np.multiply.outer(down.sizes, right.sizes)
        else:
            finite = np.isfinite(v)
            low = fold_by(np.minimum, np.where(finite, v, np.inf))
            high = fold_by(np.maximum, np.where(finite, v, -np.inf))
            wide = np.where(finite, v, 0).astype(np.float64)
            tile.count[at] += fold_by(np.add, finite.astype(np.int64))
            kinds = ((tile.n_nan, np.isnan(v)), (tile.n_posinf, v == np.inf), (tile.n_neginf, v == -np.inf))
            for counts, mask in kinds:
                if mask.any():
                    counts[at] += fold_by(np.add, mask.astype(np.int64))
        np.minimum(tile.low[at], low, out=tile.low[at])
        np.maximum(tile.high[at], high, out=tile.high[at])
        tile.total[at] += fold_by(np.add, wide)
        np.multiply(wide, wide, out=wide)
        tile.squares[at] += fold_by(np.add, wide)


def fold(values: NDArray[Any], level: LevelOfDetail = LevelOfDetail()) -> Tile:
    """Fold a 2-D array, whose first element begins a block, into a tile.

    Examples
    --------
    >>> fold(np.arange(6.0).reshape(2, 3), LevelOfDetail(1, 1)).high
    array([[4., 5.]])
    """
    rows, cols = values.shape
    tile = Tile.blank((-(-rows >> level.rows), -(-cols >> level.cols)))
    _add(tile, values, 0, 0, level)
    return tile


# ---------------------------------------------------------------- reading


@dataclass(slots=True)
class _Group:
    """Neighbouring tiles of one level while they are filled, in the orientation of the storage."""

    plane: Plane
    keys: Sequence[TileKey]
    filling: dict[TileKey, Tile] = field(default_factory=dict)
    problems: dict[TileKey, dict[Problem, None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.keys:
            down, right = key.spans(self.plane.shape)
            shape = (-(-(down[1] - down[0]) >> key.level.rows), -(-(right[1] - right[0]) >> key.level.cols))
            self.filling[key] = Tile.blank(shape[::-1] if self.plane.transposed else shape)
            self.problems[key] = {}

    def rectangle(self) -> tuple[Span, Span]:
        """Return the smallest rectangle of elements that holds all the tiles."""
        spans = [key.spans(self.plane.shape) for key in self.keys]
        return (
            (min(down[0] for down, _ in spans), max(down[1] for down, _ in spans)),
            (min(right[0] for _, right in spans), max(right[1] for _, right in spans)),
        )

    def _overlaps(
        self, down: Span, right: Span, level: LevelOfDetail
    ) -> Iterator[tuple[TileKey, Span, Span, int, int]]:
        """Give each tile that shares a rectangle, the shared rows and columns, and the tile's first row and column."""
        high, wide = TILE << level.rows, TILE << level.cols
        for key in self.keys:
            row, col = key.row * high, key.col * wide
            shared_down = (max(down[0], row), min(down[1], row + high))
            shared_right = (max(right[0], col), min(right[1], col + wide))
            if shared_down[0] < shared_down[1] and shared_right[0] < shared_right[1]:
                yield key, shared_down, shared_right, row, col

    def lose(self, region: Region, problem: Problem) -> None:
        """Mark the blocks that a region touches as missing."""
        level = self.keys[0].level
        for key, down, right, row, col in self._overlaps(*self.plane.spans(region), level):
            at = (
                _Cut(down[0] - row, down[1] - down[0], level.rows).blocks,
                _Cut(right[0] - col, right[1] - right[0], level.cols).blocks,
            )
            self.filling[key].missing[at[::-1] if self.plane.transposed else at] = True
            self.problems[key][problem] = None

    def read(self, piece: Piece, on_read: Callable[[int], None]) -> None:
        """Read one piece and fold it into the tiles that it crosses; a failure marks its part and is kept."""
        if piece.problem is not None:
            self.lose(piece.region, piece.problem)
            return
        try:
            values = np.empty(piece.region.shape, self.plane.source.dtype)
            self.plane.source.read_into(piece.region, values)
        except CancelledError:
            raise
        except Exception as error:
            # Whatever goes wrong in one piece costs that piece: the rest of the picture is still worth having.
            self.lose(piece.region, problem_of(error, piece.region))
            return
        on_read(piece.nbytes)
        self.fold(values, *self.plane.spans(piece.region), self.keys[0].level)

    def fold(self, values: NDArray[Any], down: Span, right: Span, level: LevelOfDetail) -> None:
        """Fold elements of these rows and columns into the tiles that they cross, `level` making their blocks."""
        high, wide = down[1] - down[0], right[1] - right[0]
        flat = values.reshape((wide, high) if self.plane.transposed else (high, wide))
        for key, shared_down, shared_right, row, col in self._overlaps(down, right, level):
            rows = slice(shared_down[0] - down[0], shared_down[1] - down[0])
            cols = slice(shared_right[0] - right[0], shared_right[1] - right[0])
            row, col = shared_down[0] - row, shared_right[0] - col
            if self.plane.transposed:
                _add(self.filling[key], flat[cols, rows], col, row, LevelOfDetail(level.cols, level.rows))
            else:
                _add(self.filling[key], flat[rows, cols], row, col, level)

    def result(self, step: int = 1) -> dict[TileKey, Tile]:
        """Return the filled tiles; with a `step` above 1 as samples."""
        made = {}
        for key, tile in self.filling.items():
            tile.exact, tile.step, tile.problems = step == 1, step, tuple(self.problems[key])
            made[key] = (tile._transposed() if self.plane.transposed else tile)._slim()
        return made


def problem_of(error: Exception, region: Region | None) -> Problem:
    """Return an error that stopped one read as a Problem; an error that is not ours is a bug and says so."""
    if isinstance(error, TensormorphError):
        return Problem(error.code, "error", error.sentence, region=region)
    if isinstance(error, OSError):
        return Problem("read-failed", "error", f"Reading failed: {error.strerror or error}", region=region)
    return Problem("internal-error", "error", f"{type(error).__name__}: {error}", region=region)


def pieces(source: ArraySource, region: Region, max_bytes: int) -> Iterator[Piece]:
    """Partition a region as `ArraySource.pieces` does; where a source fails to tell, the rest is unreadable pieces."""
    told: list[Region] = []
    try:
        for piece in source.pieces(region, max_bytes):
            told.append(piece.region)
            yield piece
    except CancelledError:
        raise
    except Exception as error:
        left = [region]
        for known in told:
            left = [rest for part in left for rest in part.minus(known)]
        for part in left:
            yield Piece(part, 0, problem_of(error, part))


def exact_bytes(plane: Plane, rows: Span, cols: Span, stop_above: int) -> int:
    """Return the bytes that reading a rectangle takes from storage; once above `stop_above`, it stops counting."""
    total = 0
    for piece in pieces(plane.source, plane.region(rows, cols), READ_BYTES):
        total += piece.nbytes
        if total > stop_above:
            break
    return total


def tiles(
    plane: Plane,
    wanted: Sequence[TileKey],
    cancelled: Callable[[], bool],
    max_bytes: int = EXACT_BYTES,
    on_read: Callable[[int], None] = _nothing,
) -> dict[TileKey, Tile]:
    """Read neighbouring tiles of one level exactly, in one pass over the storage.

    Parameters
    ----------
    wanted
        Tiles side by side: all within their smallest common rectangle is read.
    cancelled
        Asked about each MB read.
    max_bytes
        Most bytes to read.
    on_read
        Told the bytes of each piece that was read.

    Raises
    ------
    LimitError
        If it takes more bytes; nothing was read then.
    CancelledError
        If `cancelled` said so.
    """
    group = _Group(plane, wanted)
    rows, cols = group.rectangle()
    if (needed := exact_bytes(plane, rows, cols, max_bytes)) > max_bytes:
        raise LimitError("", "The exact picture", needed, max_bytes, "exact_bytes")
    for piece in pieces(plane.source, plane.region(rows, cols), READ_BYTES):
        if cancelled():
            raise CancelledError
        group.read(piece, on_read)
    return group.result()


def tile(plane: Plane, key: TileKey, cancelled: Callable[[], bool], max_bytes: int = EXACT_BYTES) -> Tile:
    """Read one tile exactly; as `tiles`."""
    return tiles(plane, (key,), cancelled, max_bytes)[key]


# ---------------------------------------------------------------- sampling


def _strides(source: ArraySource) -> tuple[int, ...]:
    """Return the elements between neighbours in storage along each axis, as the first stored part has it."""
    if isinstance(source, LogicalTensor) and len(source.fragments):
        try:
            return source.fragments[0].source.place().strides
        except (TensormorphError, OSError):
            pass  # reading it will say what is wrong; for the order of sampling the usual guess does
    strides = [1]
    for extent in source.shape[:0:-1]:
        strides.insert(0, strides[0] * max(extent, 1))
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a rectangle is sampled: a band of neighbouring lines across each block, whole or as one run in each block.

    Fields
    ------
    along_rows
        Whether the lines run along rows of the plane, or else along its columns: the faster axis of the storage.
    lines
        Lines in a band, a power of two; a short block at the edge may have fewer.
    run
        Elements read of a line in each block; None reads the line whole.
    n_bytes
        Bytes that it reads.
    """

    along_rows: bool
    lines: int
    run: int | None
    n_bytes: int


def rows_are_lines(plane: Plane) -> bool:
    """Return whether rows of a plane, rather than columns, run along its faster axis in storage; may open a file."""
    strides = _strides(plane.source)
    down, right = (strides[axes[0]] if axes else 0 for axes in (plane.rows, plane.cols))
    return not plane.rows or (bool(plane.cols) and right <= down)


def sampling(plane: Plane, level: LevelOfDetail, rows: Span, cols: Span, along_rows: bool) -> Sampling:
    """Return how a rectangle is best sampled at a level so that every block has a value.

    Single elements are never picked: a disk reads whole pages, and one full line a block tells four times as much
    for the same cost. `along_rows` is the answer of `rows_are_lines`.
    """
    across, along = (rows, cols) if along_rows else (cols, rows)
    shift, run_shift = (level.rows, level.cols) if along_rows else (level.cols, level.rows)
    n_blocks = (-(-across[1] >> shift)) - (across[0] >> shift)
    n_across, n_along = across[1] - across[0], along[1] - along[0]
    line, whole = plane.n_bytes(n_along), plane.n_bytes(n_across * n_along)
    if line <= LINE_BYTES and n_blocks * line <= max(LINE_BYTES, whole // 128):
        lines = min(1 << shift, 1 << (max(1, RUN_BYTES // max(1, line)).bit_length() - 1))
        return Sampling(along_rows, lines, None, min(n_blocks * lines * line, whole))
    run = min(1 << run_shift, max(1, RUN_BYTES * 8 // max(1, plane.n_bytes(8))))
    n_runs = (-(-along[1] >> run_shift)) - (along[0] >> run_shift)
    return Sampling(along_rows, 1, run, min(n_blocks * n_runs * plane.n_bytes(run), whole))


def _part(span: Span, length: int, block: int) -> Span:
    """Return a part of a span, at a place that the golden ratio spreads: a period in the data meets none of ours."""
    room = max(0, span[1] - span[0] - length)
    first = span[0] + int(block * 0.6180339887498949 % 1 * (room + 1))
    return (first, min(first + length, span[1]))


def _block(span: Span, shift: int, block: int) -> Span:
    return (max(span[0], block << shift), min(span[1], (block + 1) << shift))


def _blocks(span: Span, shift: int) -> range:
    return range(span[0] >> shift, -(-span[1] >> shift))


def samples(plane: Plane, level: LevelOfDetail, rows: Span, cols: Span, how: Sampling) -> Iterator[tuple[Span, Span]]:
    """Give the rectangles to read, each within one block across the lines, in storage order."""
    across, along = (rows, cols) if how.along_rows else (cols, rows)
    shift, run_shift = (level.rows, level.cols) if how.along_rows else (level.cols, level.rows)
    for block in _blocks(across, shift):
        band = _part(_block(across, shift, block), how.lines, block)
        if how.run is None:
            parts = [along]
        else:
            parts = [_part(_block(along, run_shift, k), how.run, block + k) for k in _blocks(along, run_shift)]
        for part in parts:
            yield (band, part) if how.along_rows else (part, band)


def sampled_tiles(
    plane: Plane,
    wanted: Sequence[TileKey],
    cancelled: Callable[[], bool],
    on_read: Callable[[int], None] = _nothing,
) -> dict[TileKey, Tile]:
    """Read a sample of neighbouring tiles of one level, by lines along the faster axis of the storage.

    Every block gets at least one value, and blocks with elements that are known to be unreadable are marked wherever
    these lie. The tiles say ``exact=False`` and the ratio, unless the sample took in all elements. Parameters as for
    `tiles`, without a limit. Raises CancelledError.
    """
    group = _Group(plane, wanted)
    level = wanted[0].level
    rows, cols = group.rectangle()
    for piece in pieces(plane.source, plane.region(rows, cols), 1 << 62):
        if piece.problem is not None:
            group.lose(piece.region, piece.problem)
    how = sampling(plane, level, rows, cols, rows_are_lines(plane))
    n_read = 0
    batch = _Batch(group, how, on_read)
    for down, right in samples(plane, level, rows, cols, how):
        n_read += (down[1] - down[0]) * (right[1] - right[0])
        if batch.full and cancelled():
            raise CancelledError
        batch.read(down, right)
    batch.flush()
    n_all = (rows[1] - rows[0]) * (cols[1] - cols[0])
    return group.result(1 if n_read == n_all else max(2, round(n_all / max(1, n_read))))


class _Batch:
    """Sampled rectangles that are folded together: each alone takes longer to fold than to read.

    Whole bands of neighbouring blocks are laid side by side in one buffer, where `lines` of them make a block.
    """

    def __init__(self, group: _Group, how: Sampling, on_read: Callable[[int], None]) -> None:
        self._group, self._how, self._on_read = group, how, on_read
        self._plane, self._level = group.plane, group.keys[0].level
        self._bands: list[tuple[int, NDArray[Any]]] = []
        self._n_bytes = self._n_alone = 0
        self._along: Span = (0, 0)

    @property
    def full(self) -> bool:
        """Whether a MB in bands, or some hundred short runs, were read since the last flush."""
        return self._n_bytes >= READ_BYTES or self._n_alone >= 128

    def read(self, down: Span, right: Span) -> None:
        """Read a rectangle; if that fails, read it piece by piece, which marks what is unreadable."""
        if self.full:
            self.flush()
        band, along = (down, right) if self._how.along_rows else (right, down)
        whole = self._how.run is None and band[1] - band[0] == self._how.lines
        if not (whole and self._read_band(band[0], along, self._plane.region(down, right))):
            self._n_alone += 1
            for piece in pieces(self._plane.source, self._plane.region(down, right), READ_BYTES):
                self._group.read(piece, self._on_read)

    def _read_band(self, line: int, along: Span, region: Region) -> bool:
        values = np.empty(region.shape, self._plane.source.dtype)
        try:
            self._plane.source.read_into(region, values)
        except CancelledError:
            raise
        except Exception:  # its pieces, read one by one, tell what it was, and where
            return False
        block = line >> (self._level.rows if self._how.along_rows else self._level.cols)
        if self._bands and self._bands[-1][0] != block - 1:
            self.flush()
        self._along = along
        self._bands.append((block, values))
        n_bytes = self._plane.n_bytes(region.size)
        self._n_bytes += n_bytes
        self._on_read(n_bytes)
        return True

    def flush(self) -> None:
        """Fold what was read into the tiles."""
        bands, self._bands = self._bands, []
        self._n_bytes = self._n_alone = 0
        if not bands:
            return
        lines, by_row = self._how.lines, self._how.along_rows
        narrow = lines.bit_length() - 1
        level = LevelOfDetail(narrow, self._level.cols) if by_row else LevelOfDetail(self._level.rows, narrow)
        axes = self._plane.rows if by_row else self._plane.cols
        # Without an axis across there is one line, and one band of it.
        together = np.concatenate([values for _, values in bands], axis=axes[0]) if axes else bands[0][1]
        first = bands[0][0] * lines
        across = (first, first + len(bands) * lines)
        self._group.fold(together, *((across, self._along) if by_row else (self._along, across)), level)


def sampled_tile(plane: Plane, key: TileKey, cancelled: Callable[[], bool]) -> Tile:
    """Read a sample of one tile; as `sampled_tiles`."""
    return sampled_tiles(plane, (key,), cancelled)[key]
