"""Parts of the Inspector: a section with its heading, and a problem in words."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from tensormorph.errors import Problem
from tensormorph.gui.icons import icon
from tensormorph.gui.painting import SEVERITY_ICON, severity_colours
from tensormorph.gui.states import PlainLabel, breakable, tool_button
from tensormorph.gui.theme import Tokens
from tensormorph.text import printable


class Section(QWidget):
    """A part with a line above it and a heading."""

    def __init__(self, title: str, line: bool = True) -> None:
        super().__init__()
        self.heading = PlainLabel(title, "text", 12, 600)
        self.note = PlainLabel("", "text3", 11)
        self._rule = QFrame()
        self._rule.setFrameShape(QFrame.Shape.NoFrame)
        self._rule.setFixedHeight(1)
        self._rule.setAutoFillBackground(True)
        if not line:
            self._rule.hide()  # showing it here, without a parent yet, would make a window of it
        top = self.top = QHBoxLayout()
        top.setContentsMargins(16, 10, 16, 0)
        top.addWidget(self.heading)
        top.addStretch(1)
        top.addWidget(self.note)
        self.body = QVBoxLayout()
        self.body.setContentsMargins(16, 4, 16, 12)
        self.body.setSpacing(2)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._rule)
        column.addLayout(top)
        if not title:  # the labels are in the layout all the same: without a parent, any thread might delete them
            top.setContentsMargins(0, 0, 0, 0)
            self.heading.hide()
            self.note.hide()
        column.addLayout(self.body)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme, for all labels in it too."""
        palette = self._rule.palette()
        palette.setColor(self._rule.backgroundRole(), tokens.border)
        self._rule.setPalette(palette)
        for label in self.findChildren(PlainLabel):
            label.set_tokens(tokens)


def problem_row(problem: Problem, tokens: Tokens, show: Callable[[], None]) -> QWidget:
    """Return a problem with its mark, sentence and hint; the mark calls `show`."""
    row = QWidget()
    line = QHBoxLayout(row)
    line.setContentsMargins(0, 2, 0, 2)
    line.setSpacing(8)
    mark = tool_button(tip="Show in Problems")
    mark.setIcon(icon(SEVERITY_ICON[problem.severity], severity_colours(tokens, problem.severity)[0]))
    mark.clicked.connect(lambda _=False: show())
    words = QVBoxLayout()
    words.setSpacing(2)
    words.setContentsMargins(0, 4, 0, 0)
    labels = [PlainLabel(breakable(printable(problem.sentence, 600)), "text", 12, wrap=True)]
    if problem.hint:
        labels.append(PlainLabel(breakable(printable(problem.hint, 400)), "text2", 11, wrap=True))
    for label in labels:
        label.set_tokens(tokens)
        words.addWidget(label)
    line.addWidget(mark, 0, Qt.AlignmentFlag.AlignTop)
    line.addLayout(words, 1)
    return row
