"""The small window that says who holds what is in sight, or the chosen element; it follows both while it is open."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QGuiApplication, QHideEvent, QKeyEvent, QKeySequence
from PySide6.QtWidgets import (
    QAbstractItemView,
    QButtonGroup,
    QDialog,
    QHBoxLayout,
    QHeaderView,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from tensormorph.gui.background import Lane
from tensormorph.gui.badge import ElidedLabel
from tensormorph.gui.holders import Holding, holding_text, who_holds
from tensormorph.gui.painting import bare_table
from tensormorph.gui.selection import Selection
from tensormorph.gui.states import PlainLabel
from tensormorph.gui.theme import Tokens, mono_font, ui_font
from tensormorph.region import Region
from tensormorph.text import count, plural, printable

COLUMNS = ("rank", "file", "region", "elements")
Index = QModelIndex | QPersistentModelIndex
_PAUSE_MS = 60
"""While the view moves, the list follows after so long a rest."""
_ROW = 24


class _Holders(QAbstractTableModel):
    def __init__(self, tokens: Tokens, parent: QObject) -> None:
        super().__init__(parent)
        self.holding: Holding | None = None
        self.tokens = tokens

    def show(self, holding: Holding | None) -> None:
        self.beginResetModel()
        self.holding = holding
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() or self.holding is None else len(self.holding.parts)

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(Qt.AlignmentFlag.AlignVCenter | _side(section))
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if self.holding is None or not index.isValid():
            return None
        part, column = self.holding.parts[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            who = "no one" if part.file is None else "–" if part.rank is None else str(part.rank)
            of_copy = "  replica" if part.copy else ""
            return (who, printable(part.file or "", 300), f"{part.region}{of_copy}", count(part.region.size))[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(Qt.AlignmentFlag.AlignVCenter | _side(column))
        if role == Qt.ItemDataRole.ForegroundRole and part.file is None:
            return QColor(self.tokens.err)
        if role == Qt.ItemDataRole.FontRole and column in (1, 2):
            return mono_font(12)
        return None


def _side(column: int) -> Qt.AlignmentFlag:
    return Qt.AlignmentFlag.AlignRight if column == 3 else Qt.AlignmentFlag.AlignLeft


class HoldersPanel(QDialog):
    """Lists holders of a region of the selected tensor; a line that is activated chooses its fragment everywhere.

    Parameters
    ----------
    sight
        Returns the region that the view on screen shows, in the indices of the whole tensor; None for none.
    """

    internalError = Signal(object)  # noqa: N815

    def __init__(
        self, selection: Selection, tokens: Tokens, sight: Callable[[], Region | None], parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._selection, self._sight = selection, sight
        self._lane = Lane("holders")
        self._rest = QTimer(self, interval=_PAUSE_MS, singleShot=True)
        self._rest.timeout.connect(self._ask)
        self.setWindowTitle("Who holds this region")
        self.name = ElidedLabel(tokens, "text", mono_font(12, bold=True), Qt.TextElideMode.ElideMiddle)
        self.name.setFixedHeight(20)
        self.region = ElidedLabel(tokens, "text2", mono_font(12), Qt.TextElideMode.ElideRight)
        self.region.setFixedHeight(20)
        self.in_sight, self.element = QPushButton("In sight"), QPushButton("Element")
        self._group = QButtonGroup(self)
        for button in (self.in_sight, self.element):
            button.setCheckable(True)
            button.setAutoDefault(False)
            self._group.addButton(button)
        self.in_sight.setChecked(True)
        self._holders = _Holders(tokens, self)
        self.table = self._make_table()
        self.words = PlainLabel("", "text2", 12, wrap=True)
        self.copy = QPushButton("Copy as text")
        self.copy.setAutoDefault(False)
        head = QHBoxLayout()
        head.addWidget(self.region, 1)
        head.addSpacing(8)
        head.addWidget(self.in_sight)
        head.addWidget(self.element)
        foot = QHBoxLayout()
        foot.addWidget(self.words, 1)
        foot.addWidget(self.copy)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 16, 12)
        column.addWidget(self.name)
        column.addLayout(head)
        column.addWidget(self.table, 1)
        column.addLayout(foot)
        self.copy.clicked.connect(self.copy_text)
        self._group.buttonClicked.connect(self._ask)
        self.table.activated.connect(self._choose)
        for signal in (selection.tensorChanged, selection.pieceChanged, selection.elementChanged):
            signal.connect(self.follow)
        self.set_tokens(tokens)

    def _make_table(self) -> QTableView:
        table = QTableView()
        table.setModel(self._holders)
        bare_table(table, _ROW)
        table.horizontalHeader().show()
        table.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        table.setFont(ui_font(12))
        table.setAccessibleName("Holders")
        table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        for column, width in enumerate((64, 190, 0, 96)):
            table.setColumnWidth(column, width)
        table.horizontalHeader().setSectionResizeMode(2, QHeaderView.ResizeMode.Stretch)
        table.horizontalHeader().setHighlightSections(False)
        return table

    def sizeHint(self) -> QSize:
        return QSize(640, 340)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._holders.tokens = tokens
        for part in (self.name, self.region, self.words):
            part.set_tokens(tokens)
        self.table.viewport().update()

    @property
    def holding(self) -> Holding | None:
        """What is listed."""
        return self._holders.holding

    def open_now(self) -> None:
        """Show, and begin with the element if one is chosen, else with what is in sight."""
        chosen = self.element if self._selection.element is not None else self.in_sight
        chosen.setChecked(True)
        self.show()
        self.activateWindow()
        self._ask()

    def follow(self) -> None:
        """Take in that another region is in sight or another element is chosen."""
        if self.isVisible() and not self._rest.isActive():
            self._rest.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._lane.drop()

    def _ask(self) -> None:
        tensor, element = self._selection.tensor, self._selection.full_element
        self.element.setEnabled(element is not None)
        if element is None and self.element.isChecked():
            self.in_sight.setChecked(True)
        region = self._sight()
        if self.element.isChecked() and element is not None:
            region = Region(element, tuple(i + 1 for i in element))
        self.name.set_text("" if tensor is None else tensor.name)
        self.copy.setEnabled(tensor is not None and region is not None)
        if tensor is None or region is None:
            self._lane.drop()
            self._holders.show(None)
            self.region.set_text("")
            self.words.setText("Choose a tensor" if tensor is None else "Where this is in full() is not known")
            return
        self.region.set_text(f"[{region}]" if region.ndim else "the one element")
        self._lane.ask(partial(who_holds, tensor, region), self._show, self.internalError.emit)

    def _show(self, holding: Holding) -> None:
        self._holders.show(holding)
        told = [plural(holding.n_holders, "holder")]
        listed = sum(part.file is not None for part in holding.parts)
        if listed < holding.n_holders:
            told.append(f"the first {count(listed)} are listed")
        if holding.n_gone is None:
            told.append("gaps among so many are not searched for")
        elif holding.n_gone:
            told.append(f"{plural(holding.n_gone, 'element')} that no one holds")
        self.words.setText(", ".join(told))

    def _choose(self, index: QModelIndex) -> None:
        holding = self._holders.holding
        row = None if holding is None else holding.parts[index.row()].row
        if row is not None:
            self._selection.choose_fragment(row)

    def copy_text(self) -> None:
        """Put the whole list on the clipboard."""
        if self._holders.holding is not None:
            QGuiApplication.clipboard().setText(holding_text(self._holders.holding))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_text()
        else:
            super().keyPressEvent(event)
