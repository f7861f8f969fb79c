"""The picture of a mesh: a cell a rank, drawn a few at a time; hovered, clicked and gone through by keys."""

from __future__ import annotations

import time

from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QPixmap, QResizeEvent
from PySide6.QtWidgets import QWidget

from tensormorph.gui.layout_words import axis_name
from tensormorph.gui.mesh_cells import Stamps, Style, draw_card, draw_number, number_font, style_of
from tensormorph.gui.mesh_grid import LABEL, STRIP_TOP, Grid, Panel, grid_of
from tensormorph.gui.painting import draw_text, fill_round, width_of
from tensormorph.gui.rank_map import Mark, RankMap
from tensormorph.gui.theme import Tokens, ui_font

SLICE_SECONDS = 0.003
"""Cells are drawn for so long at a time: a mesh of any size keeps the window answering."""
_CELLS_A_LOOK = 16
_MARGIN = 14
_LEFT = Qt.AlignmentFlag.AlignLeft
_BAND_FROM = 40
"""Height of a cell from which on a coordinate stands in a band."""
_VEIL = 40
"""Of the accent over the selected cell, in 255."""
_STEPS = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
}


class MeshPicture(QWidget):
    """Draws a RankMap; the cells are kept as one picture, over which only frames are drawn."""

    clicked = Signal(int)
    """The place on the mesh of a rank that was clicked, or gone to by a key."""
    hovered = Signal(object)
    """The place of the rank under the pointer, or None."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self.ranks: RankMap | None = None
        self.grid: Grid | None = None
        self.style_: Style = "tint"
        self._picture: QPixmap | None = None
        self._stamps: Stamps | None = None
        self._corners: tuple[list[int], list[int]] = ([], [])
        self._panels: list[Panel] = []
        self._drawn = 0
        self._selected: int | None = None
        self._under: int | None = None
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._draw_some)
        self.setMouseTracking(True)
        self.setMinimumSize(160, 120)
        self.setAccessibleName("Device mesh")

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self._begin()

    def show_ranks(self, ranks: RankMap | None) -> None:
        """Show another mesh."""
        self.ranks, self._under = ranks, None
        self._begin()

    def select(self, at: int | None) -> None:
        """Frame the rank at a place of the mesh."""
        if at != self._selected:
            self._selected = at
            self.update()

    @property
    def selected(self) -> int | None:
        """The place that is framed."""
        return self._selected

    @property
    def ready(self) -> bool:
        """Whether all cells are drawn."""
        return self._picture is not None and not self._timer.isActive()

    def cell(self, at: int) -> QRect:
        """Return where a rank is drawn."""
        if self.grid is None:
            return QRect()
        gap = self.grid.gap
        wide, high = self.grid.cell
        left, top = self._corners[0][at], self._corners[1][at]
        return QRect(_MARGIN + left, _MARGIN + top, max(1, wide - gap), max(1, high - gap))

    # ------------------------------------------------------------ drawing

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._begin()

    def _begin(self) -> None:
        """Lay the cells out and begin to draw them."""
        self._timer.stop()
        self._picture, self._drawn = None, 0
        if self.ranks is None:
            self.grid = None
            self.update()
            return
        grid = self.grid = grid_of(self.ranks.shape, self.width() - 2 * _MARGIN, self.height() - 2 * _MARGIN)
        left, top = grid.corners()
        self._corners = (left.tolist(), top.tolist())
        cell, ratio = self.cell(0), self.devicePixelRatioF()
        self.style_ = style_of(cell, max(self.ranks.ranks))
        self._stamps = Stamps(cell.width(), cell.height(), ratio, self._tokens, {})
        self._picture = QPixmap(round(self.width() * ratio), round(self.height() * ratio))
        self._picture.setDevicePixelRatio(ratio)
        self._picture.fill(Qt.GlobalColor.transparent)
        self._panels = list(grid.panels())
        self._timer.start()
        self.update()

    def _draw_some(self) -> None:
        """Draw strips and cells for a few milliseconds."""
        ranks, picture, stamps, grid = self.ranks, self._picture, self._stamps, self.grid
        if ranks is None or picture is None or stamps is None or grid is None:
            self._timer.stop()
            return
        until, n = time.perf_counter() + SLICE_SECONDS, len(ranks.ranks)
        painter = QPainter(picture)
        painter.setFont(ui_font(11))
        while self._panels and time.perf_counter() < until:
            self._draw_strips(painter, grid, self._panels.pop())
        painter.setFont(number_font(self.cell(0), max(ranks.ranks)) or ui_font(11))
        while not self._panels and self._drawn < n:
            for at in range(self._drawn, min(n, self._drawn + _CELLS_A_LOOK)):
                rect = self.cell(at)
                if self.style_ == "card":
                    draw_card(painter, rect, ranks, at, self._tokens)
                    continue
                share, mark = ranks.share(at), ranks.mark(at)
                painter.drawPixmap(rect.topLeft(), stamps.get(-1 if share is None else share.tint, mark))
                if self.style_ == "number":
                    draw_number(painter, rect, ranks, at, self._tokens)
            self._drawn = min(n, self._drawn + _CELLS_A_LOOK)
            if time.perf_counter() > until:
                break
        painter.end()
        if self._drawn >= n:
            self._timer.stop()
        self.update()

    def _draw_strips(self, painter: QPainter, grid: Grid, panel: Panel) -> None:
        """Draw the coordinates beside and above a panel, and the name of its block."""
        assert self.ranks is not None
        mesh, tokens, font = self.ranks.mesh, self._tokens, ui_font(11)
        x, y = _MARGIN + panel.left, _MARGIN + panel.top
        if grid.n_blocks > 1 and mesh is not None:
            rest, places = panel.block, list[str]()
            for axis in range(len(mesh.shape) - 3, -1, -1):
                rest, i = divmod(rest, mesh.shape[axis])
                places.insert(0, f"{axis_name(mesh, axis)} {i}")
            room = QRect(x + grid.strips[0], y, max(40, grid.band[1] * grid.cell[0]), LABEL - 4)
            draw_text(painter, room, ", ".join(places), tokens.text, ui_font(12, 500))
            painter.setFont(font)
            y += LABEL
        left, top = x + grid.strips[0], y + grid.strips[1] - (LABEL if grid.n_blocks > 1 else 0)
        wide, high = grid.cell
        if grid.strips[0]:
            name = axis_name(mesh, len(mesh.shape) - 2) if mesh is not None and len(mesh.shape) > 1 else ""
            numbers = range(*panel.rows) if grid.n_rows > 1 else range(panel.cols[0], panel.cols[0] + 1)
            step = _step(high, 14)
            named = bool(name) and width_of(f"{name} {grid.n_rows - 1}", font) <= grid.strips[0] - 14
            for n in range(0, len(numbers), step):
                i = numbers[n]
                room = QRect(x, top + n * high, grid.strips[0] - 8, max(14, high - grid.gap))
                self._draw_label(
                    painter, room, f"{name} {i}" if named else str(i), step == 1 and high >= _BAND_FROM, right=True
                )
        if top - y >= STRIP_TOP:
            name = axis_name(mesh, len(mesh.shape) - 1) if mesh is not None else ""
            longest = width_of(f"{name} {panel.cols[1] - 1}", font) + 4
            full = bool(name) and wide >= longest
            step = 1 if full else _step(wide, width_of(str(panel.cols[1] - 1), font) + 6)
            numbers = range(*panel.cols) if mesh is not None else range(0)
            for n in range(0, len(numbers), step):
                i = numbers[n]
                room = QRect(left + n * wide, top - STRIP_TOP, max(wide * step - grid.gap, 8), STRIP_TOP - 4)
                self._draw_label(painter, room, f"{name} {i}" if full else str(i), full)

    def _draw_label(self, painter: QPainter, room: QRect, words: str, band: bool, *, right: bool = False) -> None:
        """Draw a coordinate: in the middle of a band where there is room, else as a number at its cell."""
        if band:
            fill_round(painter, room, self._tokens.neutbg, 3)
        side = Qt.AlignmentFlag.AlignHCenter if band else Qt.AlignmentFlag.AlignRight if right else _LEFT
        painter.setPen(QColor(self._tokens.text2))
        painter.drawText(room, int(side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextDontClip), words)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        if self._picture is not None:
            painter.drawPixmap(0, 0, self._picture)
        for at, colour, thick in (
            (self._under, self._tokens.border2, 1.0),
            (self._selected, self._tokens.accent, 2.0),
        ):
            if at is not None and self.grid is not None:
                painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                painter.setPen(QPen(QColor(colour), thick))
                veil = QColor(colour)
                veil.setAlpha(_VEIL if at == self._selected else 0)
                painter.setBrush(veil)
                out = thick / 2 if self.grid.gap >= 2 else thick
                painter.drawRoundedRect(QRectF(self.cell(at)).adjusted(-out, -out, out, out), 5, 5)

    # ------------------------------------------------------------ pointer and keys

    def place_at(self, point: QPoint) -> int | None:
        """Return the place on the mesh at a point of the picture."""
        return None if self.grid is None else self.grid.at(point.x() - _MARGIN, point.y() - _MARGIN)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._hover(self.place_at(event.position().toPoint()))

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(None)

    def _hover(self, at: int | None) -> None:
        if at != self._under:
            self._under = at
            self.update()
            self.hovered.emit(at)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        at = self.place_at(event.position().toPoint())
        if at is not None and event.button() == Qt.MouseButton.LeftButton:
            self.clicked.emit(at)

    def step(self, event: QKeyEvent) -> bool:
        """Go to the neighbour of the selected rank that an arrow points at; return whether it was an arrow."""
        grid = self.grid
        if event.key() not in _STEPS or grid is None or self.ranks is None:
            return False
        if self._selected is None:
            self.clicked.emit(0)
            return True
        down, right = _STEPS[Qt.Key(event.key())]
        centre = self.cell(self._selected).center() - QPoint(_MARGIN, _MARGIN)
        # Where the next cell belongs to another panel, the strips between them are skipped.
        for skip in (0, grid.pitch[0] - grid.band[1] * grid.cell[0], grid.pitch[1] - grid.band[0] * grid.cell[1]):
            point = centre + QPoint(right * (grid.cell[0] + skip), down * (grid.cell[1] + skip))
            at = grid.at(point.x(), point.y())
            if at is not None:
                self.clicked.emit(at)
                break
        return True


def _step(pixels: int, least: int) -> int:
    """Return the power of two of cells after which there is room for one more label."""
    step = 1
    while step * pixels < least:
        step *= 2
    return step


def marks_in_use(ranks: RankMap) -> list[Mark]:
    """Return the marks that a mesh shows, the mildest first."""
    return sorted({Mark(int(mark)) for mark in set(ranks.marks.tolist())})
