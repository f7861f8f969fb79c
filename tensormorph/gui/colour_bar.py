"""The scale beside a picture: the colour table with its limits, and what each mark means."""

from __future__ import annotations

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QImage, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from tensormorph.gui.painting import draw_text
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.gui.tile_item import draw_mark, hatch, image_of
from tensormorph.picture import Levels, Paint

WIDTH = 96
_BAR = QRect(8, 24, 15, 0)
_LEGEND = (("nan", "NaN"), ("posinf", "+Inf"), ("neginf", "−Inf"), ("gap", "gap"))
_LINE = 23


def limit_text(value: float, span: float) -> str:
    """Return a limit with as many digits as tell it from others on a scale of this length."""
    if value == 0:
        return "0"
    size = f"{value:.3g}" if abs(value) >= span / 1000 else f"{value:.1g}"
    return size.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e").replace("-", "−")


class ColourBar(QWidget):
    """Gradient, limits, and the legend of the marks; saturated ends are arrows."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self._paint: Paint | None = None
        self._heading = "value"
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)

    def show_paint(self, paint: Paint | None, heading: str, told: str) -> None:
        """Show a table and its levels. `heading` is what is shown, `told` says where the limits come from."""
        if (paint, heading, told) == (self._paint, self._heading, self.toolTip()):
            return
        self._paint, self._heading = paint, heading
        self.setToolTip(told)
        self.setAccessibleName(f"Scale from {paint.levels.low:g} to {paint.levels.high:g}" if paint else "")
        self.update()

    @property
    def levels(self) -> Levels | None:
        """The limits shown."""
        return self._paint.levels if self._paint is not None else None

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme; the table comes with the paint."""
        self._tokens = tokens
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(WIDTH, 240)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._paint is None:
            return
        painter = QPainter(self)
        font, tokens = ui_font(11), self._tokens
        draw_text(painter, QRect(4, 3, WIDTH - 4, 16), self._heading, tokens.text2, font)
        bar = QRect(_BAR.x(), _BAR.y(), _BAR.width(), max(40, self.height() - _BAR.y() - _LINE * len(_LEGEND) - 20))
        gradient = self._paint.table[::-1].reshape(256, 1).copy()
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
        painter.drawImage(bar, image_of(gradient))
        painter.setPen(QPen(QColor(tokens.border2)))
        painter.drawRect(bar.adjusted(0, 0, -1, -1))
        low, high = self._paint.levels.low, self._paint.levels.high
        for k in range(5 if bar.height() > 120 else 3):
            part = k / (4 if bar.height() > 120 else 2)
            y = bar.top() + round((1 - part) * (bar.height() - 1))
            value = high if part == 1 else low * (1 - part) + high * part
            painter.setPen(QPen(QColor(tokens.border2)))
            painter.drawLine(bar.right() + 1, y, bar.right() + 4, y)
            draw_text(painter, QRect(bar.right() + 8, y - 8, WIDTH - bar.right() - 8, 16),
                      limit_text(value, high - low), tokens.text2, font)  # fmt: skip
        top = bar.bottom() + 16
        for k, (kind, word) in enumerate(_LEGEND):
            swatch = QRect(bar.left(), top + k * _LINE, 15, 15)
            self._draw_swatch(painter, kind, swatch)
            draw_text(painter, swatch.adjusted(23, -2, WIDTH, 2), word, tokens.text2, font)

    def _draw_swatch(self, painter: QPainter, kind: str, rect: QRect) -> None:
        tokens = self._tokens
        grounds = {"nan": tokens.nan, "posinf": tokens.positive_infinity, "neginf": tokens.negative_infinity}
        if kind in grounds:
            painter.fillRect(rect, QColor(grounds[kind]))
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            draw_mark(painter, kind, QRectF(rect))
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
            return
        ratio = self.devicePixelRatioF()
        texture: QImage = hatch(tokens.missing, round(4 * ratio))
        texture.setDevicePixelRatio(ratio)
        painter.setBrushOrigin(rect.topLeft())
        painter.fillRect(rect, QBrush(texture))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(tokens.err)))
        painter.drawRect(rect.adjusted(0, 0, -1, -1))
