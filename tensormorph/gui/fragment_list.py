"""The stored parts of a tensor as a list: who holds which box, in which file, at which bytes."""

from __future__ import annotations

import re
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QRect, QSize, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QAbstractItemView, QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem

from tensormorph.fragments import NO_RANK, FragmentTable
from tensormorph.gui.painting import draw_text, fill_round, width_of
from tensormorph.gui.theme import Tokens, mono_font, ui_font
from tensormorph.text import count, printable

_ROW = 20
_SHORT = 6
_LONG = 16
Index = QModelIndex | QPersistentModelIndex
_SHARD = re.compile(r".*?([0-9]{1,6})-of-([0-9]{1,6})\b.*", re.DOTALL)


def place_in_set(file: str, files: tuple[str, ...], rank: int) -> str:
    """Return which of the set's files one is: ``Shard 3 of 12``, ``File 1 of 8, rank 0``."""
    numbered = _SHARD.fullmatch(file)
    if numbered is not None:
        words = f"Shard {int(numbered[1])} of {int(numbered[2])}"
    else:
        words = f"File {files.index(file) + 1 if file in files else 1} of {max(len(files), 1)}"
    return words if rank == NO_RANK else f"{words}, rank {rank}"


class _FragmentModel(QAbstractListModel):
    def __init__(self) -> None:
        super().__init__()
        self.fragments: FragmentTable | None = None

    def set_fragments(self, fragments: FragmentTable | None) -> None:
        self.beginResetModel()
        self.fragments = fragments
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() or self.fragments is None else len(self.fragments)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and index.isValid() and self.fragments is not None:
            return f"[{self.fragments.region(index.row())}] bytes at {count(int(self.fragments.offset[index.row()]))}"
        return None


class _FragmentDelegate(QStyledItemDelegate):
    def __init__(self, model: _FragmentModel, tokens: Tokens, parent: QListView) -> None:
        super().__init__(parent)
        self._model = model
        self.tokens = tokens
        self.ranks = False

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(100, _ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        fragments, tokens = self._model.fragments, self.tokens
        assert fragments is not None
        rect: QRect = option.rect
        if option.state & QStyle.StateFlag.State_Selected:
            fill_round(painter, rect.adjusted(8, 0, -8, 0), tokens.accentbg, 4)
        row = index.row()
        left = rect.x() + 16
        if self.ranks:
            rank = int(fragments.rank[row])
            tint = rank if 0 <= rank < 7 else 7
            chip = QRect(left, rect.y() + 4, 24, 13)
            fill_round(painter, chip, tokens.rank_fill[tint], 2)
            painter.setFont(ui_font(11))
            painter.setPen(tokens.rank_text[tint])
            painter.drawText(chip, int(Qt.AlignmentFlag.AlignCenter), "–" if rank == NO_RANK else str(rank))
            left += 38
        offset = count(int(fragments.offset[row]))
        width = width_of(offset, ui_font(11))
        box = QRect(rect.right() - 16 - width, rect.y(), width + 1, rect.height())
        draw_text(painter, box, offset, tokens.text2, ui_font(11), right=True)
        region = QRect(left, rect.y(), box.x() - left - 8, rect.height())
        draw_text(painter, region, str(fragments.region(row)), tokens.text, mono_font(11))


class FragmentList(QListView):
    """The fragments of one tensor; as many rows as fit a short list, then it scrolls."""

    fragmentChosen = Signal(int)  # noqa: N815

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._fragments = _FragmentModel()
        self._delegate = _FragmentDelegate(self._fragments, tokens, self)
        self._long = False
        self.setModel(self._fragments)
        self.setItemDelegate(self._delegate)
        self.setUniformItemSizes(True)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Fragments")
        self.selectionModel().currentChanged.connect(self._current_changed)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._delegate.tokens = tokens
        self.viewport().update()

    def show_fragments(self, fragments: FragmentTable | None) -> None:
        """Show the fragments of another tensor, the first one chosen."""
        self._fragments.set_fragments(fragments)
        self._delegate.ranks = fragments is not None and bool((fragments.rank != NO_RANK).any())
        self.set_long(False)
        if fragments is not None and len(fragments):
            self.setCurrentIndex(self._fragments.index(0))

    @property
    def ranks(self) -> bool:
        """Whether any fragment names its rank."""
        return self._delegate.ranks

    def n_more(self) -> int:
        """Return how many fragments the short list leaves out."""
        return 0 if self._long else max(0, self._fragments.rowCount() - _SHORT)

    def set_long(self, long: bool) -> None:
        """Show more rows at once."""
        self._long = long
        self.setFixedHeight(_ROW * min(self._fragments.rowCount(), _LONG if long else _SHORT))
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if long else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        self.setVerticalScrollBarPolicy(policy)

    def origin(self, row: int) -> tuple[str, str]:
        """Return the file of a fragment as stored, and its bytes in words."""
        fragments = self._fragments.fragments
        assert fragments is not None
        first, length = int(fragments.offset[row]), int(fragments.length[row])
        return fragments.files[int(fragments.file[row])], f"bytes {count(first)} to {count(first + length)}"

    def place(self, row: int, files: tuple[str, ...]) -> str:
        """Return which of the checkpoint's files a fragment lies in."""
        fragments = self._fragments.fragments
        assert fragments is not None
        return place_in_set(fragments.files[int(fragments.file[row])], files, int(fragments.rank[row]))

    def _current_changed(self, current: QModelIndex, previous: QModelIndex) -> None:
        if current.isValid():
            self.fragmentChosen.emit(current.row())


def shown_file(name: str) -> str:
    """Return a file's name for a label."""
    return printable(name, 300)
