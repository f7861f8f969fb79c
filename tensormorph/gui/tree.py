"""The Outliner: which checkpoint it is, the filter, and the tree of tensors, objects and files."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QGuiApplication, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QLineEdit, QMenu, QStackedLayout, QVBoxLayout, QWidget

from tensormorph.errors import UsageError
from tensormorph.gui.background import Lane
from tensormorph.gui.icons import icon
from tensormorph.gui.opening import Opened
from tensormorph.gui.outline import ROOT, Flags, Kind
from tensormorph.gui.painting import draw_icon, draw_text, tooltip
from tensormorph.gui.rows import Rows, filtered
from tensormorph.gui.selection import Selection
from tensormorph.gui.session import display_name, n_tensors
from tensormorph.gui.states import PlainLabel, StatePanel, breakable
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.gui.tree_model import OutlineModel
from tensormorph.gui.tree_view import OutlineTree
from tensormorph.model import Checkpoint
from tensormorph.text import count, plural, printable

_OPEN_AT_FIRST = 30
_OPEN_OF_MATCHES = 250
_OPEN_ALL = 2000


class _Header(QWidget):
    """Name and kind of the checkpoint; a click offers the other ones."""

    clicked = Signal()

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self.tokens = tokens
        self.title = self.subtitle = ""
        self.setFixedHeight(48)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        rect = self.rect()
        draw_icon(painter, rect.adjusted(14, 0, 14 + 16 - rect.width(), 0), "box", self.tokens.text2)
        text = rect.adjusted(38, 7, -36, 0)
        text.setHeight(18)
        draw_text(painter, text, self.title, self.tokens.text, ui_font(13, 600), elide=Qt.TextElideMode.ElideMiddle)
        text.translate(0, 17)
        draw_text(painter, text, self.subtitle, self.tokens.text3, ui_font(11))
        draw_icon(painter, rect.adjusted(rect.width() - 30, 0, -12, 0), "chevron-down", self.tokens.text2)
        if self.hasFocus():
            painter.setPen(self.tokens.accent)
            painter.drawRoundedRect(rect.adjusted(4, 3, -5, -4), 5, 5)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.clicked.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.clicked.emit()
        else:
            super().keyPressEvent(event)


class Outliner(QWidget):
    """The left panel."""

    headerClicked = Signal(QPoint)  # noqa: N815
    objectChosen = Signal(str)  # noqa: N815

    def __init__(self, selection: Selection, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._selection = selection
        self._tokens = tokens
        self._opened: Opened | None = None
        self._expanded: set[int] = set()
        self._restoring = False
        self._lane = Lane("filter")
        self.model = OutlineModel(self)
        self.tree = OutlineTree(self.model, tokens)
        self.header = _Header(tokens)
        self.filter = QLineEdit(placeholderText="Filter names, dtypes, shapes")
        self.filter.setMaxLength(1000)
        self.filter.setToolTip("Words that all must occur; also dtype:bf16, shape:384, file:00002, problem: (Ctrl+F)")
        self.filter.setAccessibleName("Filter tensors")
        self._funnel = self.filter.addAction(icon("funnel", tokens.text3), QLineEdit.ActionPosition.LeadingPosition)
        self._clear = self.filter.addAction(icon("x", tokens.text3), QLineEdit.ActionPosition.TrailingPosition)
        self._clear.setToolTip("Clear filter")
        self._clear.setVisible(False)
        self.count = PlainLabel("", "text3", 11, wrap=True)
        self.count.setContentsMargins(12, 0, 12, 4)
        self.count.hide()
        self.nothing = StatePanel(tokens)
        self._stack = QStackedLayout()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        field = QVBoxLayout()
        field.setContentsMargins(12, 2, 12, 8)
        field.addWidget(self.filter)
        column.addLayout(field)
        column.addWidget(self.count)
        column.addLayout(self._stack, 1)
        for page in (self.tree, self.nothing):  # now that the layout has a widget: before, the first would be a window
            self._stack.addWidget(page)
        self.setMinimumWidth(240)
        self.setAutoFillBackground(True)
        self._connect()
        self.set_tokens(tokens)

    def _connect(self) -> None:
        self.header.clicked.connect(lambda: self.headerClicked.emit(self.header.mapToGlobal(QPoint(12, 46))))
        self.filter.textChanged.connect(self._filter_changed)
        self.filter.returnPressed.connect(self._choose_first)
        self._clear.triggered.connect(self.filter.clear)
        self.tree.stepped.connect(self.step)
        self.tree.typed.connect(self._typed)
        self.tree.selectionModel().currentChanged.connect(self._current_changed)
        self.tree.expanded.connect(lambda index: self._note_expanded(index, True))
        self.tree.collapsed.connect(lambda index: self._note_expanded(index, False))
        self.tree.activated.connect(self._activated)
        self.tree.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.tree.customContextMenuRequested.connect(self._show_menu)
        self._selection.tensorChanged.connect(self._follow_selection)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = self.header.tokens = tokens
        palette = self.palette()
        palette.setColor(self.backgroundRole(), tokens.panel)
        self.setPalette(palette)
        self._funnel.setIcon(icon("funnel", tokens.text3))
        self._clear.setIcon(icon("x", tokens.text3))
        for part in (self.tree, self.count, self.nothing):
            part.set_tokens(tokens)
        self.header.update()

    # ------------------------------------------------------------ content

    def show_checkpoint(self, opened: Opened | None) -> None:
        """Show another checkpoint, its topmost modules open."""
        self._lane.drop()
        self._opened = opened
        self._expanded.clear()
        self.filter.blockSignals(True)
        self.filter.clear()
        self.filter.blockSignals(False)
        self._show_filter_state("", None)
        if opened is None:
            self.model.set_checkpoint(None, None)
            self.header.title = self.header.subtitle = ""
            return
        self._restoring = True
        self.model.set_checkpoint(opened.checkpoint, opened.outline, opened.rows)
        self._restoring = False
        self.header.title = printable(display_name(opened.checkpoint.path), 200)
        self.header.subtitle = self._subtitle(opened.checkpoint, n_tensors(opened.checkpoint))
        self.header.setToolTip(tooltip(str(opened.checkpoint.path)))
        self.header.setAccessibleName(f"{self.header.title}, {self.header.subtitle}")
        self.header.update()
        self._open_some(_OPEN_AT_FIRST)

    @staticmethod
    def _subtitle(checkpoint: Checkpoint, n_tensors: int) -> str:
        return f"{checkpoint.format}  ·  {plural(n_tensors, 'tensor')}"

    def _open_some(self, most: int) -> None:
        """Open modules level by level until there are about `most` rows; sections are open too."""
        level = [self.model.index(row) for row in range(min(self.model.rowCount(), most))]
        room = most - self.model.rowCount()
        for index in level:
            if self.model.kind(index.internalId()) is Kind.HEADING:
                self.tree.expand(index)
        while level:
            deeper: list[QModelIndex] = []
            for index in level:
                n = self.model.rowCount(index)
                if 0 < n <= room and self.model.kind(index.internalId()) is Kind.MODULE:
                    room -= n
                    self.tree.expand(index)
                    deeper += [self.model.index(row, 0, index) for row in range(n)]
            level = deeper

    # ------------------------------------------------------------ filter

    def focus_filter(self) -> None:
        """Put the cursor into the filter."""
        self.filter.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.filter.selectAll()

    def _typed(self, text: str) -> None:
        self.filter.setFocus(Qt.FocusReason.OtherFocusReason)
        self.filter.setText(text)

    def _filter_changed(self, text: str) -> None:
        query = text.strip()
        self._clear.setVisible(bool(text))
        if self._opened is None:
            return
        if not query:
            self._lane.drop()
            self._apply(None, None, query)
            return
        searcher, outline = self._opened.searcher, self._opened.outline

        def work() -> tuple[Flags, Rows]:
            matched = searcher.match(query)
            return matched, filtered(outline, matched)

        self._lane.ask(work, lambda found: self._apply(*found, query), self._filter_failed)

    def _filter_failed(self, error: Exception) -> None:
        if not isinstance(error, UsageError):
            raise error
        self.count.set_colour("warn", self._tokens)
        self.count.setText(breakable(printable(error.sentence, 300)))
        self.count.show()

    def _apply(self, matched: Flags | None, rows: Rows | None, query: str) -> None:
        self._restoring = True
        self.model.set_matched(matched, rows)
        if matched is None:
            for node in self._expanded:
                index = self.model.index_of(node)
                if index.isValid():
                    self.tree.expand(index)
        else:
            self._open_some(_OPEN_OF_MATCHES)
        self._restoring = False
        self._show_filter_state(query, matched)
        self._show_current()

    def _show_filter_state(self, query: str, matched: Flags | None) -> None:
        found = self.model.n_matched() if matched is not None else None
        self.count.setVisible(bool(found))
        self._clear.setVisible(bool(self.filter.text()))
        if found == 0:
            self.nothing.show_state(
                "search", f"No tensor matches {printable(query, 80)}",
                f"{plural(self.model.n_hidden(), 'tensor is', 'tensors are')} hidden by the filter",
                [("Clear filter", self._clear_and_return)],
            )  # fmt: skip
            self._stack.setCurrentIndex(1)
            return
        self._stack.setCurrentIndex(0)
        if found is not None and matched is not None:
            self.count.set_colour("text3", self._tokens)
            self.count.setText(f"{count(found)} of {plural(len(matched), 'tensor')}")

    def _clear_and_return(self) -> None:
        self.filter.clear()
        self.tree.setFocus()

    def _choose_first(self) -> None:
        """Choose the first tensor that matches, when Enter is pressed in the filter."""
        index = self.model.index(0)
        while index.isValid() and self.model.name_of(index.internalId()) is None:
            index = self.model.index(0, 0, index)
        if index.isValid():
            self.tree.setCurrentIndex(index)
            self.tree.setFocus()

    # ------------------------------------------------------------ selection

    def _current_changed(self, current: QModelIndex, previous: QModelIndex) -> None:
        if self._restoring or not current.isValid():
            return
        name = self.model.name_of(current.internalId())
        stored = self.model.object_of(current.internalId())
        if name is not None:
            self._selection.choose(name)
        elif stored is not None:
            self.objectChosen.emit(stored.name)

    def _follow_selection(self) -> None:
        if self._opened is None or self._opened.checkpoint is not self._selection.checkpoint:
            return
        self._show_current()

    def _show_current(self) -> None:
        """Bring the row of the selected tensor into view; without one, or if it is filtered away, select nothing."""
        outline, name = self.model.outline, self._selection.name
        place = None if outline is None or name is None else outline.place_of.get(name)
        self._restoring = True
        if outline is None or place is None:
            self.tree.clearSelection()
            self.tree.setCurrentIndex(QModelIndex())
        else:
            node = int(outline.node_of[place])
            self._carry_over(self.model.reveal(node))
            index = self.model.index_of(node)
            self.tree.setCurrentIndex(index)
            if index.isValid():
                self.tree.scrollTo(index)
            else:
                self.tree.clearSelection()
        self._restoring = False

    def step(self, node: int, by: int) -> None:
        """Show the previous or next layer of the folded group round a node; ROOT stands for the selected row."""
        at = node if node != ROOT else self.model.node(self.tree.currentIndex())
        moved = self.model.step(at, by) if at != ROOT else {}
        self._carry_over(moved)
        current = self.tree.currentIndex()
        name = self.model.name_of(current.internalId()) if moved and current.isValid() else None
        if name is not None:
            self._selection.choose(name)
        self.tree.viewport().update()

    def _carry_over(self, moved: dict[int, int]) -> None:
        """Remember as open, in the layer that shows now, what was open in the one before."""
        self._expanded.update([moved[node] for node in self._expanded if node in moved])

    def _note_expanded(self, index: QModelIndex, expanded: bool) -> None:
        if not self.model.filtered:
            (self._expanded.add if expanded else self._expanded.discard)(index.internalId())

    def _activated(self, index: QModelIndex) -> None:
        """Show the tensors of a file, when Enter or a double click asks for it."""
        file = self.model.file_of(index.internalId())
        if file is not None:
            self.filter.setText(f"file:{printable(file.name, 400)}")

    # ------------------------------------------------------------ menu

    def _show_menu(self, pos: QPoint) -> None:
        menu = self.menu_for(self.tree.indexAt(pos))
        if menu.actions():
            menu.popup(self.tree.viewport().mapToGlobal(pos))

    def menu_for(self, index: QModelIndex) -> QMenu:
        """Return the menu of a row."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        node = self.model.node(index)
        name = self.model.name_of(node)
        if name is not None:
            menu.addAction("Copy name", lambda: QGuiApplication.clipboard().setText(copyable(name)))
        if node != ROOT and self.model.can_unfold(node):
            menu.addAction("Show each layer", lambda: self.model.set_folded(node, False))
        if node != ROOT and self.model.can_fold(node):
            menu.addAction("Fold alike layers", lambda: self._fold(node))
        if self.model.hasChildren(index):
            below: QAction = menu.addAction("Open all below", lambda: self.tree.expandRecursively(index, 6))
            outline = self.model.outline
            below.setEnabled(outline is not None and int(outline.n_tensors[node]) <= _OPEN_ALL)
            menu.addAction("Close all", self.tree.collapseAll)
        return menu

    def _fold(self, node: int) -> None:
        self.model.set_folded(node, True)
        QTimer.singleShot(0, self._show_current)


def copyable(name: str) -> str:
    """Return a name for the clipboard: as stored, unless it would do more than be text where it is pasted."""
    shown = printable(name, 10 * len(name) + 1)  # no escape is longer than ten letters: nothing is left out
    return name if shown.replace("\\\\", "\\") == name else shown
