"""Which elements of a plane stand on which device pixels. No Qt and no state here.

Each axis has its own scale, of steps so chosen that every tile takes a whole number of device pixels: so tiles meet
without seams, and blocks smaller than a pixel are folded into whole pixels and drawn one to one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tensormorph.pyramid import TILE, Span

WHOLE_FROM = 8
"""From this many pixels on, an element takes a whole number of them."""
LARGEST = 256
"""Most device pixels an element takes."""
MARK_FROM = 8
"""Logical pixels of a cell from which the marks of NaN and the infinities are drawn in it."""
NUMBER_FROM = (36, 18)
"""Logical pixels to the right and down from which a cell shows its number."""


@dataclass(frozen=True, slots=True)
class Lens:
    """One axis: `n` elements, seen through `pixels` device pixels.

    Fields
    ------
    shift
        Blocks have ``1 << shift`` elements.
    tile
        Device pixels that 256 blocks take: 128 to 256, or more where a block is an element.
    origin
        Device pixel of the first element, counted from the first one visible; 0 or negative.
    """

    n: int
    pixels: int
    shift: int
    tile: int
    origin: int = 0

    @classmethod
    def at_scale(cls, n: int, pixels: int, scale: float) -> Lens:
        """Return the lens of the nearest possible scale not above `scale` device pixels an element."""
        if scale >= 1:
            whole = math.floor(min(scale, LARGEST))
            tile = whole * TILE if whole >= WHOLE_FROM else math.floor(scale * TILE)
            return cls(n, pixels, 0, max(tile, TILE))
        shift = math.floor(-math.log2(scale))
        tile = math.floor(math.ldexp(scale, shift) * TILE)
        return cls(n, pixels, shift, min(max(tile, TILE // 2), TILE))

    @classmethod
    def fit(cls, n: int, pixels: int, largest: int) -> Lens:
        """Return the lens that shows all elements, each at most `largest` device pixels."""
        return cls.at_scale(n, pixels, min(max(1, pixels) / max(1, n), largest))

    @property
    def scale(self) -> float:
        """Device pixels an element."""
        return math.ldexp(self.tile / TILE, -self.shift)

    @property
    def extent(self) -> int:
        """Device pixels that all elements take."""
        return self.place(self.n)

    def place(self, element: int) -> int:
        """Return the device pixel, from the first element's, where the block of an element begins; `n` gives the end.

        Blocks smaller than a pixel share one; the last pixel belongs to the last block.
        """
        if element >= self.n:
            last = (self.n - 1) >> self.shift if self.n else -1
            return last * self.tile // TILE + 1 if self.shift or self.tile < TILE else self._edge(self.n)
        return (element >> self.shift) * self.tile // TILE if self.tile <= TILE else self._edge(element)

    def places(self, elements: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the `place` of many elements, none of them negative."""
        if self.tile <= TILE:
            places = (elements >> self.shift) * self.tile // TILE
        else:
            places = -((TILE - 2 * elements * self.tile) // (2 * TILE))
        return np.where(elements >= self.n, self.extent, places)

    def _edge(self, element: int) -> int:
        # A pixel shows the element that holds its middle, as Qt draws it.
        return -((TILE - 2 * element * self.tile) // (2 * TILE))

    def element(self, pixel: int) -> int | None:
        """Return the element at a visible device pixel: the first of the first block that the pixel shows, or None."""
        at = pixel - self.origin
        if at < 0 or at >= self.extent:
            return None
        if self.tile > TILE:
            return min((2 * at + 1) * TILE // (2 * self.tile), self.n - 1)
        return -(-at * TILE // self.tile) << self.shift

    @property
    def elements_a_pixel(self) -> int:
        """Most elements that one device pixel shows."""
        return 1 if self.tile > TILE else min(self.n, (1 << self.shift) * (1 if self.tile == TILE else 2))

    @property
    def visible(self) -> Span:
        """The elements on screen."""
        first, last = math.floor(self.position(0)), math.ceil(self.position(self.pixels))
        return (max(0, min(self.n, first)), max(0, min(self.n, last)))

    def position(self, pixel: float) -> float:
        """Return the position among the elements, with its fraction, of a device pixel's first edge."""
        return (pixel - self.origin) / self.scale

    def clamped(self) -> Lens:
        """Return the same moved so that no more than necessary lies beyond the elements."""
        return replace(self, origin=min(0, max(self.origin, self.pixels - self.extent)))

    def moved(self, pixels: int) -> Lens:
        """Return the same with the elements moved by so many device pixels."""
        return replace(self, origin=self.origin + pixels).clamped()

    def resized(self, pixels: int) -> Lens:
        """Return the same scale on a screen of another size."""
        return replace(self, pixels=pixels).clamped()

    def scaled(self, scale: float, at: int) -> Lens:
        """Return another scale with what is under the device pixel `at` kept there."""
        under = (at - self.origin) / self.scale
        made = Lens.at_scale(self.n, self.pixels, scale)
        return replace(made, origin=at - round(under * made.scale)).clamped()

    def around(self, span: Span, largest: int) -> Lens:
        """Return the lens with a range of elements in the middle and something of what lies beside it."""
        fit = Lens.fit(self.n, self.pixels, largest)
        scale = min(0.8 * self.pixels / max(1, span[1] - span[0]), largest)
        if scale <= fit.scale:
            return fit
        made = Lens.at_scale(self.n, self.pixels, scale)
        middle = (made.place(span[0]) + made.place(span[1])) // 2
        return replace(made, origin=self.pixels // 2 - middle).clamped()

    def centred(self, element: int) -> Lens:
        """Return the same scale with an element in the middle."""
        return replace(self, origin=self.pixels // 2 - self.place(element)).clamped()


@dataclass(frozen=True, slots=True)
class Camera:
    """The two axes, and the device pixels of one logical pixel."""

    down: Lens
    right: Lens
    ratio: float

    @classmethod
    def fit(cls, shape: tuple[int, int], pixels: tuple[int, int], ratio: float, largest: int) -> Camera:
        """Return the camera that shows a whole plane, elements at most `largest` logical pixels wide and high."""
        most = round(largest * ratio)
        return cls(Lens.fit(shape[0], pixels[0], most), Lens.fit(shape[1], pixels[1], most), ratio)

    def same_scale(self, other: Camera) -> bool:
        """Whether pictures made for one serve the other."""
        return (self.down.shift, self.down.tile, self.right.shift, self.right.tile) == (
            other.down.shift, other.down.tile, other.right.shift, other.right.tile,
        )  # fmt: skip

    def zoomed(self, factor: float, at: tuple[int, int], smallest: Camera) -> Camera:
        """Return this zoomed about a device pixel ``(y, x)``, between `smallest` and the largest scale."""

        def zoom(lens: Lens, pixel: int, least: Lens) -> Lens:
            scale = min(max(lens.scale * factor, min(least.scale, 1.0)), LARGEST)
            made = lens.scaled(scale, pixel)
            # Whole-pixel scales are coarse steps: a small factor must not be lost in them.
            if factor > 1 and made.scale <= lens.scale < LARGEST:
                made = lens.scaled(min(lens.scale + 1, LARGEST), pixel)
            return made

        return replace(self, down=zoom(self.down, at[0], smallest.down), right=zoom(self.right, at[1], smallest.right))

    def at_scale(self, scale: float, at: tuple[int, int]) -> Camera:
        """Return this at a scale on both axes, in device pixels an element."""
        return replace(self, down=self.down.scaled(scale, at[0]), right=self.right.scaled(scale, at[1]))

    def moved(self, down: int, right: int) -> Camera:
        """Return this with the picture moved by so many device pixels."""
        return replace(self, down=self.down.moved(down), right=self.right.moved(right))

    def around(self, rows: Span, cols: Span, largest: int) -> Camera:
        """Return the camera that shows a rectangle of elements, each at most `largest` logical pixels."""
        most = round(largest * self.ratio)
        return replace(self, down=self.down.around(rows, most), right=self.right.around(cols, most))

    def resized(self, pixels: tuple[int, int], ratio: float) -> Camera:
        """Return the same scale on a screen of another size."""
        return Camera(self.down.resized(pixels[0]), self.right.resized(pixels[1]), ratio)

    def element(self, pixel: tuple[int, int]) -> tuple[int, int] | None:
        """Return the row and column at a device pixel ``(y, x)``, or None beside the picture."""
        row, col = self.down.element(pixel[0]), self.right.element(pixel[1])
        return None if row is None or col is None else (row, col)

    def cell(self, row: int, col: int) -> tuple[int, int, int, int]:
        """Return the device pixels ``(top, bottom, left, right)`` that show an element; at least one each way."""
        top, left = self.down.place(row), self.right.place(col)
        bottom = max(top + 1, self.down.place(row + 1) if self.down.tile > TILE else top + 1)
        end = max(left + 1, self.right.place(col + 1) if self.right.tile > TILE else left + 1)
        return (top + self.down.origin, bottom + self.down.origin, left + self.right.origin, end + self.right.origin)


def shows_marks(camera: Camera) -> bool:
    """Whether cells are large enough for the marks of NaN and infinities."""
    least = MARK_FROM * camera.ratio
    return camera.down.scale >= least and camera.right.scale >= least


def shows_numbers(camera: Camera) -> bool:
    """Whether cells are large enough for their numbers."""
    return camera.right.scale >= NUMBER_FROM[0] * camera.ratio and camera.down.scale >= NUMBER_FROM[1] * camera.ratio
