"""The painted grid of the table: any number of rows and columns, of which only those in sight cost anything."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QAbstractSlider, QScrollBar, QToolTip, QWidget

from tensormorph.gui.painting import tooltip
from tensormorph.gui.table_blocks import BlockKey, Blocks, keys
from tensormorph.gui.table_keys import copy_form, target_of
from tensormorph.gui.table_paint import HEADER, PAD, ROW, Sight, TextCache, paint_sight
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.pyramid import Span
from tensormorph.text import count

Cell = tuple[int, int]
_BAR_MOST = 1 << 30
"""Largest value of a scroll bar, which counts in 32 bits; beyond as many rows it moves in larger steps."""
_NOTCH_ROWS = 3
_PAGES = {
    QAbstractSlider.SliderAction.SliderSingleStepAdd: (1, False),
    QAbstractSlider.SliderAction.SliderSingleStepSub: (-1, False),
    QAbstractSlider.SliderAction.SliderPageStepAdd: (1, True),
    QAbstractSlider.SliderAction.SliderPageStepSub: (-1, True),
}


class Grid(QAbstractScrollArea):
    """Cells between fixed headers. Positions are whole numbers of any size; a scroll bar only stands for them."""

    moved = Signal()
    """Other elements are in sight."""
    chosen = Signal(object)
    """The row and column of a cell that was chosen by mouse or keyboard."""
    stretched = Signal()
    """The selected rectangle has another size."""
    hovered = Signal(object)
    """The row and column under the pointer, or None."""
    copyWanted = Signal(str)  # noqa: N815
    """The selected elements are to be copied, in that form."""

    def __init__(self, blocks: Blocks, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._blocks, self._tokens = blocks, tokens
        self._number, self._shape, self._room = 0, (0, 0), 0
        self._labelled = (True, True)
        self._texts = TextCache()
        self._character = QFontMetricsF(self._texts.font).horizontalAdvance("0")
        self._top = self._left = 0
        self._gutter, self._cell = 0, 1.0
        self._anchor: Cell | None = None
        self._corner: Cell | None = None
        self._hover: Cell | None = None
        self._reveal_shown = self._placing = self._dragging = False
        self._turned = QPoint()
        self.setFrameShape(QAbstractScrollArea.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setMouseTracking(True)
        self.setAccessibleName("Table of values")
        self.setCornerWidget(QWidget())
        for bar, down in ((self.verticalScrollBar(), True), (self.horizontalScrollBar(), False)):
            bar.valueChanged.connect(lambda value, down=down: self._on_bar(value, down))
            bar.actionTriggered.connect(lambda action, down=down: self._on_action(action, down))

    # ------------------------------------------------------------ what is shown

    def open(self, number: int, shape: Cell, room: int, labelled: tuple[bool, bool]) -> None:
        """Show another plane from its first element on.

        Parameters
        ----------
        number
            Number of the plane in the blocks.
        shape
            Rows and columns.
        room
            Most characters of a cell.
        labelled
            Whether rows, and columns, are numbered: those of no axis are not.
        """
        self._number, self._shape, self._room, self._labelled = number, shape, room, labelled
        self._top = self._left = 0
        self._anchor = self._corner = self._hover = None
        label = QFontMetricsF(ui_font(11, 500))
        digits = label.horizontalAdvance(count(max(0, shape[0] - 1))) if labelled[0] else 0.0
        self._gutter = round(max(32.0, digits + 2 * PAD))
        widest = label.horizontalAdvance(count(max(0, shape[1] - 1))) if labelled[1] else 0.0
        self._room = max(room, -(-int(widest) // int(self._character)))
        self._cell = (self._room + 2) * self._character
        self._changed()

    @property
    def room(self) -> int:
        """Most characters of a cell, at least as asked for: the numbers of columns must fit too."""
        return self._room

    @property
    def top_left(self) -> Cell:
        """The first row and column in sight."""
        return self._top, self._left

    @property
    def sight(self) -> tuple[Span, Span]:
        """Rows and columns in sight: the last row maybe in part, but whole columns, as half a number is another one."""
        high = max(0, self.viewport().height() - HEADER)
        down, right = self._top + -(-high // ROW), self._left + self._page()[1]
        return (self._top, min(self._shape[0], down)), (self._left, min(self._shape[1], right))

    @property
    def keys(self) -> list[BlockKey]:
        """The blocks that hold what is in sight."""
        return keys(self._number, *self.sight)

    @property
    def selected(self) -> tuple[Span, Span] | None:
        """Rows and columns of the selected rectangle."""
        if self._anchor is None or self._corner is None:
            return None
        down, right = zip(self._anchor, self._corner, strict=True)
        return (min(down), max(down) + 1), (min(right), max(right) + 1)

    @property
    def anchor(self) -> Cell | None:
        """The chosen cell."""
        return self._anchor

    def point(self, cell: Cell | None) -> None:
        """Select one cell, or none, and move it into sight."""
        self._anchor = self._corner = cell
        self.stretched.emit()
        if cell is not None:
            self._reveal_shown = not self.isVisible()
            self.reveal(cell)
        self.viewport().update()

    def select(self, first: Cell, last: Cell) -> None:
        """Select a rectangle, and move its first cell into sight."""
        self.point(first)
        self._stretch_to(last)

    def reveal(self, cell: Cell) -> None:
        """Move a cell into sight: just so far if it is near, else into the middle."""
        top, left = (
            _revealing(at, first, page) for at, first, page in zip(cell, self.top_left, self._page(), strict=True)
        )
        self.scroll_to(top, left)

    def scroll_to(self, top: int, left: int) -> None:
        """Show another first row and column, as far as there are so many."""
        most = self._most()
        top, left = max(0, min(top, most[0])), max(0, min(left, most[1]))
        if (top, left) != (self._top, self._left):
            self._top, self._left = top, left
            self._changed()

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.viewport().update()

    def cell_rect(self, cell: Cell) -> QRect:
        """Return where a cell lies in the viewport."""
        return self._sight().rect(cell)

    def _page(self) -> Cell:
        """Whole rows and columns in sight, at least one."""
        high, wide = self.viewport().height() - HEADER, self.viewport().width() - self._gutter
        return max(1, high // ROW), max(1, int(wide / self._cell))

    def _most(self) -> Cell:
        """The last first row and column."""
        page = self._page()
        return max(0, self._shape[0] - page[0]), max(0, self._shape[1] - page[1])

    def _changed(self) -> None:
        """Put the bars where the view is, and tell."""
        before, self._placing = self._placing, True
        for bar, at, most, page in zip(self._bars(), self.top_left, self._most(), self._page(), strict=True):
            bar.setRange(0, _on_scale(most, most))
            bar.setPageStep(max(1, page // _step(most)))
            bar.setValue(_on_scale(at, most))
        self._placing = before
        self.viewport().update()
        self.moved.emit()

    def _bars(self) -> tuple[QScrollBar, QScrollBar]:
        return self.verticalScrollBar(), self.horizontalScrollBar()

    def _on_bar(self, value: int, down: bool) -> None:
        at, most = (self._top, self._most()[0]) if down else (self._left, self._most()[1])
        if self._placing or value == _on_scale(at, most):
            return  # it follows the view, which may lie between two of its steps
        place = min(most, value * _step(most))
        self.scroll_to(place if down else self._top, self._left if down else place)

    def _on_action(self, action: int, down: bool) -> None:
        """Step and page by rows, also where a step of the bar stands for many."""
        steps = _PAGES.get(QAbstractSlider.SliderAction(action))
        if steps is not None:
            by = steps[0] * (self._page()[0 if down else 1] if steps[1] else 1)
            self._scroll_by(by if down else 0, 0 if down else by)
            bar = self._bars()[0 if down else 1]
            bar.setSliderPosition(bar.value())

    def _scroll_by(self, down: int, right: int) -> None:
        self.scroll_to(self._top + down, self._left + right)

    # ------------------------------------------------------------ painting

    def _sight(self) -> Sight:
        rows, cols = self.sight
        return Sight(rows, cols, self._shape, self._labelled, self._gutter, self._cell, self._character, self._room)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        paint_sight(
            painter, self.viewport().rect(), self._sight(), {key: self._blocks.get(key) for key in self.keys},
            self._texts, self._tokens, self.selected, self._anchor, self.hasFocus(),
        )  # fmt: skip

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        most = self._most()
        self._top, self._left = min(self._top, most[0]), min(self._left, most[1])
        self._changed()
        if self._reveal_shown and self.isVisible() and self._anchor is not None:
            self._reveal_shown = False
            self.reveal(self._anchor)

    # ------------------------------------------------------------ pointer

    def cell_at(self, point: QPointF) -> Cell | None:
        """Return the cell at a point of the viewport."""
        rows, cols = self.sight
        if point.x() < self._gutter or point.y() < HEADER:
            return None
        cell = (
            self._top + int((point.y() - HEADER) // ROW),
            self._left + int((point.x() - self._gutter) // self._cell),
        )
        return cell if cell[0] < rows[1] and cell[1] < cols[1] else None

    def mousePressEvent(self, event: QMouseEvent) -> None:
        cell = self.cell_at(event.position())
        if event.button() == Qt.MouseButton.LeftButton and cell is not None:
            self._dragging = True
            self._choose(cell, bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._dragging = False

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._dragging:
            self._stretch(self._nearest(event.position()))
        else:
            self._hover_at(self.cell_at(event.position()))

    def _nearest(self, point: QPointF) -> Cell:
        """Return the cell nearest to a point, at most one row or column out of sight."""
        down = int((point.y() - HEADER) // ROW)
        right = int((point.x() - self._gutter) // self._cell)
        page = self._page()
        row = self._top + max(-1, min(down, page[0]))
        col = self._left + max(-1, min(right, page[1]))
        return max(0, min(row, self._shape[0] - 1)), max(0, min(col, self._shape[1] - 1))

    def _hover_at(self, cell: Cell | None) -> None:
        if cell != self._hover:
            self._hover = cell
            self.hovered.emit(cell)

    def wheelEvent(self, event: QWheelEvent) -> None:
        turned = event.angleDelta()
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and not turned.x():
            turned = turned.transposed()
        self._turned += turned
        # A fine wheel turns a little at a time: what makes no whole row yet is kept.
        down, right = int(self._turned.y() * _NOTCH_ROWS / 120), int(self._turned.x() / 120)
        self._turned -= QPoint(right * 120, down * 120 // _NOTCH_ROWS)
        self._scroll_by(-down, -right)
        self._hover_at(self.cell_at(event.position()))
        event.accept()

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self._hover_at(None)
        elif isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            cell = self.cell_at(QPointF(event.pos()))
            block = self._blocks.get(BlockKey.of(self._number, *cell)) if cell is not None else None
            problem = block.problem(*BlockKey.within(*cell)) if block is not None and cell is not None else None
            QToolTip.showText(event.globalPos(), "" if problem is None else tooltip(problem.sentence), self.viewport())
            return True
        return super().viewportEvent(event)

    # ------------------------------------------------------------ keyboard

    def event(self, event: QEvent) -> bool:
        # The window has a command of its own for the longer of these: here they copy elements.
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.ShortcutOverride and copy_form(event):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        form = copy_form(event)
        stretches = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        start = self._corner if stretches else self._anchor
        target = target_of(event, start, self.top_left, self._shape, self._page())
        if form is not None:
            self.copyWanted.emit(form)
        elif event.matches(QKeySequence.StandardKey.SelectAll) and all(self._shape):
            self._choose((0, 0), False)
            self._corner = (self._shape[0] - 1, self._shape[1] - 1)
            self._selection_changed()
        elif target is not None:
            self._choose(target, stretches)
        else:
            event.ignore()

    def _choose(self, cell: Cell, stretches: bool) -> None:
        if stretches and self._anchor is not None:
            self._stretch(cell)
            return
        self._anchor = self._corner = cell
        self.reveal(cell)
        self._selection_changed()
        self.chosen.emit(cell)

    def _stretch(self, cell: Cell) -> None:
        if cell != self._corner:
            self.reveal(cell)
            self._stretch_to(cell)

    def _stretch_to(self, cell: Cell) -> None:
        self._corner = cell
        self._selection_changed()

    def _selection_changed(self) -> None:
        self.viewport().update()
        self.stretched.emit()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.viewport().update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.viewport().update()


def _revealing(at: int, first: int, page: int) -> int:
    """Return the first row or column from which `at` is in sight."""
    if first <= at < first + page:
        return first
    if first - page <= at < first + 2 * page:
        return at if at < first else at - page + 1
    return at - page // 2


def _step(most: int) -> int:
    """Return how many rows or columns one step of a bar stands for."""
    return max(1, -(-most // _BAR_MOST))


def _on_scale(at: int, most: int) -> int:
    """Return where a bar stands for a first row or column; at its end for the last only."""
    return -(-most // _step(most)) if at >= most else at // _step(most)
