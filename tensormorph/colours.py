"""Colour tables for pictures of values, and the colours of the marks that are not values. No Qt here.

A table has 256 rows of red, green and blue, each 0 to 255 (sRGB), from the lowest value to the highest.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Theme = Literal["light", "dark"]
Table: TypeAlias = "npt.NDArray[np.uint8]"

CANVAS: Final[dict[Theme, str]] = {"light": "#FFFFFF", "dark": "#16181B"}
"""The ground behind every picture, which is also the colour of zero in the default maps."""

DIVERGING: Final[dict[Theme, str]] = {"light": "crameri:vik", "dark": "crameri:berlin"}
SEQUENTIAL: Final[dict[Theme, str]] = {"light": "crameri:lipari_r", "dark": "crameri:lipari"}

OFFERED: Final = (
    "crameri:vik",
    "crameri:berlin",
    "crameri:lipari",
    "cividis",
    "viridis",
    "crameri:batlow",
    "crameri:oslo",
    "cmocean:balance",
    "grey",
)
"""The names that a person may choose from, for `table`; no jet and no rainbow."""

NAN: Final = "#CC00FF"
POSITIVE_INFINITY: Final = "#00FF00"
NEGATIVE_INFINITY: Final = "#AABB00"
# Of elements that hold no value: the lines hatched over the canvas, and the ground and dots of padding.
MISSING: Final[dict[Theme, str]] = {"light": "#949CA8", "dark": "#767E89"}
PADDING: Final[dict[Theme, str]] = {"light": "#D9DDE3", "dark": "#3A3F47"}
PADDING_DOT: Final[dict[Theme, str]] = {"light": "#A7AEB8", "dark": "#656C76"}


@lru_cache(maxsize=32)
def table(name: str) -> Table:
    """Return the read-only (256, 3) table of a map of the package `cmap`, as its authors published it.

    `_r` at the end of a name reverses the map. ValueError when `cmap` knows no such map.
    """
    import numpy as np  # here, as the window needs the colours above before it draws any value
    from cmap import Colormap  # 0.1 s, not paid by a command line that draws nothing

    rgb: Table = np.rint(Colormap(name).lut(256)[:, :3] * 255).astype(np.uint8)
    rgb.setflags(write=False)
    return rgb


@lru_cache(maxsize=4)
def colour_map(kind: Literal["diverging", "sequential"], dark: bool) -> Table:
    """Return the read-only (256, 3) default table of a theme, with zero in exactly the colour of the canvas.

    In a diverging table zero lies between entries 127 and 128, and both are the canvas; in a sequential table zero
    is entry 0. The published map is moved there, in sRGB, by a shift that fades with the square of the distance from
    zero: the far half of the map stays as published, and so does its room for the marks.
    """
    import numpy as np

    theme: Theme = "dark" if dark else "light"
    published = table((DIVERGING if kind == "diverging" else SEQUENTIAL)[theme]).astype(np.float64)
    entry = np.arange(256)
    distance = np.maximum(entry - 128, 127 - entry) / 127 if kind == "diverging" else entry / 255
    zero = published[distance == 0].mean(axis=0)
    canvas = np.array(list(bytes.fromhex(CANVAS[theme][1:])), dtype=np.float64)
    moved = published + (canvas - zero) * np.square(1 - distance)[:, np.newaxis]
    moved[distance == 0] = canvas  # the two middle entries of a published map differ by a unit
    rgb: Table = np.rint(moved).clip(0, 255).astype(np.uint8)
    rgb.setflags(write=False)
    return rgb
