"""The card over a picture that would be expensive to read exactly: what that costs, and what a sample does."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from tensormorph.gui.cost import cost_text
from tensormorph.gui.painting import draw_icon, fill_round
from tensormorph.gui.picture_box import PictureBox
from tensormorph.gui.selection import Selection
from tensormorph.gui.states import PlainLabel
from tensormorph.gui.theme import Tokens
from tensormorph.gui.viewer import Viewer
from tensormorph.text import size

_BELOW = 16
"""Logical pixels between the upper edge of the picture and the card."""


class CostCard(QWidget):
    """Says what the exact picture costs while a sampled one is seen; hidden below the limit, and once answered.

    It lies over the picture, whose size thus does not depend on what that size costs.
    """

    answered = Signal()
    """A person chose one of the two."""
    allWanted = Signal()  # noqa: N815

    def __init__(self, tokens: Tokens, picture: PictureBox) -> None:
        super().__init__(picture)
        self._picture = picture
        self._tokens = tokens
        self._answered: set[int] = set()
        self._number = 0
        self.title, self.sentence = PlainLabel("", "text", 13, 600), PlainLabel("", "text2", 12)
        self.sample, self.all = QPushButton("Sample first"), QPushButton()
        self.sample.setDefault(True)
        self.sample.setToolTip("Keep the sampled picture")
        words = QVBoxLayout()
        words.setSpacing(0)
        words.addWidget(self.title)
        words.addWidget(self.sentence)
        self._line = line = QHBoxLayout(self)
        line.setContentsMargins(46, 8, 12, 8)
        line.setSpacing(8)
        line.addLayout(words, 1)
        line.addSpacing(8)
        line.addWidget(self.sample)
        line.addWidget(self.all)
        self.sample.clicked.connect(self._answer)
        self.all.clicked.connect(self._answer)
        self.all.clicked.connect(self.allWanted)
        self.hide()

    def tell(self, viewer: Viewer, selection: Selection, step: int) -> None:
        """Say what the exact picture in sight costs, if that is costly; `step` is the N of 1:N in sight, 1 for none."""
        self._number = viewer.number
        shown = viewer.costly and not viewer.reads_all and viewer.number not in self._answered
        if shown:
            self.title.setText(cost_text(selection, viewer.cost, viewer.sight))
            ratio = f" (1:{step})" if step > 1 else ""
            self.sentence.setText(f"A sampled picture{ratio} needs {size(viewer.sample_cost)}")
            self.all.setText(f"Read all {size(viewer.cost)}")
            self._line.activate()  # else the size is still that of the words before
            self.resize(self._line.sizeHint())
            room = self._picture.screen
            self.move(round(room.center().x() - self.width() / 2), round(room.top()) + _BELOW)
            self.raise_()
        self.setVisible(shown)

    def forget(self) -> None:
        """Ask again about all planes."""
        self._answered.clear()

    def _answer(self) -> None:
        self._answered.add(self._number)
        self.hide()
        self.answered.emit()

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.title.set_tokens(tokens)
        self.sentence.set_tokens(tokens)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        fill_round(painter, self.rect(), self._tokens.raised, 8, self._tokens.border2)
        draw_icon(painter, self.rect().adjusted(14, 0, 34 - self.width(), 0), "ruler", self._tokens.text2, 20)
