"""The blocks of the table: read beside the GUI thread, and kept as long as there is room for them."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QObject, Signal

from tensormorph.errors import CancelledError
from tensormorph.gui.background import Lane, post
from tensormorph.gui.table_cells import Block, lost_block, read_block
from tensormorph.model import LogicalTensor
from tensormorph.pyramid import Plane, Span, problem_of

BLOCK_ROWS, BLOCK_COLS = 64, 32
CACHE_BYTES = 16 << 20
"""Memory that blocks take at most."""
_PAUSE_SECONDS = 1e-5


@dataclass(frozen=True, slots=True)
class BlockKey:
    """Which block: number of the plane, and place in the grid of its blocks."""

    number: int
    row: int
    col: int

    @classmethod
    def of(cls, number: int, row: int, col: int) -> BlockKey:
        """Return the block that holds an element of a plane."""
        return cls(number, row // BLOCK_ROWS, col // BLOCK_COLS)

    @staticmethod
    def within(row: int, col: int) -> tuple[int, int]:
        """Return the place of an element of a plane in its block."""
        return row % BLOCK_ROWS, col % BLOCK_COLS

    def spans(self, shape: tuple[int, int]) -> tuple[Span, Span]:
        """Return the rows and columns of elements that it covers in a plane of that shape."""
        top, left = self.row * BLOCK_ROWS, self.col * BLOCK_COLS
        return (top, min(top + BLOCK_ROWS, shape[0])), (left, min(left + BLOCK_COLS, shape[1]))

    def part(self, extent: tuple[int, int], rows: Span, cols: Span) -> tuple[Span, Span]:
        """Return which of its rows and columns, counted from its own first, lie in a rectangle of the plane."""
        down, right = (
            (max(seen[0], own[0]) - own[0], min(seen[1], own[1]) - own[0])
            for seen, own in zip((rows, cols), self.spans(extent), strict=True)
        )
        return down, right


def keys(number: int, rows: Span, cols: Span) -> list[BlockKey]:
    """Return the blocks that hold a rectangle of elements, row by row."""
    if rows[0] >= rows[1] or cols[0] >= cols[1]:
        return []
    down = range(rows[0] // BLOCK_ROWS, -(-rows[1] // BLOCK_ROWS))
    right = range(cols[0] // BLOCK_COLS, -(-cols[1] // BLOCK_COLS))
    return [BlockKey(number, row, col) for row in down for col in right]


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A plane of a tensor under its number, and the most characters of a cell."""

    number: int
    tensor: LogicalTensor
    plane: Plane
    room: int


class Blocks(QObject):
    """Reads the blocks that the screen shows, the latest view first. To be used from the GUI thread."""

    arrived = Signal()
    """A block that is in sight has come."""

    def __init__(self, parent: QObject | None = None, cache_bytes: int = CACHE_BYTES) -> None:
        super().__init__(parent)
        self._lane = Lane("table")
        self._send = post()
        self._most = cache_bytes
        self._held: OrderedDict[BlockKey, Block] = OrderedDict()
        self._n_bytes = 0
        self._n_read: dict[int, int] = {}
        # Replaced as a whole, read by the worker.
        self._subject: Subject | None = None
        self._queue: deque[BlockKey] = deque()
        self._wanted: frozenset[BlockKey] = frozenset()
        self._sight: tuple[Span, Span] = ((0, 0), (0, 0))
        # Blocks on their way to the GUI thread.
        self._sent: set[BlockKey] = set()

    @property
    def n_bytes(self) -> int:
        """Memory that the blocks take."""
        return self._n_bytes

    @property
    def n_bytes_read(self) -> int:
        """Bytes read from storage so far."""
        return sum(self._n_read.values())

    def n_bytes_of(self, number: int) -> int:
        """Bytes read so far for the plane of that number."""
        return self._n_read.get(number, 0)

    def get(self, key: BlockKey) -> Block | None:
        """Return a block, which counts as a use."""
        block = self._held.get(key)
        if block is not None:
            self._held.move_to_end(key)
        return block

    def open(self, subject: Subject | None) -> None:
        """Read another plane from now on. What failed before is tried again when it is asked for."""
        self._want(())
        self._subject = subject
        for key in [key for key, block in self._held.items() if block.problems]:
            self._n_bytes -= self._held.pop(key).n_bytes

    def show(self, rows: Span, cols: Span) -> None:
        """Say what the screen shows: what is missing is read, and what is no longer shown is not."""
        self._sight = rows, cols
        self._want(() if self._subject is None else keys(self._subject.number, rows, cols))
        if self._queue:
            self._lane.ask(self._work, lambda _: None, _fail)

    def count(self, number: int, n_bytes: int) -> None:
        """Count bytes that were read for a plane by somebody else."""
        self._n_read[number] = self._n_read.get(number, 0) + n_bytes

    def forget(self) -> None:
        """Want nothing any more, and drop all blocks."""
        self._want(())
        self._subject = None
        self._held.clear()
        self._n_bytes = 0

    def _want(self, wanted: Sequence[BlockKey]) -> None:
        self._wanted = frozenset(wanted)
        self._queue = deque(key for key in wanted if key not in self._held)

    def _take(self, key: BlockKey, block: Block) -> None:
        self._sent.discard(key)
        self.count(key.number, block.n_read)
        if self._subject is None or key.number != self._subject.number:
            return
        old = self._held.pop(key, None)
        self._n_bytes += block.n_bytes - (0 if old is None else old.n_bytes)
        self._held[key] = block
        while self._n_bytes > self._most and len(self._held) > len(self._wanted) + 1:
            self._n_bytes -= self._held.popitem(last=False)[1].n_bytes
        if key in self._wanted:
            self.arrived.emit()

    def _work(self) -> None:
        """Read what waits, in the worker; the queue may be another one each time."""
        while True:
            subject = self._subject
            try:
                key = self._queue.popleft()
            except IndexError:
                return
            if subject is None or key.number != subject.number or key in self._sent or key in self._held:
                continue
            self._read(key, subject)

    def _read(self, key: BlockKey, subject: Subject) -> None:
        plane = subject.plane
        rows, cols = key.spans(plane.shape)
        try:
            block = read_block(subject.tensor, plane, rows, cols, subject.room, lambda: key not in self._wanted)
            # The texts in sight, so that the GUI thread need not find them all at once.
            down, right = key.part(plane.shape, *self._sight)
            for row in range(*down):
                block.line(row, *right)
                time.sleep(_PAUSE_SECONDS)
        except CancelledError:
            return
        except Exception as error:  # a bug: shown in the cells, where dots would promise that something comes
            block = lost_block((rows[1] - rows[0], cols[1] - cols[0]), problem_of(error, None), subject.room)
        self._sent.add(key)
        self._send(partial(self._take, key, block))


def _fail(error: Exception) -> None:
    raise error
