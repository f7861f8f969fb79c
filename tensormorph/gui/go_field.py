"""The field at the top: go to a tensor by any part of its name, or to an element of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QFocusEvent, QKeyEvent, QKeySequence, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from tensormorph.errors import UsageError
from tensormorph.gui.background import Lane
from tensormorph.gui.icons import icon
from tensormorph.gui.painting import draw_icon, draw_text, fill_round
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.text import printable

_ROW = 28
_MOST = 50
_ROWS_SHOWN = 12
Index = QModelIndex | QPersistentModelIndex
Find = Callable[[str, int], list[str]]


class _Names(QAbstractListModel):
    def __init__(self) -> None:
        super().__init__()
        self.names: Sequence[str] = ()

    def show(self, names: Sequence[str]) -> None:
        self.beginResetModel()
        self.names = names
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self.names)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and index.isValid():
            return printable(self.names[index.row()])
        return None


class _NameDelegate(QStyledItemDelegate):
    def __init__(self, names: _Names, tokens: Tokens, parent: QListView) -> None:
        super().__init__(parent)
        self._names = names
        self.tokens = tokens

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, _ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        rect: QRect = option.rect
        if option.state & QStyle.StateFlag.State_Selected:
            fill_round(painter, rect, self.tokens.accentbg, 5)
        draw_icon(painter, QRect(rect.x() + 8, rect.y(), 16, rect.height()), "tensor", self.tokens.text2, 14)
        name = printable(self._names.names[index.row()])
        box = rect.adjusted(32, 0, -8, 0)
        # The end of a name tells more than its beginning, which many share.
        draw_text(painter, box, name, self.tokens.text, ui_font(13), elide=Qt.TextElideMode.ElideMiddle)


class _Popup(QWidget):
    """The answers below the field; a child of the window, so that it never takes the focus."""

    def __init__(self, window: QWidget, tokens: Tokens) -> None:
        super().__init__(window)
        self.tokens = tokens
        self.names = _Names()
        self.list = QListView()
        self.delegate = _NameDelegate(self.names, tokens, self.list)
        self.list.setModel(self.names)
        self.list.setItemDelegate(self.delegate)
        self.list.setUniformItemSizes(True)
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setStyleSheet("background: transparent")
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        column = QVBoxLayout(self)
        column.setContentsMargins(5, 5, 5, 5)
        column.addWidget(self.list)
        self.hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        fill_round(QPainter(self), self.rect(), self.tokens.raised, 6, self.tokens.border2)


class GoField(QLineEdit):
    """Words find tensors; Enter goes to the chosen one. `:5,7` goes to an element; with nothing open, a path opens."""

    nameChosen = Signal(str)  # noqa: N815
    elementWanted = Signal(str)  # noqa: N815
    pathEntered = Signal(str)  # noqa: N815

    def __init__(self, window: QWidget, tokens: Tokens) -> None:
        super().__init__(window)
        self._tokens = tokens
        self._find: Find | None = None
        self._lane = Lane("go to")
        self.popup = _Popup(window, tokens)
        self.setMaxLength(4000)
        self.setMaximumWidth(480)
        self.setMinimumWidth(160)
        self.setFixedHeight(28)
        self.setAccessibleName("Go to tensor")
        self._glass = self.addAction(icon("search", tokens.text3), QLineEdit.ActionPosition.LeadingPosition)
        self.textEdited.connect(self._edited)
        self.popup.list.clicked.connect(self._choose)
        self.set_find(None)

    def sizeHint(self) -> QSize:
        return QSize(480, 28)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = self.popup.tokens = self.popup.delegate.tokens = tokens
        self._glass.setIcon(icon("search", tokens.text3))
        self.update()

    def set_find(self, find: Find | None) -> None:
        """Take the search of another checkpoint; None while none is open."""
        self._find = find
        self._lane.drop()
        self.clear()
        self.popup.hide()
        self.setPlaceholderText("Open a path" if find is None else "Go to tensor")
        self.setToolTip("" if find is None else "Words of the name; :5,7 goes to an element")

    def begin(self, text: str = "") -> None:
        """Put the cursor into the field, with `text` in it."""
        self.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.setText(text)  # after the focus, which would select it all
        self._edited(text)

    def _edited(self, text: str) -> None:
        find, query = self._find, text.strip()
        if find is None or not query or query.startswith(":"):
            self._lane.drop()
            self.popup.hide()
            return
        self._lane.ask(lambda: find(query, _MOST), self._show, self._failed)

    def _failed(self, error: Exception) -> None:
        self.popup.hide()
        if not isinstance(error, UsageError):  # a query half typed is no failure
            raise error

    def _show(self, names: list[str]) -> None:
        if not self.hasFocus() or not self.text():
            return
        self.popup.names.show(names)
        if not names:
            self.popup.hide()
            return
        self.popup.list.setCurrentIndex(self.popup.names.index(0))
        corner = self.mapTo(self.window(), QPoint(0, self.height() + 4))
        rows = min(len(names), _ROWS_SHOWN)
        self.popup.setGeometry(corner.x(), corner.y(), max(self.width(), 320), rows * _ROW + 12)
        self.popup.show()
        self.popup.raise_()

    def _choose(self, index: QModelIndex) -> None:
        if index.isValid():
            name = self.popup.names.names[index.row()]
            self._leave()
            self.nameChosen.emit(name)

    def _leave(self) -> None:
        self._lane.drop()
        self.clear()
        self.popup.hide()
        self.clearFocus()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, chosen = event.key(), self.popup.list.currentIndex()
        if self.popup.isVisible() and key in (Qt.Key.Key_Down, Qt.Key.Key_Up):
            row = (chosen.row() + (1 if key == Qt.Key.Key_Down else -1)) % self.popup.names.rowCount()
            self.popup.list.setCurrentIndex(self.popup.names.index(row))
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._enter(chosen)
        elif key == Qt.Key.Key_Escape:
            self._leave()
        else:
            super().keyPressEvent(event)

    def _enter(self, chosen: QModelIndex) -> None:
        text = self.text().strip()
        if self._find is None:
            if text:
                self.pathEntered.emit(text)
                self._leave()
        elif text.startswith(":"):
            self.elementWanted.emit(text[1:])
            self._leave()
        elif self.popup.isVisible():
            self._choose(chosen)

    def event(self, event: QEvent) -> bool:
        # Escape is a shortcut of the window too; while one types here, the field hears it first.
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.ShortcutOverride:
            event.setAccepted(event.key() == Qt.Key.Key_Escape)
            if event.isAccepted():
                return True
        return super().event(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self.popup.hide()
        super().focusOutEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.text() and not self.hasFocus():
            box = self.rect().adjusted(0, 0, -10, 0)
            keys = QKeySequence("Ctrl+P").toString(QKeySequence.SequenceFormat.NativeText)
            draw_text(QPainter(self), box, keys, self._tokens.text3, ui_font(11), right=True)
