"""Arrays of elements at fixed strides over a run of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import SCRATCH_BYTES, Piece, Place
from tensormorph.dtypes import Encoding, unpack_nibbles
from tensormorph.errors import Problem, TensormorphError, UnsupportedDtypeError
from tensormorph.readers._bytes import Bytes
from tensormorph.region import Region

GAP_BYTES = 64 << 10
"""Runs nearer to each other than this are read as one: a seek costs more than the bytes between."""
WINDOW_BYTES = 4 << 20
"""Most bytes that one merged read spans."""
_RUN_BYTES = 1 << 30
"""Most bytes that one read of elements without holes spans."""


@dataclass(frozen=True, slots=True, eq=False)
class StridedBytes:
    """Elements at fixed strides in a run of bytes: an ArraySource.

    Fields
    ------
    offset
        Element 0 begins at this byte of `data`; of elements smaller than a byte the first takes the low bits.
    shape
        Extents in elements.
    strides
        Elements from one index to the next, one an axis, none negative.
    first
        Element that stands at index (0, 0, ...), counted from element 0: torch's storage offset.

    Raises
    ------
    ValueError
        If an element would lie outside `data`.
    """

    data: Bytes
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    encoding: Encoding
    first: int = 0

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides) or any(s < 0 for s in self.strides):
            raise ValueError(f"strides {self.strides} for shape {self.shape}")
        bits = self.encoding.bits
        if bits is None or not all(self.shape):
            return
        last = self.first + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        end = self.offset + -(-(last + 1) * bits // 8)
        if self.offset < 0 or self.first < 0 or end > self.data.n_bytes:
            raise ValueError(f"elements end at byte {end} of {self.data.n_bytes}")

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.encoding.dtype

    def place(self) -> Place:
        """Return where the bytes lie in the file."""
        span = self._span(Region.whole(self.shape))
        first = self.bit_of((0,) * len(self.shape)) // 8
        return Place(self.data.name, first, span, self.encoding, self.strides, self.data.compression)

    def bit_of(self, index: Sequence[int], /) -> int:
        """Return the position of one element in the file, in bits.

        Raises
        ------
        UnsupportedDtypeError
            If the size of an element is unknown and it is not the first.
        """
        if self.data.compression is not None:
            return 8 * self.data.start  # a packed element has no place of its own: the packing begins there
        element = self.first + sum(i * s for i, s in zip(index, self.strides, strict=True))
        if self.encoding.bits is None and element:
            raise UnsupportedDtypeError(self.encoding.name)
        return 8 * (self.data.start + self.offset) + element * (self.encoding.bits or 0)

    def _span(self, region: Region) -> int:
        """Bytes from the first element of a region to the end of its last."""
        if self.encoding.bits is None:
            return self.data.n_bytes - self.offset
        if region.empty:
            return 0
        first, last = self._ends(region)
        return -(-(last + 1) * self.encoding.bits // 8) - first * self.encoding.bits // 8

    def _ends(self, region: Region) -> tuple[int, int]:
        first = self.first + sum(low * s for low, s in zip(region.start, self.strides, strict=True))
        last = self.first + sum((high - 1) * s for high, s in zip(region.stop, self.strides, strict=True))
        return first, last

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out` with a region. Raises as FilePool.read_into, and UnsupportedDtypeError."""
        if not self.encoding.readable or self.encoding.bits is None:
            raise UnsupportedDtypeError(self.encoding.name)
        if region.empty:
            return
        for part in self._windows(region):
            first, last = self._ends(part)
            target = out[part.within(region).slices()] if region.ndim else out
            n_elements = last - first + 1
            if not self.encoding.packed and n_elements == part.size and self._direct(part, target):
                self._read_bytes(first, n_elements, target.reshape(-1).view(np.uint8).data)
                continue
            flat = self._decode(first, n_elements)
            size = flat.itemsize
            steps = [s * size for s in self.strides]
            target[...] = np.lib.stride_tricks.as_strided(flat, part.shape, steps, writeable=False)

    def _direct(self, part: Region, target: NDArray[Any]) -> bool:
        """Whether the bytes of a part can be read straight into the target."""
        return (
            target.flags.c_contiguous
            and target.flags.writeable
            and self.encoding.stored_dtype.isnative
            and target.dtype == self.encoding.dtype
            and self._rising(part)
        )

    def _rising(self, part: Region) -> bool:
        """Whether the elements of a part lie in the order of its row-major index without holes."""
        expected = 1
        for extent, stride in zip(reversed(part.shape), reversed(self.strides), strict=True):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True

    def _read_bytes(self, first: int, n_elements: int, buffer: memoryview) -> None:
        assert self.encoding.bits is not None
        self.data.read_into(self.offset + first * self.encoding.bits // 8, buffer)

    def _decode(self, first: int, n_elements: int) -> NDArray[Any]:
        """Return a run of elements as they lie in the file, decoded."""
        bits = self.encoding.bits
        assert bits is not None
        if not self.encoding.packed:
            raw = np.empty(n_elements * bits // 8, np.uint8)
            self._read_bytes(first, n_elements, raw.data)
            stored = raw.view(self.encoding.stored_dtype)
            return stored if stored.dtype.isnative else stored.astype(self.encoding.dtype)
        if bits != 4:
            raise UnsupportedDtypeError(self.encoding.name)
        byte = first // 2
        raw = np.empty((first + n_elements + 1) // 2 - byte, np.uint8)
        self.data.read_into(self.offset + byte, raw.data)
        return unpack_nibbles(raw, first % 2, n_elements).view(self.encoding.dtype)

    def _windows(self, region: Region) -> Iterator[Region]:
        """Partition a region so that each part is one read: without holes wider than GAP_BYTES, scratch bounded."""
        bits = self.encoding.bits
        assert bits is not None
        stack = [region]
        while stack:
            part = stack.pop()
            first, last = self._ends(part)
            span = (last - first + 1) * bits // 8
            dense = last - first + 1 == part.size
            limit = _RUN_BYTES if dense and not self.encoding.packed and self._rising(part) else WINDOW_BYTES
            axis = self._widest(part)
            if axis < 0 or (span <= limit and (dense or not self._holes(part, axis))):
                yield part
                continue
            # Split along the widest stride: each index of it, or as many as a window takes.
            step = max(1, self.strides[axis] * bits // 8)
            many = 1 if self._holes(part, axis) else max(1, min(limit, SCRATCH_BYTES // 2) // step)
            many = min(many, part.shape[axis] - 1)
            low, high = part.start[axis], part.stop[axis]
            cut = low + many
            rest = Region(_with(part.start, axis, cut), part.stop)
            stack.append(rest)
            stack.append(Region(part.start, _with(part.stop, axis, cut)))
            assert cut < high

    def _widest(self, part: Region) -> int:
        """Return the axis of the widest stride among those that have steps in a part; -1 if none has."""
        stepped = [k for k in range(part.ndim) if part.shape[k] > 1]
        return max(stepped, key=lambda k: self.strides[k], default=-1)

    def _holes(self, part: Region, axis: int) -> bool:
        """Whether steps along `axis` leave out more than GAP_BYTES between what they use."""
        bits = self.encoding.bits
        assert bits is not None
        used = sum((n - 1) * s for k, (n, s) in enumerate(zip(part.shape, self.strides, strict=True)) if k != axis) + 1
        return (self.strides[axis] - used) * bits // 8 > GAP_BYTES

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region in storage order into reads of about `max_bytes` at most."""
        if region.empty:
            return
        bits = self.encoding.bits
        if bits is None or not self.encoding.readable:
            reason: TensormorphError = UnsupportedDtypeError(self.encoding.name)
            problem = Problem(reason.code, "error", reason.sentence, file=self.data.name, region=region)
            yield Piece(region, 0, problem)
            return
        stack = [region]
        while stack:
            part = stack.pop()
            axis = self._widest(part)
            cost = self._cost(part)
            # Elements that share bytes (a stride of 0) cost no reading, and memory all the same.
            load = max(cost, part.size * bits // 8)
            if load <= max_bytes or axis < 0:
                yield Piece(part, cost)
                continue
            each = max(1, load // part.shape[axis])
            many = max(1, min(part.shape[axis] - 1, max_bytes // each))
            cut = part.start[axis] + many
            stack.append(Region(_with(part.start, axis, cut), part.stop))
            stack.append(Region(part.start, _with(part.stop, axis, cut)))

    def _cost(self, part: Region) -> int:
        """Bytes that reading a part takes: with what lies between its runs where they are read as one."""
        bits = self.encoding.bits
        assert bits is not None
        if part.empty:
            return 0
        # Axes from the widest stride in: where steps leave wide holes, each step is a read of its own.
        repeats, inner = 1, part
        while True:
            axis = self._widest(inner)
            if axis < 0 or not self._holes(inner, axis):
                return repeats * self._span(inner)
            repeats *= inner.shape[axis]
            inner = Region(inner.start, _with(inner.stop, axis, inner.start[axis] + 1))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major array without holes."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _with(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])
