"""How the table looks: headers, numbers, marks of what is no number, and the selection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QImage, QPainter, QRegion, QStaticText, QTransform

from tensormorph import colours
from tensormorph.gui.painting import draw_line, draw_text, width_of
from tensormorph.gui.table_blocks import BLOCK_COLS, BLOCK_ROWS, BlockKey
from tensormorph.gui.table_cells import GAP, NAN, NEGATIVE_INFINITY, POSITIVE_INFINITY, WORDS, Block
from tensormorph.gui.theme import Tokens, mono_font, ui_font
from tensormorph.gui.tile_item import draw_mark, hatch
from tensormorph.pyramid import Span
from tensormorph.text import count

ROW, HEADER, PAD = 24, 24, 10
_SWATCH = 12
_HATCH = 6
_MOST_LINES = 512
_MARKS = {NAN: "nan", POSITIVE_INFINITY: "posinf", NEGATIVE_INFINITY: "neginf"}
_GROUNDS = {
    "nan": colours.NAN,
    "posinf": colours.POSITIVE_INFINITY,
    "neginf": colours.NEGATIVE_INFINITY,
}
Blocks = Mapping[BlockKey, Block | None]


@dataclass(frozen=True, slots=True)
class Sight:
    """What of a plane is in sight, and where.

    Fields
    ------
    rows, cols
        Those in sight, in part or whole.
    shape
        Rows and columns of the plane.
    labelled
        Whether rows, and columns, are numbered.
    gutter
        Width of the numbers of rows.
    cell, character, room
        Width of a cell and of a character, and characters of a cell.
    """

    rows: Span
    cols: Span
    shape: tuple[int, int]
    labelled: tuple[bool, bool]
    gutter: int
    cell: float
    character: float
    room: int

    def x(self, col: int) -> int:
        """Return where a column begins."""
        return round(self.gutter + (col - self.cols[0]) * self.cell)

    def y(self, row: int) -> int:
        """Return where a row begins."""
        return HEADER + (row - self.rows[0]) * ROW

    def rect(self, cell: tuple[int, int]) -> QRect:
        """Return where a cell lies."""
        return self.box((cell[0], cell[0] + 1), (cell[1], cell[1] + 1))

    def box(self, rows: Span, cols: Span) -> QRect:
        """Return where a rectangle lies, cut off just out of sight: the whole may reach beyond what Qt can count."""
        (top, bottom), (left, right) = (
            (max(seen[0] - 1, min(span[0], seen[1] + 1)), max(seen[0] - 1, min(span[1], seen[1] + 1)))
            for span, seen in ((rows, self.rows), (cols, self.cols))
        )
        x, y = self.x(left), self.y(top)
        return QRect(x, y, self.x(right) - x, self.y(bottom) - y)


class TextCache:
    """Rows of numbers with the places of their letters, which take longer to find than to draw."""

    def __init__(self) -> None:
        self.font = mono_font(12)
        self._texts: dict[str, QStaticText] = {}

    def get(self, line: str) -> QStaticText:
        """Return a line ready to be drawn."""
        found = self._texts.get(line)
        if found is None:
            if len(self._texts) >= _MOST_LINES:
                self._texts.clear()
            found = self._texts[line] = QStaticText(line)
            found.setTextFormat(Qt.TextFormat.PlainText)
        return found


def paint_sight(
    painter: QPainter,
    area: QRect,
    sight: Sight,
    blocks: Blocks,
    texts: TextCache,
    tokens: Tokens,
    selected: tuple[Span, Span] | None,
    anchor: tuple[int, int] | None,
    focused: bool,
) -> None:
    """Draw all that is in sight; a block that has not come is None, its cells are dots and never a number."""
    painter.fillRect(area, QColor(tokens.canvas))
    body = area.adjusted(sight.gutter, HEADER, 0, 0)
    body.setRight(min(body.right(), sight.x(sight.cols[1]) - 1))
    painter.setClipRect(body)
    if selected is not None:
        painter.fillRect(sight.box(*selected), QColor(tokens.accentbg if focused else tokens.selin))
    for key, block in blocks.items():
        if block is not None and not block.plain:
            _paint_marks(painter, sight, key, block)
    _paint_missing(painter, body, sight, blocks, tokens)
    _paint_texts(painter, sight, blocks, texts, tokens)
    if selected is not None and anchor is not None:
        if selected != ((anchor[0], anchor[0] + 1), (anchor[1], anchor[1] + 1)):
            _frame(painter, sight.box(*selected), tokens.accent, 1)
        _frame(painter, sight.rect(anchor), tokens.accent, 2)
    painter.setClipping(False)
    _paint_headers(painter, area, sight, tokens, selected, anchor)
    if focused:
        whole = sight.box((sight.rows[0], sight.rows[1]), (sight.cols[0], sight.cols[1])).intersected(body)
        _frame(painter, whole, tokens.accent, 1)


def _paint_texts(painter: QPainter, sight: Sight, blocks: Blocks, texts: TextCache, tokens: Tokens) -> None:
    """Draw a row of numbers at a time: all its cells are one text, as wide as they are."""
    painter.setFont(texts.font)
    lift = (ROW - QFontMetricsF(texts.font).height()) / 2
    layers: list[tuple[str, LineOf]] = [(tokens.text, _values)]
    if any(block is not None and block.lossy for block in blocks.values()):
        layers.append((tokens.text2, _words))
    if None in blocks.values():
        layers.append((tokens.text3, _dots))
    for colour, line_of in layers:
        painter.setPen(QColor(colour))
        for row, line in _lines(sight, blocks, line_of):
            painter.drawStaticText(QPointF(sight.gutter, sight.y(row) + lift), texts.get(line))


LineOf = Callable[[Block | None, int, int, int, int], str | None]


def _values(block: Block | None, room: int, row: int, first: int, last: int) -> str | None:
    return None if block is None else block.line(row, first, last)


def _words(block: Block | None, room: int, row: int, first: int, last: int) -> str | None:
    return None if block is None or not block.lossy else block.words(row, first, last)


def _dots(block: Block | None, room: int, row: int, first: int, last: int) -> str | None:
    return f" {'…':>{room}} " * (last - first) if block is None else None


def _lines(sight: Sight, blocks: Blocks, line_of: LineOf) -> Iterator[tuple[int, str]]:
    """Give each row in sight as one text, put together from the lines of its blocks, where there is anything in it."""
    bands: dict[int, list[tuple[Block | None, Span]]] = {}
    for key, block in blocks.items():
        bands.setdefault(key.row, []).append((block, key.part(sight.shape, sight.rows, sight.cols)[1]))
    for row in range(*sight.rows):
        found = [
            line_of(block, sight.room, row % BLOCK_ROWS, *part) or " " * ((part[1] - part[0]) * (sight.room + 2))
            for block, part in bands[row // BLOCK_ROWS]
        ]
        line = "".join(found)
        if not line.isspace():
            yield row, line


def _paint_marks(painter: QPainter, sight: Sight, key: BlockKey, block: Block) -> None:
    """Put the mark of NaN and the infinities before their words."""
    rows, cols = key.part(sight.shape, sight.rows, sight.cols)
    ratio = painter.device().devicePixelRatioF()
    seen = block.kinds[rows[0] : rows[1], cols[0] : cols[1]]
    for i, j in np.argwhere((seen > 0) & (seen < GAP)).tolist():
        row, col = rows[0] + i, cols[0] + j
        rect = sight.rect((key.row * BLOCK_ROWS + row, key.col * BLOCK_COLS + col))
        width = round((len(block.text(row, col)) + 1) * sight.character)
        left = max(rect.left() + 2, rect.right() + 1 - width - 6 - _SWATCH)
        image = _swatch(_MARKS[int(seen[i, j])], round(_SWATCH * ratio))
        image.setDevicePixelRatio(ratio)
        painter.drawImage(QPoint(left, rect.top() + (ROW - _SWATCH) // 2), image)


@lru_cache(maxsize=32)
def _swatch(kind: str, pixels: int) -> QImage:
    image = QImage(pixels, pixels, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(QColor(_GROUNDS[kind]))
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    draw_mark(painter, kind, QRectF(0, 0, pixels, pixels))
    painter.end()
    return image


def _missing_runs(sight: Sight, blocks: Blocks) -> Iterator[tuple[int, Span]]:
    """Give the runs of elements without value in each row in sight."""
    for key, block in blocks.items():
        if block is None or not block.lossy:
            continue
        rows, cols = key.part(sight.shape, sight.rows, sight.cols)
        for row in range(*rows):
            lost = np.concatenate([[False], block.kinds[row, cols[0] : cols[1]] >= GAP, [False]])
            first = key.col * BLOCK_COLS + cols[0]
            edges = (np.flatnonzero(lost[1:] != lost[:-1]) + first).tolist()
            for begin, end in zip(edges[::2], edges[1::2], strict=True):
                yield key.row * BLOCK_ROWS + row, (begin, end)


def _paint_missing(painter: QPainter, body: QRect, sight: Sight, blocks: Blocks, tokens: Tokens) -> None:
    """Hatch elements without value, with an edge round them, and clear the ground under their words."""
    gap = QRegion()
    words: list[QRect] = []
    for row, cols in _missing_runs(sight, blocks):
        # What lies out of sight is taken to go on: an edge stands only where it is known to.
        left, top = cols[0] == sight.cols[0] > 0, row == sight.rows[0] > 0
        right = cols[1] == sight.cols[1] < sight.shape[1]
        gap += sight.box((row, row + 1), cols).adjusted(-2 if left else 0, -2 if top else 0, 2 if right else 0, 0)
        words += [_word_rect(sight, blocks, row, col) for col in range(*cols)]
    if gap.isEmpty():
        return
    inner = gap
    for shift in (QPoint(1, 0), QPoint(-1, 0), QPoint(0, 1), QPoint(0, -1)):
        inner = inner.intersected(gap.translated(shift))
    ratio = painter.device().devicePixelRatioF()
    brush = QBrush(hatch(tokens.missing, round(_HATCH * ratio)))
    brush.setTransform(QTransform.fromScale(1 / ratio, 1 / ratio))
    painter.setClipRegion(gap.intersected(body))
    painter.fillRect(body, brush)
    for rect in words:
        painter.fillRect(rect, QColor(tokens.canvas))
    painter.setClipRegion(gap.subtracted(inner).intersected(body))
    painter.fillRect(body, QColor(tokens.err))
    painter.setClipRect(body)


def _word_rect(sight: Sight, blocks: Blocks, row: int, col: int) -> QRect:
    number = next(key.number for key in blocks)
    block = blocks[BlockKey.of(number, row, col)]
    kind = int(block.kinds[BlockKey.within(row, col)]) if block is not None else GAP
    rect = sight.rect((row, col))
    width = round((len(WORDS[kind]) + 1) * sight.character) + 5
    return QRect(rect.right() + 1 - width, rect.top() + 4, width - round(sight.character) + 5, ROW - 8)


def _paint_headers(
    painter: QPainter,
    area: QRect,
    sight: Sight,
    tokens: Tokens,
    selected: tuple[Span, Span] | None,
    anchor: tuple[int, int] | None,
) -> None:
    head, side = QRect(0, 0, area.width(), HEADER), QRect(0, HEADER, sight.gutter, area.height() - HEADER)
    painter.fillRect(head, QColor(tokens.panel))
    painter.fillRect(side, QColor(tokens.panel))
    if selected is not None:
        box = sight.box(*selected)
        for across in (QRect(box.left(), 0, box.width(), HEADER), QRect(0, box.top(), sight.gutter, box.height())):
            painter.fillRect(across, QColor(tokens.selin))
    painter.fillRect(0, 0, sight.gutter, HEADER, QColor(tokens.panel))
    _paint_more(painter, area, sight, tokens)
    down, right = selected if selected is not None else ((0, 0), (0, 0))
    pad = round(sight.character)
    labels = [
        (count(col) if sight.labelled[1] else "value", sight.x(col + 1) - pad, 0, col, right, 1)
        for col in range(*sight.cols)
    ]
    if sight.labelled[0]:
        labels += [(count(row), sight.gutter - PAD, sight.y(row), row, down, 0) for row in range(*sight.rows)]
    plain, strong = ui_font(11), ui_font(11, 500)
    flags = int(Qt.TextFlag.TextSingleLine | Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight)
    pens = {True: QColor(tokens.text2), False: QColor(tokens.text3)}
    painter.setFont(plain)
    for label, x, y, at, inside, axis in labels:
        chosen = anchor is not None and anchor[axis] == at
        if chosen:
            painter.setFont(strong)
        painter.setPen(QColor(tokens.text) if chosen else pens[inside[0] <= at < inside[1]])
        painter.drawText(QRect(x - 300, y, 300, ROW), flags, label)
        if chosen:
            painter.setFont(plain)
    painter.setClipping(False)
    draw_line(painter, 0, HEADER - 1, area.width(), HEADER - 1, tokens.border)
    draw_line(painter, sight.gutter - 1, 0, sight.gutter - 1, area.height(), tokens.border)


def _paint_more(painter: QPainter, area: QRect, sight: Sight, tokens: Tokens) -> None:
    """Say right of the last whole column how many more there are."""
    n_more = sight.shape[1] - sight.cols[1]
    rest = area.adjusted(sight.x(sight.cols[1]), 0, 0, 0)
    if n_more and rest.width() > 0:
        painter.fillRect(rest, QColor(tokens.panel))
        label, font = f"{count(n_more)} more", ui_font(11)
        if rest.width() > width_of(label, font) + 8:
            draw_text(painter, rest.adjusted(6, 0, 0, HEADER - rest.height()), label, tokens.text3, font)


def _frame(painter: QPainter, rect: QRect, colour: str, width: int) -> None:
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QColor(colour))
    for k in range(width):
        painter.drawRect(rect.adjusted(k, k, -k - 1, -k - 1))
