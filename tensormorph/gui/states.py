"""The quiet pictures that stand where there is nothing to show: an icon, what it is, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QToolButton, QVBoxLayout, QWidget

from tensormorph.gui.icons import icon, pixmap
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.text import printable, shape

if TYPE_CHECKING:
    from tensormorph.gui.selection import Selection

_LONG_RUN = re.compile(r"(\S{20}|[/\\._-])(?=\S)")
_WIDTH = 560


def breakable(text: str) -> str:
    """Return a text that wraps also inside a path or a long name: zero-width spaces stand where it may break."""
    return _LONG_RUN.sub("\\1\u200b", text)


class PlainLabel(QLabel):
    """A label that shows letters and never markup, in a colour of the theme."""

    def __init__(
        self, text: str = "", colour: str = "text", size_px: int = 13, weight: int = 400, *, wrap: bool = False
    ) -> None:
        super().__init__()
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setFont(ui_font(size_px, weight))  # type: ignore[arg-type]
        self.setWordWrap(wrap)
        self._colour = colour
        self.setText(text)

    def set_colour(self, colour: str, tokens: Tokens) -> None:
        """Take another token of the theme."""
        self._colour = colour
        self.set_tokens(tokens)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colour from a theme."""
        palette = self.palette()
        palette.setColor(self.foregroundRole(), getattr(tokens, self._colour))
        self.setPalette(palette)


Action = tuple[str, Callable[[], None]]


class StatePanel(QWidget):
    """Icon, title, sentence and buttons, in the middle; the first button is the primary one."""

    def __init__(self, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tokens = tokens
        self._icon_name, self._icon_colour = "", "text2"
        self._icon = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.title = PlainLabel("", "text", 15, 600, wrap=True)
        self.sentence = PlainLabel("", "text2", 12, wrap=True)
        for label in (self.title, self.sentence):
            label.setAlignment(Qt.AlignmentFlag.AlignCenter)
            label.setMaximumWidth(_WIDTH)
        self.buttons: list[QPushButton] = []
        self._row = QHBoxLayout()
        self._row.setSpacing(8)
        self.body = QVBoxLayout()
        self.body.setSpacing(8)
        column = QVBoxLayout(self)
        column.setContentsMargins(24, 24, 24, 24)
        column.addStretch(2)
        column.addWidget(self._icon)
        column.addSpacing(4)
        for widget in (self.title, self.sentence):
            line = QHBoxLayout()
            line.addStretch(1)
            line.addWidget(widget, 8)
            line.addStretch(1)
            column.addLayout(line)
        column.addSpacing(8)
        column.addLayout(self.body)
        column.addLayout(self._row)
        column.addStretch(3)
        column.setSpacing(8)

    def show_state(
        self, icon_name: str, title: str, sentence: str, actions: Sequence[Action] = (), colour: str = "text2"
    ) -> None:
        """Replace what is shown. Texts must be printable already."""
        self._icon_name, self._icon_colour = icon_name, colour
        self.title.setText(breakable(title))
        self.sentence.setText(breakable(sentence))
        self.sentence.setVisible(bool(sentence))
        while self._row.count():
            item = self._row.takeAt(0)
            widget = item.widget() if item is not None else None
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        self.buttons = []
        self._row.addStretch(1)
        for text, call in actions:
            button = QPushButton(text, self)
            button.setDefault(not self.buttons)
            button.clicked.connect(lambda _=False, call=call: call())
            self._row.addWidget(button)
            self.buttons.append(button)
        self._row.addStretch(1)
        self.set_tokens(self._tokens)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.title.set_tokens(tokens)
        self.sentence.set_tokens(tokens)
        if self._icon_name:
            colour = getattr(tokens, self._icon_colour)
            self._icon.setPixmap(pixmap(self._icon_name, colour, 28, self.devicePixelRatioF()))


def button_with_icon(text: str, name: str, tokens: Tokens, *, primary: bool = False) -> QPushButton:
    """Return a push button with an icon in the colour of its text."""
    made = QPushButton(f" {text}")  # room between icon and words
    made.setAccessibleName(text)
    made.setDefault(primary)
    made.setIcon(icon(name, tokens.onaccent if primary else tokens.text))
    return made


def tool_button(text: str = "", tip: str = "") -> QToolButton:
    """Return a flat button with words or, once it has one, an icon; the tooltip is its name for screen readers too."""
    made = QToolButton()
    made.setText(text)
    made.setToolTip(tip)
    made.setAccessibleName(text or tip)
    return made


def state_words(selection: Selection, icon_name: str) -> tuple[str, str, str, str] | None:
    """Return icon, title, sentence and colour where a view can show no values; the icon is its own without a tensor."""
    name, tensor, checkpoint = selection.name, selection.source, selection.checkpoint
    if tensor is None and selection.view is not None:
        view = selection.view
        trouble = selection.trouble
        if trouble is None:
            return "hourglass", "Looking at what is stored", view.place, "text2"
        return "circle-x", f"{view.short} cannot be read", printable(str(trouble), 600), "err"
    if tensor is None:
        lost = checkpoint.unreadable.get(name) if checkpoint is not None and name is not None else None
        if lost is None:
            return icon_name, "Choose a tensor", "Its values, places and statistics appear here", "text2"
        why = " ".join(problem.sentence for problem in lost.problems) or "Nothing usable is stored"
        return "circle-x", f"{printable(lost.name, 120)} cannot be read", why, "err"
    if not tensor.encoding.readable:
        dtype = printable(tensor.encoding.name, 60)
        why = "No published packing tells how its bytes become numbers. The Inspector lists where they lie."
        return "circle-x", f"Values of dtype {dtype} cannot be decoded", why, "err"
    if 0 in tensor.shape:
        if selection.view is not None and selection.tensor is not None and 0 not in selection.tensor.shape:
            return "square-dashed", "Empty, as it should be", f"{selection.view.short} holds no element", "text2"
        return "square-dashed", "No elements", f"Its shape is {shape(tensor.shape)}", "text2"
    return None


def title_text(selection: Selection) -> str:
    """Return the name of what a view shows: the tensor's, with the piece or rank where one is looked at."""
    view = selection.view
    return selection.name or "" if view is None else f"{selection.name}  {view.short}"
