"""The page that greets: a place to drop a checkpoint, the demo, and what was open before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QHBoxLayout,
    QLabel,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from tensormorph.gui.background import Lane
from tensormorph.gui.icons import icon, pixmap
from tensormorph.gui.painting import draw_icon, draw_text, fill_round, tooltip, width_of
from tensormorph.gui.session import display_name
from tensormorph.gui.settings import Recent, when
from tensormorph.gui.states import PlainLabel, button_with_icon, tool_button
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.text import plural, printable

_ROW = 56
_LEFT, _RIGHT, _GAP = 384, 548, 36
Index = QModelIndex | QPersistentModelIndex


class _DropCard(QWidget):
    """The dashed area."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self.tokens = tokens
        self.setFixedSize(_LEFT, 196)
        self.image = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.title = PlainLabel("Drop a checkpoint here", "text", 15, 600)
        self.words = PlainLabel("A file or a folder", "text2", 12)
        self.buttons = QHBoxLayout()
        self.buttons.setSpacing(8)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 24, 16, 24)
        column.setSpacing(8)
        column.addStretch(1)
        for widget in (self.image, self.title, self.words):
            column.addWidget(widget, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addSpacing(8)
        column.addLayout(self.buttons)
        column.addStretch(1)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(QColor(self.tokens.border2), 1, Qt.PenStyle.CustomDashLine)
        pen.setDashPattern([4, 3])
        painter.setPen(pen)
        painter.setBrush(QColor(self.tokens.panel))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 8, 8)


class _BigAction(QAbstractButton):
    """An icon in a tile, a title and what it does."""

    def __init__(self, icon_name: str, title: str, words: str, tokens: Tokens) -> None:
        super().__init__()
        self.tokens = tokens
        self._icon_name, self._title, self.words = icon_name, title, words
        self.setFixedSize(_LEFT, 44)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName(title)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, tokens = QPainter(self), self.tokens
        tile = QRect(0, 4, 36, 36)
        fill_round(painter, tile, tokens.hover if self.underMouse() else tokens.neutbg, 6,
                   tokens.accent if self.hasFocus() else None)  # fmt: skip
        ink = tokens.text if self.isEnabled() else tokens.text3
        draw_icon(painter, tile, self._icon_name, tokens.text2 if self.isEnabled() else tokens.text3)
        draw_text(painter, QRect(52, 4, _LEFT - 52, 18), self._title, ink, ui_font(13, 500))
        draw_text(painter, QRect(52, 22, _LEFT - 52, 18), self.words, tokens.text2, ui_font(12))


class _RecentModel(QAbstractListModel):
    def __init__(self) -> None:
        super().__init__()
        self.entries: Sequence[Recent] = ()
        self.lost: frozenset[str] = frozenset()

    def show(self, entries: Sequence[Recent]) -> None:
        self.beginResetModel()
        self.entries = tuple(entries)
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self.entries)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and index.isValid():
            return printable(self.entries[index.row()].path)
        if role == Qt.ItemDataRole.ToolTipRole and index.isValid():
            return tooltip(self.entries[index.row()].path)
        return None


def home_folded(path: str) -> str:
    """Return a path with the user's folder as ``~``, printable."""
    home = os.path.expanduser("~")
    inside = home not in ("", "/", "~") and (path == home or path.startswith(home + os.sep))
    return printable("~" + path[len(home) :] if inside else path)


class _RecentDelegate(QStyledItemDelegate):
    def __init__(self, model: _RecentModel, tokens: Tokens, parent: QListView) -> None:
        super().__init__(parent)
        self._model = model
        self.tokens = tokens

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, _ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        entry, tokens = self._model.entries[index.row()], self.tokens
        rect: QRect = option.rect.adjusted(0, 2, 0, -2)
        state = option.state
        if state & QStyle.StateFlag.State_MouseOver:
            fill_round(painter, rect, tokens.hover, 5)
        elif state & QStyle.StateFlag.State_HasFocus:
            fill_round(painter, rect, tokens.selin, 5)
        lost = entry.path in self._model.lost
        verdict, ink = self._verdict(entry, lost)
        is_file = os.path.splitext(entry.path)[1] != ""
        top, low = QRect(rect.x() + 40, rect.y() + 7, rect.width() - 52, 18), QRect()
        draw_icon(painter, QRect(rect.x() + 12, top.y(), 16, 18), "file" if is_file else "box", tokens.text2)
        right = width_of(verdict, ui_font(12, 500))
        draw_text(painter, top, verdict, ink, ui_font(12, 500), right=True)
        name = QRect(top.x(), top.y(), top.width() - right - 12, 18)
        draw_text(painter, name, printable(display_name(Path(entry.path)), 200), tokens.text3 if lost else tokens.text,
                  ui_font(13, 500), elide=Qt.TextElideMode.ElideMiddle)  # fmt: skip
        low = top.translated(0, 19)
        words = ", ".join(filter(None, (printable(entry.detail, 120), when(entry.opened_at))))
        right = min(width_of(words, ui_font(12)), low.width() // 2)
        box = QRect(low.right() - right, low.y(), right + 1, 18)
        draw_text(painter, box, words, tokens.text2, ui_font(12), right=True)
        folder = QRect(low.x(), low.y(), low.width() - right - 12, 18)
        draw_text(painter, folder, home_folded(os.path.dirname(entry.path)), tokens.text2, ui_font(12),
                  elide=Qt.TextElideMode.ElideMiddle)  # fmt: skip

    def _verdict(self, entry: Recent, lost: bool) -> tuple[str, str]:
        if lost:
            return "not found", self.tokens.text3
        if entry.errors:
            return plural(entry.errors, "error"), self.tokens.err
        if entry.warnings:
            return plural(entry.warnings, "warning"), self.tokens.warn
        return "", self.tokens.text3


class StartPage(QWidget):
    """What stands in the window while no checkpoint is open."""

    openFolderWanted = Signal()  # noqa: N815
    openFileWanted = Signal()  # noqa: N815
    demoWanted = Signal()  # noqa: N815
    pathChosen = Signal(str)  # noqa: N815
    clearWanted = Signal()  # noqa: N815

    def __init__(self, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tokens = tokens
        self._lane = Lane("recent")
        self._logo = QLabel()
        self._title = PlainLabel("Tensormorph", "text", 24, 600)
        self._words = PlainLabel("See what a checkpoint holds and where every element lives", "text2", 13)
        self.card = _DropCard(tokens)
        self.open_folder = button_with_icon("Open folder", "folder-open", tokens, primary=True)
        self.open_file = button_with_icon("Open file", "file", tokens)
        self.card.buttons.addStretch(1)
        self.card.buttons.addWidget(self.open_folder)
        self.card.buttons.addWidget(self.open_file)
        self.card.buttons.addStretch(1)
        words = "A small transformer, and saves of a sharded run"
        self.demo = _BigAction("play", "Open the demo", words, tokens)
        self._heading = PlainLabel("Recent", "text", 13, 600)
        self.clear = tool_button("Clear list")
        self.clear.setCursor(Qt.CursorShape.PointingHandCursor)
        self._none = PlainLabel("Checkpoints that were open are listed here", "text3", 12)
        self._recent = _RecentModel()
        self.list = QListView()
        self._delegate = _RecentDelegate(self._recent, tokens, self.list)
        self.list.setModel(self._recent)
        self.list.setItemDelegate(self._delegate)
        self.list.setUniformItemSizes(True)
        self.list.setMouseTracking(True)
        self.list.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setStyleSheet("background: transparent")
        self.list.setAccessibleName("Recent checkpoints")
        self._lay_out()
        self.open_folder.clicked.connect(self.openFolderWanted)
        self.open_file.clicked.connect(self.openFileWanted)
        self.demo.clicked.connect(self.demoWanted)
        self.clear.clicked.connect(self.clearWanted)
        self.list.clicked.connect(self._choose)
        self.list.activated.connect(self._choose)
        self.set_tokens(tokens)

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(20)
        head.addWidget(self._logo)
        words = QVBoxLayout()
        words.setSpacing(2)
        words.addWidget(self._title)
        words.addWidget(self._words)
        head.addLayout(words)
        head.addStretch(1)
        left = QVBoxLayout()
        left.setSpacing(12)
        left.addWidget(self.card)
        left.addSpacing(8)
        left.addWidget(self.demo)
        left.addStretch(1)
        bar = QHBoxLayout()
        bar.setContentsMargins(12, 0, 4, 0)
        bar.addWidget(self._heading)
        bar.addStretch(1)
        bar.addWidget(self.clear)
        right = QVBoxLayout()
        right.setSpacing(8)
        right.addLayout(bar)
        self._rule_space = QWidget()
        self._rule_space.setFixedHeight(1)
        self._rule_space.setAutoFillBackground(True)
        right.addWidget(self._rule_space)
        right.addWidget(self._none)
        right.addWidget(self.list, 100)
        right.addStretch(1)
        columns = QHBoxLayout()
        columns.setSpacing(_GAP)
        columns.addLayout(left)
        columns.addLayout(right, 1)
        box = QWidget()
        box.setMaximumWidth(_LEFT + _GAP + _RIGHT)
        column = QVBoxLayout(box)
        column.setContentsMargins(0, 0, 0, 24)
        column.addStretch(1)
        column.addLayout(head)
        column.addSpacing(40)
        column.addLayout(columns, 9)
        outer = QHBoxLayout(self)
        outer.setContentsMargins(24, 24, 24, 0)
        outer.addStretch(1)
        outer.addWidget(box, 100)
        outer.addStretch(1)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.card.tokens = self.demo.tokens = self._delegate.tokens = tokens
        ratio = self.devicePixelRatioF()
        self._logo.setPixmap(pixmap("tensormorph", tokens.text, 48, ratio))
        self.card.image.setPixmap(pixmap("folder-open", tokens.text2, 28, ratio))
        self.open_folder.setIcon(icon("folder-open", tokens.onaccent))
        self.open_file.setIcon(icon("file", tokens.text))
        for label in (self._title, self._words, self.card.title, self.card.words, self._heading, self._none):
            label.set_tokens(tokens)
        palette = self.clear.palette()
        palette.setColor(self.clear.foregroundRole(), QColor(tokens.accent))
        self.clear.setPalette(palette)
        palette = self._rule_space.palette()
        palette.setColor(self._rule_space.backgroundRole(), QColor(tokens.border))
        self._rule_space.setPalette(palette)
        self.update()

    def show_recent(self, entries: Sequence[Recent]) -> None:
        """Show the checkpoints that were open; which of them are gone is looked up in a thread."""
        self._recent.show(entries)
        self.clear.setVisible(bool(entries))
        self._none.setVisible(not entries)
        self.list.setVisible(bool(entries))
        paths = [entry.path for entry in entries]
        self._lane.ask(partial(_missing, paths), self._show_lost, lambda error: None)

    def _show_lost(self, lost: frozenset[str]) -> None:
        self._recent.lost = lost
        self.list.viewport().update()

    @property
    def lost(self) -> frozenset[str]:
        """The paths of the list that lead nowhere any more."""
        return self._recent.lost

    def set_demo_available(self, available: bool) -> None:
        """Say whether the demo came with the program."""
        self.demo.setEnabled(available)
        self.demo.setToolTip("" if available else "The demo did not come with this installation")

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.ActivationChange and self.isActiveWindow() and self._recent.entries:
            self.show_recent(self._recent.entries)
        super().changeEvent(event)

    def _choose(self, index: QModelIndex) -> None:
        if index.isValid():
            self.pathChosen.emit(self._recent.entries[index.row()].path)


def _missing(paths: Sequence[str]) -> frozenset[str]:
    return frozenset(path for path in paths if not os.path.lexists(path))
