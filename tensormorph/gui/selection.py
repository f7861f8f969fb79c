"""The one selection that every view shows and changes: checkpoint, tensor, local view, fragment, element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent

from tensormorph.errors import TensormorphError
from tensormorph.gui.background import Lane
from tensormorph.region import Region

if TYPE_CHECKING:
    from tensormorph.gui.local_views import LocalView
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
    """Another stored piece or rank's part is looked at, or none; or it is known by now what is stored there."""
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
        self._view: LocalView | None = None
        self._by_rank = True
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
    def view(self) -> LocalView | None:
        """What is looked at instead of the whole tensor: a stored piece or a rank's part; None for the whole."""
        return self._view

    @property
    def view_key(self) -> tuple[str, int] | None:
        """What tells `view` from all others of the tensor."""
        return None if self._view is None else self._view.key

    @property
    def piece(self) -> int | None:
        """Which of the tensor's stored pieces is looked at as it lies in its file; None where none is."""
        return self._view.key[1] if self._view is not None and self._view.key[0] == "piece" else None

    @property
    def rank(self) -> int | None:
        """The rank whose part is looked at, or whose stored piece; None where that is not so, or not known."""
        return None if self._view is None else self._view.rank

    @property
    def source(self) -> LogicalTensor | None:
        """What views show: the tensor, or its local view as a tensor; None until it is known what that is."""
        return self._tensor if self._view is None else self._local

    @property
    def trouble(self) -> Exception | None:
        """Why it cannot be known what the local view is."""
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
        self._leave_view()
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
        if self._view is None:
            self._set_fragment(None if index is None else self._holder(index))

    def choose_fragment(self, row: int | None) -> None:
        """Choose a stored part of the tensor and have it moved into sight; an element that lies elsewhere is let go.

        While local() is looked at, the piece of that part, or its rank's part, is looked at instead.
        """
        if self._tensor is None or (row is not None and not 0 <= row < len(self._tensor.fragments)):
            row = None
        if self._view is not None:
            if (view := self._local_view(row)) is not None:
                self._look(view)
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
    def n_pieces(self) -> int:
        """How many stored pieces of the tensor can be looked at."""
        return 0 if self._tensor is None else len(self._tensor.locals)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of which the layout tells what they hold, in the order of the mesh."""
        layout = None if self._tensor is None else self._tensor.layout
        return () if layout is None else layout.mesh.ranks

    @property
    def can_be_local(self) -> bool:
        """Whether the tensor has stored pieces or ranks' parts to look at."""
        return self.n_pieces > 0 or bool(self.ranks)

    def choose_piece(self, piece: int | None) -> None:
        """Look at a stored piece as it lies in its file, or at the whole; the element stays where both have it."""
        from tensormorph.gui.local_views import PieceView  # with numpy, which the start page does without

        if piece is None:
            self._look(None)
        elif self._tensor is not None and 0 <= piece < self.n_pieces:
            self._by_rank = False
            self._look(PieceView(self._tensor, piece))

    def choose_rank(self, rank: int) -> None:
        """Look at what a rank holds: its part by the layout, or without one the first piece that it stored."""
        from tensormorph.gui.local_views import RankView

        if self._tensor is None:
            return
        if rank in self.ranks:
            self._by_rank = True
            self._look(RankView(self._tensor, rank))
            return
        for piece, local in enumerate(self._tensor.locals):
            if local.rank == rank:
                self.choose_piece(piece)
                return

    def toggle_local(self) -> None:
        """Change between the whole and local(): that of the chosen fragment, or the first."""
        if self._view is not None:
            self._look(None)
        elif self._tensor is not None and self.can_be_local:
            self._look(self._local_view(self._fragment) or self._nth(0))

    def step_piece(self, by: int) -> None:
        """Look at the next or previous rank's part, or stored piece, round the end; only while one is looked at."""
        if self._view is None:
            return
        kind, number = self._view.key
        self._by_rank = kind == "rank"
        at = self.ranks.index(number) if self._by_rank else number
        self._look(self._nth(at + by))

    def _nth(self, at: int) -> LocalView:
        from tensormorph.gui.local_views import PieceView, RankView

        assert self._tensor is not None
        if self.ranks and (self._by_rank or not self.n_pieces):
            return RankView(self._tensor, self.ranks[at % len(self.ranks)])
        return PieceView(self._tensor, at % self.n_pieces)

    def _local_view(self, row: int | None) -> LocalView | None:
        """Return the local view of a fragment, of the kind that was looked at last where there are both."""
        from tensormorph.gui.local_views import PieceView, RankView
        from tensormorph.gui.pieces import piece_of

        if self._tensor is None or row is None:
            return None
        rank = int(self._tensor.fragments.rank[row])
        if rank in self.ranks and (self._by_rank or not self.n_pieces):
            return RankView(self._tensor, rank)
        piece = piece_of(self._tensor, row)
        return None if piece is None else PieceView(self._tensor, piece)

    def _look(self, view: LocalView | None) -> None:
        """Look at the whole or a local view of the tensor."""
        if (None if view is None else view.key) == self.view_key:
            return
        kept = self._kept_in_full()
        self._leave_view()
        self._view, self._kept = view, kept
        had_element, self._element = self._element is not None, None
        if view is None:
            self.pieceChanged.emit()
        if had_element:
            self.elementChanged.emit()
        if view is None:
            if kept is not None:
                self.choose_element(kept)
            return
        self._late.start()
        row = view.fragment
        if row is not None or view.key[0] == "rank":
            self._set_fragment(row)
        self._lane.ask(view.read, self._take_local, self._fail_local)

    @property
    def full_element(self) -> tuple[int, ...] | None:
        """Index in the whole tensor of the chosen element; None where that is not known."""
        if self._view is None or self._element is None or self._local is None:
            return self._element
        return self._view.to_full(self._local, self._element)

    def in_full(self, region: Region) -> Region | None:
        """Return where a region of `source` lies in the whole tensor; None where that is not known."""
        if self._view is None:
            return region
        return None if self._local is None else self._view.region_in_full(self._local, region)

    def _kept_in_full(self) -> tuple[int, ...] | None:
        return self._kept if self._element is None and self._view is not None else self.full_element

    def _take_local(self, local: LogicalTensor) -> None:
        self._local = local
        self._late.stop()
        self.pieceChanged.emit()
        if self._kept is not None and self._view is not None:
            place = self._view.from_full(local, self._kept)
            if place is not None:
                self.choose_element(place)

    def _fail_local(self, error: Exception) -> None:
        self._trouble = error
        self._late.stop()
        self.pieceChanged.emit()

    def _leave_view(self) -> None:
        self._lane.drop()
        self._late.stop()
        self._view = self._local = self._trouble = self._kept = None

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
        self._leave_view()
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
