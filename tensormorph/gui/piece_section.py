"""The section of the Inspector that changes between the whole tensor, the part of a rank and a stored piece."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QButtonGroup, QComboBox, QHBoxLayout, QPushButton, QSizePolicy, QTableView

from tensormorph.gui.local_views import Key, LocalView, PieceView, RankView
from tensormorph.gui.painting import bare_table
from tensormorph.gui.pieces import name_of
from tensormorph.gui.rank_parts import regions_text
from tensormorph.gui.sections import Section
from tensormorph.gui.selection import Selection
from tensormorph.gui.states import PlainLabel, breakable
from tensormorph.model import LogicalTensor
from tensormorph.text import count, printable

Index = QModelIndex | QPersistentModelIndex
_ROW = 24
NO_PIECES = "No layout of this tensor is known, and the checkpoint names no stored pieces of it"
BY_RANK, STORED = "By rank, as the layout has it", "Stored pieces, as the files have them"


class _Views(QAbstractListModel):
    """One row a rank of the layout and one a stored piece, each named when in sight; heads where there are both."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._tensor: LogicalTensor | None = None
        self._ranks: tuple[int, ...] = ()
        self._n_pieces = self._head = 0

    def show(self, tensor: LogicalTensor | None, ranks: tuple[int, ...]) -> None:
        self.beginResetModel()
        self._tensor, self._ranks = tensor, ranks
        self._n_pieces = 0 if tensor is None else len(tensor.locals)
        self._head = 1 if ranks and self._n_pieces else 0
        self.endResetModel()

    @property
    def n_groups(self) -> int:
        """How many kinds of views there are."""
        return 2 if self._head else 1

    def view(self, row: int) -> LocalView | None:
        """Return what a row stands for; None for a head."""
        assert self._tensor is not None
        at = row - self._head
        if 0 <= at < len(self._ranks):
            return RankView(self._tensor, self._ranks[at])
        at -= len(self._ranks) + self._head
        return PieceView(self._tensor, at) if 0 <= at < self._n_pieces else None

    def place(self, key: Key | None) -> tuple[int, int, int]:
        """Return the row of a view, its number in its group, and how many there are in it."""
        if key is None:
            return self._head, 0, 0
        if key[0] == "rank":
            at = self._ranks.index(key[1])
            return self._head + at, at, len(self._ranks)
        return 2 * self._head + len(self._ranks) + key[1], key[1], self._n_pieces

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._ranks) + self._n_pieces + 2 * self._head

    def flags(self, index: Index) -> Qt.ItemFlag:
        head = self._head and index.row() in (0, 1 + len(self._ranks))
        return Qt.ItemFlag.NoItemFlags if head else super().flags(index)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if self._tensor is None or not index.isValid():
            return None
        if role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return None
        view = self.view(index.row())
        if role == Qt.ItemDataRole.DisplayRole:
            return view.place if view is not None else STORED if index.row() else BY_RANK
        if isinstance(view, RankView):
            return "" if view.part is None else regions_text(view.part)
        region = None if view is None else name_of(self._tensor, view.piece).region
        return "" if region is None else f"[{region}]"


class PieceSection(Section):
    """``full() | local()``, whose part or which stored piece, and what of the whole tensor it is."""

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
        self._views = _Views(self)
        self.chooser = QComboBox()
        self.chooser.setAccessibleName("Rank or stored piece")
        self.chooser.setToolTip("Rank or stored piece ([ and ] for the previous and the next)")
        # Any other policy would ask for the width of every piece.
        self.chooser.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.chooser.setMinimumContentsLength(10)
        rows = QTableView()
        bare_table(rows, _ROW)
        self.chooser.setView(rows)
        self.chooser.setModel(self._views)
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
        self.chooser.activated.connect(self._choose)
        selection.tensorChanged.connect(self._show_tensor)
        selection.pieceChanged.connect(self._show_piece)
        self._show_tensor()

    def _on_local(self) -> None:
        if self._selection.view is None:
            self._selection.toggle_local()

    def _choose(self, row: int) -> None:
        view = self._views.view(row)
        if isinstance(view, RankView):
            self._selection.choose_rank(view.rank)
        elif view is not None:
            self._selection.choose_piece(view.piece)

    def _show_tensor(self) -> None:
        tensor = self._selection.tensor
        self.setVisible(tensor is not None)
        self._views.show(tensor, self._selection.ranks)
        there = self._selection.can_be_local
        for widget in (self.local, self.chooser):
            widget.setEnabled(there)
        self.chooser.setVisible(there)
        words = "What a rank holds, or a piece as its file stores it (L)"
        self.local.setToolTip(words if there else NO_PIECES)
        self._show_piece()

    def _show_piece(self) -> None:
        view, key = self._selection.view, self._selection.view_key
        (self.full if view is None else self.local).setChecked(True)
        row, number, n = self._views.place(key)
        if row < self._views.rowCount():
            self.chooser.setCurrentIndex(row)
        self.words.setText(breakable(self._told()))
        self.words.setVisible(view is not None)
        what = "ranks" if key is not None and key[0] == "rank" else "stored"
        grouped = f" {what}" if self._views.n_groups > 1 else ""
        self.note.setText("" if view is None else f"{count(number + 1)} of {count(n)}{grouped}")

    def _told(self) -> str:
        """Return what of the whole tensor is looked at, as far as that is known."""
        view, source = self._selection.view, self._selection.source
        if view is None:
            return ""
        if self._selection.trouble is not None:
            return printable(str(self._selection.trouble), 400)
        return f"Looking at what is stored: {view.place}" if source is None else view.told(source)
