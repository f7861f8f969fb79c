"""Arrays that are computed from stored ones by a rule that is named beside them.

Dequantised integers, negated and conjugated views, and sparse tensors written out: never stored so, and said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensormorph import dtypes
from tensormorph.array import Piece, Place, StoredSource
from tensormorph.errors import MissingRegionError
from tensormorph.region import Region

_CHUNK = 1 << 18
"""Entries of a sparse tensor looked at in one go."""


@dataclass(frozen=True, slots=True, eq=False)
class BitView:
    """A tensor whose negation or conjugation torch recorded instead of doing it.

    Source: torch/_utils.py, `_rebuild_tensor_v2`, metadata ``{"neg": True}`` and ``{"conj": True}``.
    """

    stored: StoredSource
    kind: Literal["negated", "conjugated"]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.stored.dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out`. Raises as the stored source."""
        self.stored.read_into(region, out)
        np.negative(out, out=out) if self.kind == "negated" else np.conjugate(out, out=out)

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region as the stored source does."""
        return self.stored.pieces(region, max_bytes)

    def place(self) -> Place:
        """Return where the stored elements lie, with the rule."""
        return replace(self.stored.place(), rule=f"{self.kind}: the file records the view, not its values")

    def bit_of(self, index: Sequence[int], /) -> int:
        """Return the place of the stored element."""
        return self.stored.bit_of(index)


@dataclass(frozen=True, slots=True, eq=False)
class Dequantised:
    """``(q - zero_point) * scale`` in float32, per tensor or along one axis.

    Source: torch, aten/src/ATen/native/quantized/AffineQuantizerBase.cpp, `dequantize_val`.

    Fields
    ------
    codes
        The stored integers.
    scale, zero_point
        One number each, or a source of one number an index of `axis`.
    """

    codes: StoredSource
    scale: float | StoredSource
    zero_point: float | StoredSource
    axis: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out`. Raises as the stored sources."""
        codes = np.empty(region.shape, self.codes.dtype)
        self.codes.read_into(region, codes)
        scale = self._along(self.scale, region)
        zero_point = self._along(self.zero_point, region)
        # Differences of integers are exact in float64; the product is rounded once to float32.
        out[...] = ((codes.astype(np.float64) - zero_point) * scale).astype(np.float32)

    def _along(self, value: float | StoredSource, region: Region) -> Any:
        if isinstance(value, float | int):
            return np.float64(np.float32(value)) if self.axis is None else float(value)
        assert self.axis is not None
        part = Region((region.start[self.axis],), (region.stop[self.axis],))
        numbers = np.empty(part.shape, value.dtype)
        value.read_into(part, numbers)
        return numbers.astype(np.float64).reshape([-1 if k == self.axis else 1 for k in range(region.ndim)])

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region as the stored integers do."""
        return self.codes.pieces(region, max_bytes)

    def place(self) -> Place:
        """Return where the stored integers lie, with the rule."""
        how = "per tensor" if self.axis is None else f"per index of axis {self.axis}"
        rule = f"(q - zero_point) * scale in float32, {how}"
        return replace(self.codes.place(), encoding=dtypes.encoding("float32"), rule=rule)

    def bit_of(self, index: Sequence[int], /) -> int:
        """Return the place of the stored integer."""
        return self.codes.bit_of(index)


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """A sparse tensor of single entries, written out: its values at their coordinates, summed where one repeats.

    Fields
    ------
    shape
        Of the whole.
    coordinates
        ``entries(first, last)`` gives int64 of shape (axes, last - first).
    values
        One value an entry.
    form
        What it is stored as, for the rule.
    """

    shape: tuple[int, ...]
    coordinates: CoordinateSource
    values: StoredSource
    form: str

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out`: zero where no entry stands, by the meaning of a sparse tensor. Raises as the stored sources."""
        out[...] = np.zeros((), out.dtype)
        low = np.array(region.start, np.int64).reshape(-1, 1)
        high = np.array(region.stop, np.int64).reshape(-1, 1)
        for first, last, at in self._chunks():
            inside = np.all((at >= low) & (at < high), axis=0)
            if inside.any():
                values = np.empty(last - first, self.values.dtype)
                self.values.read_into(Region((first,), (last,)), values)
                np.add.at(out, tuple((at - low)[:, inside]), values[inside])

    def _chunks(self) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
        n = self.values.shape[0]
        extents = np.array(self.shape, np.int64).reshape(-1, 1)
        for first in range(0, n, _CHUNK):
            last = min(first + _CHUNK, n)
            at = self.coordinates.entries(first, last)
            if bool(((at < 0) | (at >= extents)).any()):
                raise MissingRegionError(
                    self.form, None, f"an entry between {first:,} and {last:,} lies outside the shape"
                )
            yield first, last, at

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region by its first axis: each piece looks at all entries."""
        cost = self.values.place().n_bytes
        if not region.ndim or region.empty:
            if not region.empty:
                yield Piece(region, cost)
            return
        row = max(1, region.size // region.shape[0] * self.dtype.itemsize)
        step = max(1, max_bytes // row)
        for first in range(region.start[0], region.stop[0], step):
            last = min(first + step, region.stop[0])
            yield Piece(Region((first, *region.start[1:]), (last, *region.stop[1:])), cost)

    def place(self) -> Place:
        """Return where the values lie, with the rule."""
        rule = f"written out from {self.form}: zero where no entry stands"
        return replace(self.values.place(), rule=rule)

    def bit_of(self, index: Sequence[int], /) -> int:
        """Return the place of the entry at an index.

        Raises
        ------
        MissingRegionError
            If no entry stands there: the zero is not stored.
        """
        wanted = np.array(index, np.int64).reshape(-1, 1)
        for first, _, at in self._chunks():
            hit = np.flatnonzero(np.all(at == wanted, axis=0))
            if len(hit):
                return self.values.bit_of((first + int(hit[0]),))
        raise MissingRegionError(self.form, None, "no entry stands at this index: the zero is not stored")


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Coordinates as a stored matrix of (axes, entries): COO."""

    indices: StoredSource

    def entries(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the coordinates of a run of entries."""
        n = self.indices.shape[0]
        out = np.empty((n, last - first), self.indices.dtype)
        self.indices.read_into(Region((0, first), (n, last)), out)
        return out.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Compressed:
    """Coordinates as pointers along one axis and plain indices along the other: CSR (axis 0), CSC (axis 1)."""

    pointers: StoredSource
    plain: StoredSource
    axis: int

    def entries(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the coordinates of a run of entries."""
        pointers = np.empty(self.pointers.shape, self.pointers.dtype)
        self.pointers.read_into(Region.whole(self.pointers.shape), pointers)
        plain = np.empty(last - first, self.plain.dtype)
        self.plain.read_into(Region((first,), (last,)), plain)
        line = np.searchsorted(pointers, np.arange(first, last), "right") - 1
        pair = (line, plain) if self.axis == 0 else (plain, line)
        return np.stack(pair).astype(np.int64)


CoordinateSource = Listed | Compressed
