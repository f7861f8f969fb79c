"""What our delegates share: text of strangers drawn as plain text, pills, badges, guide lines."""

from __future__ import annotations

import html

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPen
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from tensormorph.errors import Severity
from tensormorph.gui.icons import pixmap
from tensormorph.gui.theme import Tokens
from tensormorph.text import printable

SEVERITY_ICON: dict[Severity, str] = {"error": "circle-x", "warning": "triangle-alert", "info": "info"}
_LINE = Qt.TextFlag.TextSingleLine | Qt.AlignmentFlag.AlignVCenter


def severity_colours(tokens: Tokens, severity: Severity) -> tuple[str, str]:
    """Return the colour of a severity's mark and of the ground under it."""
    if severity == "error":
        return tokens.err, tokens.errbg
    return (tokens.warn, tokens.warnbg) if severity == "warning" else (tokens.accent, tokens.accentbg)


def tooltip(text: str) -> str:
    """Return a text from a file as a tooltip that shows it letter by letter; Qt would take a tag in it for markup."""
    shown = html.escape(printable(text, 2000))
    return f"<span style='white-space:pre-wrap'>{shown}</span>"


def mnemonic_free(text: str) -> str:
    """Return a text from a file for a menu, tab or button, where Qt would underline what follows an ampersand."""
    return printable(text, 200).replace("&", "&&")


def draw_text(
    painter: QPainter,
    rect: QRect,
    text: str,
    colour: str,
    font: QFont,
    *,
    elide: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
    right: bool = False,
) -> int:
    """Draw one line of plain text, elided to `rect`, and return its width."""
    metrics = QFontMetrics(font)
    shown = metrics.elidedText(text, elide, rect.width())
    painter.setFont(font)
    painter.setPen(QColor(colour))
    side = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
    painter.drawText(rect, int(_LINE | side), shown)
    return metrics.horizontalAdvance(shown)


def width_of(text: str, font: QFont) -> int:
    """Return the width that one line of text needs so as not to be elided."""
    return QFontMetrics(font).horizontalAdvance(text) + 1


def draw_icon(painter: QPainter, rect: QRect, name: str, colour: str, size: int = 16) -> None:
    """Draw a shipped icon in the middle of `rect`, sharp at the ratio of the device."""
    image = pixmap(name, colour, size, painter.device().devicePixelRatioF())
    painter.drawPixmap(rect.x() + (rect.width() - size) // 2, rect.y() + (rect.height() - size) // 2, image)


def fill_round(painter: QPainter, rect: QRect, colour: str, radius: float, outline: str | None = None) -> None:
    """Fill a rounded rectangle; with `outline`, a line of one pixel round it."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(QColor(colour))
    painter.setPen(QPen(QColor(outline)) if outline else Qt.PenStyle.NoPen)
    inset = 0.5 if outline else 0.0
    painter.drawRoundedRect(QRectF(rect).adjusted(inset, inset, -inset, -inset), radius, radius)
    painter.restore()


def draw_pill(painter: QPainter, left: int, middle: int, text: str, colour: str, ground: str, font: QFont) -> int:
    """Draw a pill from `left` on, centred on the line at `middle`; return its width."""
    width = width_of(text, font) + 12
    rect = QRect(left, middle - 9, width, 18)
    fill_round(painter, rect, ground, 4)
    painter.setFont(font)
    painter.setPen(QColor(colour))
    painter.drawText(rect, int(Qt.AlignmentFlag.AlignCenter), text)
    return width


def draw_badge(painter: QPainter, rect: QRect, name: str, colours: tuple[str, str]) -> None:
    """Draw an icon of 12 in a tinted square of 18 in the middle of `rect`."""
    square = QRect(rect.x() + (rect.width() - 18) // 2, rect.y() + (rect.height() - 18) // 2, 18, 18)
    fill_round(painter, square, colours[1], 4)
    draw_icon(painter, square, name, colours[0], 12)


def draw_line(painter: QPainter, x1: int, y1: int, x2: int, y2: int, colour: str) -> None:
    """Draw a line of one pixel on whole pixels."""
    painter.setPen(QPen(QColor(colour), 1))
    painter.drawLine(QPointF(x1 + 0.5, y1 + 0.5), QPointF(x2 + 0.5, y2 + 0.5))


def bare_table(table: QTableView, row: int) -> None:
    """Make a table a plain list of rows, each so high: it takes any number of them without asking for each."""
    table.setShowGrid(False)
    table.setWordWrap(False)
    table.setTabKeyNavigation(False)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    down, across = table.verticalHeader(), table.horizontalHeader()
    down.hide()
    down.setMinimumSectionSize(row)
    down.setDefaultSectionSize(row)
    down.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
    across.hide()
    across.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
