"""Half-open boxes in the coordinates of a logical tensor.

A region with an empty extent holds no element; the region of a 0-d tensor has no axes and holds one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Region:
    """The elements whose index i satisfies ``start[k] <= i[k] < stop[k]`` on every axis k.

    Raises
    ------
    ValueError
        If the two tuples differ in length, or not 0 <= start <= stop on every axis.
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.start) != len(self.stop):
            raise ValueError(f"start has {len(self.start)} axes, stop has {len(self.stop)}")
        for low, high in zip(self.start, self.stop, strict=True):
            if not 0 <= low <= high:
                raise ValueError(f"not a half-open box: {self.start} to {self.stop}")

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Region:
        """Return the region that covers a tensor of this shape."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def ndim(self) -> int:
        return len(self.start)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return tuple(high - low for low, high in zip(self.start, self.stop, strict=True))

    @property
    def size(self) -> int:
        """Number of elements, as a Python integer of any length (1 for 0-d)."""
        return math.prod(self.shape)

    @property
    def empty(self) -> bool:
        """Whether the region holds no element."""
        return any(low == high for low, high in zip(self.start, self.stop, strict=True))

    def slices(self) -> tuple[slice, ...]:
        """Return the region as an index into a numpy array of the tensor's shape."""
        return tuple(slice(low, high) for low, high in zip(self.start, self.stop, strict=True))

    def intersect(self, other: Region) -> Region | None:
        """Return the elements in both regions, or None if there are none. Both must have the same number of axes."""
        if self.ndim != other.ndim:
            raise ValueError(f"{self.ndim} axes against {other.ndim}")
        start = tuple(map(max, self.start, other.start))
        stop = tuple(map(min, self.stop, other.stop))
        if any(low >= high for low, high in zip(start, stop, strict=True)):
            return None
        return Region(start, stop)

    def contains(self, other: Region) -> bool:
        """Whether every element of `other` is in this region; an empty `other` always is."""
        return other.empty or self.intersect(other) == other

    def minus(self, other: Region) -> tuple[Region, ...]:
        """Return disjoint regions that hold exactly the elements of this one that are not in `other`.

        At most two a axis; none of them is empty.
        """
        shared = self.intersect(other)
        if shared is None:
            return () if self.empty else (self,)
        left: list[Region] = []
        start, stop = list(self.start), list(self.stop)
        for axis in range(self.ndim):
            if start[axis] < shared.start[axis]:
                left.append(Region(tuple(start), (*stop[:axis], shared.start[axis], *stop[axis + 1 :])))
                start[axis] = shared.start[axis]
            if shared.stop[axis] < stop[axis]:
                left.append(Region((*start[:axis], shared.stop[axis], *start[axis + 1 :]), tuple(stop)))
                stop[axis] = shared.stop[axis]
        return tuple(left)

    def within(self, outer: Region) -> Region:
        """Return this region in the coordinates of `outer`, whose first element becomes the origin.

        Raises
        ------
        ValueError
            If this region is not inside `outer`.
        """
        if self.ndim != outer.ndim or any(
            low < first or high > last
            for low, high, first, last in zip(self.start, self.stop, outer.start, outer.stop, strict=True)
        ):
            raise ValueError(f"{self} is not inside {outer}")
        return Region(
            tuple(low - first for low, first in zip(self.start, outer.start, strict=True)),
            tuple(high - first for high, first in zip(self.stop, outer.start, strict=True)),
        )

    def offset_by(self, origin: Sequence[int]) -> Region:
        """Return this region moved by `origin`: the inverse of `within`."""
        return Region(
            tuple(low + first for low, first in zip(self.start, origin, strict=True)),
            tuple(high + first for high, first in zip(self.stop, origin, strict=True)),
        )

    def __str__(self) -> str:
        """Return the region as numpy writes it: ``0:192, 384:768``; a 0-d region is ``all``."""
        return ", ".join(f"{low}:{high}" for low, high in zip(self.start, self.stop, strict=True)) or "all"


def flat_range(shape: Sequence[int], first: int, last: int) -> Iterator[tuple[Region, int]]:
    """Split a run of row-major elements into boxes.

    Parameters
    ----------
    shape
        Shape of the tensor that the run is part of.
    first, last
        The run, half open, counted in row-major order from the tensor's first element.

    Yields
    ------
    (Region, int)
        Disjoint boxes in rising order, at most ``2 * ndim - 1`` of them (one for 0-d), each with the row-major
        position of its first element. Together they hold exactly the run; each box is itself contiguous in row-major
        order.

    Raises
    ------
    ValueError
        If the run does not lie inside the tensor.

    Examples
    --------
    >>> [(str(box), at) for box, at in flat_range((3, 4), 2, 9)]
    [('0:1, 2:4', 2), ('1:2, 0:4', 4), ('2:3, 0:1', 8)]
    """
    total = math.prod(shape)
    if not 0 <= first <= last <= total:
        raise ValueError(f"run {first} to {last} of {total} elements")
    if first == last:
        return
    if not shape:
        yield Region((), ()), 0
        return
    # Row-major element counts below each axis: strides[k] elements make one step along axis k.
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    at = first
    while at < last:
        # The largest block that begins at `at`: the outermost axis on which `at` is aligned and a whole step fits.
        axis = next(k for k in range(len(shape)) if at % strides[k] == 0 and at + strides[k] <= last)
        start = tuple(at // strides[k] % shape[k] for k in range(len(shape)))
        steps = min((last - at) // strides[axis], shape[axis] - start[axis])
        stop = (*(n + 1 for n in start[:axis]), start[axis] + steps, *shape[axis + 1 :])
        yield Region(start, stop), at
        at += steps * strides[axis]
