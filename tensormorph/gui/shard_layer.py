"""The shard borders over the picture: lines, who holds what, and what nobody stores or can read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QLine, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPen

from tensormorph.gui.camera import Camera, Lens, shows_numbers
from tensormorph.gui.shards import Box, Ints, Shards
from tensormorph.gui.theme import Tokens, ui_font

LEAST = 4
"""Logical pixels of a rectangle from which on its borders are drawn."""
HALO_FROM = 12
"""Logical pixels of a rectangle from which on its borders have a halo: it hides what lies under it."""
_NUMBER_HIGH = 14
"""Logical pixels that the number in a cell takes."""
MOST_BOXES, MOST_LINES, MOST_CHIPS = 20_000, 3000, 200
"""More of them in sight are not legible, and none is drawn."""
_MOST_LOST = 100
_LINE, _HALO = 1.25, 4.0
_PAD = 5
_MARGIN = 64
"""Device pixels beyond the screen as far as which rectangles are followed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A rectangle of elements that cannot be read, the file they lie in, and why."""

    box: Box
    file: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Label:
    """Words on a ground, in device pixels of the picture; `tint` of a chip, -1 of what has no value."""

    text: str
    rect: QRect
    tint: int
    chosen: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """What is drawn for one camera, in device pixels.

    Fields
    ------
    lines, thin
        Borders, with a halo and without.
    halos, cores
        What they are drawn as: rectangles of whole pixels, which take a tenth of the time of lines of any width.
    edges
        What nobody stores.
    frame
        The chosen rectangle.
    """

    camera: Camera
    lines: tuple[QLine, ...] = ()
    thin: tuple[QLine, ...] = ()
    halos: tuple[QRect, ...] = ()
    cores: tuple[QRect, ...] = ()
    edges: tuple[QRect, ...] = ()
    labels: tuple[Label, ...] = ()
    frame: QRect | None = None


class ShardLayer:
    """Draws the shards of the plane in sight. What it draws is found once for each camera, in bounded time."""

    def __init__(self) -> None:
        self._shards: Shards | None = None
        self._shown = True
        self._chosen: int | None = None
        self._lost: list[Lost] = []
        self._marks: Marks | None = None

    @property
    def shards(self) -> Shards | None:
        """The shards of the plane, once they are known."""
        return self._shards

    def open(self) -> None:
        """Show another plane, of which nothing is known yet."""
        self._shards = self._marks = self._chosen = None
        self._lost = []

    def set_shards(self, shards: Shards) -> None:
        """Take the shards of the plane."""
        self._shards, self._marks = shards, None

    def set_shown(self, shown: bool) -> None:
        """Draw borders and owners, or not; what has no value is named all the same."""
        self._shown, self._marks = shown, None

    def choose(self, row: int | None) -> None:
        """Frame the rectangle of a fragment, or none."""
        if row != self._chosen:
            self._chosen, self._marks = row, None

    def lose(self, lost: Lost) -> None:
        """Take in that elements cannot be read; no more are kept than can be looked through."""
        if any(lost.why == other.why and _holds(other.box, lost.box) for other in self._lost):
            return
        left = [other for other in self._lost if lost.why != other.why or not _holds(lost.box, other.box)]
        if len(left) < _MOST_LOST:
            self._lost, self._marks = [*left, lost], None

    def marks(self, camera: Camera) -> Marks:
        """Return what is drawn for a camera."""
        if self._marks is None or self._marks.camera != camera:
            self._marks = self._find(camera)
        return self._marks

    # ------------------------------------------------------------ what is in sight

    def _find(self, camera: Camera) -> Marks:
        shards = self._shards
        gaps = () if shards is None else shards.gaps
        edges = tuple(rect for gap in gaps if (rect := _rect(camera, gap.box)) is not None)
        told = [_middle_label(camera, gap.box, f"gap: {gap.text}", False) for gap in gaps]
        told += [_middle_label(camera, *lost) for lost in self._lost_parts(camera)]
        labels = tuple(label for label in told if label is not None)
        chosen = None if self._chosen is None or shards is None or not shards.parted else shards.box_of(self._chosen)
        frame = None if chosen is None or shards is None else _rect(camera, shards.box(chosen))
        bare = Marks(camera, edges=edges, labels=labels, frame=frame)
        if shards is None or not self._shown or not shards.parted:
            return bare
        (top, bottom), (left, right) = camera.down.visible, camera.right.visible
        boxes = shards.boxes
        seen = np.flatnonzero((boxes[0] < bottom) & (boxes[1] > top) & (boxes[2] < right) & (boxes[3] > left))
        down, across = _pixels(camera.down, boxes[:2, seen]), _pixels(camera.right, boxes[2:, seen])
        legible = np.maximum(down[1] - down[0], across[1] - across[0]) >= LEAST * camera.ratio
        seen, down, across = seen[legible], down[:, legible], across[:, legible]
        if len(seen) > MOST_BOXES:
            return bare
        lines = _borders(camera, down, across, (HALO_FROM, np.inf))
        thin = _borders(camera, down, across, (LEAST, HALO_FROM))
        if len(lines) + len(thin) > MOST_LINES:
            lines = thin = ()
        chips = _chips(camera, shards, seen, down, across, chosen)
        halos = _strips(lines, round(_HALO * camera.ratio))
        cores = (*_strips(thin, 1), *_strips(lines, max(1, round(_LINE * camera.ratio))))
        return Marks(camera, lines, thin, halos, cores, edges, (*chips, *labels), frame)

    def _lost_parts(self, camera: Camera) -> list[tuple[Box, str, bool]]:
        """Return of each fragment that cannot be read the largest part in sight, with the words for it."""
        shards = self._shards
        if shards is None or not shards.parted:
            return []  # of a tensor in one part, the reason below the picture says all
        largest: dict[tuple[Box, str], tuple[int, Box]] = {}
        for lost in self._lost:
            whole, place = shards.stored_around(lost.box, lost.file), _rect(camera, lost.box)
            if whole is not None and place is not None:
                found = (place.width() * place.height(), lost.box)
                largest[whole, lost.why] = max(found, largest.get((whole, lost.why), found))
        return [(box, f"cannot be read: {why}", True) for (_, why), (_, box) in largest.items()]

    # ------------------------------------------------------------ painting

    def paint(self, painter: QPainter, camera: Camera, tokens: Tokens) -> None:
        """Draw over the picture; one unit of the painter is one device pixel."""
        marks = self.marks(camera)
        painter.save()
        ratio = camera.ratio
        halo = QColor(tokens.canvas)
        halo.setAlpha(200)
        painter.setPen(Qt.PenStyle.NoPen)
        for strips, colour in ((marks.halos, halo), (marks.cores, QColor(tokens.text))):
            if strips:
                painter.setBrush(colour)
                painter.drawRects(strips)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(tokens.err), _LINE * ratio))
        for edge in marks.edges:
            painter.drawRect(QRectF(edge).adjusted(0.5, 0.5, -0.5, -0.5))
        if marks.frame is not None:
            painter.setPen(QPen(QColor(tokens.accent), 2 * ratio, j=Qt.PenJoinStyle.MiterJoin))
            painter.drawRect(QRectF(marks.frame).adjusted(ratio, ratio, -ratio, -ratio))
        font = _font(camera)
        painter.setFont(font)
        for label in marks.labels:
            ground, outline, text = _colours(label, tokens)
            painter.setBrush(QColor(ground))
            painter.setPen(QPen(QColor(outline), ratio))
            painter.drawRoundedRect(QRectF(label.rect).adjusted(0.5, 0.5, -0.5, -0.5), 3 * ratio, 3 * ratio)
            painter.setPen(QColor(text))
            painter.drawText(label.rect, int(Qt.AlignmentFlag.AlignCenter), label.text)
        painter.restore()


def _font(camera: Camera) -> QFont:
    font = ui_font(11, 500)
    font.setPixelSize(round(11 * camera.ratio))
    return font


def _colours(label: Label, tokens: Tokens) -> tuple[str, str, str]:
    """Return ground, outline and text."""
    if label.tint < 0:
        return tokens.canvas, tokens.err, tokens.err
    if label.chosen:
        return tokens.accent, tokens.accent, tokens.onaccent
    return tokens.rank_fill[label.tint], tokens.canvas, tokens.rank_text[label.tint]


def _pixels(lens: Lens, elements: Ints) -> Ints:
    """Return device pixels of elements, kept near the screen: far ones would overflow what Qt counts in."""
    return np.clip(lens.places(elements) + lens.origin, -_MARGIN, lens.pixels + _MARGIN)


def _holds(outer: Box, inner: Box) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1] and outer[2] <= inner[2] and inner[3] <= outer[3]


def _rect(camera: Camera, box: Box) -> QRect | None:
    """Return the part in sight of a rectangle of elements, in device pixels; None where it is out of sight."""
    edges = np.array(box, np.int64)
    top, bottom = _pixels(camera.down, edges[:2]).tolist()
    left, right = _pixels(camera.right, edges[2:]).tolist()
    rect = QRect(left, top, right - left, bottom - top) & QRect(0, 0, camera.right.pixels, camera.down.pixels)
    return None if rect.isEmpty() else rect


def _borders(camera: Camera, down: Ints, across: Ints, sizes: tuple[float, float]) -> tuple[QLine, ...]:
    """Return the borders of rectangles of such a size in logical pixels, but for the edge of the plane."""
    lines: list[QLine] = []
    least, below = (size * camera.ratio for size in sizes)
    for along, over, lens, flat in ((down, across, camera.down, True), (across, down, camera.right, False)):
        extent = along[1] - along[0]
        taken = (extent >= least) & (extent < below)
        at = along[:, taken].reshape(-1)
        begin, end = (np.tile(edge[taken], 2) for edge in over)
        inside = (at > max(0, lens.origin)) & (at < min(lens.pixels, lens.extent + lens.origin))
        for y, x1, x2 in _merged(at[inside], begin[inside], end[inside]):
            lines.append(QLine(x1, y, x2, y) if flat else QLine(y, x1, y, x2))
    return tuple(lines)


def _strips(lines: tuple[QLine, ...], width: int) -> tuple[QRect, ...]:
    """Return borders as rectangles of so many pixels across."""
    before = width // 2
    return tuple(
        QRect(line.x1(), line.y1() - before, line.dx(), width)
        if line.dx()
        else QRect(line.x1() - before, line.y1(), width, line.dy())
        for line in lines
    )


def _merged(at: Ints, begin: Ints, end: Ints) -> list[tuple[int, int, int]]:
    """Return runs as few as cover the same: those on one line that meet become one, as in a grid of shards."""
    if not len(at):
        return []
    lowest = int(begin.min())
    stride = int(end.max()) - lowest + 2  # one line after the other, with a place between that no run reaches
    order = np.argsort(at * stride + begin, kind="stable")
    at, begin, end = at[order], begin[order] - lowest, end[order] - lowest
    reach = np.maximum.accumulate(at * stride + end)
    starts = np.flatnonzero(np.concatenate([[True], at[1:] * stride + begin[1:] > reach[:-1]]))
    stops = np.concatenate([starts[1:] - 1, [len(at) - 1]])
    line = at[starts]
    ends = reach[stops] - line * stride
    return list(zip(line.tolist(), (begin[starts] + lowest).tolist(), (ends + lowest).tolist(), strict=True))


def _chips(
    camera: Camera, shards: Shards, seen: Ints, down: Ints, across: Ints, chosen: int | None
) -> tuple[Label, ...]:
    """Return the owners of rectangles where there is room in the corner in sight; none where it would be too many."""
    metrics, ratio = QFontMetrics(_font(camera)), camera.ratio
    top, left = np.maximum(down[0], 0), np.maximum(across[0], 0)
    high = np.minimum(down[1], camera.down.pixels) - top
    wide = np.minimum(across[1], camera.right.pixels) - left
    chip_high = round(16 * ratio)
    inset = round(4 * ratio)
    if shows_numbers(camera):
        # The number of a fragment's first cell stands in the cell's middle: the chip fits above it, or is left out.
        inset = min(inset, math.floor((camera.down.scale - _NUMBER_HIGH * ratio) / 2) - chip_high)
        if inset < 0:
            return ()
    shortest = metrics.horizontalAdvance("rank 0") + round(2 * _PAD * ratio)
    roomy = np.flatnonzero((high >= chip_high + 8 * ratio) & (wide >= shortest + 8 * ratio))
    if len(roomy) > MOST_CHIPS:
        return ()
    labels: list[Label] = []
    for i in roomy.tolist():
        box = int(seen[i])
        text = shards.owner(box)
        chip_wide = metrics.horizontalAdvance(text) + round(2 * _PAD * ratio)
        if chip_wide + 8 * ratio <= wide[i]:
            rect = QRect(int(left[i]) + round(4 * ratio), int(top[i]) + inset, chip_wide, chip_high)
            labels.append(Label(text, rect, int(shards.tints[box]), box == chosen))
    return tuple(labels)


def _middle_label(camera: Camera, box: Box, text: str, cut: bool) -> Label | None:
    """Return a label in the middle of what is in sight of a rectangle; None where it has no room.

    With `cut`, a text that is too long is cut as long as some words of it remain.
    """
    place, ratio = _rect(camera, box), camera.ratio
    metrics = QFontMetrics(_font(camera))
    high, pad = round(18 * ratio), round(2 * _PAD * ratio)
    if place is None or place.height() < high + 4:
        return None
    room = place.width() - pad - 8
    if metrics.horizontalAdvance(text) > room:
        if not cut or room < metrics.horizontalAdvance(text[:20]):
            return None
        text = metrics.elidedText(text, Qt.TextElideMode.ElideRight, room)
    rect = QRect(0, 0, metrics.horizontalAdvance(text) + pad, high)
    rect.moveCenter(place.center())
    return Label(text, rect, -1)
