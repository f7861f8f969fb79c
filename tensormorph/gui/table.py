"""The table: the exact value of every element of any plane of the selected tensor, read as it comes into sight."""

from __future__ import annotations

from functools import partial
from itertools import count as numbers

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtGui import QCloseEvent, QGuiApplication, QKeyEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QStackedLayout, QVBoxLayout, QWidget

from tensormorph.gui.background import Lane
from tensormorph.gui.badge import TitleRow
from tensormorph.gui.hover import index_text
from tensormorph.gui.painting import tooltip
from tensormorph.gui.plane_bar import PlaneBar
from tensormorph.gui.selection import Selection, piece_key
from tensormorph.gui.states import PlainLabel, StatePanel, state_words, title_text
from tensormorph.gui.table_blocks import BlockKey, Blocks, Subject
from tensormorph.gui.table_cells import GAP, room
from tensormorph.gui.table_copy import MOST, Copied, Form, read_copy
from tensormorph.gui.table_grid import Cell, Grid
from tensormorph.gui.theme import Tokens
from tensormorph.model import LogicalTensor
from tensormorph.pyramid import Plane, problem_of
from tensormorph.region import Region
from tensormorph.text import count, plural, printable, size


class TableView(QWidget):
    """Title, controls, grid, and a line that says what is selected and what has no value.

    Follows the selection, and sets its element by mouse and keyboard. Reads only while it is visible. A tensor of one
    axis is a column.
    """

    status = Signal(str)
    """The element under the pointer, or the chosen one, and its value; or what became of a copy. Empty for none."""
    bytes_read = Signal(object)  # an int: Qt would cut it at 2 GB
    """Bytes read from storage so far, all tensors together."""
    moved = Signal()
    """Another region may be in sight."""

    def __init__(self, selection: Selection, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._selection, self._tokens = selection, tokens
        self._tensor: LogicalTensor | None = None
        self.plane: Plane | None = None
        self._numbers: dict[tuple[object, ...], int] = {}
        self._unused = numbers(1)
        self._number = 0
        self._told: Cell | None = None
        self._copies = Lane("copy")
        self.blocks = Blocks(self)
        self.title = TitleRow(tokens)
        self.controls = PlaneBar(tokens)
        controls = self.controls
        for control in (controls.fold, controls.scale, controls.shards, controls.crosshair, controls.fit):
            control.hide()
        self.grid = Grid(self.blocks, tokens)
        self.caption = PlainLabel("", "text3", 11)
        self.trouble = PlainLabel("", "err", 11)
        self.state = StatePanel(tokens)
        self._lay_out()
        self.setFocusProxy(self.grid)
        selection.tensorChanged.connect(self._on_tensor)
        selection.pieceChanged.connect(self._on_tensor)
        selection.checkpointChanged.connect(self._on_checkpoint)
        selection.elementChanged.connect(self._on_element)
        selection.regionWanted.connect(self._on_region)
        self.blocks.arrived.connect(self._on_arrived)
        self.controls.planeChosen.connect(self._on_plane)
        self.grid.moved.connect(self._read)
        self.grid.chosen.connect(self._on_chosen)
        self.grid.stretched.connect(self._tell)
        for signal in (self.grid.moved, self.grid.stretched):
            signal.connect(self.moved)
        self.grid.hovered.connect(self._on_hovered)
        self.grid.copyWanted.connect(self.copy)
        self.set_tokens(tokens)
        self._on_tensor()
        if selection.element is None:
            self._on_region()

    def _lay_out(self) -> None:
        # A long reason is cut, whole in its tooltip: it must not make the window wider.
        self.trouble.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        strip = QHBoxLayout()
        strip.setContentsMargins(14, 0, 14, 0)
        strip.setSpacing(12)
        strip.addWidget(self.caption)
        strip.addWidget(self.trouble, 1)
        below = QWidget()
        below.setLayout(strip)
        below.setFixedHeight(36)
        self._page = QWidget()
        page = QVBoxLayout(self._page)
        page.setContentsMargins(0, 0, 0, 0)
        page.setSpacing(0)
        page.addWidget(self.grid, 1)
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

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.setAutoFillBackground(True)
        palette = self.palette()
        palette.setColor(self.backgroundRole(), tokens.canvas)
        self.setPalette(palette)
        for part in (self.title, self.controls, self.grid, self.caption, self.trouble, self.state):
            part.set_tokens(tokens)

    def shut(self) -> None:
        """Stop reading, for good."""
        self.blocks.forget()
        self._copies.drop()

    # ------------------------------------------------------------ which plane

    def _on_checkpoint(self) -> None:
        self._numbers.clear()
        self.blocks.forget()

    def _on_tensor(self) -> None:
        tensor = self._tensor = self._selection.source
        if tensor is None:
            self._open(None)
        elif len(tensor.shape) == 1:
            self._open(Plane(tensor, (0,), ()))
        else:
            self._open(Plane.of(tensor))

    def _on_plane(self, rows: tuple[int, ...], cols: tuple[int, ...], at: tuple[int, ...]) -> None:
        if self._tensor is not None:
            self._open(Plane(self._tensor, rows, cols, at))

    def _open(self, plane: Plane | None) -> None:
        tensor = self._tensor
        self._tell_element(None)
        self.title.name.set_text(title_text(self._selection))
        if plane is None or not self.controls.shows(plane):
            self.controls.show_plane(plane)
        self.controls.setVisible(plane is not None and len(plane.source.shape) > 1)
        words = state_words(self._selection, "table")
        self.blocks.open(None)
        if words is not None or plane is None or tensor is None:
            self.plane = None
            self.grid.open(0, (0, 0), 0, (True, True))
            if words is not None:
                self._say(*words)
            return
        self.plane = plane
        known = (self._selection.name, self._selection.view_key, plane.rows, plane.cols, plane.at)
        self._number = self._numbers.setdefault(known, next(self._unused))
        self.grid.open(self._number, plane.shape, room(tensor.dtype), (bool(plane.rows), bool(plane.cols)))
        self.blocks.open(Subject(self._number, tensor, plane, self.grid.room))
        self._stack.setCurrentWidget(self._page)
        self.grid.point(self._selected())
        self._read()

    def _say(self, icon_name: str, title: str, sentence: str, colour: str) -> None:
        self.title.badge.say("")
        self.title.read.setText("")
        self.state.show_state(icon_name, title, sentence, colour=colour)
        self._stack.setCurrentWidget(self.state)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._read()
        self._tell_element(self.grid.anchor)

    # ------------------------------------------------------------ reading

    @property
    def sight(self) -> Region | None:
        """What is in sight of `selection.source`; a selected rectangle of several elements instead of all that is."""
        if self.plane is None:
            return None
        chosen = self.grid.selected
        several = chosen is not None and any(stop - start > 1 for start, stop in chosen)
        return self.plane.region(*(chosen if several and chosen is not None else self.grid.sight))

    def _read(self) -> None:
        """Ask for what is in sight, and say what is known of it."""
        if self.plane is not None and self.isVisible():
            self.blocks.show(*self.grid.sight)
        self._tell()

    def _on_arrived(self) -> None:
        self.bytes_read.emit(self.blocks.n_bytes_read)
        self.grid.viewport().update()
        self._tell()
        if self._told is not None:
            self._tell_element(self._told)

    def _tell(self) -> None:
        """Say whether all is read, what is selected, and what has no value."""
        plane, tensor = self.plane, self._tensor
        if plane is None or tensor is None:
            return
        held = [self.blocks.get(key) for key in self.grid.keys]
        self.title.badge.say("exact" if all(block is not None for block in held) else "reading")
        whole = plane.n_bytes(plane.shape[0] * plane.shape[1])
        n_read = self.blocks.n_bytes_of(self._number)
        self.title.read.setText(f"{size(n_read)} of {size(whole)} read" if n_read < whole else f"{size(n_read)} read")
        self.caption.setText(self._caption(tensor))
        self._tell_trouble(plane)

    def _tell_trouble(self, plane: Plane) -> None:
        """Say how many elements in sight have no value, and why the first has none."""
        n_lost, first = 0, ""
        for key in self.grid.keys:
            block = self.blocks.get(key)
            if block is None or not block.lossy:
                continue
            (top, bottom), (left, right) = key.part(plane.shape, *self.grid.sight)
            lost = np.argwhere(block.kinds[top:bottom, left:right] >= GAP)
            n_lost += len(lost)
            if len(lost) and not first:
                problem = block.problem(top + int(lost[0, 0]), left + int(lost[0, 1]))
                first = "" if problem is None else printable(problem.sentence, 300)
        have = "element in sight has" if n_lost == 1 else "elements in sight have"
        self.trouble.setText(f"{count(n_lost)} {have} no value: {first}" if n_lost else "")
        self.trouble.setToolTip(tooltip(first) if n_lost else "")

    def _caption(self, tensor: LogicalTensor) -> str:
        chosen = self.grid.selected
        if chosen is not None:
            rows, cols = (stop - start for start, stop in chosen)
            if rows * cols > 1:
                told = f"{count(rows)} × {count(cols)}" if self.plane is not None and self.plane.cols else count(rows)
                return f"{told} elements selected"
        if tensor.dtype.kind in "biu":
            return f"Each number is exact ({tensor.encoding.name})"
        return f"Each number is the shortest that reads back as {tensor.encoding.name}"

    # ------------------------------------------------------------ elements

    def go_to(self, index: tuple[int, ...]) -> None:
        """Choose an element of the tensor and move it into sight; an index outside the tensor chooses none."""
        self._selection.choose_element(index)
        self._on_element()  # the selection tells nothing of an element that was chosen before

    def _selected(self) -> Cell | None:
        element = self._selection.element
        return self.plane.cell(element) if self.plane is not None and element is not None else None

    def _on_element(self) -> None:
        """Show an element that was chosen anywhere: go to its plane, and move it into sight."""
        plane, element, tensor = self.plane, self._selection.element, self._tensor
        if plane is None or tensor is None or tensor is not self._selection.source:
            return
        if element is not None and plane.cell(element) is None:
            self._open(Plane(tensor, plane.rows, plane.cols, tuple(element[axis] for axis in plane.fixed)))
        cell = self._selected()
        self.grid.point(cell)
        self._tell_element(cell)

    def _on_region(self) -> None:
        """Select the fragment that was chosen anywhere: go to a plane that cuts it, and move it into sight."""
        plane, tensor, row = self.plane, self._tensor, self._selection.fragment
        if plane is None or tensor is None or row is None or tensor is not self._selection.tensor:
            return
        region = tensor.fragments.region(row)
        if region.empty:
            return
        if (near := plane.cutting(region)) is not plane:
            self._open(near)
        (top, bottom), (left, right) = near.spans(region)
        self.grid.select((top, left), (bottom - 1, right - 1))

    def _on_chosen(self, cell: Cell) -> None:
        if self.plane is not None:
            self._selection.choose_element(self.plane.index(*cell))
            self._tell_element(cell)

    def _on_hovered(self, cell: Cell | None) -> None:
        self._tell_element(cell if cell is not None else self.grid.anchor)

    def _tell_element(self, cell: Cell | None) -> None:
        """Say an element's value, now or as soon as it has come; nothing while another view is seen instead."""
        self._told = cell
        if not self.isVisible():
            return
        if cell is None or self.plane is None:
            self.status.emit("")
            return
        block = self.blocks.get(BlockKey.of(self._number, *cell))
        shown = "…"
        if block is not None:
            problem = block.problem(*BlockKey.within(*cell))
            shown = block.text(*BlockKey.within(*cell))
            if problem is not None:
                shown = f"no value: {printable(problem.sentence, 300)}"
        self.status.emit(f"{index_text(self.plane.index(*cell))} = {shown}")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not piece_key(self._selection, event):
            event.ignore()

    # ------------------------------------------------------------ copying

    def copy(self, form: Form) -> None:
        """Put the selected elements on the clipboard, as TSV or as a NumPy expression; all of them or none."""
        chosen, plane, tensor = self.grid.selected, self.plane, self._tensor
        self._told = None
        if chosen is None or plane is None or tensor is None:
            self.status.emit("Nothing copied: no element is selected")
            return
        rows, cols = chosen
        n_elements = (rows[1] - rows[0]) * (cols[1] - cols[0])
        if n_elements > MOST:
            self.status.emit(f"Nothing copied: {count(n_elements)} elements are selected, {count(MOST)} is the most")
            return
        number = self._number
        self.status.emit(f"Copying {plural(n_elements, 'element')}")

        def done(copied: Copied) -> None:
            self.blocks.count(number, copied.n_bytes)
            self.bytes_read.emit(self.blocks.n_bytes_read)
            QGuiApplication.clipboard().setText(copied.text)
            self.status.emit(f"Copied {plural(n_elements, 'element')} as {form}")

        self._copies.ask(partial(read_copy, tensor, plane, rows, cols, form), done, self._not_copied)

    def _not_copied(self, error: Exception) -> None:
        self.status.emit(f"Nothing copied: {printable(problem_of(error, None).sentence, 300)}")

    def closeEvent(self, event: QCloseEvent) -> None:
        self.shut()
        super().closeEvent(event)
