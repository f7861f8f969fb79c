"""The picture with its axes: a pyqtgraph view box that moves only as it is told, and says what the pointer does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QWidget

from tensormorph.gui.axes import ElementAxis
from tensormorph.gui.camera import Camera
from tensormorph.gui.mesh_strips import Band, MeshStrip
from tensormorph.gui.theme import Tokens
from tensormorph.gui.tile_item import TileItem
from tensormorph.pyramid import TileKey

_RIGHT = 12
_BELOW = 12
_FRAME = 1
"""Logical pixels round the picture for its frame, which must hide no element."""

# By default pyqtgraph drops moves that follow fast on one another, the last one too: the card would then stand at an
# element that the pointer has left.
pg.setConfigOption("mouseRateLimit", 0)


class _Box(pg.ViewBox):  # type: ignore[misc]  # pyqtgraph has no types
    """Announces wheel, drag, click and hover in scene coordinates, and does nothing by itself."""

    wheeled = Signal(QPointF, float)
    dragged = Signal(QPointF)
    clicked = Signal(QPointF)
    hovered = Signal(object)

    def __init__(self) -> None:
        super().__init__(enableMenu=False, enableMouse=False, invertY=True, defaultPadding=0)
        self._carried = QPointF()

    def wheelEvent(self, event: Any, axis: int | None = None) -> None:
        event.accept()
        self.wheeled.emit(event.scenePos(), event.delta() / 120)

    def mouseDragEvent(self, event: Any, axis: int | None = None) -> None:
        event.accept()
        self.dragged.emit(QPointF(event.scenePos() - event.lastScenePos()))

    def mouseClickEvent(self, event: Any) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            event.accept()
            self.clicked.emit(QPointF(event.scenePos()))

    def hoverEvent(self, event: Any) -> None:
        self.hovered.emit(None if event.isExit() else QPointF(event.scenePos()))


class PictureBox(pg.GraphicsLayoutWidget):  # type: ignore[misc]
    """Axes left and above, the picture in between. Device pixels are counted from the picture's top left corner."""

    wheeled = Signal(int, int, float)
    """Device pixel down and right, notches away from the person."""
    dragged = Signal(QPointF)
    """Logical pixels that the pointer moved with a button down."""
    clicked = Signal(int, int)
    hovered = Signal(object)
    """Device pixel ``(down, right)``, or None."""
    resized = Signal()

    def __init__(self, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setFrameShape(self.Shape.NoFrame)
        self.ci.layout.setContentsMargins(6, 6, _RIGHT, _BELOW)
        self.ci.layout.setSpacing(0)
        self.box = _Box()
        self.top, self.left = ElementAxis("top", tokens), ElementAxis("left", tokens)
        self.strips = MeshStrip("left", self.box, tokens), MeshStrip("top", self.box, tokens)
        self.ci.addItem(self.strips[1], 0, 2)
        self.ci.addItem(self.top, 1, 2)
        self.ci.addItem(self.strips[0], 2, 0)
        self.ci.addItem(self.left, 2, 1)
        self.ci.addItem(self.box, 2, 2)
        self.top.linkToView(self.box)
        self.left.linkToView(self.box)
        self.tiles = TileItem(tokens)
        self.box.addItem(self.tiles, ignoreBounds=True)
        self._carried = QPointF()
        self.box.wheeled.connect(lambda at, notches: self.wheeled.emit(*self.pixel(at), notches))
        self.box.dragged.connect(self.dragged)
        self.box.clicked.connect(lambda at: self.clicked.emit(*self.pixel(at)))
        self.box.hovered.connect(lambda at: self.hovered.emit(None if at is None else self.pixel(at)))
        self.box.sigResized.connect(lambda _: self.resized.emit())
        self.set_tokens(tokens)

    @property
    def screen(self) -> QRectF:
        """The picture's place in the widget, in logical pixels."""
        return QRectF(self.box.sceneBoundingRect().adjusted(_FRAME, _FRAME, -_FRAME, -_FRAME))

    @property
    def pixels(self) -> tuple[int, int]:
        """Device pixels of the picture, down and to the right."""
        ratio = self.devicePixelRatioF()
        return max(1, int(self.screen.height() * ratio)), max(1, int(self.screen.width() * ratio))

    def pixel(self, at: QPointF) -> tuple[int, int]:
        """Return the device pixel ``(down, right)`` of a point of the scene."""
        ratio = self.devicePixelRatioF()
        corner = self.screen.topLeft()
        return int((at.y() - corner.y()) * ratio // 1), int((at.x() - corner.x()) * ratio // 1)

    def open(self, shape: tuple[int, int]) -> None:
        """Show another plane, of which nothing has come yet."""
        self.tiles.open(shape)
        self.left.set_extent(shape[0])
        self.top.set_extent(shape[1])

    def look(self, camera: Camera, needed: Sequence[TileKey]) -> None:
        """Show what a camera sees."""
        down, right = camera.down, camera.right
        # The box is larger by the frame; its range is what a ruler laid along it would read.
        ratio, place, screen = camera.ratio, self.box.sceneBoundingRect(), self.screen
        x, y = ((place.left() - screen.left()) * ratio, (place.top() - screen.top()) * ratio)
        wide, high = place.width() * ratio, place.height() * ratio
        self.box.setRange(
            xRange=(right.position(x), right.position(x + wide)),
            yRange=(down.position(y), down.position(y + high)),
            padding=0,
        )
        self.tiles.look(camera, self.screen, needed)
        self.left.redraw()
        self.top.redraw()
        for strip in self.strips:
            strip.update()

    def show_bands(self, down: tuple[Band, ...], right: tuple[Band, ...]) -> None:
        """Show coordinates of a mesh beside the rows and above the columns."""
        self.strips[0].show_bands(down)
        self.strips[1].show_bands(right)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self.setBackground(QColor(tokens.canvas))
        self.top.set_tokens(tokens)
        self.left.set_tokens(tokens)
        self.tiles.set_tokens(tokens)
        for strip in self.strips:
            strip.set_tokens(tokens)
