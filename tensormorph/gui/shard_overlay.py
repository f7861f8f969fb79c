"""Brings the shards of the selected tensor into its picture: found beside the GUI thread, told to the layer."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, Signal

from tensormorph.errors import Problem
from tensormorph.gui.background import Lane
from tensormorph.gui.mesh_strips import plane_bands
from tensormorph.gui.picture_box import PictureBox
from tensormorph.gui.selection import Selection
from tensormorph.gui.shard_layer import Lost
from tensormorph.gui.shards import Shards, box_of, shards_of
from tensormorph.model import LogicalTensor
from tensormorph.pyramid import Plane
from tensormorph.text import printable


class ShardOverlay(QObject):
    """Follows the plane of a picture, what of it cannot be read, and the chosen fragment."""

    found = Signal()
    """The shards of the plane are known."""
    internalError = Signal(object)  # noqa: N815

    def __init__(self, selection: Selection, picture: PictureBox, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._selection, self._picture = selection, picture
        self._lane = Lane("shards")
        self._tensor: LogicalTensor | None = None
        self._plane: Plane | None = None
        self._shown = True
        selection.fragmentChanged.connect(self._choose)

    def open(self, tensor: LogicalTensor | None, plane: Plane | None) -> None:
        """Find the shards of another plane, of a tensor; none without them."""
        self._lane.drop()
        self._tensor, self._plane = tensor, plane
        self._choose()
        self._show_bands()
        if tensor is not None and plane is not None and (len(tensor.fragments) > 1 or not tensor.complete):
            self._lane.ask(partial(shards_of, tensor, plane), self._show, self.internalError.emit)

    def set_shown(self, shown: bool) -> None:
        """Draw borders, owners and coordinates of the mesh, or not."""
        self._shown = shown
        self._show_bands()
        self._picture.tiles.shards.set_shown(shown)
        self._picture.tiles.update()

    def _show_bands(self) -> None:
        self._picture.show_bands(*(plane_bands(self._tensor, self._plane) if self._shown else ((), ())))

    def lose(self, problem: Problem) -> None:
        """Take in why elements of the plane cannot be read."""
        plane, tensor, region = self._plane, self._tensor, problem.region
        if plane is None or tensor is None or region is None or region.ndim != len(tensor.shape):
            return
        why = printable(problem.sentence.removeprefix(f"{printable(tensor.name)}: "), 200)
        self._picture.tiles.shards.lose(Lost(box_of(plane, region), problem.file, why))
        self._picture.tiles.update()

    def _choose(self) -> None:
        self._picture.tiles.shards.choose(self._selection.fragment)
        self._picture.tiles.update()

    def _show(self, shards: Shards) -> None:
        self._picture.tiles.shards.set_shards(shards)
        self._picture.tiles.update()
        self.found.emit()
