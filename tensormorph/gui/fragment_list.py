"""The stored parts of a tensor as a list: who holds which box, in which file, at which bytes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
)

from tensormorph.fragments import NO_RANK
from tensormorph.gui.painting import bare_table, draw_text, fill_round, tooltip, width_of
from tensormorph.gui.shards import MOST_TINTED, TINTS, tints
from tensormorph.gui.theme import Tokens, mono_font, ui_font
from tensormorph.model import LogicalTensor
from tensormorph.text import count, printable

_ROW = 20
_SHORT = 6
_LONG = 16
Index = QModelIndex | QPersistentModelIndex
_SHARD = re.compile(r".*?([0-9]{1,6})-of-([0-9]{1,6})\b.*", re.DOTALL)


def rank_known_from(tensor: LogicalTensor, row: int) -> str:
    """Return how the rank of a fragment is known: by what the reader went by, by the layout, or as recorded."""
    if int(tensor.fragments.rank[row]) == NO_RANK:
        return ""
    if tensor.rank_evidence:
        return f"rank from {tensor.rank_evidence}"
    if tensor.layout is not None:
        return f"rank {tensor.layout.provenance} with the layout"
    return "rank recorded in the checkpoint"


def place_in_set(file: str, files: tuple[str, ...], rank: int) -> str:
    """Return which of the set's files one is: ``Shard 3 of 12``, ``File 1 of 8, rank 0``."""
    numbered = _SHARD.fullmatch(file)
    if numbered is not None:
        words = f"Shard {int(numbered[1])} of {int(numbered[2])}"
    else:
        words = f"File {files.index(file) + 1 if file in files else 1} of {max(len(files), 1)}"
    return words if rank == NO_RANK else f"{words}, rank {rank}"


class _FragmentModel(QAbstractListModel):
    """One row a fragment; what is told of a row is made when it is asked for."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.tensor: LogicalTensor | None = None
        self.ranks = self.by_file = self.items = False
        self.n_boxes: int | None = None
        self.tints: NDArray[np.int64] = np.empty(0, np.int64)

    def set_tensor(self, tensor: LogicalTensor | None, in_items: bool) -> None:
        self.beginResetModel()
        self.tensor, self.tints, self.n_boxes = tensor, np.empty(0, np.int64), None
        if tensor is not None:
            fragments = tensor.fragments
            self.ranks = bool((fragments.rank != NO_RANK).any())
            self.by_file = (
                not self.ranks and len(fragments.files) > 1 and bool((fragments.file != fragments.file[:1]).any())
            )
            self.items = in_items
            if len(fragments) <= MOST_TINTED:
                self.tints = tints(fragments)
                edges = np.concatenate([fragments.start, fragments.stop], axis=1)
                self.n_boxes = len(np.unique(edges, axis=0)) if fragments.ndim else min(1, len(fragments))
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() or self.tensor is None else len(self.tensor.fragments)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or self.tensor is None:
            return None
        row, fragments = index.row(), self.tensor.fragments
        if role == Qt.ItemDataRole.DisplayRole:
            return f"[{fragments.region(row)}] {self.words(row)}"
        if role == Qt.ItemDataRole.ToolTipRole:
            file, rank = fragments.files[int(fragments.file[row])], int(fragments.rank[row])
            return tooltip(f"{'' if rank == NO_RANK else f'rank {rank}, '}{printable(file, 300)}, {self.words(row)}")
        return None

    def words(self, row: int) -> str:
        """Return where a fragment's bytes are, as far as that is known without a look into the file."""
        assert self.tensor is not None
        first, length = (int(column[row]) for column in (self.tensor.fragments.offset, self.tensor.fragments.length))
        if first < 0:
            return "its bytes are known once it is read"
        what = "item at bytes" if self.items else "bytes"
        return f"{what} {count(first)} to {count(first + length)}" if length >= 0 else f"item at byte {count(first)}"

    def short(self, row: int) -> str:
        """Return the same in a column: the byte, or the file where that tells more."""
        assert self.tensor is not None
        fragments = self.tensor.fragments
        if self.by_file:
            return printable(fragments.files[int(fragments.file[row])].rpartition("/")[2], 60)
        first = int(fragments.offset[row])
        return "not known" if first < 0 else count(first)


class _FragmentDelegate(QStyledItemDelegate):
    def __init__(self, model: _FragmentModel, tokens: Tokens, parent: QTableView) -> None:
        super().__init__(parent)
        self._model = model
        self.tokens = tokens

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(100, _ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        tensor, tokens = self._model.tensor, self.tokens
        assert tensor is not None
        rect: QRect = option.rect
        painter.fillRect(rect, QColor(tokens.panel))  # over the selection of a whole row, which a table draws
        if option.state & QStyle.StateFlag.State_Selected:
            fill_round(painter, rect.adjusted(8, 0, -8, 0), tokens.accentbg, 4)
        row = index.row()
        left = rect.x() + 16
        if self._model.ranks:
            rank = int(tensor.fragments.rank[row])
            tint = int(self._model.tints[row]) if row < len(self._model.tints) else TINTS - 1
            shown = "–" if rank == NO_RANK else str(rank)
            chip = QRect(left, rect.y() + 3, max(24, width_of(shown, ui_font(11)) + 6), 14)
            fill_round(painter, chip, tokens.rank_fill[tint], 2)
            painter.setFont(ui_font(11))
            painter.setPen(tokens.rank_text[tint])
            painter.drawText(chip, int(Qt.AlignmentFlag.AlignCenter), shown)
            left += chip.width() + 14
        place = self._model.short(row)
        width = min(width_of(place, ui_font(11)), rect.width() // 2)
        box = QRect(rect.right() - 16 - width, rect.y(), width + 1, rect.height())
        middle = Qt.TextElideMode.ElideMiddle
        draw_text(painter, box, place, tokens.text2, ui_font(11), right=True, elide=middle)
        region = QRect(left, rect.y(), box.x() - left - 8, rect.height())
        draw_text(painter, region, str(tensor.fragments.region(row)), tokens.text, mono_font(11))


class FragmentList(QTableView):
    """The fragments of one tensor; as many rows as fit a short list, then it scrolls.

    A table of one column: a list of Qt's asks for each of its rows, which takes a second for 100,000.
    """

    fragmentShown = Signal(int)  # noqa: N815
    """The row that the list stands at."""
    fragmentPicked = Signal(int)  # noqa: N815
    """A row that a person chose by mouse or keyboard."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._fragments = _FragmentModel(self)
        self._delegate = _FragmentDelegate(self._fragments, tokens, self)
        self._long = self._following = False
        self.setModel(self._fragments)
        self.setItemDelegate(self._delegate)
        bare_table(self, _ROW)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Fragments")
        self.selectionModel().currentChanged.connect(self._current_changed)
        self.clicked.connect(lambda index: self.fragmentPicked.emit(index.row()))

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._delegate.tokens = tokens
        self.viewport().update()

    def show_fragments(self, tensor: LogicalTensor | None, in_items: bool = False) -> None:
        """Show the fragments of another tensor, standing at the first.

        With `in_items`, the places in its table are those of items which themselves tell where their elements lie.
        """
        self._fragments.set_tensor(tensor, in_items)
        self.set_long(False)
        self.follow(0 if self._fragments.rowCount() else None)

    def follow(self, row: int | None) -> None:
        """Stand at a row that was chosen elsewhere; None leaves it where it is."""
        if row is None or not 0 <= row < self._fragments.rowCount():
            return
        if row >= _SHORT:
            self.set_long(True)
        self._following = True
        self.setCurrentIndex(self._fragments.index(row))
        self._following = False

    @property
    def ranks(self) -> bool:
        """Whether any fragment names its rank."""
        return self._fragments.ranks

    @property
    def n_boxes(self) -> int | None:
        """How many different boxes the fragments are; None where there are too many to compare."""
        return self._fragments.n_boxes

    @property
    def place_head(self) -> str:
        """What the last column says."""
        return "file" if self._fragments.by_file else "item at" if self._fragments.items else "bytes at"

    def n_more(self) -> int:
        """Return how many fragments the short list leaves out."""
        return 0 if self._long else max(0, self._fragments.rowCount() - _SHORT)

    def set_long(self, long: bool) -> None:
        """Show more rows at once."""
        self._long = long
        self.setFixedHeight(_ROW * min(self._fragments.rowCount(), _LONG if long else _SHORT))
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if long else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        self.setVerticalScrollBarPolicy(policy)

    def words(self, row: int) -> str:
        """Return where a fragment's bytes are."""
        return self._fragments.words(row)

    def _current_changed(self, current: QModelIndex, previous: QModelIndex) -> None:
        if current.isValid():
            self.fragmentShown.emit(current.row())
            if not self._following and self.hasFocus() and QApplication.mouseButtons() == Qt.MouseButton.NoButton:
                self.fragmentPicked.emit(current.row())  # by the keyboard; of the mouse, the click tells
