"""The statistics of the selected tensor, in the Inspector: of small ones at once, of large ones when asked for."""

from __future__ import annotations

import threading
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QPushButton

from tensormorph import stats
from tensormorph.errors import CancelledError
from tensormorph.gui.background import Lane, post
from tensormorph.gui.badge import Badge
from tensormorph.gui.cost import cost_text
from tensormorph.gui.sections import Section
from tensormorph.gui.selection import Selection
from tensormorph.gui.settings import COSTLY_BYTES
from tensormorph.gui.states import PlainLabel, breakable
from tensormorph.gui.theme import Tokens
from tensormorph.model import LogicalTensor
from tensormorph.text import count, printable, size

UNASKED_BYTES = 64 << 20
"""Tensors of up to so many bytes are read at once: about a tenth of a second from a warm disk."""
_NUMBERS = ("min", "max", "mean", "rms", "std", "L2 norm", "zeros", "NaN, Inf")


class StatisticsSection(Section):
    """Numbers over every finite element of the selected tensor, with their badge; never over a sample."""

    bytesRead = Signal(int)  # noqa: N815
    internalError = Signal(object)  # noqa: N815
    elementWanted = Signal(object)  # noqa: N815  # the index of the first NaN or Inf

    def __init__(self, selection: Selection, tokens: Tokens) -> None:
        super().__init__("Statistics")
        self._selection = selection
        self._lane = Lane("statistics")
        self._post = post()
        self._stop = threading.Event()
        self.badge = Badge(tokens)
        self.numbers: dict[str, PlainLabel] = {}
        grid = QGridLayout()
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(4)
        for i, name in enumerate(_NUMBERS):
            self.numbers[name] = PlainLabel("", "text", 12)
            at = 2 * (i % 2)
            grid.addWidget(PlainLabel(name, "text2", 12), i // 2, at)
            grid.addWidget(self.numbers[name], i // 2, at + 1)
        grid.setColumnStretch(1, 1)
        grid.setColumnStretch(3, 1)
        self._grid = grid
        self.words = PlainLabel("", "text2", 12, wrap=True)
        self.read = QPushButton()
        self.cancel = QPushButton("Cancel")
        self.first_bad = QPushButton("Show the first NaN or Inf")
        self.read.clicked.connect(self._begin)
        self.cancel.clicked.connect(self._cancelled)
        self.first_bad.clicked.connect(self._show_bad)
        line = QHBoxLayout()
        for widget in (self.badge, self.read, self.cancel, self.first_bad):
            line.addWidget(widget)
        line.addStretch(1)
        self.body.addLayout(line)
        self.body.addWidget(self.words)
        self.body.addLayout(grid)
        self._bad: tuple[int, ...] | None = None
        self.costly_bytes = COSTLY_BYTES
        self.show_tensor(None)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        super().set_tokens(tokens)
        self.badge.set_tokens(tokens)

    def set_costly_bytes(self, n_bytes: int) -> None:
        """Take another limit of what is costly; what is shown or being read stays."""
        self.costly_bytes = n_bytes
        if self.read.isVisible():
            self.show_tensor(self._selection.source)

    def show_tensor(self, tensor: LogicalTensor | None) -> None:
        """Show another tensor; what is still being read of the former one is given up."""
        self._stop.set()
        self._lane.drop()
        self._clear()
        self.setVisible(tensor is not None and tensor.n_elements > 0 and tensor.encoding.readable)
        if tensor is None or self.isHidden():
            return
        cost = tensor.n_bytes or 0
        if cost <= min(UNASKED_BYTES, self.costly_bytes):
            self._begin()
        else:
            self.read.setText(f"Read all {size(cost)}")
            self.read.show()
            costly = cost > self.costly_bytes
            self.words.setText(
                f"{cost_text(self._selection, cost)}, for numbers over every element"
                if costly
                else "Numbers over every element need the whole tensor read once"
            )
            self.words.show()

    def _clear(self) -> None:
        self._bad = None
        self.badge.say("")
        for widget in (self.read, self.cancel, self.first_bad, self.words):
            widget.hide()
        for i in range(self._grid.count()):
            item = self._grid.itemAt(i)
            widget_of = item.widget() if item is not None else None
            if widget_of is not None:
                widget_of.hide()

    def _begin(self) -> None:
        tensor = self._selection.source
        if tensor is None:
            return
        self._clear()
        self._stop = stop = threading.Event()
        self.badge.say("reading")
        total = tensor.n_bytes or 0  # the pieces would tell more, but may look into files for it
        self.cancel.setVisible(total > UNASKED_BYTES)
        shown = [0]

        def report(n_bytes: int) -> None:
            if stop.is_set():
                raise CancelledError
            if n_bytes - shown[0] >= UNASKED_BYTES:
                shown[0] = n_bytes
                self._post(partial(self._say_progress, stop, n_bytes, total))

        self._lane.ask(partial(stats.statistics, tensor, report=report), self._show, self._failed)

    def _say_progress(self, stop: threading.Event, done: int, total: int) -> None:
        if stop is self._stop and not stop.is_set():
            self.words.setText(f"{size(done)} of {size(total)} read")
            self.words.show()

    def _cancelled(self) -> None:
        self._stop.set()
        self._lane.drop()
        self._clear()
        self.read.setText("Read again")
        self.read.show()

    def _show(self, found: stats.Statistics) -> None:
        self._clear()
        self.bytesRead.emit(found.n_bytes)
        texts = {
            "min": found.min, "max": found.max, "mean": found.mean, "rms": found.rms, "std": found.std,
            "L2 norm": found.l2,
        }  # fmt: skip
        for name, value in texts.items():
            self.numbers[name].setText("none" if value is None else _number(value))
        self.numbers["zeros"].setText(count(found.n_zero))
        self.numbers["NaN, Inf"].setText(count(found.n_nan + found.n_posinf + found.n_neginf))
        for i in range(self._grid.count()):
            item = self._grid.itemAt(i)
            widget = item.widget() if item is not None else None
            if widget is not None:
                widget.show()
        self.badge.say("exact" if found.exact else "")
        if not found.exact:
            self.words.setText(f"{count(found.n_unread)} of {count(found.n_elements)} elements cannot be read: the "
                               "numbers are over the others")  # fmt: skip
            self.words.show()
        if found.first_bad is not None:
            self._bad = found.first_bad.index
            self.first_bad.show()

    def _show_bad(self) -> None:
        if self._bad is not None:
            self.elementWanted.emit(self._bad)

    def _failed(self, error: Exception) -> None:
        self._clear()
        if isinstance(error, CancelledError):
            return
        self.words.setText(breakable(printable(str(error), 400)))
        self.words.show()
        self.internalError.emit(error)


def _number(value: int | float) -> str:
    """Return a number of about six digits with the sign that people read; whole numbers whole."""
    text = count(value) if isinstance(value, int) else f"{value:.6g}"
    return text.replace("-", "\u2212")
