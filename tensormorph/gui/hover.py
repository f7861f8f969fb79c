"""The card by the pointer: one element, its exact value, and where it is stored. Never a value folded from several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QFont, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from tensormorph.gui.jobs import ElementResult
from tensormorph.gui.painting import draw_line, draw_text, fill_round, width_of
from tensormorph.gui.theme import Tokens, mono_font, ui_font
from tensormorph.model import Holder
from tensormorph.text import count, listing, plural, printable

_PAD = 12
_MOST_WIDTH = 420
_AWAY = 18
"""Logical pixels between the pointer and the card."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the card: text, token of its colour, font."""

    text: str
    colour: str
    font: QFont
    height: int


def index_text(index: tuple[int, ...]) -> str:
    """Return an index as numpy writes it; a scalar's is empty brackets."""
    return f"[{', '.join(str(i) for i in index)}]"


def value_text(result: ElementResult) -> str:
    """Return the value as on screen, with a true minus."""
    return result.text.replace("-", "−")


def place_text(holder: Holder) -> str:
    """Return rank, file and, where it is known, byte of a place where an element is stored."""
    rank = "" if holder.rank is None else f"rank {holder.rank}   "
    bit = f" bit {holder.bit}" if holder.bit else ""
    byte = "" if holder.offset is None else f"   byte {count(holder.offset)}{bit}"
    return f"{rank}{printable(holder.file, 60)}{byte}"


def others_text(holders: Sequence[Holder]) -> str:
    """Return who else holds an element: replicas of the first, and further terms that add up with it."""
    first = holders[0] if holders else None
    copies = [holder for holder in holders[1:] if first is not None and holder.term == first.term]
    terms = len({holder.term for holder in holders})
    told: list[str] = []
    if copies:
        ranks = [str(holder.rank) for holder in copies if holder.rank is not None]
        on = f"rank{'s' if len(ranks) > 1 else ''} {listing(ranks, 4)}" if len(ranks) == len(copies) else ""
        where = f"on {on}" if on else f"in {listing([holder.file for holder in copies], 1)}"
        told.append(f"{plural(len(copies), 'replica')} {where}")
    if terms > 1:
        told.append(f"one of {terms} terms that add up")
    return ", ".join(told)


def deviation_text(value: float | None, mean: float | None, deviation: float | None) -> str:
    """Return how far a value lies from the mean, in standard deviations; empty where that is not known exactly."""
    if value is None or mean is None or not deviation or not abs(value) < float("inf"):
        return ""
    away = (value - mean) / deviation
    digits = 0 if abs(away) >= 10 else 1
    return f"{abs(away):.{digits}f} σ {'above' if away >= 0 else 'below'} the mean"


class HoverCard(QWidget):
    """Shows an ElementResult beside the pointer; passes all mouse events on."""

    def __init__(self, tokens: Tokens, parent: QWidget) -> None:
        super().__init__(parent)
        self._tokens = tokens
        self._lines: list[Line] = []
        self._rule = -1
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    @property
    def texts(self) -> list[str]:
        """The lines shown, from the top."""
        return [line.text for line in self._lines]

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.update()

    def show_waiting(self, index: tuple[int, ...], at: QPoint) -> None:
        """Show the index while its element is read."""
        self.fill(index_text(index), [Line("…", "text3", ui_font(15, 600), 24)], (), at)

    def show_element(self, result: ElementResult, note: str, at: QPoint) -> None:
        """Show an element that was read, or why it has no value."""
        if result.problem is not None:
            body = [Line("no value", "err", ui_font(15, 600), 24)]
            words = printable(result.problem.sentence, 300).split()
            while words:
                taken = [words.pop(0)]
                while words and width_of(" ".join([*taken, words[0]]), ui_font(11)) <= _MOST_WIDTH - 2 * _PAD:
                    taken.append(words.pop(0))
                body.append(Line(" ".join(taken), "text2", ui_font(11), 17))
        else:
            body = [Line(value_text(result), "text", ui_font(15, 600), 24)]
            if note:
                body.append(Line(note, "text2", ui_font(12), 19))
        places = [place_text(holder) for holder in result.holders[:1]]
        self.fill(index_text(result.index), body, [*places, *filter(None, [others_text(result.holders)])], at)

    def fill(self, index: str, body: list[Line], where: Sequence[str], at: QPoint) -> None:
        """Show a heading, lines, and below a rule where that is stored."""
        self._lines = [Line(index, "text2", mono_font(12), 20), *body]
        self._rule = -1
        if where:
            self._rule = len(self._lines)
            self._lines += [Line(line, "text2", ui_font(11), 18) for line in where]
        wide = max(width_of(line.text, line.font) for line in self._lines) + 2 * _PAD + 2
        high = sum(line.height for line in self._lines) + 2 * 9 + (13 if where else 0)
        self.resize(min(wide, _MOST_WIDTH), high)
        self.move_near(at)
        self.show()
        self.raise_()
        self.update()

    def move_near(self, at: QPoint) -> None:
        """Stand right below a point of the parent, or on its other side where there is no room."""
        parent = self.parentWidget()
        room = self.rect() if parent is None else parent.rect()
        x, y = at.x() + _AWAY, at.y() + _AWAY
        if x + self.width() > room.right():
            x = at.x() - _AWAY - self.width()
        if y + self.height() > room.bottom():
            y = at.y() - _AWAY - self.height()
        self.move(max(room.left(), x), max(room.top(), y))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        tokens = self._tokens
        fill_round(painter, self.rect(), tokens.raised, 6, tokens.border2)
        y = 9
        for k, line in enumerate(self._lines):
            if k == self._rule:
                draw_line(painter, _PAD, y + 6, self.width() - _PAD - 1, y + 6, tokens.border)
                y += 13
            rect = QRect(_PAD, y, self.width() - 2 * _PAD, line.height)
            middle = Qt.TextElideMode.ElideMiddle
            draw_text(painter, rect, line.text, getattr(tokens, line.colour), line.font, elide=middle)
            y += line.height
