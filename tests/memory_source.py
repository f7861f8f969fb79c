"""Stored arrays for tests that lie in memory: bytes that know their file, byte for byte, and count what is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import Piece, Place
from tensormorph.columns import TensorKey
from tensormorph.dtypes import Encoding, encoding
from tensormorph.errors import Problem, TensormorphError
from tensormorph.fragments import NO_RANK, FragmentTable
from tensormorph.model import LogicalTensor
from tensormorph.region import Region


@dataclass
class MemoryFile:
    """A file's bytes. `failure` is raised by every read."""

    name: str
    data: bytearray = field(default_factory=bytearray)
    failure: Exception | None = None

    def append(self, values: NDArray[Any]) -> int:
        """Write values row-major and return the byte of the first."""
        offset = len(self.data)
        self.data += values.tobytes()
        return offset


@dataclass(eq=False)
class MemorySource:
    """Elements at fixed strides (in elements) in a file of memory: a StoredSource that counts its reads."""

    file: MemoryFile
    encoding: Encoding
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    problem: Problem | None = None
    reads: list[Region] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.encoding.dtype

    @property
    def stored(self) -> NDArray[Any]:
        """The elements where they lie."""
        steps = [step * self.encoding.stored_dtype.itemsize for step in self.strides]
        return np.ndarray(self.shape, self.encoding.stored_dtype, self.file.data, self.offset, steps)

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        assert Region.whole(self.shape).contains(region)
        assert out.shape == region.shape
        assert out.dtype == self.dtype
        with self.lock:
            self.reads.append(region)
        if self.file.failure is not None:
            raise self.file.failure
        out[...] = self.stored[region.slices()]

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Halve a region until each part fits; the widest stride is cut first."""
        if isinstance(self.file.failure, TensormorphError) and self.problem is None:
            raise self.file.failure  # as a source does that must look into its file to know where it lies
        if region.empty:
            return
        n_bytes = self.encoding.n_bytes(region.size)
        axis = max(range(region.ndim), key=lambda k: (region.shape[k] > 1, self.strides[k]), default=-1)
        if self.problem is not None or n_bytes <= max_bytes or region.size == 1:
            yield Piece(region, n_bytes, self.problem)
            return
        cut = (region.start[axis] + region.stop[axis]) // 2
        before, after = list(region.stop), list(region.start)
        before[axis] = after[axis] = cut
        yield from self.pieces(Region(region.start, tuple(before)), max_bytes)
        yield from self.pieces(Region(tuple(after), region.stop), max_bytes)

    def place(self) -> Place:
        size = self.encoding.n_bytes(1)
        last = sum((extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True))
        return Place(self.file.name, self.offset, (last + 1) * size, self.encoding, self.strides)

    def bit_of(self, index: Sequence[int], /) -> int:
        element = sum(i * step for i, step in zip(index, self.strides, strict=True))
        return 8 * (self.offset + element * self.encoding.n_bytes(1))


@dataclass(frozen=True)
class Part:
    """A box of a tensor, as a test puts it into a file."""

    region: Region
    source: MemorySource
    rank: int = NO_RANK
    term: int = 0


def store(file: MemoryFile, values: NDArray[Any], kind: Encoding, column_major: bool = False) -> MemorySource:
    """Append values to a file and return the source that reads them back."""
    stored = values.astype(kind.stored_dtype)
    offset = file.append(stored.T if column_major else stored)
    strides, step = [0] * values.ndim, 1
    for axis in range(values.ndim) if column_major else reversed(range(values.ndim)):
        strides[axis] = step
        step *= max(1, values.shape[axis])
    return MemorySource(file, kind, offset, values.shape, tuple(strides))


def table(ndim: int, parts: Sequence[Part]) -> FragmentTable:
    """Return parts as a table, sorted by their first coordinate as a table must be."""
    if not parts:
        return FragmentTable.empty(ndim)
    parts = sorted(parts, key=lambda part: part.region.start[:1])
    files = tuple(sorted({part.source.file.name for part in parts}))
    return FragmentTable(
        start=np.array([part.region.start for part in parts], np.int64).reshape(len(parts), ndim),
        stop=np.array([part.region.stop for part in parts], np.int64).reshape(len(parts), ndim),
        file=np.array([files.index(part.source.file.name) for part in parts], np.int32),
        offset=np.array([part.source.offset for part in parts], np.int64),
        length=np.array([part.source.encoding.n_bytes(part.region.size) for part in parts], np.int64),
        rank=np.array([part.rank for part in parts], np.int32),
        term=np.array([part.term for part in parts], np.int32),
        files=files,
        open_source=lambda row: parts[row].source,
    )


def tensor(
    shape: tuple[int, ...], parts: Sequence[Part], kind: Encoding, *, reduction: str | None = None, name: str = "w"
) -> LogicalTensor:
    """Return the logical tensor of these parts."""
    whole = Region.whole(shape)
    fragments = table(len(shape), parts)
    return LogicalTensor(
        name, TensorKey("", name), shape, kind, fragments, not fragments.gaps(whole), reduction=reduction
    )


def cut(
    whole: NDArray[Any],
    boxes: Sequence[Region],
    kind: Encoding | None = None,
    *,
    file_of: Callable[[int], MemoryFile] | None = None,
    column_major: bool = False,
) -> list[Part]:
    """Store boxes of an array, each in the file that `file_of` gives for its position; by default in one file."""
    kind = kind or encoding(whole.dtype.name)
    one = MemoryFile("model.bin", bytearray(b"header:"))
    parts: list[Part] = []
    for i, box in enumerate(boxes):
        values = whole[box.slices()] if box.ndim else whole
        parts.append(Part(box, store(file_of(i) if file_of else one, values, kind, column_major), rank=i))
    return parts
