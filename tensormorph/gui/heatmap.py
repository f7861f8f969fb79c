"""The heatmap: any plane of the selected tensor, streamed lazily, exact or marked as sampled."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QPointF, Qt, Signal
from PySide6.QtGui import QCloseEvent, QFocusEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QStackedLayout, QVBoxLayout, QWidget

from tensormorph.errors import Problem
from tensormorph.gui.badge import ElidedLabel, TitleRow
from tensormorph.gui.colour_bar import ColourBar
from tensormorph.gui.cost_card import CostCard
from tensormorph.gui.heatmap_words import caption_text, limits_text, trouble_text
from tensormorph.gui.hover import HoverCard, deviation_text, index_text, value_text
from tensormorph.gui.jobs import ElementRequest, ElementResult
from tensormorph.gui.loader import Loader
from tensormorph.gui.picture_box import PictureBox
from tensormorph.gui.plane_bar import PlaneBar
from tensormorph.gui.selection import Selection, piece_key
from tensormorph.gui.shard_overlay import ShardOverlay
from tensormorph.gui.states import PlainLabel, StatePanel, state_words, title_text
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.gui.viewer import Viewer
from tensormorph.model import LogicalTensor
from tensormorph.picture import MAGNITUDES
from tensormorph.pyramid import Plane
from tensormorph.region import Region
from tensormorph.text import size

_NOTCH = 1.25
_STEP = 2**0.5
_ARROWS = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
}


class HeatmapView(QWidget):
    """Title, controls, picture with axes and scale, and a line that names what the picture shows.

    Follows the selection, and sets its element by a click. Reads only while it is visible.
    """

    status = Signal(str)
    """The element under the pointer and its value; empty when there is none."""
    bytes_read = Signal(object)  # an int: Qt would cut it at 2 GB
    """Bytes read from storage so far, all tensors together."""
    moved = Signal()
    """Another region may be in sight."""

    def __init__(self, selection: Selection, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._selection, self._tokens = selection, tokens
        self._numbers: dict[tuple[object, ...], int] = {}
        self._tensor: LogicalTensor | None = None
        self._hover: tuple[int, int] | None = None
        self._hover_at = QPoint()
        self._owed = QPointF()
        self._failed: dict[str, None] = {}
        self.title = TitleRow(tokens)
        self.controls = PlaneBar(tokens)
        self.picture = PictureBox(tokens)
        self.scale = ColourBar(tokens)
        self.caption = PlainLabel("", "text3", 11)
        self.trouble = ElidedLabel(tokens, "err", ui_font(11), Qt.TextElideMode.ElideRight)
        self.read_all = QPushButton()
        self.state = StatePanel(tokens)
        self.cost = CostCard(tokens, self.picture)
        self.card = HoverCard(tokens, self.picture)
        self.loader = Loader(self)
        self.viewer = Viewer(self.picture, self.loader, self)
        self.shards = ShardOverlay(selection, self.picture, self)
        self._lay_out()
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        selection.tensorChanged.connect(self._on_tensor)
        selection.pieceChanged.connect(self._on_tensor)
        selection.checkpointChanged.connect(self._on_checkpoint)
        selection.elementChanged.connect(self._on_element)
        selection.regionWanted.connect(self._on_region)
        self.loader.progressed.connect(self._on_progress)
        self.viewer.changed.connect(self._tell)
        self.viewer.changed.connect(self.moved)
        self.viewer.failed.connect(self._on_failed)
        self.viewer.refused.connect(self._on_refused)
        self.viewer.element.connect(self._on_value)
        self.controls.planeChosen.connect(self._on_plane)
        self.controls.paintChosen.connect(self._choose_paint)
        self.controls.crosshairToggled.connect(lambda _: self._point())
        self.controls.shardsToggled.connect(self.shards.set_shown)
        self.controls.fitAsked.connect(self.viewer.fit)
        self.picture.wheeled.connect(lambda down, right, notches: self.viewer.zoom(_NOTCH**notches, (down, right)))
        self.picture.dragged.connect(self._on_dragged)
        self.picture.clicked.connect(self._on_clicked)
        self.picture.hovered.connect(self._on_hovered)
        self.cost.answered.connect(self._tell)
        self.cost.allWanted.connect(self.viewer.read_all)
        self.read_all.clicked.connect(self._on_read_all)
        self.set_tokens(tokens)
        self._on_tensor()

    def _lay_out(self) -> None:
        strip = QHBoxLayout()
        strip.setContentsMargins(14, 0, 14, 0)
        strip.setSpacing(12)
        strip.addWidget(self.caption)
        strip.addWidget(self.trouble, 1)
        strip.addWidget(self.read_all)
        below = QWidget()
        below.setLayout(strip)
        below.setFixedHeight(36)
        beside = QVBoxLayout()
        beside.setContentsMargins(0, 6, 8, 12)
        beside.addWidget(self.scale)
        middle = QHBoxLayout()
        middle.setContentsMargins(0, 0, 0, 0)
        middle.setSpacing(0)
        middle.addWidget(self.picture, 1)
        middle.addLayout(beside)
        self._page = QWidget()
        page = QVBoxLayout(self._page)
        page.setContentsMargins(0, 0, 0, 0)
        page.setSpacing(0)
        page.addLayout(middle, 1)
        page.addWidget(below)
        stack = QWidget()
        self._stack = QStackedLayout(stack)
        self._stack.addWidget(self.state)
        self._stack.addWidget(self._page)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.title)
        column.addWidget(self.controls)
        column.addWidget(stack, 1)
        self.read_all.hide()

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme, the colour maps included."""
        self._tokens = tokens
        self.setAutoFillBackground(True)
        palette = self.palette()
        palette.setColor(self.backgroundRole(), tokens.canvas)
        self.setPalette(palette)
        for part in (self.title, self.controls, self.picture, self.scale, self.caption, self.trouble, self.state,
                     self.cost, self.card):  # fmt: skip
            part.set_tokens(tokens)
        self._choose_paint()

    def shut(self) -> None:
        """Stop reading, for good."""
        self.loader.close()

    # ------------------------------------------------------------ which plane

    def _on_checkpoint(self) -> None:
        self._numbers.clear()
        self.cost.forget()
        self.viewer.forget()

    def _on_tensor(self) -> None:
        self._tensor = self._selection.source
        self._open(Plane.of(self._tensor) if self._tensor is not None else None)

    def _on_plane(self, rows: tuple[int, ...], cols: tuple[int, ...], at: tuple[int, ...]) -> None:
        if self._tensor is not None:
            self._open(Plane(self._tensor, rows, cols, at))

    def _open(self, plane: Plane | None) -> None:
        self._hover = None
        self._failed.clear()
        self.card.hide()
        self.status.emit("")
        self.title.name.set_text(title_text(self._selection))
        if plane is None or not self.controls.shows(plane):
            self.controls.show_plane(plane)
        self.controls.setVisible(plane is not None)
        words = state_words(self._selection, "grid-2x2")
        if words is not None or plane is None:
            self.viewer.open(0, None)
            self.shards.open(None, None)
            if words is not None:
                self._say(*words)
            return
        known = (self._selection.name, self._selection.view_key, plane.rows, plane.cols, plane.at)
        self._stack.setCurrentWidget(self._page)
        self.viewer.open(self._numbers.setdefault(known, len(self._numbers) + 1), plane)
        self.shards.open(*((self._tensor, plane) if self._selection.view is None else (None, None)))
        self._tell()
        if self.isVisible():
            self.viewer.begin()

    def _say(self, icon_name: str, title: str, sentence: str, colour: str) -> None:
        self.title.badge.say("")
        self.title.read.setText("")
        self.state.show_state(icon_name, title, sentence, colour=colour)
        self._stack.setCurrentWidget(self.state)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.viewer.begin()

    def _choose_paint(self) -> None:
        self.viewer.choose(self.controls.reduction, self.controls.span, self._tokens.name == "dark")
        self._tell()

    @property
    def sight(self) -> Region | None:
        """What is in sight of `selection.source`."""
        return self.viewer.sight

    # ------------------------------------------------------------ words about it

    def _on_failed(self, problem: Problem) -> None:
        self._failed[problem.sentence] = None
        self.shards.lose(problem)

    def _on_refused(self, problem: Problem) -> None:
        self._say("circle-x", "Its values cannot be read", problem.sentence, "err")

    def _on_progress(self) -> None:
        self.bytes_read.emit(self.loader.n_bytes_read)
        self._tell()

    def _tell(self) -> None:
        """Say how exact the picture is, what one pixel stands for, and what is wrong with it."""
        viewer, plane = self.viewer, self.viewer.plane
        if plane is None or self._stack.currentWidget() is not self._page:
            return
        kind, step = viewer.exactness()
        self.title.badge.say(kind, step)
        whole = plane.n_bytes(plane.shape[0] * plane.shape[1])
        n_read = self.loader.n_bytes_of(viewer.number)
        part = kind != "exact" and n_read < whole
        self.title.read.setText(f"{size(n_read)} of {size(whole)} read" if part else f"{size(n_read)} read")
        self.caption.setText(caption_text(viewer, self.controls.reduction, kind == "sampled"))
        self.cost.tell(viewer, self._selection, step)
        offered = viewer.reads_all or not (viewer.affordable or self.cost.isVisibleTo(self.picture))
        self.read_all.setVisible(kind == "sampled" and offered)
        reading = viewer.reads_all
        self.read_all.setText("Cancel" if reading else f"Read all {size(viewer.cost)}")
        self.read_all.setToolTip("Stop reading (Esc)" if reading else "Read every element in sight")
        self.trouble.set_text(*trouble_text(list(self._failed)))
        if viewer.paint is not None and viewer.survey is not None:
            magnitude = plane.source.dtype.kind == "c" or self.controls.reduction in MAGNITUDES
            told = limits_text(viewer.survey, self.controls.span)
            self.scale.show_paint(viewer.paint, "magnitude" if magnitude else "value", told)
        else:
            self.scale.show_paint(None, "", "")
        self._point()

    # ------------------------------------------------------------ pointer

    def _on_dragged(self, by: QPointF) -> None:
        self._on_hovered(None)
        # What is less than a device pixel is owed to the next move: the picture stays under the pointer.
        self._owed += by * self.picture.devicePixelRatioF()
        step = self._owed.toPoint()
        self._owed -= QPointF(step)
        self.viewer.pan(-step.y(), -step.x())

    def _on_hovered(self, pixel: tuple[int, int] | None) -> None:
        camera, plane = self.viewer.camera, self.viewer.plane
        cell = camera.element(pixel) if camera is not None and pixel is not None else None
        if pixel is not None and camera is not None:
            self._hover_at = self._widget_point(pixel)
        if cell == self._hover:
            if cell is not None:
                self.card.move_near(self._hover_at)
            return
        self._hover = cell
        self._point()
        if cell is None or plane is None or self._tensor is None:
            self.card.hide()
            self.status.emit("")
            return
        index = plane.index(*cell)
        self.card.show_waiting(index, self._hover_at)
        self.loader.ask(ElementRequest(self.viewer.number, self._tensor, index))

    def _widget_point(self, pixel: tuple[int, int]) -> QPoint:
        ratio, corner = self.picture.devicePixelRatioF(), self.picture.screen.topLeft()
        return QPoint(round(corner.x() + pixel[1] / ratio), round(corner.y() + pixel[0] / ratio))

    def _on_value(self, result: ElementResult) -> None:
        plane, survey = self.viewer.plane, self.viewer.survey
        if plane is None or self._hover is None or plane.index(*self._hover) != result.index:
            return
        note = ""
        if survey is not None and len(plane.source.shape) <= 2:  # else the plane's mean is not the tensor's
            note = deviation_text(result.value, survey.mean, survey.deviation)
        self.card.show_element(result, note, self._hover_at)
        told = "no value" if result.problem is not None else value_text(result)
        self.status.emit(f"{index_text(result.index)} = {told}")

    def _on_clicked(self, down: int, right: int) -> None:
        self.setFocus(Qt.FocusReason.MouseFocusReason)
        camera, plane = self.viewer.camera, self.viewer.plane
        cell = camera.element((down, right)) if camera is not None else None
        if plane is not None and cell is not None:
            self._selection.choose_element(plane.index(*cell))

    def _selected(self) -> tuple[int, int] | None:
        plane, element = self.viewer.plane, self._selection.element
        return plane.cell(element) if plane is not None and element is not None else None

    def _on_element(self) -> None:
        """Show an element that was chosen anywhere: go to its plane, and move it into sight."""
        plane, element, tensor = self.viewer.plane, self._selection.element, self._tensor
        if plane is None or element is None or tensor is None or tensor is not self._selection.source:
            self._point()
            return
        if plane.cell(element) is None:
            self._open(Plane(tensor, plane.rows, plane.cols, tuple(element[axis] for axis in plane.fixed)))
        cell = self._selected()
        if cell is not None:
            self.viewer.reveal(cell)
        self._point()

    def _on_region(self) -> None:
        """Show the fragment that was chosen anywhere: go to a plane that cuts it, and move it into the middle."""
        plane, tensor, row = self.viewer.plane, self._tensor, self._selection.fragment
        if plane is None or tensor is None or row is None or tensor is not self._selection.tensor:
            return
        region = tensor.fragments.region(row)
        if region.empty:
            return
        if (near := plane.cutting(region)) is not plane:
            self._open(near)
        self.viewer.show(*near.spans(region))

    def _point(self) -> None:
        selected = self._selected()
        crosshair = (self._hover or selected) if self.controls.crosshair.isChecked() else None
        self.picture.tiles.point(crosshair, selected)

    # ------------------------------------------------------------ keyboard

    def _on_read_all(self) -> None:
        if not self.viewer.cancel():
            self.viewer.read_all()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, held = event.key(), event.modifiers()
        page = bool(held & Qt.KeyboardModifier.ShiftModifier)
        if piece_key(self._selection, event):
            pass
        elif held & (Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier):
            event.ignore()
        elif key in _ARROWS:
            down, right = _ARROWS[Qt.Key(key)]
            high, wide = (n if page else n // 8 for n in self.picture.pixels)
            self.viewer.pan(down * high, right * wide)
        elif key == Qt.Key.Key_0:
            self.viewer.fit()
        elif key == Qt.Key.Key_1:
            self.viewer.one_to_one(self._pointed())
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.viewer.zoom(_STEP, self._pointed())
        elif key in (Qt.Key.Key_Minus, Qt.Key.Key_Underscore):
            self.viewer.zoom(1 / _STEP, self._pointed())
        elif key == Qt.Key.Key_X:
            self.controls.crosshair.toggle()
        elif key == Qt.Key.Key_S:
            self.controls.shards.toggle()
        elif key == Qt.Key.Key_R:
            self.controls.next_reduction()
        elif key == Qt.Key.Key_Escape and self.viewer.cancel():
            pass
        elif key == Qt.Key.Key_Escape and self._selection.place_chosen:
            self._selection.choose_element(None)
        else:
            event.ignore()

    def _pointed(self) -> tuple[int, int] | None:
        """Return the device pixel under the pointer, if it is on the picture."""
        if self.viewer.camera is None or self._hover is None:
            return None
        top, bottom, left, right = self.viewer.camera.cell(*self._hover)
        return (top + bottom) // 2, (left + right) // 2

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.picture.tiles.set_focused(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.picture.tiles.set_focused(False)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.shut()
        super().closeEvent(event)
