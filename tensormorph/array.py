"""The one seam: arrays that are read by region, lazily, and the numpy-like view on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tensormorph.dtypes import Encoding
from tensormorph.errors import BadIndexError, Problem
from tensormorph.region import Region
from tensormorph.text import printable

SCRATCH_BYTES = 8 << 20
"""Most bytes of scratch that one read of ours holds beside its result."""
_SKIP_BYTES = 64 << 10  # what a step leaves out from here on is worth a read of its own on each side


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a region that is read in one go.

    Fields
    ------
    region
        In the coordinates of the source that was asked.
    nbytes
        Bytes that reading it takes from storage.
    problem
        Why it cannot be read, or None.
    """

    region: Region
    nbytes: int
    problem: Problem | None = None


@runtime_checkable
class ArraySource(Protocol):
    """An array whose values are read by region.

    `read_into` fills every element of `out` (of shape ``region.shape`` and the source's dtype, maybe strided) or
    raises a TensormorphError; it never keeps `out` and may run in several threads at once. `pieces` partitions a
    region in storage order into pieces of about `max_bytes` at most and reads no data.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def read_into(self, region: Region, out: NDArray[Any], /) -> None: ...
    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of a stored array lie.

    Fields
    ------
    file
        Path relative to the checkpoint's root.
    offset
        Byte of the first element in the file.
    n_bytes
        Bytes from there to the end of the last element.
    strides
        Elements from one index to the next, one an axis.
    compression
        Name of the method, or None where bytes lie plain; then `offset` is the element's own byte.
    rule
        How the values are computed from what is stored there, in words; empty where they are just read.
    """

    file: str
    offset: int
    n_bytes: int
    encoding: Encoding
    strides: tuple[int, ...]
    compression: str | None = None
    rule: str = ""


class StoredSource(ArraySource, Protocol):
    """An array that lies in a file."""

    def place(self) -> Place: ...
    def bit_of(self, index: Sequence[int], /) -> int:
        """Return the position in the file, in bits, of one element."""
        ...


@dataclass(frozen=True, slots=True)
class Axis:
    """What an index selects on one axis: `count` elements from `start` on, `step` apart (never 0)."""

    start: int
    step: int
    count: int
    drop: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest half-open range that holds every selected element."""
        if not self.count:
            return (0, 0)
        last = self.start + (self.count - 1) * self.step
        return (min(self.start, last), max(self.start, last) + 1)


def select(key: Any, shape: Sequence[int]) -> tuple[Axis, ...]:
    """Return what a numpy basic index (integers, slices, ``...``) selects, one Axis a dimension.

    Raises
    ------
    BadIndexError
        For an index out of range, too many of them, or of another kind.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    shown = ", ".join(_shown(k) for k in keys)
    if sum(k is Ellipsis for k in keys) > 1:
        raise BadIndexError(shown, "'...' stands more than once")
    given = len(keys) - any(k is Ellipsis for k in keys)
    if given > len(shape):
        raise BadIndexError(shown, f"{given} indices for {len(shape)} axes")
    fill: list[Any] = [slice(None)] * (len(shape) - given)
    at = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    keys = [*keys[:at], *fill, *keys[at + 1 :]]
    axes: list[Axis] = []
    for axis, (k, extent) in enumerate(zip(keys, shape, strict=True)):
        if isinstance(k, slice):
            try:
                start, stop, step = k.indices(extent)
            except (TypeError, ValueError) as error:
                raise BadIndexError(shown, str(error)) from None
            axes.append(Axis(start, step, len(range(start, stop, step))))
        elif isinstance(k, (int, np.integer)) and not isinstance(k, (bool, np.bool_)):
            index = int(k)
            if not -extent <= index < extent:
                raise BadIndexError(shown, f"{index} is out of range on axis {axis} of {extent} elements")
            axes.append(Axis(index % extent, 1, 1, drop=True))
        else:
            raise BadIndexError(shown, f"{type(k).__name__} on axis {axis}: give whole numbers, slices or '...'")
    return tuple(axes)


def parse_index(text: str) -> tuple[Any, ...]:
    """Return the index that a person writes as ``0:4, :, -1`` or ``...``; the empty text selects everything.

    Raises
    ------
    BadIndexError
        If a part is no whole number, slice or ``...``.
    """
    body = text.strip().removeprefix("[").removesuffix("]").strip()
    if not body:
        return ()
    keys: list[Any] = []
    for part in body.rstrip(",").split(","):
        part = part.strip()
        fields = [f.strip() for f in part.split(":")]
        try:
            if part == "...":
                keys.append(Ellipsis)
            elif len(fields) == 1:
                keys.append(_whole(fields[0]))
            elif len(fields) <= 3:
                keys.append(slice(*(_whole(f) if f else None for f in fields)))
            else:
                raise ValueError
        except ValueError:
            raise BadIndexError(text, f"'{printable(part, 40)}' is no whole number, slice or '...'") from None
    return tuple(keys)


def _whole(text: str) -> int:
    if len(text) > 20:
        raise ValueError
    return int(text)


def _shown(key: Any) -> str:
    if key is Ellipsis:
        return "..."
    if isinstance(key, slice):
        ends = ["" if v is None else str(v) for v in (key.start, key.stop)]
        return ":".join(ends if key.step is None else [*ends, str(key.step)])
    return str(key)


@dataclass(frozen=True, slots=True)
class ArrayView:
    """A lazy array: indexing it by numpy's basic rules reads just what is asked and gives a numpy array.

    An integer drops its axis; negative numbers count from the end; steps may be negative; ``...`` fills up.
    """

    source: ArraySource

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def ndim(self) -> int:
        return len(self.source.shape)

    @property
    def size(self) -> int:
        return math.prod(self.source.shape)

    def __len__(self) -> int:
        if not self.source.shape:
            raise TypeError("a 0-d tensor has no length")
        return self.source.shape[0]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Return an iterator over the first axis; without it Python would take a 0-d tensor for an empty one."""
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, key: Any) -> NDArray[Any]:
        axes = select(key, self.source.shape)
        out = np.empty(tuple(a.count for a in axes), self.source.dtype)
        if out.size:
            _fill(self.source, axes, out)
        return out.reshape(tuple(a.count for a in axes if not a.drop))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the values lie in a file: an array of them is always a copy")
        return np.asarray(self[...], dtype=dtype)


def _fill(source: ArraySource, axes: tuple[Axis, ...], out: NDArray[Any]) -> None:
    """Read a selection of at least one element into `out`, holding at most SCRATCH_BYTES more."""
    bounds = [a.bounds for a in axes]
    region = Region(tuple(low for low, _ in bounds), tuple(high for _, high in bounds))
    if all(a.step == 1 or a.count == 1 for a in axes):
        source.read_into(region, out)
        return
    for axis, a in enumerate(axes):
        skipped = (abs(a.step) - 1) * math.prod(region.shape[axis + 1 :]) * out.dtype.itemsize
        if a.count > 1 and skipped >= _SKIP_BYTES:
            for i in range(a.count):
                one = Axis(a.start + i * a.step, 1, 1, a.drop)
                _fill(source, (*axes[:axis], one, *axes[axis + 1 :]), out[(slice(None),) * axis + (slice(i, i + 1),)])
            return
    widest = next((k for k, a in enumerate(axes) if a.count > 1), 0)
    if region.size * out.dtype.itemsize > SCRATCH_BYTES and axes[widest].count > 1:
        a = axes[widest]
        half = a.count // 2
        first = Axis(a.start, a.step, half, a.drop)
        second = Axis(a.start + half * a.step, a.step, a.count - half, a.drop)
        at = (slice(None),) * widest
        _fill(source, (*axes[:widest], first, *axes[widest + 1 :]), out[(*at, slice(0, half))])
        _fill(source, (*axes[:widest], second, *axes[widest + 1 :]), out[(*at, slice(half, None))])
        return
    scratch = np.empty(region.shape, out.dtype)
    source.read_into(region, scratch)
    for axis, a in enumerate(axes):
        picked = slice(None, None, a.step if a.count > 1 else 1)
        scratch = scratch[(slice(None),) * axis + (picked,)]
    out[...] = scratch


@dataclass(frozen=True, slots=True, eq=False)
class Narrowed:
    """A box of a stored array, as an array of its own."""

    source: StoredSource
    box: Region

    @property
    def shape(self) -> tuple[int, ...]:
        return self.box.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out` with a region. Raises as the source."""
        self.source.read_into(region.offset_by(self.box.start), out)

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region as the source does."""
        back = [-low for low in self.box.start]
        for piece in self.source.pieces(region.offset_by(self.box.start), max_bytes):
            problem = piece.problem
            where = piece.region.offset_by(back)
            yield Piece(where, piece.nbytes, None if problem is None else replace(problem, region=where))

    def place(self) -> Place:
        """Return where the bytes lie in the file: from the first element of the box to the end of its last."""
        place = self.source.place()
        if self.box.empty or place.compression is not None or place.encoding.bits is None:
            return place
        first = self.source.bit_of(self.box.start)
        last = self.source.bit_of([high - 1 for high in self.box.stop])
        n_bytes = -(-(last - first + place.encoding.bits) // 8)
        return replace(place, offset=first // 8, n_bytes=n_bytes)

    def bit_of(self, index: Sequence[int], /) -> int:
        """Return the position in the file, in bits, of one element."""
        return self.source.bit_of([i + low for i, low in zip(index, self.box.start, strict=True)])
