"""Axes of elements: ticks at powers of two, at the end, and at single elements when these are large."""

from __future__ import annotations

import math
from typing import Any, Literal

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.text import count

_LEAST_RIGHT = 64
_LEAST_DOWN = 40
"""Logical pixels between two labels."""
_OUTSIDE = 24
"""Logical pixels by which labels may reach beyond the ends of the axis."""


def ticks(n: int, first: float, last: float, pixels: float, least: float) -> list[int]:
    """Return the elements to label: multiples of a power of two at least `least` pixels apart, and the end.

    Parameters
    ----------
    n
        Elements along the axis; the end is labelled with it.
    first, last
        Positions among the elements at the two ends of the screen.
    pixels
        Length of the axis.
    """
    if last <= first or pixels <= 0:
        return []
    a_pixel = (last - first) / pixels
    step = 1
    while step < least * a_pixel:
        step *= 2
    begin = max(0, math.ceil(first / step) * step)
    places = list(range(begin, min(n, int(last) + 1), step))
    if first <= n <= last + a_pixel:
        # The end stands for itself; a tick that would touch it gives way.
        places = [place for place in places if n - place >= least * a_pixel * 0.75 or place == 0]
        places.append(n)
    return places


class ElementAxis(pg.AxisItem):  # type: ignore[misc]  # pyqtgraph has no types
    """An axis beside the picture: small ticks and numbers with commas, no line, no units."""

    def __init__(self, side: Literal["left", "top"], tokens: Tokens) -> None:
        super().__init__(orientation=side)
        self._n = 0
        self.setStyle(tickLength=-4, hideOverlappingLabels=_OUTSIDE)
        self.enableAutoSIPrefix(False)
        self.setTickFont(ui_font(11))
        if side == "left":
            self.setWidth(72)
        else:
            self.setHeight(24)
        self.set_tokens(tokens)

    def set_extent(self, n: int) -> None:
        """Say how many elements there are along the axis."""
        self._n = n
        self.redraw()

    def redraw(self) -> None:
        """Draw the labels anew."""
        self.picture = None
        self.update()

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self.setPen(QPen(QColor(0, 0, 0, 0)))
        self.setTickPen(QPen(QColor(tokens.border2)))
        self.setTextPen(QColor(tokens.text2))

    def labels(self) -> list[tuple[float, str]]:
        """Return the places to label, in logical pixels from the axis's start, and the labels."""
        low, high = sorted(self.range)
        length = self.size().height() if self.orientation == "left" else self.size().width()
        if high <= low or length <= 0:
            return []
        places = ticks(self._n, low, high, length, _LEAST_DOWN if self.orientation == "left" else _LEAST_RIGHT)
        return [((place - low) / (high - low) * length, count(place)) for place in places]

    def generateDrawSpecs(self, p: QPainter) -> tuple[Any, list[Any], list[Any]]:
        # pyqtgraph drops labels that touch an end or one another: ours stand where `ticks` says, all of them.
        lines, texts = [], []
        bounds = self.mapRectFromParent(self.geometry())
        for place, label in self.labels():
            if self.orientation == "left":
                y = round(bounds.top() + place)
                lines.append((self.tickPen(), QPointF(bounds.right() - 4, y), QPointF(bounds.right(), y)))
                rect = QRectF(bounds.left(), y - 8, bounds.width() - 9, 16)
                texts.append((rect, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, label))
            else:
                x = round(bounds.left() + place)
                lines.append((self.tickPen(), QPointF(x, bounds.bottom() - 4), QPointF(x, bounds.bottom())))
                # The end's label does not reach beyond the picture.
                left = min(x - 40.0, bounds.right() - 40 - p.fontMetrics().horizontalAdvance(label) / 2)
                rect = QRectF(left, bounds.bottom() - 21, 80, 16)
                texts.append((rect, Qt.AlignmentFlag.AlignCenter, label))
        return (self.pen(), QPointF(), QPointF()), lines, texts

    def mouseDragEvent(self, event: Any) -> None:
        event.ignore()

    def wheelEvent(self, event: Any) -> None:
        event.ignore()
