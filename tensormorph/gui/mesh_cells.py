"""How the cell of one rank is drawn: a card where there is room, a number in its tint, or the tint alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QPoint, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPen, QPixmap

from tensormorph.gui.painting import draw_icon, draw_text, fill_round, width_of
from tensormorph.gui.rank_map import Mark, RankMap, Share
from tensormorph.gui.shards import region_text
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.text import size

Style = Literal["card", "number", "tint"]
_CARD = (104, 92)
_ICON_FROM = (52, 34)
_OUTLINE_FROM = 28
ICONS: dict[Mark, str] = {
    Mark.REPLICA: "copies", Mark.EMPTY: "square-dashed", Mark.GAP: "gap", Mark.UNREADABLE: "circle-x",
    Mark.MISSING: "circle-x",
}  # fmt: skip
_BAD = (Mark.GAP, Mark.UNREADABLE, Mark.MISSING)


def number_font(cell: QRect, largest_rank: int) -> QFont | None:
    """Return the font in which the number of any rank fits a cell; None where it would not be legible."""
    for font, high in ((ui_font(11), 14), (ui_font(9), 11)):
        if cell.height() >= high and cell.width() >= width_of(str(largest_rank), font) + 1:
            return font
    return None


def style_of(cell: QRect, largest_rank: int) -> Style:
    """Return how cells of this size are drawn: no number where it is not legible."""
    if cell.width() >= _CARD[0] and cell.height() >= _CARD[1]:
        return "card"
    return "tint" if number_font(cell, largest_rank) is None else "number"


def mark_colour(mark: Mark, tokens: Tokens) -> str:
    """Return the colour of a mark and its word."""
    return tokens.err if mark in _BAD else tokens.text2


@dataclass(frozen=True, slots=True)
class Stamps:
    """The grounds of all cells of one size, drawn once for each tint and mark: a cell is then one picture more."""

    wide: int
    high: int
    ratio: float
    tokens: Tokens
    drawn: dict[tuple[int, Mark], QPixmap]

    def get(self, tint: int, mark: Mark) -> QPixmap:
        """Return the ground of a cell."""
        found = self.drawn.get((tint, mark))
        if found is None:
            found = QPixmap(round(self.wide * self.ratio), round(self.high * self.ratio))
            found.setDevicePixelRatio(self.ratio)
            found.fill(Qt.GlobalColor.transparent)
            painter = QPainter(found)
            draw_ground(painter, QRect(0, 0, self.wide, self.high), tint, mark, self.tokens)
            painter.end()
            self.drawn[tint, mark] = found
        return found


def draw_ground(painter: QPainter, rect: QRect, tint: int, mark: Mark, tokens: Tokens) -> None:
    """Draw what a rank holds as colour and frame, for a cell without a picture; `tint` -1 is nothing."""
    least = min(rect.width(), rect.height())
    small, outlined = least < 6, least >= _OUTLINE_FROM
    radius = 0 if small else 3
    if mark in (Mark.HOLDS, Mark.REPLICA) and tint >= 0:
        inner = rect if small or mark is Mark.HOLDS else rect.adjusted(0, 2, -2, 0)
        if inner != rect:  # two sheets: of the one behind, an edge
            fill_round(painter, rect.adjusted(2, 0, 0, -2), tokens.rank_text[tint], radius)
            fill_round(painter, inner.adjusted(0, -1, 1, 0), tokens.canvas, radius)
        fill_round(painter, inner, tokens.rank_fill[tint], radius, tokens.rank_text[tint] if outlined else None)
        return
    if small:
        painter.fillRect(rect, QColor(tokens.err if mark in _BAD else tokens.border2 if mark is Mark.EMPTY else
                                      tokens.border))  # fmt: skip
        return
    if mark is Mark.GAP:
        painter.fillRect(rect, QColor(tokens.missing))
        painter.fillRect(rect, Qt.BrushStyle.BDiagPattern)
    elif mark is Mark.UNREADABLE:
        fill_round(painter, rect, tokens.errbg, radius)
    dashed = mark in (Mark.EMPTY, Mark.MISSING)
    colour = tokens.err if mark in _BAD else tokens.text3 if mark is Mark.EMPTY else tokens.border2
    pen = QPen(QColor(colour), 1)
    if dashed:
        pen.setDashPattern([3, 2])
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5))


def draw_number(painter: QPainter, rect: QRect, ranks: RankMap, at: int, tokens: Tokens) -> None:
    """Draw the number of a rank over its ground, and its mark in the corner where there is room."""
    share, mark = ranks.share(at), ranks.mark(at)
    held = mark in (Mark.HOLDS, Mark.REPLICA) and share is not None
    colour = tokens.rank_text[share.tint] if held and share is not None else mark_colour(mark, tokens)
    painter.setPen(QColor(colour))
    painter.drawText(rect, int(Qt.AlignmentFlag.AlignCenter), str(ranks.ranks[at]))
    if mark in ICONS and rect.width() >= _ICON_FROM[0] and rect.height() >= _ICON_FROM[1]:
        corner = QRect(rect.right() - 16, rect.y() + 3, 14, 14)
        draw_icon(painter, corner, ICONS[mark], mark_colour(mark, tokens), 12)


def draw_card(painter: QPainter, rect: QRect, ranks: RankMap, at: int, tokens: Tokens) -> None:
    """Draw a rank with what it holds: number, mark, region, a small picture of the tensor, bytes."""
    share, mark, tensor = ranks.share(at), ranks.mark(at), ranks.tensor
    painter.save()
    if mark is Mark.MISSING:
        painter.setPen(_dashed(tokens.err))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
    elif mark is Mark.EMPTY:
        painter.setPen(_dashed(tokens.text3))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
    else:
        fill_round(painter, rect, tokens.panel, 6, tokens.err if mark in _BAD else tokens.border)
    inner = rect.adjusted(10, 8, -10, -8)
    if mark in ICONS:
        draw_icon(painter, QRect(inner.right() - 15, inner.y(), 16, 16), ICONS[mark], mark_colour(mark, tokens), 14)
    faint = mark in (Mark.EMPTY, Mark.NOTHING, Mark.MISSING)
    head = QRect(inner.x(), inner.y(), inner.width() - 18, 16)
    draw_text(painter, head, f"rank {ranks.ranks[at]}", tokens.text2 if faint else tokens.text, ui_font(13, 600))
    word = ranks.word(at)
    lines = [] if share is None or not share.boxes else [_regions(share, tensor.shape)]
    region = QRect(inner.x(), inner.y() + 20, inner.width(), 16)
    draw_text(painter, region, lines[0] if lines else word, tokens.text2 if faint else tokens.text, ui_font(12))
    picture = QRect(inner.x(), inner.y() + 42, min(96, inner.width() // 2), inner.height() - 42)
    if share is not None and share.boxes and picture.height() >= 16:
        right = _draw_tensor(painter, picture, share, mark, tensor.shape, tokens)
        beside = QRect(right + 9, picture.y(), inner.right() - right - 8, 16)
        if word:
            draw_text(painter, beside, word, mark_colour(mark, tokens), ui_font(11))
        n_bytes = tensor.encoding.n_bytes(share.size) if tensor.encoding.bits is not None else None
        foot = QRect(beside.x(), inner.bottom() - 15, beside.width(), 16)
        if n_bytes is not None and foot.y() >= beside.bottom():
            draw_text(painter, foot, size(n_bytes), tokens.text3, ui_font(11), right=True)
    painter.restore()


def _dashed(colour: str) -> QPen:
    pen = QPen(QColor(colour), 1)
    pen.setDashPattern([3, 2])
    return pen


def _regions(share: Share, shape: tuple[int, ...]) -> str:
    more = " …" if len(share.boxes) > 1 else ""
    return f"{region_text(share.boxes[0], shape)}{more}"


def _draw_tensor(
    painter: QPainter, room: QRect, share: Share, mark: Mark, shape: tuple[int, ...], tokens: Tokens
) -> int:
    """Draw the whole tensor as a rectangle of its first two axes, and what the rank holds; return its right edge."""
    n_rows, n_cols = (*shape, 1, 1)[:2] if len(shape) != 1 else (shape[0], 1)
    wide = room.width() if n_cols > 1 else min(24, room.width())
    if n_cols > 1:
        aspect = min(4.0, max(0.25, n_cols / max(1, n_rows)))
        wide = max(16, min(room.width(), round(room.height() * aspect)))
    high = room.height() if n_cols <= 1 or n_rows <= 1 else max(16, min(room.height(), round(wide / aspect)))
    whole = QRect(room.topLeft(), room.topLeft() + QPoint(wide - 1, high - 1))
    painter.fillRect(whole, QColor(tokens.neutbg))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(QColor(tokens.border2)))
    painter.drawRect(QRectF(whole).adjusted(0.5, 0.5, -0.5, -0.5))
    for box in share.boxes:
        low = (*box.start, 0, 0)[:2] if len(shape) != 1 else (box.start[0], 0)
        top = (*box.stop, 1, 1)[:2] if len(shape) != 1 else (box.stop[0], 1)
        x0, x1 = (whole.x() + round(wide * side / max(1, n_cols)) for side in (low[1], top[1]))
        y0, y1 = (whole.y() + round(high * side / max(1, n_rows)) for side in (low[0], top[0]))
        part = QRect(x0, y0, max(1, x1 - x0), max(1, y1 - y0))
        if mark in _BAD:
            painter.fillRect(part, QColor(tokens.canvas))
            if mark is Mark.GAP:
                painter.fillRect(part, Qt.BrushStyle.BDiagPattern)
            painter.setPen(_dashed(tokens.err) if mark is Mark.MISSING else QPen(QColor(tokens.err)))
        else:
            painter.fillRect(part, QColor(tokens.rank_fill[share.tint]))
            painter.setPen(QPen(QColor(tokens.rank_text[share.tint])))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(QRectF(part).adjusted(0.5, 0.5, -0.5, -0.5))
    return whole.right()
