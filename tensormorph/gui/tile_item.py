"""The picture: tiles drawn on whole device pixels, the marks over them, the numbers in large cells, the crosshair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QLine, QPoint, QRect, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QImage, QPainter, QPen, QPixmap, QRegion, QTransform
from PySide6.QtWidgets import QGraphicsObject, QStyleOptionGraphicsItem, QWidget

from tensormorph.gui.camera import Camera, Lens, shows_numbers
from tensormorph.gui.jobs import Boxes, CellsResult, Drawn
from tensormorph.gui.shard_layer import ShardLayer
from tensormorph.gui.theme import DARK, LIGHT, Tokens, mono_font
from tensormorph.picture import Pixels
from tensormorph.pyramid import TILE, LevelOfDetail, TileKey

_MOST_BEHIND = 96
_HATCH = 6


@dataclass(slots=True, eq=False)
class _Picture:
    """A tile's pixels as Qt wants them, and what was made of them for the present camera."""

    drawn: Drawn
    image: QImage
    enlarged: tuple[Camera, QPoint, QImage] | None = None


def image_of(pixels: Pixels) -> QImage:
    """Return pixels as an image that shares their memory: keep the pixels as long as the image."""
    high, wide = pixels.shape
    return QImage(pixels.data, wide, high, 4 * wide, QImage.Format.Format_RGB32)


class TileItem(QGraphicsObject):
    """Draws what has come, over what stood there before; elements that have not come yet are grey, never a value."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self.shards = ShardLayer()
        self._shape = (0, 0)
        self._camera: Camera | None = None
        self._screen = QRectF()
        self._current: dict[TileKey, _Picture] = {}
        self._behind: dict[TileKey, _Picture] = {}
        self._needed: tuple[TileKey, ...] = ()
        self._cells: CellsResult | None = None
        self._crosshair: tuple[int, int] | None = None
        self._selected: tuple[int, int] | None = None
        self._focused = False

    # ------------------------------------------------------------ what to draw

    @property
    def current(self) -> dict[TileKey, Drawn]:
        """The tiles that are as the present camera and paint want them."""
        return {key: picture.drawn for key, picture in self._current.items()}

    def open(self, shape: tuple[int, int]) -> None:
        """Draw another plane, of which nothing has come yet."""
        self.prepareGeometryChange()
        self._shape = shape
        self._camera = None
        self._current, self._behind, self._needed = {}, {}, ()
        self._cells = self._crosshair = self._selected = None
        self.shards.open()
        self.update()

    def look(self, camera: Camera, screen: QRectF, needed: Sequence[TileKey]) -> None:
        """Look from another place; `screen` is the view box in the scene, `needed` the tiles in sight."""
        self._camera, self._screen, self._needed = camera, screen, tuple(needed)
        self.update()

    def repaint_all(self) -> None:
        """Let what is drawn stand behind the tiles that come now."""
        self._behind.update(self._current)
        for key in list(self._behind)[:-_MOST_BEHIND]:
            del self._behind[key]
        self._current = {}

    def put(self, key: TileKey, drawn: Drawn) -> None:
        """Draw a tile that has come."""
        self._current[key] = _Picture(drawn, image_of(drawn.pixels))
        if len(self._current) > 4 * _MOST_BEHIND:
            del self._current[next(iter(self._current))]
        if self._camera is not None:
            down, right = key.spans(self._shape)
            # Whole device pixels stand up to one beside their elements.
            y, x = 2 / self._camera.down.scale, 2 / self._camera.right.scale
            self.update(QRectF(right[0] - x, down[0] - y, right[1] - right[0] + 2 * x, down[1] - down[0] + 2 * y))

    def set_cells(self, cells: CellsResult | None) -> None:
        """Show the numbers of large cells."""
        self._cells = cells
        self.update()

    def point(self, crosshair: tuple[int, int] | None, selected: tuple[int, int] | None) -> None:
        """Show the crosshair at an element, and a frame round the selected one."""
        if (crosshair, selected) != (self._crosshair, self._selected):
            self._crosshair, self._selected = crosshair, selected
            self.update()

    def set_focused(self, focused: bool) -> None:
        """Frame the picture as what the keyboard moves."""
        self._focused = focused
        self.update()

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme, for all but the tiles."""
        self._tokens = tokens
        self.update()

    # ------------------------------------------------------------ painting

    def boundingRect(self) -> QRectF:
        return QRectF(0, 0, max(1, self._shape[1]), max(1, self._shape[0]))

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        camera = self._camera
        if camera is None or not all(self._shape):
            return
        painter.save()
        painter.resetTransform()
        # The window may lie at a fraction of a device pixel: begin on a whole one.
        base, ratio = painter.deviceTransform(), camera.ratio
        left = round(self._screen.left() * ratio + base.dx()) - base.dx()
        top = round(self._screen.top() * ratio + base.dy()) - base.dy()
        painter.setTransform(QTransform(1 / ratio, 0, 0, 1 / ratio, left / ratio, top / ratio))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
        sight = QRect(0, 0, camera.right.pixels, camera.down.pixels)
        whole = QRect(camera.right.origin, camera.down.origin, camera.right.extent, camera.down.extent)
        painter.setClipRect(sight)
        painter.fillRect(whole, QColor(self._tokens.neutbg))
        self._paint_tiles(painter, camera, sight)
        self._paint_marks(painter, camera, sight)
        self._paint_numbers(painter, camera)
        painter.setClipRect(whole.intersected(sight))
        self.shards.paint(painter, camera, self._tokens)
        painter.setClipRect(sight)
        self._paint_pointers(painter, camera, whole.intersected(sight))
        painter.setPen(QPen(QColor(self._tokens.accent if self._focused else self._tokens.border2), 1))
        painter.setClipping(False)
        painter.drawRect(whole.intersected(sight).adjusted(-1, -1, 0, 0))
        painter.restore()

    def _pictures(self) -> Iterable[tuple[TileKey, _Picture]]:
        """Give what is drawn, the coarser first; what stands behind only where something is still to come."""
        complete = all(key in self._current for key in self._needed)
        layers = [] if complete else [*sorted(self._behind.items(), key=lambda item: _coarseness(item[0]))]
        return [*layers, *sorted(self._current.items(), key=lambda item: _coarseness(item[0]))]

    def _place(self, key: TileKey, camera: Camera) -> QRect:
        """Return the device pixels of a tile."""
        down, right = key.spans(self._shape)
        top, left = camera.down.place(down[0]), camera.right.place(right[0])
        high = max(1, camera.down.place(down[1]) - top)
        wide = max(1, camera.right.place(right[1]) - left)
        return QRect(left + camera.right.origin, top + camera.down.origin, wide, high)

    def _paint_tiles(self, painter: QPainter, camera: Camera, sight: QRect) -> None:
        for key, picture in self._pictures():
            place = self._place(key, camera)
            seen = place.intersected(sight)
            if seen.isEmpty():
                continue
            if self._current.get(key) is not picture:
                painter.drawImage(place, picture.image)  # until the tile of this scale comes
            elif place.size() == picture.image.size():
                painter.drawImage(place.topLeft(), picture.image)
            else:
                if picture.enlarged is None or picture.enlarged[0] != camera:
                    image = self._enlarge(picture.drawn.pixels, key, place, seen, camera)
                    picture.enlarged = (camera, seen.topLeft(), image)
                painter.drawImage(picture.enlarged[1], picture.enlarged[2])

    def _enlarge(self, pixels: Pixels, key: TileKey, place: QRect, seen: QRect, camera: Camera) -> QImage:
        """Repeat pixels so that each device pixel in sight shows the block that holds its middle."""
        rows = _sources(camera.down, key.level.rows, seen.top() - place.top(), seen.height(), pixels.shape[0])
        cols = _sources(camera.right, key.level.cols, seen.left() - place.left(), seen.width(), pixels.shape[1])
        first, last = int(rows[0]), int(rows[-1]) + 1
        large = np.ascontiguousarray(pixels[first:last][:, cols][rows - first])
        return image_of(large).copy()

    def _boxes(self, boxes: Boxes, key: TileKey, picture: _Picture, camera: Camera, sight: QRect) -> list[QRect]:
        """Return boxes of a tile's pixels as device pixels in sight."""
        place = self._place(key, camera)
        high, wide = picture.drawn.pixels.shape
        rects = []
        for row, row_stop, col, col_stop in boxes:
            top, bottom = _edges(camera.down, key.level.rows, row, row_stop, high, place.height())
            left, right = _edges(camera.right, key.level.cols, col, col_stop, wide, place.width())
            rect = QRect(place.left() + left, place.top() + top, right - left, bottom - top)
            if rect.intersects(sight):
                rects.append(rect)
        return rects

    def _paint_marks(self, painter: QPainter, camera: Camera, sight: QRect) -> None:
        """Hatch what is missing, with an edge round it, and mark cells of NaN and infinities."""
        gap = QRegion()
        marked: dict[str, list[QRect]] = {"nan": [], "posinf": [], "neginf": []}
        for key, picture in self._pictures():
            if self._current.get(key) is not picture:
                continue
            for rect in self._boxes(picture.drawn.missing, key, picture, camera, sight):
                gap += rect.intersected(sight.adjusted(-2, -2, 2, 2))
            for kind, rects in marked.items():
                rects += self._boxes(getattr(picture.drawn, kind), key, picture, camera, sight)
        painter.setBrushOrigin(camera.right.origin, camera.down.origin)
        cell = (camera.right.tile // TILE, camera.down.tile // TILE)
        for kind, rects in marked.items():
            if rects:
                brush = QBrush(_mark(kind, *cell))
                for rect in rects:
                    painter.fillRect(rect.intersected(sight), brush)
        if not gap.isEmpty():
            inner = gap
            for shift in (QPoint(1, 0), QPoint(-1, 0), QPoint(0, 1), QPoint(0, -1)):
                inner = inner.intersected(gap.translated(shift))
            painter.setClipRegion(gap.intersected(sight))
            painter.fillRect(sight, QBrush(hatch(self._tokens.missing, round(_HATCH * camera.ratio))))
            painter.setClipRegion(gap.subtracted(inner).intersected(sight))
            painter.fillRect(sight, QColor(self._tokens.err))
            painter.setClipRect(sight)

    def _paint_numbers(self, painter: QPainter, camera: Camera) -> None:
        cells = self._cells
        if cells is None or not shows_numbers(camera):
            return
        rows, cols = cells.request.rows, cells.request.cols
        font = mono_font(11)
        font.setPixelSize(round(11 * camera.ratio))
        painter.setFont(font)
        dark, light = QColor(LIGHT.text), QColor(DARK.text)
        for key, picture in self._current.items():
            if key.level != LevelOfDetail():
                continue
            down, right = key.spans(self._shape)
            for row in range(max(rows[0], down[0]), min(rows[1], down[1])):
                for col in range(max(cols[0], right[0]), min(cols[1], right[1])):
                    shown = cells.texts[row - rows[0]][col - cols[0]]
                    if shown and shown[0] not in "NI" and shown[:2] != "−I":
                        top, bottom, left, end = camera.cell(row, col)
                        pixel = int(picture.drawn.pixels[row - down[0], col - right[0]])
                        painter.setPen(dark if _lightness(pixel) > 0.45 else light)
                        rect = QRect(left, top, end - left, bottom - top)
                        painter.drawText(rect, int(Qt.AlignmentFlag.AlignCenter), shown)

    def _paint_pointers(self, painter: QPainter, camera: Camera, whole: QRect) -> None:
        line = max(1, round(camera.ratio))
        if self._crosshair is not None:
            top, bottom, left, right = camera.cell(*self._crosshair)
            x, y, room = (left + right) // 2, (top + bottom) // 2, 4 * line
            strokes = [
                QLine(whole.left(), y, left - room, y),
                QLine(right + room, y, whole.right(), y),
                QLine(x, whole.top(), x, top - room),
                QLine(x, bottom + room, x, whole.bottom()),
            ]
            # Not through numbers, where the frame is large enough to be seen.
            strokes = [] if shows_numbers(camera) else [s for s in strokes if s.dx() > 0 or s.dy() > 0]
            painter.setPen(QPen(QColor(self._tokens.canvas), line))
            painter.drawLines(strokes)
            dashed = QPen(QColor(self._tokens.text), line)
            dashed.setDashPattern([3, 3])
            painter.setPen(dashed)
            painter.drawLines(strokes)
            self._frame(painter, camera, self._crosshair, self._tokens.text, line)
        if self._selected is not None:
            self._frame(painter, camera, self._selected, self._tokens.accent, 2 * line)

    def _frame(self, painter: QPainter, camera: Camera, element: tuple[int, int], colour: str, width: int) -> None:
        """Frame an element with a line and a halo of the opposite lightness."""
        top, bottom, left, right = camera.cell(*element)
        around = max(0, (round(6 * camera.ratio) - (bottom - top) + 1) // 2)
        beside = max(0, (round(6 * camera.ratio) - (right - left) + 1) // 2)
        rect = QRect(left, top, right - left, bottom - top).adjusted(-beside, -around, beside, around)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for k in range(width + 1):
            painter.setPen(QColor(self._tokens.canvas if k == width else colour))
            painter.drawRect(rect.adjusted(-k, -k, k - 1, k - 1))


def _coarseness(key: TileKey) -> tuple[int, int]:
    return (-key.level.rows - key.level.cols, -key.level.rows)


def _tile_pixels(lens: Lens, shift: int) -> int:
    """Return the device pixels of a tile of a level, of the lens's own or a coarser one."""
    return lens.tile << max(0, shift - lens.shift)


def _sources(lens: Lens, shift: int, first: int, n: int, n_pixels: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return which of a tile's pixels each of `n` device pixels shows, from the tile's `first` on."""
    at = np.arange(first, first + n, dtype=np.int64)
    tile = _tile_pixels(lens, shift)
    # Below 256 the pixels are device pixels already.
    return at if tile < TILE else np.minimum((2 * at + 1) * TILE // (2 * tile), n_pixels - 1)


def _edges(lens: Lens, shift: int, first: int, last: int, n_pixels: int, extent: int) -> tuple[int, int]:
    """Return the device pixels where a run of a tile's pixels begins and ends, from the tile's own first."""
    tile = _tile_pixels(lens, shift)
    if tile < TILE:
        return first, last
    begin, end = (-((TILE - 2 * i * tile) // (2 * TILE)) for i in (first, last))
    return begin, extent if last == n_pixels else end


def _lightness(pixel: int) -> float:
    red, green, blue = pixel >> 16 & 255, pixel >> 8 & 255, pixel & 255
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def hatch(colour: str, step: int) -> QImage:
    """Return a texture of lines at 45 degrees on nothing, `step` pixels apart."""
    image = QImage(step, step, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    for x in range(step):
        image.setPixelColor(x, step - 1 - x, QColor(colour))
    return image


def _mark(kind: str, wide: int, high: int) -> QPixmap:
    """Return the mark of a cell on nothing: a cross, or a triangle up or down."""
    image = QImage(wide, high, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    draw_mark(painter, kind, QRectF(0, 0, wide, high))
    painter.end()
    return QPixmap.fromImage(image)


def draw_mark(painter: QPainter, kind: str, rect: QRectF) -> None:
    """Draw the mark of NaN (a cross), +Inf or -Inf (a triangle) in the middle of a cell; its ground is not drawn."""
    side = min(rect.width(), rect.height()) * 0.44
    box = QRectF(rect.center().x() - side / 2, rect.center().y() - side / 2, side, side)
    if kind == "nan":
        painter.setPen(QPen(Qt.GlobalColor.white, max(1.0, side / 5)))
        painter.drawLine(box.topLeft(), box.bottomRight())
        painter.drawLine(box.topRight(), box.bottomLeft())
        return
    base, tip = (box.bottom(), box.top()) if kind == "posinf" else (box.top(), box.bottom())
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(LIGHT.text))
    centre = QPoint(round(box.center().x()), round(tip))
    painter.drawPolygon([QPoint(round(box.left()), round(base)), QPoint(round(box.right()), round(base)), centre])
