"""The section of the Inspector that changes between the whole tensor and a stored piece of it."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QButtonGroup, QComboBox, QHBoxLayout, QPushButton, QSizePolicy, QTableView

from tensormorph.gui.painting import bare_table
from tensormorph.gui.pieces import name_of
from tensormorph.gui.sections import Section
from tensormorph.gui.selection import Selection
from tensormorph.gui.states import PlainLabel, breakable
from tensormorph.model import LogicalTensor
from tensormorph.text import count, plural, printable, shape

Index = QModelIndex | QPersistentModelIndex
_ROW = 24
NO_PIECES = "No stored piece of this tensor differs from the whole: the checkpoint names none"


class _Pieces(QAbstractListModel):
    """One row a stored piece, named when it comes into sight."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.tensor: LogicalTensor | None = None

    def show(self, tensor: LogicalTensor | None) -> None:
        self.beginResetModel()
        self.tensor = tensor
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() or self.tensor is None else len(self.tensor.locals)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if self.tensor is None or not index.isValid():
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return name_of(self.tensor, index.row()).place
        if role == Qt.ItemDataRole.ToolTipRole:
            region = name_of(self.tensor, index.row()).region
            return "" if region is None else f"[{region}]"
        return None


class PieceSection(Section):
    """``full() | local()``, which piece, and what of the whole tensor it is."""

    def __init__(self, selection: Selection) -> None:
        super().__init__("View")
        self._selection = selection
        self.full, self.local = QPushButton("full()"), QPushButton("local()")
        self._group = QButtonGroup(self)
        for button in (self.full, self.local):
            button.setCheckable(True)
            button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
            self._group.addButton(button)
        self.full.setToolTip("The logical whole, put together from its fragments (L)")
        self.full.setChecked(True)
        self._pieces = _Pieces(self)
        self.chooser = QComboBox()
        self.chooser.setAccessibleName("Stored piece")
        self.chooser.setToolTip("Stored piece ([ and ] for the previous and the next)")
        # Any other policy would ask for the width of every piece.
        self.chooser.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.chooser.setMinimumContentsLength(10)
        rows = QTableView()
        bare_table(rows, _ROW)
        self.chooser.setView(rows)
        self.chooser.setModel(self._pieces)
        line = QHBoxLayout()
        line.setSpacing(0)
        line.addWidget(self.full)
        line.addWidget(self.local)
        line.addSpacing(8)
        line.addWidget(self.chooser, 1)
        self.words = PlainLabel("", "text2", 11, wrap=True)
        self.body.addLayout(line)
        self.body.addWidget(self.words)
        self.full.clicked.connect(lambda: selection.choose_piece(None))
        self.local.clicked.connect(self._on_local)
        self.chooser.activated.connect(selection.choose_piece)
        selection.tensorChanged.connect(self._show_tensor)
        selection.pieceChanged.connect(self._show_piece)
        self._show_tensor()

    def _on_local(self) -> None:
        if self._selection.piece is None:
            self._selection.toggle_local()

    def _show_tensor(self) -> None:
        tensor = self._selection.tensor
        self.setVisible(tensor is not None)
        self._pieces.show(tensor)
        there = self._selection.can_be_local
        for widget in (self.local, self.chooser):
            widget.setEnabled(there)
        self.chooser.setVisible(there)
        self.local.setToolTip("A piece as its file stores it (L)" if there else NO_PIECES)
        self._show_piece()

    def _show_piece(self) -> None:
        piece = self._selection.piece
        (self.full if piece is None else self.local).setChecked(True)
        if piece is not None:
            self.chooser.setCurrentIndex(piece)
        elif self._pieces.rowCount():
            self.chooser.setCurrentIndex(0)
        self.words.setText(breakable(self._told()))
        self.words.setVisible(piece is not None)
        self.note.setText("" if piece is None else f"{count(piece + 1)} of {count(self._pieces.rowCount())}")

    def _told(self) -> str:
        """Return what of the whole tensor the piece is, as far as that is known."""
        tensor, piece, source = self._selection.tensor, self._selection.piece, self._selection.source
        if tensor is None or piece is None:
            return ""
        name = name_of(tensor, piece)
        if self._selection.trouble is not None:
            return printable(str(self._selection.trouble), 400)
        if source is None:
            return f"Looking at what is stored: {name.place}"
        what = f"{printable(source.encoding.name, 60)}  {shape(source.shape)}"
        if name.region is None:
            return f"{what}, stored as {printable(tensor.locals[piece].stored_name, 200)}"
        told = f"{what}, holds [{name.region}] of full()"
        beyond = source.n_elements - name.region.size
        return told if beyond <= 0 else f"{told}, and {plural(beyond, 'element')} that are no part of it"
