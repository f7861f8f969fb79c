"""What arrays hold, as partial results that merge: counts, range, mean and deviation, and where the first NaN is.

NaN and infinite elements are counted and never enter a number. Complex elements count by their magnitude, which is NaN
where either part is; truth values count as 0 and 1. The whole numbers that `low` and `high` give are exact; for mean
and deviation those of 64 bits beyond 2^53 are rounded to the nearest float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensormorph.pyramid import numbers

BadKind = Literal["nan", "+inf", "-inf"]
_BAD: tuple[BadKind, ...] = ("nan", "+inf", "-inf")
_STEP = 1 << 17  # numbers at a time: with their float64 they stay in a processor's cache
_CODES_STEP = 1 << 20  # one-byte elements at a time


@dataclass(frozen=True, slots=True)
class Moments:
    """What some elements hold; of two disjoint sets of elements `merge` gives what both hold together.

    Fields
    ------
    n_finite, n_zero, n_nan, n_posinf, n_neginf
        Counts; of the finite elements `n_zero` are 0 or -0.
    low, high
        Lowest and highest finite element, exact; None where there is none.
    mean, rest, squares
        Of the finite elements divided by 2^`exponent`: their mean, what it lacks beyond the digits of a float64, and
        the sum of squared differences from it. Without `rest` a large mean would leave its rounding in `squares`.
    exponent
        0, but for elements so large or small that their squares leave the range of float64.
    first
        Index of the element that is first in row-major order among those that are not finite, and what it is.
    """

    n_finite: int = 0
    low: int | float | None = None
    high: int | float | None = None
    mean: float = 0.0
    rest: float = 0.0
    squares: float = 0.0
    exponent: int = 0
    n_zero: int = 0
    n_nan: int = 0
    n_posinf: int = 0
    n_neginf: int = 0
    first: tuple[tuple[int, ...], BadKind] | None = None

    @classmethod
    def of(cls, values: NDArray[Any], start: Sequence[int] = ()) -> Moments:
        """Return what an array holds.

        Parameters
        ----------
        start
            Index that its first element has in the source; by default 0 on every axis.

        Raises
        ------
        UnsupportedDtypeError
            For bytes that nothing decodes.
        """
        flat = np.ascontiguousarray(values).reshape(-1)
        with np.errstate(all="ignore"):
            found, bad = _of_codes(flat) if flat.itemsize == 1 else _of_numbers(flat)
        if bad is None:
            return found
        position, kind = bad
        index = [int(i) for i in np.unravel_index(position, values.shape)] if values.ndim else []
        origin = start or (0,) * values.ndim
        return replace(found, first=(tuple(i + low for i, low in zip(index, origin, strict=True)), kind))

    def merge(self, other: Moments) -> Moments:
        """Return what both hold together."""
        bounds = [m for m in (self, other) if m.n_finite]
        n = self.n_finite + other.n_finite
        mean, rest, squares, exponent = 0.0, 0.0, 0.0, 0
        if n:
            # Elements that are all 0 have no size of their own: they leave the choice of the scale to the others.
            exponent = max((m.exponent for m in bounds if m.mean or m.squares), default=0)
            (mean_a, rest_a, squares_a), (mean_b, rest_b, squares_b) = self._scaled(exponent), other._scaled(exponent)
            away = (mean_b - mean_a) + (rest_b - rest_a)
            moved = away * (other.n_finite / n)
            mean = mean_a + moved
            part = mean - mean_a
            rest = rest_a + ((mean_a - (mean - part)) + (moved - part))  # what rounding took from the sum, exactly
            squares = squares_a + squares_b + away * away * (self.n_finite / n) * other.n_finite
        firsts = [m.first for m in (self, other) if m.first is not None]
        return Moments(
            n_finite=n,
            low=min((m.low for m in bounds if m.low is not None), default=None),
            high=max((m.high for m in bounds if m.high is not None), default=None),
            mean=mean,
            rest=rest,
            squares=squares,
            exponent=exponent,
            n_zero=self.n_zero + other.n_zero,
            n_nan=self.n_nan + other.n_nan,
            n_posinf=self.n_posinf + other.n_posinf,
            n_neginf=self.n_neginf + other.n_neginf,
            first=min(firsts, default=None),
        )

    def _scaled(self, exponent: int) -> tuple[float, float, float]:
        """Return mean, rest and squares at a scale that is no smaller than their own, unless they are 0."""
        down = self.exponent - exponent
        return math.ldexp(self.mean, down), math.ldexp(self.rest, down), math.ldexp(self.squares, 2 * down)


_Bad = tuple[int, BadKind] | None  # position of the first element that is not finite, and what it is


def _of_numbers(flat: NDArray[Any]) -> tuple[Moments, _Bad]:
    found, bad = Moments(), None
    for begin in range(0, flat.size, _STEP):
        some, bad_here = _of_step(numbers(flat[begin : begin + _STEP]))
        found = found.merge(some) if begin else some
        if bad is None and bad_here is not None:
            bad = (begin + bad_here[0], bad_here[1])
    return found, bad


def _of_step(v: NDArray[Any]) -> tuple[Moments, _Bad]:
    low, high = np.minimum.reduce(v), np.maximum.reduce(v)
    n_bad = [0, 0, 0]
    bad: _Bad = None
    # NaN passes through minimum and maximum: two numbers tell whether any element is not finite.
    if not (np.isfinite(low) and np.isfinite(high)):
        masks = (np.isnan(v), v == np.inf, v == -np.inf)
        n_bad = [int(np.count_nonzero(mask)) for mask in masks]
        finite = np.isfinite(v)
        position = int(np.argmin(finite))
        bad = (position, next(kind for kind, mask in zip(_BAD, masks, strict=True) if mask[position]))
        v = v[finite]
        if not v.size:
            return Moments(n_nan=n_bad[0], n_posinf=n_bad[1], n_neginf=n_bad[2]), bad
        low, high = np.minimum.reduce(v), np.maximum.reduce(v)
    n_zero = 0 if low > 0 or high < 0 else int(np.count_nonzero(v == 0))
    some = _moments(v, None, low.item(), high.item())
    return replace(some, n_zero=n_zero, n_nan=n_bad[0], n_posinf=n_bad[1], n_neginf=n_bad[2]), bad


def _of_codes(flat: NDArray[Any]) -> tuple[Moments, _Bad]:
    """Count one-byte elements by code, two at a time: how often each of 256 values occurs tells everything."""
    values, kinds = _code_table(flat.dtype)
    codes = flat.view(np.uint8)
    even = codes.size & ~1
    pairs = np.zeros((256, 256), np.int64)
    for begin in range(0, even, _CODES_STEP):
        both = codes[begin : min(begin + _CODES_STEP, even)].view(np.uint16)
        pairs += np.bincount(both, minlength=1 << 16).reshape(256, 256)
    counts = pairs.sum(axis=0) + pairs.sum(axis=1) + np.bincount(codes[even:], minlength=256)
    n_nan, n_posinf, n_neginf = (int(counts[kinds == kind].sum()) for kind in range(1, 4))
    bad: _Bad = None
    if n_nan + n_posinf + n_neginf:
        position = int(np.argmax((kinds != 0)[codes]))
        bad = (position, _BAD[kinds[codes[position]] - 1])
    held = (kinds == 0) & (counts > 0)
    some = Moments()
    if held.any():
        v = values[held]
        some = _moments(v, counts[held], v.min().item(), v.max().item())
    return replace(
        some, n_zero=int(counts[values == 0].sum()), n_nan=n_nan, n_posinf=n_posinf, n_neginf=n_neginf
    ), bad  # fmt: skip


@cache
def _code_table(dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int8]]:
    """Return the value of each code of a one-byte type, and 0 for finite, or 1 + its place in _BAD."""
    codes = np.arange(256, dtype=np.uint8)
    values = (codes != 0).view(np.uint8) if dtype.kind == "b" else numbers(codes.view(dtype))
    kinds = np.zeros(256, np.int8)
    for number, mask in enumerate((np.isnan(values), values == np.inf, values == -np.inf), 1):
        kinds[mask] = number
    return values, kinds


def _moments(v: NDArray[Any], counts: NDArray[np.int64] | None, low: int | float, high: int | float) -> Moments:
    """Return the moments of at least one finite number; number i stands for counts[i] elements, by default one."""
    n = v.size if counts is None else int(counts.sum())
    largest = max(abs(low), abs(high))
    exponent = 0 if not largest or 2.0**-400 < largest < 2.0**400 else math.frexp(largest)[1]
    if low == high:  # a tensor of zeros, most often: nothing need be summed
        return Moments(n, low, high, mean=math.ldexp(low, -exponent), exponent=exponent)
    wide = v.astype(np.float64)
    if exponent:
        wide = np.ldexp(wide, -exponent)
    if counts is None:
        mean = float(np.add.reduce(wide)) / n
        np.subtract(wide, mean, out=wide)
        squares = float(np.einsum("i,i->", wide, wide))  # a dot product would start the threads of a library
        rest = float(np.add.reduce(wide)) / n
    else:
        mean = float(np.add.reduce(wide * counts)) / n
        np.subtract(wide, mean, out=wide)
        squares = float(np.add.reduce(wide * wide * counts))
        rest = float(np.add.reduce(wide * counts)) / n
    return Moments(n, low, high, mean, rest, squares - n * rest * rest, exponent)
