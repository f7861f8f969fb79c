"""What crosses between the GUI thread and the threads that read: requests and results, values both ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.dtypes import text
from tensormorph.errors import Problem, TensormorphError
from tensormorph.model import Holder, LogicalTensor
from tensormorph.picture import Paint, Pixels, boxes, picture, to_pixels
from tensormorph.pyramid import LevelOfDetail, Plane, Span, Tile, TileKey, problem_of
from tensormorph.survey import Survey

Boxes = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What the screen shows.

    Fields
    ------
    keys
        Tiles of the level that fits, the most wanted first.
    sample_keys
        Tiles to sample first, of that level or a coarser one; none where exact ones come soon enough.
    exact_bytes
        Most bytes that may be read for exact tiles; 0 reads none.
    along_rows
        Whether tiles in one row, rather than in one column, lie together in storage.
    paint, paint_number
        How to colour; the number changes when the paint, the plane or the scale does.
    level
        Level of `keys`.
    tile_pixels
        Device pixels that a whole tile of `level` takes, down and to the right; below 256, blocks are folded.
    marks
        Whether cells are large enough for the marks of NaN and the infinities.
    drawn
        Tiles that the screen has in this paint, and whether exactly.
    """

    plane: Plane
    keys: tuple[TileKey, ...]
    sample_keys: tuple[TileKey, ...]
    exact_bytes: int
    along_rows: bool
    paint: Paint
    paint_number: int
    level: LevelOfDetail
    tile_pixels: tuple[int, int]
    marks: bool
    drawn: Mapping[TileKey, bool] = field(default_factory=dict)
    wanted: frozenset[TileKey] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wanted", frozenset((*self.keys, *self.sample_keys)))


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A tile as pixels, one a block or one a device pixel, and boxes of pixels ``(row, stop, col, stop)`` by mark."""

    pixels: Pixels
    exact: bool
    step: int
    missing: Boxes = ()
    nan: Boxes = ()
    posinf: Boxes = ()
    neginf: Boxes = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TileResult:
    """A tile that was read or coloured; or, with `problem`, why it was not, and with `needed` the bytes over limit."""

    key: TileKey
    paint_number: int
    tile: Tile | None
    drawn: Drawn | None
    problem: Problem | None = None
    needed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SurveyResult:
    """The range of the plane of that number, or why it is not known."""

    number: int
    survey: Survey | None
    problem: Problem | None


@dataclass(frozen=True, slots=True, eq=False)
class ElementRequest:
    """One element of a tensor, for the plane of that number."""

    plane_number: int
    tensor: LogicalTensor
    index: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ElementResult:
    """An element as text and as float64 (magnitude of a complex one), with who holds it; or why it has no value."""

    plane_number: int
    index: tuple[int, ...]
    text: str
    value: float | None
    holders: tuple[Holder, ...]
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CellsRequest:
    """The elements of a small rectangle as texts of at most `n_characters`."""

    plane_number: int
    plane: Plane
    rows: Span
    cols: Span
    n_characters: int


@dataclass(frozen=True, slots=True, eq=False)
class CellsResult:
    """Texts by row and column of the request; empty where an element cannot be read or its text does not fit."""

    request: CellsRequest
    texts: tuple[tuple[str, ...], ...]
    rounded: bool


def draw(key: TileKey, tile: Tile, view: View) -> Drawn:
    """Colour a tile as a view wants it."""
    high = view.tile_pixels[0] << max(0, key.level.rows - view.level.rows)
    wide = view.tile_pixels[1] << max(0, key.level.cols - view.level.cols)
    small = to_pixels(tile, high, wide)

    def marked(mask: NDArray[np.bool_], wanted: bool = True) -> Boxes:
        return tuple(boxes(mask)) if wanted and mask.any() else ()

    return Drawn(
        picture(small, view.paint),
        tile.exact,
        tile.step,
        marked(small.missing),
        marked(small.n_nan > 0, view.marks),
        marked((small.n_posinf > 0) & (small.n_nan == 0), view.marks),
        marked((small.n_neginf > 0) & (small.n_posinf == 0) & (small.n_nan == 0), view.marks),
        tile.problems,
    )


def read_element(request: ElementRequest, on_read: Callable[[int], None]) -> ElementResult:
    """Read one element through the whole tensor, never from a tile."""
    tensor, index = request.tensor, request.index
    holders: tuple[Holder, ...] = ()
    try:
        holders = tuple(tensor.where(index))
        value = tensor.full()[index][()]
        on_read(sum(holder.n_bytes or 0 for holder in holders[:1]))
        return ElementResult(request.plane_number, index, text(value), _real(value), holders)
    except Exception as error:  # the card says what is wrong with this element
        return ElementResult(request.plane_number, index, "", None, holders, problem_of(error, None))


def _real(value: Any) -> float:
    return float(abs(value)) if np.iscomplexobj(value) else float(value)


def read_cells(request: CellsRequest, on_read: Callable[[int], None]) -> CellsResult:
    """Read the elements of a rectangle, row by row where not all of it can be read."""
    rounded = False
    lines: list[tuple[str, ...]] = []
    for row in range(*request.rows):
        values = _read_row(request, row, on_read)
        line: list[str] = []
        for value in values if values is not None else ():
            shown, exact = fitting(value, request.n_characters)
            rounded = rounded or (bool(shown) and not exact)
            line.append(shown)
        lines.append(tuple(line) or ("",) * (request.cols[1] - request.cols[0]))
    return CellsResult(request, tuple(lines), rounded)


def _read_row(request: CellsRequest, row: int, on_read: Callable[[int], None]) -> list[Any] | None:
    source = request.plane.source
    region = request.plane.region((row, row + 1), request.cols)
    try:
        values = np.empty(region.shape, source.dtype)
        n_bytes = 0
        for piece in source.pieces(region, 1 << 20):
            if piece.problem is not None:
                return None
            n_bytes += piece.nbytes
        source.read_into(region, values)
    except (TensormorphError, OSError):
        return None  # the picture marks what is missing, and says why
    on_read(n_bytes)
    return list(values.reshape(-1))


def fitting(value: Any, n_characters: int) -> tuple[str, bool]:
    """Return a value's text if it fits, else rounded to as many digits as do, and whether it is unrounded.

    The empty text where not even one digit fits.
    """
    whole = text(value)
    if len(whole) <= n_characters:
        return whole.replace("-", "−"), True
    if np.iscomplexobj(value) or not np.isfinite(float(value)):
        return "", False
    for digits in range(min(n_characters, 15), 0, -1):
        for form in (f"{float(value):.{digits}g}", f"{float(value):.{digits - 1}e}"):
            shown = re.sub(r"e([-+])0?", lambda sign: "e" + sign[1].strip("+"), form)
            if len(shown) <= n_characters:
                return shown.replace("-", "−"), False
    return "", False
