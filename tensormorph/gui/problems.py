"""The panel below: problems, tasks and the log."""

from __future__ import annotations

import time
from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QPlainTextEdit,
    QStackedWidget,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTabBar,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from tensormorph.errors import Problem
from tensormorph.gui.icons import icon
from tensormorph.gui.painting import (
    SEVERITY_ICON,
    draw_icon,
    draw_pill,
    draw_text,
    fill_round,
    severity_colours,
    width_of,
)
from tensormorph.gui.problem_model import ProblemModel, as_text
from tensormorph.gui.states import StatePanel, tool_button
from tensormorph.gui.tasks import TaskTable
from tensormorph.gui.theme import Tokens, mono_font, ui_font
from tensormorph.text import count, printable

_ROW = 24
_LOG_LINES = 5000
_SHARES = {1: 0.14, 2: 0.26, 3: 0.18}


class PanelTabs(QTabBar):
    """Tabs with a line below the current one and a pill with a number."""

    def __init__(self, titles: Sequence[str], tokens: Tokens) -> None:
        super().__init__()
        self.tokens = tokens
        self._pills: dict[int, tuple[str, str, str]] = {}
        self.setDrawBase(False)
        self.setExpanding(False)
        for title in titles:
            self.addTab(title)

    def set_pill(self, tab: int, text: str, colour: str = "text2", ground: str = "neutbg") -> None:
        """Set the number that stands behind a title, in tokens of the theme; the empty text takes it away."""
        if text:
            self._pills[tab] = (text, colour, ground)
        else:
            self._pills.pop(tab, None)
        self.setTabText(tab, self.tabText(tab))  # lays the tabs out again
        self.update()

    def tabSizeHint(self, index: int) -> QSize:
        pill = self._pills.get(index)
        extra = width_of(pill[0], ui_font(11, 500)) + 18 if pill else 0
        return QSize(width_of(self.tabText(index), ui_font(12, 500)) + 24 + extra, 32)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self.tokens.panel)
        for tab in range(self.count()):
            rect = self.tabRect(tab)
            current = tab == self.currentIndex()
            colour = self.tokens.text if current else self.tokens.text2
            font = ui_font(12, 500 if current else 400)
            width = draw_text(painter, rect.adjusted(12, 0, 0, 0), self.tabText(tab), colour, font)
            if tab in self._pills:
                text, ink, ground = self._pills[tab]
                draw_pill(painter, rect.x() + 12 + width + 6, rect.center().y() + 1, text,
                          getattr(self.tokens, ink), getattr(self.tokens, ground), ui_font(11, 500))  # fmt: skip
            if current:
                line = QRect(rect.x() + 12, rect.bottom() - 1, rect.width() - 24, 2)
                fill_round(painter, line, self.tokens.accent if not self.hasFocus() else self.tokens.text, 1)


class _ProblemDelegate(QStyledItemDelegate):
    def __init__(self, model: ProblemModel, tokens: Tokens, parent: QTableView) -> None:
        super().__init__(parent)
        self._model = model
        self._view = parent
        self.tokens = tokens
        self._body, self._mono = ui_font(12), mono_font(11)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        tokens, row, column = self.tokens, index.row(), index.column()
        rect: QRect = option.rect
        if option.state & QStyle.StateFlag.State_Selected:
            ground = tokens.accentbg if self._view.hasFocus() else tokens.selin
            last = self._model.columnCount() - 1
            painter.save()
            painter.setClipRect(rect)
            # One rounded band over all columns: each cell draws its part of it.
            band = rect.adjusted(6 if column == 0 else -8, 0, -6 if column == last else 8, 0)
            fill_round(painter, band, ground, 5)
            painter.restore()
        text = self._model.text(row, column)
        if column == 0:
            left = rect.x() + 14 + (20 if self._model.in_group(row) else 0)
            severity = self._model.severity(row)
            ink = severity_colours(tokens, severity)[0]
            draw_icon(painter, QRect(left, rect.y(), 16, rect.height()), SEVERITY_ICON[severity], ink)
            left += 25
            if self._model.is_group(row):
                arrow = "chevron-down" if self._model.is_open(row) else "chevron-right"
                draw_icon(painter, QRect(left, rect.y(), 14, rect.height()), arrow, tokens.text2, 14)
                left += 20
            rect = QRect(left, rect.y(), rect.right() - left - 8, rect.height())
            draw_text(painter, rect, text, tokens.text, self._body)
            return
        rect = rect.adjusted(4, 0, -8, 0)
        if column == 1:
            draw_text(painter, rect, text, tokens.text2, self._mono)
        elif column == 2:
            draw_text(painter, rect, text, tokens.text2, self._body, elide=Qt.TextElideMode.ElideMiddle)
        else:
            draw_text(painter, rect, text, tokens.text2, self._mono, elide=Qt.TextElideMode.ElideMiddle)


class _Header(QHeaderView):
    """Column titles over the text of their cells: that of the first column stands behind its icons."""

    def __init__(self, tokens: Tokens, parent: QTableView) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.tokens = tokens
        self.setHighlightSections(False)
        self.setFixedHeight(_ROW)

    def paintSection(self, painter: QPainter, rect: QRect, logical: int) -> None:
        painter.fillRect(rect, self.tokens.panel)
        words = str(self.model().headerData(logical, Qt.Orientation.Horizontal))
        draw_text(painter, rect.adjusted(39 if logical == 0 else 4, 0, -8, 0), words, self.tokens.text3, ui_font(11))


class ProblemTable(QTableView):
    """The problems of the checkpoint; choosing one chooses its tensor."""

    problemChosen = Signal(object)  # noqa: N815

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self.problems = ProblemModel(self)
        self._delegate = _ProblemDelegate(self.problems, tokens, self)
        self.setModel(self.problems)
        self.setItemDelegate(self._delegate)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.verticalHeader().setDefaultSectionSize(_ROW)
        header = self._header = _Header(tokens, self)
        self.setHorizontalHeader(header)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.setAccessibleName("Problems")
        self.setStyleSheet("QTableView::item:selected { background: transparent }")  # the delegate paints it
        self.selectionModel().currentRowChanged.connect(self._current_changed)

    def set_tokens(self, tokens: Tokens) -> None:
        self._delegate.tokens = self._header.tokens = tokens
        self._header.viewport().update()
        self.viewport().update()

    def _current_changed(self, current: QModelIndex, previous: QModelIndex) -> None:
        problem = self.problems.problem(current.row()) if current.isValid() else None
        if problem is not None:
            self.problemChosen.emit(problem)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        width = self.viewport().width()
        for column, share in _SHARES.items():
            self.setColumnWidth(column, round(share * width))

    def go_to_next(self) -> None:
        """Choose the next problem."""
        row = self.problems.next_problem(self.currentIndex().row() if self.currentIndex().isValid() else -1)
        if row is not None:
            self.setCurrentIndex(self.problems.index(row, 0))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        index = self.indexAt(event.position().toPoint())
        if index.isValid() and event.button() == Qt.MouseButton.LeftButton:
            self.problems.toggle(index.row())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        index = self.currentIndex()
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_current()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and index.isValid():
            self.problems.toggle(index.row())
        else:
            super().keyPressEvent(event)

    def copy_current(self) -> None:
        """Copy the chosen problem as text."""
        index = self.currentIndex()
        problem = self.problems.problem(index.row()) if index.isValid() else None
        if problem is not None:
            QGuiApplication.clipboard().setText(as_text(problem))


class BottomPanel(QWidget):
    """Problems, tasks and log, one at a time."""

    closed = Signal()

    def __init__(self, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.tabs = PanelTabs(("Problems", "Tasks", "Log"), tokens)
        self.table = ProblemTable(tokens)
        self.none = StatePanel(tokens)
        self.none.show_state("info", "No problems in what was checked",
                             "Metadata and sizes; values and hashes were not read")  # fmt: skip
        self.tasks = TaskTable(tokens)
        self.log = QPlainTextEdit(readOnly=True, maximumBlockCount=_LOG_LINES)
        self.log.setFont(mono_font(11))
        self.log.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.log.setAccessibleName("Log")
        self._pages = QStackedWidget()
        self._problem_pages = QStackedWidget()
        self._problem_pages.addWidget(self.none)
        self._problem_pages.addWidget(self.table)
        for page in (self._problem_pages, self.tasks, self.log):
            self._pages.addWidget(page)
        self._copy = tool_button(tip="Copy the chosen problem (Ctrl+C)")
        self._copy.clicked.connect(self.table.copy_current)
        self._close = tool_button(tip="Hide this panel (Ctrl+J)")
        self._close.clicked.connect(self.closed)
        strip = QHBoxLayout()
        strip.setContentsMargins(4, 0, 8, 0)
        strip.setSpacing(4)
        strip.addWidget(self.tabs)
        strip.addStretch(1)
        strip.addWidget(self._copy)
        strip.addWidget(self._close)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(strip)
        column.addWidget(self._pages, 1)
        self.setMinimumHeight(96)
        self.setAutoFillBackground(True)
        self.tabs.currentChanged.connect(self._show_page)
        self.tasks.runningChanged.connect(lambda n: self.tabs.set_pill(1, str(n) if n else ""))
        self._show_page(0)
        self.set_tokens(tokens)

    def _show_page(self, page: int) -> None:
        self._pages.setCurrentIndex(page)
        self._copy.setVisible(page == 0 and bool(self.table.problems.problems))

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self.tabs.tokens = tokens
        self.tabs.update()
        palette = self.palette()
        palette.setColor(self.backgroundRole(), tokens.panel)
        self.setPalette(palette)
        self._copy.setIcon(icon("copy", tokens.text2))
        self._close.setIcon(icon("x", tokens.text2))
        for part in (self.table, self.none, self.tasks):
            part.set_tokens(tokens)

    def show_problems(self, problems: Sequence[Problem]) -> None:
        """Show the problems of a checkpoint."""
        self.table.problems.set_problems(problems)
        found = self.table.problems.counts()
        ink = ("err", "errbg") if found["error"] else ("warn", "warnbg") if found["warning"] else ("text2", "neutbg")
        self.tabs.set_pill(0, count(len(problems)) if problems else "", *ink)
        self._problem_pages.setCurrentIndex(1 if problems else 0)
        self._show_page(self.tabs.currentIndex())

    def open_page(self, title: str) -> None:
        """Bring a page to the front: Problems, Tasks or Log."""
        self.tabs.setCurrentIndex(("Problems", "Tasks", "Log").index(title))

    def write_log(self, text: str) -> None:
        """Append to the log; each line is made printable, so that a stranger's text stays text."""
        stamp = time.strftime("%H:%M:%S")
        for line in text.splitlines() or [""]:
            self.log.appendPlainText(f"{stamp} {printable(line, 2000)}")
