"""The pages that stand while nothing is open yet: how far opening is; why it failed, and what there is to choose."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QRect, QSize, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QListView,
    QProgressBar,
    QPushButton,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from tensormorph.errors import (
    AmbiguousFormatError,
    CannotOpenError,
    ChooseCheckpointError,
    TensormorphError,
    UnknownFormatError,
)
from tensormorph.gui.painting import draw_text, fill_round
from tensormorph.gui.session import words_below
from tensormorph.gui.states import PlainLabel, StatePanel, breakable
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.text import count, plural, printable

if TYPE_CHECKING:
    from tensormorph.gui.opening import Failed

_ROW = 40
_ROWS_SHOWN = 8
_STILL_AFTER = 3.0
Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class Choice:
    """One line to choose: what is shown, and what choosing it means."""

    title: str
    detail: str
    value: str


class _ChoiceModel(QAbstractListModel):
    def __init__(self) -> None:
        super().__init__()
        self.choices: Sequence[Choice] = ()

    def show(self, choices: Sequence[Choice]) -> None:
        self.beginResetModel()
        self.choices = choices
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self.choices)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and index.isValid():
            return self.choices[index.row()].title
        return None


class _ChoiceDelegate(QStyledItemDelegate):
    def __init__(self, model: _ChoiceModel, tokens: Tokens, parent: QListView) -> None:
        super().__init__(parent)
        self._model = model
        self.tokens = tokens

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, _ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        choice, tokens = self._model.choices[index.row()], self.tokens
        rect: QRect = option.rect.adjusted(0, 2, 0, -2)
        state = option.state
        if state & QStyle.StateFlag.State_Selected:
            fill_round(painter, rect, tokens.accentbg, 6, tokens.accent)
        else:
            hovered = state & QStyle.StateFlag.State_MouseOver
            fill_round(painter, rect, tokens.hover if hovered else tokens.panel, 6, tokens.border)
        inner = rect.adjusted(12, 0, -12, 0)
        if not choice.detail:
            draw_text(painter, inner, choice.title, tokens.text, ui_font(13, 500), elide=Qt.TextElideMode.ElideMiddle)
            return
        half = inner.height() // 2
        title = QRect(inner.x(), inner.y() + 2, inner.width(), half)
        detail = QRect(inner.x(), inner.y() + half - 1, inner.width(), half)
        draw_text(painter, title, choice.title, tokens.text, ui_font(12, 500), elide=Qt.TextElideMode.ElideMiddle)
        draw_text(painter, detail, choice.detail, tokens.text2, ui_font(11))


class ChoiceList(QListView):
    """Lines of which one is chosen by Enter or a click."""

    chosen = Signal(str)

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._choices = _ChoiceModel()
        self._delegate = _ChoiceDelegate(self._choices, tokens, self)
        self.setModel(self._choices)
        self.setItemDelegate(self._delegate)
        self.setUniformItemSizes(True)
        self.setMouseTracking(True)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setStyleSheet("background: transparent")
        self.setFixedWidth(520)
        self.clicked.connect(self._choose)
        self.activated.connect(self._choose)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._delegate.tokens = tokens
        self.viewport().update()

    def show_choices(self, choices: Sequence[Choice], *, selectable: bool) -> None:
        """Show other lines; those that only inform cannot be selected."""
        self._choices.show(choices)
        mode = QAbstractItemView.SelectionMode
        self.setSelectionMode(mode.SingleSelection if selectable else mode.NoSelection)
        self.setFixedHeight(_ROW * min(len(choices), _ROWS_SHOWN) + 2)
        self.setVisible(bool(choices))
        if selectable and choices:
            self.setCurrentIndex(self._choices.index(0))
            self.setFocus()

    @property
    def choices(self) -> Sequence[Choice]:
        """The lines shown."""
        return self._choices.choices

    def choose_current(self) -> None:
        """Choose the selected line."""
        if self.currentIndex().isValid():
            self._choose(self.currentIndex())

    def _choose(self, index: QModelIndex) -> None:
        if self.selectionMode() != QAbstractItemView.SelectionMode.NoSelection and index.isValid():
            value = self._choices.choices[index.row()].value
            if value:
                self.chosen.emit(value)


class OpeningPage(QWidget):
    """What is being read, how far it is, and Cancel."""

    cancelled = Signal()

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self.title = PlainLabel("", "text", 15, 600, wrap=True)
        self.detail = PlainLabel("", "text2", 12)
        self.path = PlainLabel("", "text3", 11, wrap=True)
        self.left = PlainLabel("", "text2", 12)
        self.bar = QProgressBar(textVisible=False, maximum=1000)
        self.cancel = QPushButton("Cancel")
        self.cancel.clicked.connect(self.cancelled)
        box = QWidget()
        box.setFixedWidth(444)
        column = QVBoxLayout(box)
        column.setSpacing(8)
        bottom = QHBoxLayout()
        bottom.addWidget(self.left)
        bottom.addStretch(1)
        bottom.addWidget(self.cancel)
        for widget in (self.title, self.path, self.detail, self.bar):
            column.addWidget(widget)
        column.addLayout(bottom)
        outer = QVBoxLayout(self)
        outer.addStretch(2)
        outer.addWidget(box, 0, Qt.AlignmentFlag.AlignHCenter)
        outer.addStretch(3)
        self.set_tokens(tokens)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        for label in (self.title, self.detail, self.path, self.left):
            label.set_tokens(tokens)

    def begin(self, path: str) -> None:
        """Show that a path is being opened."""
        self.path.setText(breakable(printable(path, 300)))
        self.show_progress("Looking at the path", 0, 0, 0.0, 0.0)
        self.cancel.setFocus()

    def show_progress(self, what: str, done: int, total: int, since_change: float, elapsed: float) -> None:
        """Show how far the worker is; `since_change` seconds have passed since it last said something new."""
        self.title.setText(breakable(printable(what, 200)))
        self.detail.setText(f"{count(done)} of {count(total)}" if total > 0 else f"{elapsed:.0f} s")
        self.bar.setValue(min(1000, 1000 * done // total) if total > 0 else 0)
        if since_change >= _STILL_AFTER:
            self.left.setText(f"Still waiting for storage, {since_change:.0f} s")
        elif 0 < done < total and elapsed > 1:
            self.left.setText(f"{max(1, round(elapsed * (total - done) / done))} s left")
        else:
            self.left.setText("")


class FailurePage(StatePanel):
    """Why a path was not opened, in words, and what can be done about it."""

    openWanted = Signal(str, str)  # noqa: N815  # path, reader or ""
    otherWanted = Signal()  # noqa: N815
    backWanted = Signal()  # noqa: N815
    logWanted = Signal()  # noqa: N815

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self._path = ""
        self._back: str | None = None
        self._as_reader = False
        self.choices = ChoiceList(tokens)
        self.choices.chosen.connect(self._chosen)
        line = QHBoxLayout()
        line.addStretch(1)
        line.addWidget(self.choices)
        line.addStretch(1)
        self.body.addLayout(line)

    def set_tokens(self, tokens: Tokens) -> None:
        super().set_tokens(tokens)
        if hasattr(self, "choices"):  # the base class calls this before there are any
            self.choices.set_tokens(tokens)

    def show_failure(self, failed: Failed, back: str | None) -> None:
        """Show an outcome; `back` names the checkpoint that is still open, if one is."""
        self._path, self._back, self._as_reader = failed.path, back, False
        self.choices.show_choices((), selectable=False)
        error, name = failed.error, printable(os.path.basename(failed.path.rstrip("/")) or failed.path, 80)
        if isinstance(error, ChooseCheckpointError):
            told_of = words_below(failed.path)
            children = [
                Choice(printable(child, 200), told_of.get(child.replace(os.sep, "/"), ""), child)
                for child in error.children
            ]
            self._show("layers", f"{name} holds {plural(len(children), 'checkpoint')}", printable(failed.path),
                       "Open the chosen one", self.choices.choose_current)  # fmt: skip
            self.choices.show_choices(children, selectable=True)
        elif isinstance(error, AmbiguousFormatError):
            self._as_reader = True
            readers = [Choice(printable(r, 80), printable(told, 200), r) for r, told in error.claims.items()]
            self._show("file", f"{plural(len(readers), 'format')} fit {name}", "Choose the one that it is",
                       "Read it as the chosen one", self.choices.choose_current)  # fmt: skip
            self.choices.show_choices(readers, selectable=True)
        elif isinstance(error, UnknownFormatError):
            kind = "folder" if failed.is_folder else "file"
            told = printable(error.stranger, 300) or printable(failed.path)
            words = f"{told}\nReaders tried: {len(error.reasons)}"
            self._show("file", f"No reader recognises this {kind}", words, "Why each reader said no",
                       lambda: self._show_reasons(error.reasons))  # fmt: skip
        elif isinstance(error, TensormorphError):
            sentence = printable(error.why if isinstance(error, CannotOpenError) else error.sentence, 600)
            self._show("circle-x", f"{name} cannot be opened", f"{sentence}\n{printable(error.path or failed.path)}",
                       "Try again", self._again, "err")  # fmt: skip
        else:
            kind = type(error).__name__
            told = printable(str(error), 300)
            words = f"internal-error, {kind}{': ' + told if told else ''}\n{printable(failed.path)}"
            self._show("bug", f"{name} was not opened: the program failed", words, "Show the log",
                       self.logWanted.emit, "err")  # fmt: skip

    def _show(
        self, icon: str, title: str, sentence: str, first: str, call: Callable[[], None], colour: str = "text2"
    ) -> None:
        actions = [(first, call), ("Open another", self.otherWanted.emit)]
        if self._back is not None:
            actions.append((f"Back to {self._back}".replace("&", "&&"), self.backWanted.emit))
        self.show_state(icon, title, sentence, actions, colour)
        self.buttons[0].setFocus()

    def _show_reasons(self, reasons: dict[str, str]) -> None:
        lines = [Choice(printable(reader, 80), printable(why, 300), "") for reader, why in reasons.items()]
        self.choices.show_choices(lines, selectable=False)

    def _again(self) -> None:
        self.openWanted.emit(self._path, "")

    def _chosen(self, value: str) -> None:
        if self._as_reader:
            self.openWanted.emit(self._path, value)
        else:
            self.openWanted.emit(os.path.join(self._path, value), "")
