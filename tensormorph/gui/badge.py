"""The title row of a picture: the full name, the bytes read, and whether what is shown is exact."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QFont, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from tensormorph.gui.painting import draw_icon, draw_text, fill_round, tooltip, width_of
from tensormorph.gui.states import PlainLabel
from tensormorph.gui.theme import Tokens, mono_font, ui_font
from tensormorph.mesh import Provenance
from tensormorph.text import printable

Exactness = Literal["", "exact", "sampled", "reading"]


class Badge(QWidget):
    """``exact`` on green, ``sampled 1:64`` on amber with a dashed ring, ``reading`` in grey; or nothing."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self._kind: Exactness = ""
        self._step = 1
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    @property
    def text(self) -> str:
        """What it says."""
        return f"sampled 1:{self._step}" if self._kind == "sampled" else self._kind

    def say(self, kind: Exactness, step: int = 1) -> None:
        """Say something else; `step` is the N of 1:N."""
        if (kind, step) != (self._kind, self._step):
            self._kind, self._step = kind, step
            self.setAccessibleName(self.text)
            self.setToolTip(
                {
                    "exact": "Every element in sight was read",
                    "sampled": f"About one element in {step} was read: a block may hold lower and higher values",
                    "reading": "The picture in sight is still being read",
                    "": "",
                }[kind]
            )
            self.updateGeometry()
            self.update()

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(width_of(self.text, ui_font(11, 600)) + 32, 22) if self._kind else QSize(0, 22)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._kind:
            return
        tokens = self._tokens
        colour, ground, mark = {
            "exact": (tokens.ok, tokens.okbg, "check"),
            "sampled": (tokens.warn, tokens.warnbg, "circle-dashed"),
            "reading": (tokens.text2, tokens.neutbg, "hourglass"),
        }[self._kind]
        painter = QPainter(self)
        fill_round(painter, self.rect(), ground, 4)
        draw_icon(painter, QRect(6, 0, 14, self.height()), mark, colour, 12)
        draw_text(painter, self.rect().adjusted(24, 0, -4, 0), self.text, colour, ui_font(11, 600))


class ProvenancePill(QWidget):
    """``recorded`` on green with a check; ``inferred`` and ``stated`` outlined in grey with a dashed ring; or nothing.

    A dashed ring means: not certain.
    """

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self.text = ""
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def say(self, provenance: Provenance | None) -> None:
        """Say something else."""
        self.text = provenance or ""
        self.setAccessibleName(self.text)
        self.setToolTip(
            {
                "recorded": "The files say so",
                "inferred": "No file says so: it was found from what ranks stored",
                "stated": "Stated by you, not by the files",
                "": "",
            }[self.text]
        )
        self.updateGeometry()
        self.update()

    @property
    def mark(self) -> str:
        """The icon that stands before the word."""
        return "check" if self.text == "recorded" else "circle-dashed" if self.text else ""

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(width_of(self.text, ui_font(11)) + 30, 18) if self.text else QSize(0, 18)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.text:
            return
        tokens, painter = self._tokens, QPainter(self)
        sure = self.text == "recorded"
        colour = tokens.ok if sure else tokens.text2
        fill_round(painter, self.rect(), tokens.okbg if sure else tokens.panel, 4, None if sure else tokens.border2)
        draw_icon(painter, QRect(6, 0, 12, self.height()), self.mark, colour, 12)
        draw_text(painter, self.rect().adjusted(22, 0, -4, 0), self.text, colour, ui_font(11))


class ElidedLabel(QWidget):
    """One line of plain text that takes the room there is, so that no text widens the window; in full as a tooltip."""

    def __init__(self, tokens: Tokens, colour: str, font: QFont, elide: Qt.TextElideMode) -> None:
        super().__init__()
        self._tokens, self._colour, self._elide, self._text = tokens, colour, elide, ""
        self.setFont(font)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    @property
    def text(self) -> str:
        """The text in full."""
        return self._text

    def set_text(self, text: str, hint: str | None = None) -> None:
        """Show another text, printable or not; `hint` is the tooltip, by default the text itself."""
        if text != self._text:
            self._text = printable(text, 2000)
            self.setAccessibleName(self._text)
            self.update()
        self.setToolTip(tooltip(text if hint is None else hint) if text else "")

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        colour: str = getattr(self._tokens, self._colour)
        draw_text(QPainter(self), self.rect(), self._text, colour, self.font(), elide=self._elide)


class TitleRow(QWidget):
    """36 pixels: name left, bytes and badge right."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self.name = ElidedLabel(tokens, "text", mono_font(12, bold=True), Qt.TextElideMode.ElideMiddle)
        self.read = PlainLabel("", "text2", 12)
        self.badge = Badge(tokens)
        self.setFixedHeight(36)
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 0, 14, 0)
        row.setSpacing(10)
        row.addWidget(self.name, 1)
        row.addWidget(self.read)
        row.addWidget(self.badge)
        self.set_tokens(tokens)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self.name.set_tokens(tokens)
        self.read.set_tokens(tokens)
        self.badge.set_tokens(tokens)
