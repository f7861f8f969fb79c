"""Coordinates of a mesh in strips outside the axes of a picture: the rows and columns that each index cuts."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyqtgraph as pg
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter

from tensormorph.gui.layout_words import axis_name
from tensormorph.gui.painting import width_of
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.mesh import Shard, StridedShard
from tensormorph.model import LogicalTensor
from tensormorph.placement import part_at
from tensormorph.pyramid import Plane

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BANDS = 256
"""Parts of an axis from which on it has no strip: they would not be told apart."""
THICK = 20
_GAP = 4
_LEAST = 10
"""Logical pixels of a band from which on there may be room for words."""


@dataclass(frozen=True, slots=True)
class Band:
    """Elements along one axis that one coordinate cuts: ``tp 3``, or ``3`` where that is too long."""

    start: int
    stop: int
    label: str
    short: str


def bands(tensor: LogicalTensor, axes: Sequence[int]) -> tuple[Band, ...]:
    """Return the bands along an axis of a tensor; none where its layout does not cut it, or is not known."""
    layout = tensor.layout
    if layout is None or len(axes) != 1:
        return ()
    placements = enumerate(layout.placements)
    cuts = [k for k, placed in placements if isinstance(placed, Shard | StridedShard) and placed.dim == axes[0]]
    if not cuts or math.prod(layout.mesh.shape[k] for k in cuts) > MOST_BANDS:
        return ()
    found: list[Band] = []
    for place in itertools.product(*(range(layout.mesh.shape[k]) for k in cuts)):
        at = [0] * len(layout.mesh.shape)
        for k, i in zip(cuts, place, strict=True):
            at[k] = i
        label = ", ".join(f"{axis_name(layout.mesh, k)} {i}" for k, i in zip(cuts, place, strict=True))
        part = part_at(layout.mesh.shape, layout.placements, layout.order, tensor.shape, at)
        short = ",".join(map(str, place))
        found += [Band(start, stop, label, short) for start, stop in part.axes[axes[0]][: MOST_BANDS - len(found)]]
    return tuple(sorted(found, key=lambda band: band.start))


def plane_bands(tensor: LogicalTensor | None, plane: Plane | None) -> tuple[tuple[Band, ...], tuple[Band, ...]]:
    """Return the bands beside the rows and above the columns of a plane."""
    if tensor is None or plane is None:
        return (), ()
    return bands(tensor, plane.rows), bands(tensor, plane.cols)


class MeshStrip(pg.GraphicsWidget):  # type: ignore[misc]  # pyqtgraph has no types
    """A strip along one side of a view box; without bands it takes no room."""

    def __init__(self, side: Literal["left", "top"], box: pg.ViewBox, tokens: Tokens) -> None:
        super().__init__()
        self._side, self._box, self._tokens = side, box, tokens
        self.bands: tuple[Band, ...] = ()
        self.show_bands(())

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.update()

    def show_bands(self, found: tuple[Band, ...]) -> None:
        """Show other bands."""
        self.bands = found
        thick = THICK if found else 0
        (self.setFixedWidth if self._side == "left" else self.setFixedHeight)(thick)
        self.update()

    def texts(self) -> list[tuple[str, QRectF]]:
        """Return what is drawn: the words of each band in sight, and where, along the strip."""
        if not self.bands:
            return []
        x, y = self._box.viewRange()
        low, high = sorted(y if self._side == "left" else x)
        length = self.size().height() if self._side == "left" else self.size().width()
        if high <= low or length <= 0:
            return []
        shown: list[tuple[str, QRectF]] = []
        font = ui_font(11)
        for band in self.bands:
            first = max(0.0, (band.start - low) / (high - low) * length)
            last = min(length, (band.stop - low) / (high - low) * length)
            if last - first < 1:
                continue
            asked = (band.label, band.short) if last - first >= _LEAST else ()
            words = next((text for text in asked if width_of(text, font) + 6 <= last - first), "")
            shown.append((words, QRectF(first, 0, last - first, THICK - _GAP)))
        return shown

    def paint(self, p: QPainter, *more: Any) -> None:
        left = self._side == "left"
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        p.setFont(ui_font(11))
        if left:  # as read from below
            p.translate(0, self.size().height())
            p.rotate(-90)
        for words, rect in self.texts():
            place = rect.adjusted(1, 0, -1, 0)
            if left:
                place.moveLeft(self.size().height() - rect.right() + 1)
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(QColor(self._tokens.neutbg))
            p.drawRoundedRect(place, 3, 3)
            p.setPen(QColor(self._tokens.text2))
            p.drawText(place, int(Qt.AlignmentFlag.AlignCenter), words)
