"""Shows what a checkpoint holds beside tensors: step, scheduler, configuration, ... as an outline of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPlainTextEdit, QVBoxLayout, QWidget

from tensormorph.errors import TensormorphError
from tensormorph.gui.background import Lane
from tensormorph.gui.states import PlainLabel, breakable
from tensormorph.gui.theme import Tokens, mono_font
from tensormorph.model import StoredObject
from tensormorph.text import count, printable, size

_MOST_LINES = 2000
_MOST_LEVELS = 40


class ObjectView(QWidget):
    """Name, type and value of one object; the value is read in a thread."""

    internalError = Signal(object)  # noqa: N815

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._lane = Lane("object")
        self.name = PlainLabel("", "text", 17, 600, wrap=True)
        self.about = PlainLabel("", "text2", 12, wrap=True)
        self.value = QPlainTextEdit(readOnly=True)
        self.value.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.value.setFont(mono_font(11))
        self.value.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.value.setAccessibleName("Value of the object")
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 0, 0)
        column.setSpacing(6)
        for widget in (self.name, self.about, self.value):
            column.addWidget(widget)
        self.set_tokens(tokens)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self.name.set_tokens(tokens)
        self.about.set_tokens(tokens)

    def clear(self) -> None:
        """Show nothing."""
        self._lane.drop()
        self.value.clear()

    def show_object(self, stored: StoredObject) -> None:
        """Show an object."""
        self.name.setText(breakable(printable(stored.name, 200)))
        where = f"{printable(stored.file, 200)}, byte {count(stored.offset)}" if stored.file else ""
        own = f", {size(stored.n_bytes)}" if stored.n_bytes is not None else ""
        kind = f"{printable(stored.type, 200)}{own}"
        self.about.setText(breakable(f"{kind}\n{where}".rstrip()))
        self.value.setPlainText("Reading…")
        self._lane.ask(lambda: "\n".join(outline_of(stored.load())), self.value.setPlainText, self._failed)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, TensormorphError):
            self.value.setPlainText(f"It cannot be read: {printable(str(error), 1000)}")
        else:
            self.value.setPlainText("Internal error; see the log")
            self.internalError.emit(error)


def outline_of(value: Any) -> list[str]:
    """Return JSON-like data as indented lines of printable text, at most _MOST_LINES of them."""
    lines: list[str] = []
    # A stack, not recursion: a stranger's object may be nested as deep as it likes.
    waiting: list[tuple[int, str, Any]] = [(0, "", value)]
    while waiting:
        level, label, item = waiting.pop()
        if len(lines) >= _MOST_LINES:
            lines.append(f"… and more ({count(len(waiting) + 1)} branches are not shown)")
            break
        head = "  " * min(level, _MOST_LEVELS) + label
        children: list[tuple[str, Any]] = []
        if isinstance(item, Mapping) and item:
            children = [(f"{printable(str(key), 120)}: ", inner) for key, inner in item.items()]
        elif isinstance(item, Sequence) and not isinstance(item, (str, bytes)) and item:
            if len(item) <= 16 and all(isinstance(i, (int, float, bool, type(None))) for i in item):
                lines.append(f"{head}[{', '.join(map(str, item))}]")
                continue
            children = [(f"{i}: ", inner) for i, inner in enumerate(item[:_MOST_LINES])]
        if children:
            if head.strip():
                lines.append(head.rstrip(" ").removesuffix(":"))
            waiting += [(level + bool(head.strip()), label, inner) for label, inner in reversed(children)]
        else:
            lines.append(head + (printable(item, 1000) if isinstance(item, str) else printable(repr(item), 1000)))
    return lines
