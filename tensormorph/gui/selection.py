"""The one selection that every view shows and changes: checkpoint, tensor, fragment, element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from tensormorph.errors import TensormorphError
from tensormorph.region import Region

if TYPE_CHECKING:
    from tensormorph.model import Checkpoint, LogicalTensor

_MOST_HISTORY = 200


class Selection(QObject):
    """What is being looked at. Views set it by its methods and follow its signals; nothing is passed between views.

    The signals carry no values: a slot reads the properties, so that it never acts on a state that has passed.
    A view that keeps a tensor while a worker reads it compares the tensor with `tensor` when the answer comes.
    """

    checkpointChanged = Signal()  # noqa: N815
    tensorChanged = Signal()  # noqa: N815
    elementChanged = Signal()  # noqa: N815
    fragmentChanged = Signal()  # noqa: N815
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
    def element(self) -> tuple[int, ...] | None:
        """Index of the chosen element in the logical tensor."""
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
        """Choose an element of the tensor, and with it a fragment that stores it.

        None, or an index outside the tensor, chooses no element and no fragment.
        """
        if index is not None:
            shape = () if self._tensor is None else self._tensor.shape
            fits = self._tensor is not None and len(index) == len(shape)
            if not fits or not all(0 <= i < n for i, n in zip(index, shape, strict=True)):
                index = None
        if index != self._element:
            self._element = index
            self.elementChanged.emit()
        self._set_fragment(None if index is None else self._holder(index))

    def choose_fragment(self, row: int | None) -> None:
        """Choose a stored part of the tensor and have it moved into sight; an element that lies elsewhere is let go."""
        if self._tensor is None or (row is not None and not 0 <= row < len(self._tensor.fragments)):
            row = None
        element = self._element
        self._set_fragment(row)
        if row is None or self._tensor is None:
            return
        if element is not None and not _holds(self._tensor.fragments.region(row), element):
            self._element = None
            self.elementChanged.emit()
        self.regionWanted.emit()

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
        self.tensorChanged.emit()
        if had_element:
            self.elementChanged.emit()
        if had_fragment:
            self.fragmentChanged.emit()
        return True


def _holds(region: Region, index: tuple[int, ...]) -> bool:
    return all(low <= i < high for low, i, high in zip(region.start, index, region.stop, strict=True))
