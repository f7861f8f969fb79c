"""Tensors for the tests of the heatmap: in memory, slow, failing or far larger than memory, as the test wants."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import Piece, Place
from tensormorph.columns import TensorKey
from tensormorph.dtypes import Encoding, encoding
from tensormorph.fragments import FragmentTable
from tensormorph.model import Checkpoint, LazyTensors, LogicalTensor
from tensormorph.region import Region
from tests.gui.conftest import make_checkpoint

Hook = Callable[[Region], None]


class Source:
    """A StoredSource of one file whose values come from a function of the region; counts, waits and fails as told."""

    def __init__(
        self,
        shape: tuple[int, ...],
        kind: Encoding,
        values: Callable[[Region], NDArray[Any]],
        before_read: Hook = lambda region: None,
    ) -> None:
        self.shape, self.encoding, self._values, self.before_read = shape, kind, values, before_read
        self.n_bytes = 0
        self.threads: set[int] = set()

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.encoding.dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        self.threads.add(threading.get_ident())
        self.before_read(region)
        self.n_bytes += self.encoding.n_bytes(region.size)
        out[...] = self._values(region)

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        if region.empty:
            return
        n_bytes = self.encoding.n_bytes(region.size)
        axis = next((k for k, n in enumerate(region.shape) if n > 1), None)
        if n_bytes <= max_bytes or axis is None:
            yield Piece(region, n_bytes)
            return
        cut = (region.start[axis] + region.stop[axis]) // 2
        before, after = list(region.stop), list(region.start)
        before[axis] = after[axis] = cut
        yield from self.pieces(Region(region.start, tuple(before)), max_bytes)
        yield from self.pieces(Region(tuple(after), region.stop), max_bytes)

    def place(self) -> Place:
        strides = tuple(int(np.prod(self.shape[k + 1 :], dtype=np.int64)) for k in range(len(self.shape)))
        return Place("model.safetensors", 1000, self.encoding.n_bytes(1), self.encoding, strides)

    def bit_of(self, index: Sequence[int], /) -> int:
        steps = self.place().strides
        return 8 * 1000 + sum(i * step for i, step in zip(index, steps, strict=True)) * (self.encoding.bits or 8)


def tensor_of(source: Source, name: str = "w") -> LogicalTensor:
    """Return a tensor of one fragment."""
    ndim = len(source.shape)
    column = np.zeros(1, np.int64)
    small = np.zeros(1, np.int32)
    fragments = FragmentTable(
        np.zeros((1, ndim), np.int64), np.array([source.shape], np.int64).reshape(1, ndim), small, column + 1000,
        column, small + 3, small, ("model.safetensors",), lambda row: source,
    )  # fmt: skip
    return LogicalTensor(name, TensorKey("", name), source.shape, source.encoding, fragments, True)


def array_source(values: NDArray[Any], before_read: Hook = lambda region: None) -> Source:
    """Return the source of an array in memory."""
    return Source(values.shape, encoding(values.dtype.name), lambda region: values[region.slices()], before_read)


def checkpoint_of(tensors: Mapping[str, LogicalTensor], **more: Any) -> Checkpoint:
    """Return a checkpoint of these tensors."""
    made = make_checkpoint({name: tensor.shape for name, tensor in tensors.items()}, **more)
    own = list(tensors.values())
    return dataclasses.replace(made, tensors=LazyTensors(made.table, lambda row: own[row]))
