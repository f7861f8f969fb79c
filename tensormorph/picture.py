"""From tiles to pictures: one value a block by a named rule, levels, and colours. No Qt here.

A picture is an array of 32-bit pixels, 0xFFRRGGBB. What is no ordinary value has a colour that no colour map uses:
a block with any NaN in it is drawn as NaN, else one with any +Inf as +Inf, else one with any -Inf as -Inf. A block
with an unreadable element is left in the colour of the canvas (or of its NaN) and told apart by `Tile.missing`, to be
hatched over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tensormorph import colours
from tensormorph.pyramid import TILE, Floats, Tile
from tensormorph.survey import Survey

Pixels = NDArray[np.uint32]
Reduction = Literal["mean", "envelope", "absolute maximum", "RMS"]
REDUCTIONS: Final[tuple[Reduction, ...]] = ("mean", "envelope", "absolute maximum", "RMS")
"""`envelope` is the value farthest from 0 with its sign; all are over the finite elements of a block."""
MAGNITUDES: Final[frozenset[Reduction]] = frozenset({"absolute maximum", "RMS"})

Range = Literal["zero-centred", "min to max"]


@dataclass(frozen=True, slots=True)
class Levels:
    """The values at the two ends of a colour table; beyond them colours saturate.

    Raises
    ------
    ValueError
        If they are not finite and rising.
    """

    low: float
    high: float
    scale: Literal["linear"] = "linear"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"levels from {self.low} to {self.high}")

    @property
    def diverging(self) -> bool:
        """Whether 0 lies in the middle."""
        return self.low == -self.high


def two_digits(value: float) -> float:
    """Return a number rounded to two digits that matter."""
    rounded = float(f"{value:.1e}")
    return rounded if math.isfinite(rounded) else value


def levels(survey: Survey, span: Range, magnitude: bool) -> Levels:
    """Return the levels that fit what a survey saw.

    ``zero-centred`` is symmetric about 0 at the 99 % of the magnitudes, rounded to two digits; with `magnitude`, for
    values that cannot be negative, it begins at 0. Where 99 in 100 values are 0 it takes the largest magnitude, and 1
    where all are. ``min to max`` is what it says, one unit wide where all values are equal.
    """
    if span == "min to max":
        low, high = survey.low, survey.high
        if magnitude:
            low, high = max(0.0, low, -high), max(abs(low), abs(high))
        if low < high:
            return Levels(low, high)
        half = max(0.5, abs(low) * 1e-6)
        return Levels(max(low - half, -np.finfo(np.float64).max), min(low + half, np.finfo(np.float64).max))
    most = two_digits(survey.most) or two_digits(max(abs(survey.low), abs(survey.high))) or 1.0
    return Levels(0.0 if magnitude else -most, most)


# ---------------------------------------------------------------- colours


@dataclass(frozen=True, slots=True, eq=False)
class Paint:
    """How blocks become pixels.

    Fields
    ------
    table
        256 pixels from the lowest level to the highest.
    canvas, nan, posinf, neginf
        Pixels of what is no ordinary value.
    """

    reduction: Reduction
    levels: Levels
    table: Pixels
    canvas: int
    nan: int
    posinf: int
    neginf: int

    @classmethod
    def of(cls, reduction: Reduction, levels: Levels, dark: bool) -> Paint:
        """Return the paint of a theme, with the map that fits the levels: diverging where 0 is in the middle."""
        table = colours.colour_map("diverging" if levels.diverging else "sequential", dark)
        ground = colours.CANVAS["dark" if dark else "light"]
        marks = (ground, colours.NAN, colours.POSITIVE_INFINITY, colours.NEGATIVE_INFINITY)
        return cls(reduction, levels, pixels(table), *(pixel(mark) for mark in marks))


def pixel(colour: str) -> int:
    """Return ``#RRGGBB`` as a 32-bit pixel."""
    return 0xFF000000 | int(colour[1:], 16)


def pixels(table: colours.Table) -> Pixels:
    """Return a (256, 3) table of colours as 256 pixels."""
    wide = table.astype(np.uint32)
    packed: Pixels = np.uint32(0xFF000000) | wide[:, 0] << np.uint32(16) | wide[:, 1] << np.uint32(8) | wide[:, 2]
    return packed


def reduced(tile: Tile, reduction: Reduction) -> Floats:
    """Return one value a block by the named rule, over its finite elements; NaN where it has none."""
    held = tile.count > 0
    with np.errstate(all="ignore"):
        if reduction == "mean":
            # A mean lies between the extremes; clipping matters where the sum of huge float64 overflowed.
            values = np.clip(tile.total / tile.count, tile.low, tile.high)
        elif reduction == "RMS":
            values = np.sqrt(tile.squares / tile.count)
        elif reduction == "envelope":
            values = np.where(-tile.low > tile.high, tile.low, tile.high)
        else:
            values = np.maximum(-tile.low, tile.high)
    values[~held] = np.nan
    return values


def shade(values: Floats, paint: Paint) -> Pixels:
    """Return the colours of values; beyond the levels they saturate, and NaN takes the canvas."""
    low, high = paint.levels.low, paint.levels.high
    with np.errstate(all="ignore"):
        # Halved first: the distance between two levels may be more than the largest float64.
        part = (values * 0.5 - low * 0.5) / (high * 0.5 - low * 0.5)
        places = np.clip(np.floor(part * 256), 0, 255)
    nothing = np.isnan(places)
    places[nothing] = 0
    shaded: Pixels = paint.table[places.astype(np.intp)]
    shaded[nothing] = paint.canvas
    return shaded


def picture(tile: Tile, paint: Paint) -> Pixels:
    """Return the pixels of a tile, one a block; see the top of this module for what is no ordinary value."""
    out = shade(reduced(tile, paint.reduction), paint)
    out[tile.missing] = paint.canvas
    # In rising order of who wins; a block is never drawn as an ordinary value when it holds one that is not.
    for counts, mark in ((tile.n_neginf, paint.neginf), (tile.n_posinf, paint.posinf), (tile.n_nan, paint.nan)):
        out[counts > 0] = mark
    return out


# ---------------------------------------------------------------- device pixels


def pixel_starts(n_blocks: int, tile_pixels: int) -> NDArray[np.intp]:
    """Return the block at which each pixel begins when 256 blocks take `tile_pixels` pixels (at most 256).

    Each block falls into one pixel, so folding by these starts drops none.
    """
    place = np.arange(n_blocks, dtype=np.int64) * tile_pixels // TILE
    return np.flatnonzero(np.diff(place, prepend=-1)).astype(np.intp)


def to_pixels(tile: Tile, high: int, wide: int) -> Tile:
    """Return a tile folded so that 256 blocks take `high` and `wide` pixels; 256 and more leave an axis as it is."""
    rows, cols = tile.shape
    if high >= TILE and wide >= TILE:
        return tile
    return tile.regroup(pixel_starts(rows, min(high, TILE)), pixel_starts(cols, min(wide, TILE)))


def boxes(mask: NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    """Return disjoint boxes ``(row, row_stop, col, col_stop)`` that hold exactly the true entries of a mask.

    Examples
    --------
    >>> boxes(np.array([[True, False], [True, False], [True, True]]))
    [(0, 2, 0, 1), (2, 3, 0, 2)]
    """
    done: list[tuple[int, int, int, int]] = []
    growing: dict[tuple[int, int], int] = {}
    rows = np.flatnonzero(mask.any(axis=1))
    previous = -1
    for row in rows.tolist():
        edges = np.flatnonzero(np.diff(mask[row].astype(np.int8), prepend=0, append=0)).tolist()
        runs = list(zip(edges[::2], edges[1::2], strict=True))
        kept: dict[tuple[int, int], int] = {}
        for run in runs:
            kept[run] = growing.pop(run, row) if previous == row - 1 else row
        done.extend((first, previous + 1, *run) for run, first in growing.items())
        growing, previous = kept, row
    done.extend((first, previous + 1, *run) for run, first in growing.items())
    return sorted(done)
