"""How the Outliner draws and moves: whole rows painted, a stepper for folded layers, guide lines."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QModelIndex, QPersistentModelIndex, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import QAbstractItemView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QTreeView, QWidget

from tensormorph.gui.outline import ROOT, Kind
from tensormorph.gui.painting import (
    SEVERITY_ICON,
    draw_badge,
    draw_icon,
    draw_line,
    draw_pill,
    draw_text,
    fill_round,
    severity_colours,
    width_of,
)
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.gui.tree_model import OutlineModel

AnyIndex = QModelIndex | QPersistentModelIndex
ROW = 24
_LEVEL = 12
_EDGE = 12
_STEPPER = 68
_ICONS = {
    Kind.TENSOR: "tensor", Kind.SLOT: "corner-down-right", Kind.ALIAS: "copies", Kind.UNREADABLE: "square-dashed",
    Kind.OBJECT: "box", Kind.FILE: "file", Kind.FILES: "hard-drive",
}  # fmt: skip
_NUMBERED = (Kind.MODULE, Kind.TENSOR, Kind.SLOT)


def stepper_rect(row: QRect) -> QRect:
    """Return where the stepper of a folded row stands."""
    return QRect(row.right() - _EDGE - _STEPPER, row.y() + 2, _STEPPER, row.height() - 4)


class OutlineDelegate(QStyledItemDelegate):
    """Paints label, shape, badge and stepper of a row; the rectangle it gets begins at the label's indent."""

    def __init__(self, model: OutlineModel, tokens: Tokens, parent: QWidget) -> None:
        super().__init__(parent)
        self._model = model
        self._open = False
        self.tokens = tokens
        self._body, self._strong = ui_font(13), ui_font(13, 500)
        self._small, self._heading = ui_font(11), ui_font(11, 600)

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(200, ROW)

    def paint_row(self, painter: QPainter, rect: QRect, index: AnyIndex, *, selected: bool, open_: bool) -> None:
        """Paint a row's content; `open_` says whether its children show."""
        option = QStyleOptionViewItem()
        option.rect = rect
        if selected:
            option.state |= QStyle.StateFlag.State_Selected
        self._open = open_
        self.paint(painter, option, index)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        model, tokens = self._model, self.tokens
        node = index.internalId()
        kind = model.kind(node)
        rect: QRect = option.rect
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        if kind is Kind.HEADING:
            draw_text(painter, rect.adjusted(-18, 4, 0, 0), model.label(node), tokens.text3, self._heading)
            return
        right = rect.right() - _EDGE
        group = model.group_at(node)
        severity = model.severity(node, self._open)
        faint = tokens.text2 if selected else tokens.text3
        if group is not None:
            right = self._paint_stepper(painter, rect, group[0].numbers[group[1]]) - 8
        if severity is not None:
            draw_badge(painter, QRect(right - 17, rect.y(), 18, ROW), SEVERITY_ICON[severity],
                       severity_colours(tokens, severity))  # fmt: skip
            right -= 26
        detail = model.detail(node, self._open)
        room = right - rect.x()
        label, font = model.label(node), self._strong if selected else self._body
        if detail:
            width = width_of(detail, self._small)
            if kind not in _NUMBERED:  # a path may be cut, a shape never
                width = min(width, max(room // 3, room - width_of(label, font) - 32))
            box = QRect(right - width + 1, rect.y(), width, ROW)
            # A path tells most by its end, a summary by its beginning.
            elide = Qt.TextElideMode.ElideRight if kind is Kind.OBJECT else Qt.TextElideMode.ElideMiddle
            draw_text(painter, box, detail, faint, self._small, right=True, elide=elide)
            right -= width + 8
        left = rect.x()
        if kind in _ICONS:
            colour = tokens.accent if selected else tokens.text3 if kind is Kind.UNREADABLE else tokens.text2
            draw_icon(painter, QRect(left, rect.y(), 16, ROW), _ICONS[kind], colour, 14)
            left += 22
        colour = tokens.text2 if kind in (Kind.SLOT, Kind.ALIAS) else tokens.text
        if kind is Kind.UNREADABLE:
            colour = tokens.text3
        reserved = 34 if group is not None else 0
        box = QRect(left, rect.y(), max(0, right - left - reserved), ROW)
        width = draw_text(painter, box, label, colour, font)
        if group is not None:
            text = f"× {len(group[0].members)}"
            draw_pill(painter, left + width + 8, rect.center().y() + 1, text, tokens.text2, tokens.neutbg, self._small)

    def _paint_stepper(self, painter: QPainter, rect: QRect, number: str) -> int:
        box = stepper_rect(rect)
        fill_round(painter, box, self.tokens.field, 5, self.tokens.border2)
        third = 20
        draw_icon(painter, QRect(box.x(), box.y(), third, box.height()), "chevron-left", self.tokens.text3, 12)
        draw_icon(painter, QRect(box.right() - third + 1, box.y(), third, box.height()), "chevron-right",
                  self.tokens.text3, 12)  # fmt: skip
        painter.setFont(self._small)
        painter.setPen(self.tokens.text)
        painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter), number[-5:])
        return box.x()


class OutlineTree(QTreeView):
    """The tree of modules, tensors, objects and files."""

    stepped = Signal(int, int)  # node, by
    typed = Signal(str)

    def __init__(self, model: OutlineModel, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._tokens = tokens
        self._hovered = QPersistentModelIndex()
        self._delegate = OutlineDelegate(model, tokens, self)
        self.setModel(model)
        self.setItemDelegate(self._delegate)
        self.setHeaderHidden(True)
        self.setUniformRowHeights(True)
        self.setIndentation(_LEVEL)
        self.setExpandsOnDoubleClick(True)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setMouseTracking(True)
        self.setAccessibleName("Tensors, objects and files")

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = self._delegate.tokens = tokens
        self.viewport().update()

    # ------------------------------------------------------------ painting

    def drawRow(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        item = self.visualRect(index)
        row = QRect(0, item.y(), self.viewport().width(), item.height())
        node, tokens = index.internalId(), self._tokens
        selected = self.selectionModel().isSelected(index)
        heading = self._model.kind(node) is Kind.HEADING
        if selected:
            ground = row.adjusted(6, 0, -6, 0)
            fill_round(painter, ground, tokens.accentbg if self.hasFocus() else tokens.selin, 5)
            fill_round(painter, QRect(6, row.y() + 5, 2, row.height() - 10), tokens.accent, 1)
        elif index == self._hovered and not heading:
            fill_round(painter, row.adjusted(6, 0, -6, 0), tokens.hover, 5)
        if heading:
            if index.row():
                draw_line(painter, _EDGE, row.y() + 3, row.right() - _EDGE, row.y() + 3, tokens.border)
        else:
            self._draw_guides(painter, row, index)
        # At level d the arrow is centred at 21 + 12 d, the label begins 11 to its right.
        left = item.x() - _LEVEL + 32
        open_ = self.isExpanded(index)
        self._delegate.paint_row(painter, row.adjusted(left, 0, 0, 0), index, selected=selected, open_=open_)

    def _draw_guides(self, painter: QPainter, row: QRect, index: AnyIndex) -> None:
        level, top = 0, index
        while top.parent().isValid():
            level, top = level + 1, top.parent()
        # What stands under a heading hangs on no module: no line leads up to it.
        first = 1 if self._model.kind(top.internalId()) is Kind.HEADING else 0
        for k in range(first, level):
            draw_line(painter, 20 + _LEVEL * k, row.y(), 20 + _LEVEL * k, row.bottom(), self._tokens.border)
        if self._model.hasChildren(index):
            name = "chevron-down" if self.isExpanded(index) else "chevron-right"
            draw_icon(painter, QRect(14 + _LEVEL * level, row.y(), 14, row.height()), name, self._tokens.text2, 14)

    def drawBranches(self, painter: QPainter, rect: QRect, index: QModelIndex | QPersistentModelIndex) -> None:
        """Draw nothing: rows are painted whole."""

    # ------------------------------------------------------------ pointer and keys

    def _stepper_hit(self, pos: QPoint) -> tuple[int, int] | None:
        """Return the node and direction of the stepper arrow at a place."""
        index = self.indexAt(pos)
        if not index.isValid() or self._model.group_at(index.internalId()) is None:
            return None
        item = self.visualRect(index)
        box = stepper_rect(QRect(0, item.y(), self.viewport().width(), item.height()))
        if not box.contains(pos):
            return None
        return index.internalId(), -1 if pos.x() < box.center().x() else 1

    def mousePressEvent(self, event: QMouseEvent) -> None:
        pos = event.position().toPoint()
        hit = self._stepper_hit(pos)
        if hit is not None and event.button() == Qt.MouseButton.LeftButton:
            self.stepped.emit(*hit)
            event.accept()
            return
        index = self.indexAt(pos)
        if index.isValid() and event.button() == Qt.MouseButton.LeftButton and self._model.hasChildren(index):
            # The whole row of a module opens it, as there is nothing to select in it; Qt's own arrow lies elsewhere.
            in_arrow = pos.x() < self.visualRect(index).x() + 20
            if in_arrow or not self._model.name_of(index.internalId()):
                self.setExpanded(index, not self.isExpanded(index))
            if self._model.flags(index) & Qt.ItemFlag.ItemIsSelectable:
                self.setCurrentIndex(index)
            event.accept()
            return
        super().mousePressEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        if index.isValid() and self._model.hasChildren(index):
            self.mousePressEvent(event)  # the second of two quick clicks counts as a click
            return
        super().mouseDoubleClickEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._hover(self.indexAt(event.position().toPoint()))
        super().mouseMoveEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(QModelIndex())
        super().leaveEvent(event)

    def _hover(self, index: QModelIndex) -> None:
        if index == self._hovered:
            return
        for changed in (self._hovered, index):
            if changed.isValid():
                y = self.visualRect(changed).y()
                self.viewport().update(0, y, self.viewport().width(), ROW)
        self._hovered = QPersistentModelIndex(index)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.text() in (",", ".") and not event.modifiers():
            self.stepped.emit(self._model.node(self.currentIndex()) or ROOT, -1 if event.text() == "," else 1)
            return
        super().keyPressEvent(event)

    def keyboardSearch(self, search: str) -> None:
        """Hand typed letters to the filter: Qt's own search would ask a hundred thousand rows for their text."""
        self.typed.emit(search)
