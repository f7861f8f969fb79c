"""The status bar: what is open, the element under the pointer, and what was read so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QStatusBar, QWidget

import tensormorph
from tensormorph.gui.session import summary
from tensormorph.gui.states import PlainLabel
from tensormorph.gui.theme import Tokens
from tensormorph.text import printable, size

if TYPE_CHECKING:
    from tensormorph.gui.opening import Opened

_SHOWN_MS = 8000


class StatusLine(QStatusBar):
    """24 pixels at the bottom of the window."""

    def __init__(self) -> None:
        super().__init__()
        self.facts = PlainLabel("", "text2", 11)
        self.element = PlainLabel("", "text2", 11)
        self.bytes = PlainLabel("", "text2", 11)
        self._opened: Opened | None = None
        self._by_elements = self._by_views_before = 0
        self._by_view: dict[QWidget, int] = {}
        self.setSizeGripEnabled(False)
        self.setFixedHeight(24)
        self.setContentsMargins(12, 0, 12, 0)
        self.addWidget(self.facts, 1)
        self.addPermanentWidget(self.element)
        self.addPermanentWidget(self.bytes)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        for label in (self.facts, self.element, self.bytes):
            label.set_tokens(tokens)

    def show_opened(self, opened: Opened | None) -> None:
        """Describe what is open; nothing of it was read yet."""
        self._opened = opened
        self._by_elements, self._by_views_before = 0, sum(self._by_view.values())
        self.facts.setText("No checkpoint open" if opened is None else summary(opened))
        self._show_bytes()

    def show_element(self, text: str) -> None:
        """Show the element under the pointer."""
        self.element.setText(printable(text, 300))

    def count_element(self, n_bytes: int) -> None:
        """Count what reading one element took."""
        self._by_elements += n_bytes
        self._show_bytes()

    def count_view(self, view: QWidget, total: int) -> None:
        """Take what a view has read since the program began."""
        self._by_view[view] = total
        self._show_bytes()

    def _show_bytes(self) -> None:
        if self._opened is None:
            version = f"Tensormorph {tensormorph.__version__}"
            self.bytes.setText(f"Reads only, runs no code from a checkpoint  ·  {version}")
        else:
            read = self._by_elements + sum(self._by_view.values()) - self._by_views_before
            self.bytes.setText(f"{size(read)} of values read")

    def say(self, text: str) -> None:
        """Show a line for a few seconds."""
        self.showMessage(printable(text, 300), _SHOWN_MS)
