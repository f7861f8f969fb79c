"""The one selection that every view shows and changes: checkpoint, tensor, stored piece, fragment, element."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent

from tensormorph.errors import TensormorphError
from tensormorph.gui.background import Lane
from tensormorph.region import Region

if TYPE_CHECKING:
    from tensormorph.model import Checkpoint, LogicalTensor

_MOST_HISTORY = 200
_PATIENCE_MS = 150
"""What a piece is mostly comes before that: until then views show what they showed, instead of flickering."""


class Selection(QObject):
    """What is being looked at. Views set it by its methods and follow its signals; nothing is passed between views.

    The signals carry no values: a slot reads the properties, so that it never acts on a state that has passed.
    A view that keeps a tensor while a worker reads it compares the tensor with `tensor` when the answer comes.
    """

    checkpointChanged = Signal()  # noqa: N815
    tensorChanged = Signal()  # noqa: N815
    elementChanged = Signal()  # noqa: N815
    fragmentChanged = Signal()  # noqa: N815
    pieceChanged = Signal()  # noqa: N815
    """Another stored piece is looked at, or none; or it is known by now what is stored there."""
    regionWanted = Signal()  # noqa: N815
    """The fragment was chosen as a place to go to: views move it into sight."""
    historyChanged = Signal()  # noqa: N815

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._checkpoint: Checkpoint | None = None
        self._name: str | None = None
        self._tensor: LogicalTensor | None = None
        self._element: tuple[int, ...] | None = None
        self._fragment: int | None = None
        self._piece: int | None = None
        self._local: LogicalTensor | None = None
        self._trouble: Exception | None = None
        self._kept: tuple[int, ...] | None = None
        self._lane = Lane("piece")
        self._late = QTimer(self, interval=_PATIENCE_MS, singleShot=True)
        self._late.timeout.connect(self.pieceChanged)
        self._visited: list[str] = []
        self._at = -1

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The open checkpoint. The selection does not close it."""
        return self._checkpoint

    @property
    def name(self) -> str | None:
        """The chosen name as stored; may be an alias, or name an unreadable tensor."""
        return self._name

    @property
    def tensor(self) -> LogicalTensor | None:
        """The tensor that `name` stands for; None also where the checkpoint names it but cannot read it."""
        return self._tensor

    @property
    def piece(self) -> int | None:
        """Which of the tensor's stored pieces is looked at as it lies in its file; None for the logical whole."""
        return self._piece

    @property
    def source(self) -> LogicalTensor | None:
        """What views show: the tensor, or the piece as a tensor of its own; None until it is known what it is."""
        return self._tensor if self._piece is None else self._local

    @property
    def trouble(self) -> Exception | None:
        """Why it cannot be known what the chosen piece is."""
        return self._trouble

    @property
    def element(self) -> tuple[int, ...] | None:
        """Index of the chosen element in `source`."""
        return self._element

    @property
    def fragment(self) -> int | None:
        """Row of the chosen fragment in the tensor's table: of the element's, while one is chosen."""
        return self._fragment

    @property
    def place_chosen(self) -> bool:
        """Whether an element or a fragment is chosen."""
        return self._element is not None or self._fragment is not None

    def open(self, checkpoint: Checkpoint | None) -> None:
        """Look at another checkpoint, or at none; no tensor is chosen then and the history is empty."""
        self._element = self._fragment = None
        self._name = self._tensor = None
        self._leave_piece()
        self._visited, self._at = [], -1
        self._checkpoint = checkpoint
        self.checkpointChanged.emit()
        self.tensorChanged.emit()
        self.elementChanged.emit()
        self.fragmentChanged.emit()
        self.historyChanged.emit()

    def choose(self, name: str | None) -> None:
        """Choose a tensor by its name or alias; None chooses nothing. A name that is not there is ignored."""
        if not self._set(name) or name is None:
            return
        del self._visited[self._at + 1 :]
        self._visited.append(name)
        del self._visited[:-_MOST_HISTORY]
        self._at = len(self._visited) - 1
        self.historyChanged.emit()

    def choose_element(self, index: tuple[int, ...] | None) -> None:
        """Choose an element of `source`, and with it a fragment that stores it.

        None, or an index outside, chooses no element and, of the whole tensor, no fragment.
        """
        if index is not None:
            shape = () if self.source is None else self.source.shape
            fits = self.source is not None and len(index) == len(shape)
            if not fits or not all(0 <= i < n for i, n in zip(index, shape, strict=True)):
                index = None
        if index != self._element:
            self._element = index
            self.elementChanged.emit()
        if index is None:
            self._kept = None
        if self._piece is None:
            self._set_fragment(None if index is None else self._holder(index))

    def choose_fragment(self, row: int | None) -> None:
        """Choose a stored part of the tensor and have it moved into sight; an element that lies elsewhere is let go.

        While a piece is looked at, the piece of that part is looked at instead.
        """
        if self._tensor is None or (row is not None and not 0 <= row < len(self._tensor.fragments)):
            row = None
        if self._piece is not None:
            from tensormorph.gui.pieces import piece_of  # with numpy, which the start page does without

            piece = None if row is None or self._tensor is None else piece_of(self._tensor, row)
            if piece is not None:
                self.choose_piece(piece)
            return
        element = self._element
        self._set_fragment(row)
        if row is None or self._tensor is None:
            return
        if element is not None and not _holds(self._tensor.fragments.region(row), element):
            self._element = None
            self.elementChanged.emit()
        self.regionWanted.emit()

    # ------------------------------------------------------------ full() and local()

    @property
    def can_be_local(self) -> bool:
        """Whether the tensor has stored pieces to look at."""
        return self._tensor is not None and len(self._tensor.locals) > 0

    def choose_piece(self, piece: int | None) -> None:
        """Look at a stored piece as it lies in its file, or at the whole; the element stays where both have it."""
        from tensormorph.gui.pieces import as_tensor, fragment_of  # with numpy, which the start page does without

        tensor = self._tensor
        if tensor is None or piece == self._piece or (piece is not None and not 0 <= piece < len(tensor.locals)):
            return
        kept = self._kept_in_full()
        self._leave_piece()
        self._piece, self._kept = piece, kept
        had_element, self._element = self._element is not None, None
        if piece is None:
            self.pieceChanged.emit()
        if had_element:
            self.elementChanged.emit()
        if piece is None:
            if kept is not None:
                self.choose_element(kept)
            return
        self._late.start()
        row = fragment_of(tensor, piece)
        if row is not None:
            self._set_fragment(row)
        self._lane.ask(partial(as_tensor, tensor, piece), self._take_local, self._fail_local)

    def toggle_local(self) -> None:
        """Change between the whole and a piece: that of the chosen fragment, or the first."""
        if self._piece is not None:
            self.choose_piece(None)
        elif self.can_be_local and self._tensor is not None:
            from tensormorph.gui.pieces import piece_of

            self.choose_piece(0 if self._fragment is None else piece_of(self._tensor, self._fragment) or 0)

    def step_piece(self, by: int) -> None:
        """Look at the next or previous piece, round the end; only while one is looked at."""
        if self._piece is not None and self._tensor is not None:
            self.choose_piece((self._piece + by) % len(self._tensor.locals))

    @property
    def full_element(self) -> tuple[int, ...] | None:
        """Index in the whole tensor of the chosen element; None where that is not known."""
        from tensormorph.gui.pieces import shifted

        if self._piece is None or self._element is None or self._tensor is None or self._local is None:
            return self._element
        return shifted(self._tensor, self._piece, self._local, self._element)

    def in_full(self, region: Region) -> Region | None:
        """Return where a region of `source` lies in the whole tensor; None where that is not known."""
        from tensormorph.gui.pieces import shifted

        if self._piece is None:
            return region
        if self._tensor is None or self._local is None:
            return None
        start = shifted(self._tensor, self._piece, self._local, region.start)
        stop = shifted(self._tensor, self._piece, self._local, region.stop)
        return None if start is None or stop is None else Region(start, stop)

    def _kept_in_full(self) -> tuple[int, ...] | None:
        return self._kept if self._element is None and self._piece is not None else self.full_element

    def _take_local(self, local: LogicalTensor) -> None:
        from tensormorph.gui.pieces import within

        self._local = local
        self._late.stop()
        self.pieceChanged.emit()
        if self._kept is not None and self._tensor is not None and self._piece is not None:
            place = within(self._tensor, self._piece, local, self._kept)
            if place is not None:
                self.choose_element(place)

    def _fail_local(self, error: Exception) -> None:
        self._trouble = error
        self._late.stop()
        self.pieceChanged.emit()

    def _leave_piece(self) -> None:
        self._lane.drop()
        self._late.stop()
        self._piece = self._local = self._trouble = self._kept = None

    def _set_fragment(self, row: int | None) -> None:
        if row != self._fragment:
            self._fragment = row
            self.fragmentChanged.emit()

    def _holder(self, index: tuple[int, ...]) -> int | None:
        """Return the row of a fragment that stores an element: the chosen one, if it does."""
        assert self._tensor is not None
        fragments, row = self._tensor.fragments, self._fragment
        if row is not None and _holds(fragments.region(row), index):
            return row
        rows = fragments.overlapping(Region(index, tuple(i + 1 for i in index)))
        return int(rows[0]) if len(rows) else None

    @property
    def can_go_back(self) -> bool:
        """Whether an earlier choice is remembered."""
        return self._at > 0

    @property
    def can_go_forward(self) -> bool:
        """Whether `back` was used since the last choice."""
        return self._at + 1 < len(self._visited)

    def back(self) -> None:
        """Choose the tensor that was chosen before."""
        if self.can_go_back:
            self._step(-1)

    def forward(self) -> None:
        """Undo one `back`."""
        if self.can_go_forward:
            self._step(1)

    def _step(self, by: int) -> None:
        self._at += by
        self._set(self._visited[self._at])
        self.historyChanged.emit()

    def _set(self, name: str | None) -> bool:
        """Set name and tensor; return whether anything changed."""
        if name == self._name:
            return False
        tensor: LogicalTensor | None = None
        if name is not None:
            if self._checkpoint is None:
                return False
            try:
                tensor = self._checkpoint[name]
            except TensormorphError:
                if name not in self._checkpoint.unreadable:
                    return False
        had_element, had_fragment = self._element is not None, self._fragment is not None
        self._name, self._tensor, self._element, self._fragment = name, tensor, None, None
        self._leave_piece()
        self.tensorChanged.emit()
        if had_element:
            self.elementChanged.emit()
        if had_fragment:
            self.fragmentChanged.emit()
        return True


def _holds(region: Region, index: tuple[int, ...]) -> bool:
    return all(low <= i < high for low, i, high in zip(region.start, index, region.stop, strict=True))


def piece_key(selection: Selection, event: QKeyEvent) -> bool:
    """Do what a key means for full() and local(), in any view of values; return whether it means anything."""
    held = event.modifiers() & ~(Qt.KeyboardModifier.KeypadModifier | Qt.KeyboardModifier.GroupSwitchModifier)
    if event.key() == Qt.Key.Key_L and held == Qt.KeyboardModifier.NoModifier:
        selection.toggle_local()
    elif event.text() in ("[", "]"):  # whatever must be held for them on the keyboard
        selection.step_piece(-1 if event.text() == "[" else 1)
    else:
        return False
    return True
