"""Open a checkpoint beside the GUI thread, with progress, and with a cancel that never waits for the disk."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from PySide6.QtCore import QObject, QTimer, Signal

from tensormorph.errors import CancelledError
from tensormorph.gui.background import post, start

if TYPE_CHECKING:
    from tensormorph.gui.outline import Outline
    from tensormorph.gui.rows import Rows
    from tensormorph.gui.search import Searcher
    from tensormorph.mesh import DeviceMesh
    from tensormorph.model import Checkpoint

Report = Callable[[str, int, int], None]
OpenFunction: TypeAlias = "Callable[[str, str | None, Report], Checkpoint]"
_POLL_MS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A checkpoint with its module tree and the means to search it, all made in the worker."""

    path: str
    checkpoint: Checkpoint
    outline: Outline
    rows: Rows
    """Of the outline, as it is first shown: of each group of alike layers the first."""
    searcher: Searcher


@dataclass(frozen=True, slots=True, eq=False)
class Failed:
    """Why nothing was opened; any exception, ours or not."""

    path: str
    error: BaseException
    is_folder: bool = False


@dataclass(slots=True)
class _Shared:
    """What worker and GUI thread tell one another; each field is written by one of them."""

    cancelled: bool = False
    progress: tuple[str, int, int] = ("Looking at the path", 0, 0)
    changed_at: float = field(default_factory=time.monotonic)


def open_with_readers(path: str, reader: str | None, report: Report, mesh: DeviceMesh | None = None) -> Checkpoint:
    """Open a path with the readers of this program, with a mesh where one is stated."""
    from tensormorph.readers import open_checkpoint  # in the worker: the window shows before the readers are imported

    return open_checkpoint(path, reader=reader, report=report, mesh=mesh)


class Opening(QObject):
    """One attempt to open a path. Make it in the GUI thread, connect, then `begin`.

    Exactly one of `finished` (with Opened or Failed) and `cancelled` is emitted.
    """

    progressed = Signal(str, object, object, float)  # what, done, total, seconds since the last change
    finished = Signal(object)
    cancelled = Signal()

    def __init__(self, path: str, reader: str | None, open_: OpenFunction, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.path = path
        self.began = time.monotonic()
        self._reader = reader
        self._open = open_
        self._shared = _Shared()
        self._over = False
        self._timer = QTimer(self)
        self._timer.setInterval(_POLL_MS)
        self._timer.timeout.connect(self._poll)

    @property
    def running(self) -> bool:
        """Whether neither an answer nor a cancel has come."""
        return not self._over

    def begin(self) -> None:
        """Start the worker."""
        self._timer.start()
        shared, path, reader, open_ = self._shared, self.path, self._reader, self._open
        send = post()

        def work() -> None:
            outcome = _open(path, reader, open_, shared)
            if shared.cancelled:
                close_later(outcome)
            else:
                send(partial(self._answered, outcome))

        start("open", work)

    def cancel(self) -> None:
        """Stop waiting at once. A worker that is stuck in a read ends when it can; what it opened is closed."""
        if self._over:
            return
        self._over = True
        self._shared.cancelled = True
        self._timer.stop()
        self.cancelled.emit()

    def _poll(self) -> None:
        what, done, total = self._shared.progress
        self.progressed.emit(what, done, total, time.monotonic() - self._shared.changed_at)

    def _answered(self, outcome: Opened | Failed) -> None:
        if self._over:
            close_later(outcome)
            return
        self._over = True
        self._timer.stop()
        self.finished.emit(outcome)


def close_later(outcome: Opened | Failed) -> None:
    """Close a checkpoint that nobody looks at any more; not in the GUI thread, as closing may wait for storage."""
    if isinstance(outcome, Opened):
        start("close", outcome.checkpoint.close)


def _open(path: str, reader: str | None, open_: OpenFunction, shared: _Shared) -> Opened | Failed:
    """Return what opening gives, whatever happens in it."""

    def report(what: str, done: int, total: int) -> None:
        if shared.cancelled:
            raise CancelledError
        if shared.progress != (what, done, total):
            shared.progress = (what, done, total)
            shared.changed_at = time.monotonic()

    try:
        from tensormorph.gui import outline_build, rows, search  # in the worker, as the readers

        checkpoint = open_(path, reader, report)
        try:
            with _NoCollection():  # not round the opening: a read that hangs would leave it still for good
                outline = outline_build.build(checkpoint, report)
                first = rows.folded(outline, [0] * len(outline.groups), set())
                return Opened(path, checkpoint, outline, first, search.Searcher(checkpoint, outline))
        except BaseException:
            checkpoint.close()
            raise
    except BaseException as error:  # also SystemExit and MemoryError: the window lives, and says what happened
        return Failed(path, error, os.path.isdir(path))


class _NoCollection:
    """Keeps the cyclic garbage collector still: one pass over a million new objects would freeze every thread."""

    _lock = threading.Lock()
    _depth = 0

    def __enter__(self) -> None:
        with _NoCollection._lock:
            _NoCollection._depth += 1
            gc.disable()

    def __exit__(self, *exc: object) -> None:
        with _NoCollection._lock:
            _NoCollection._depth -= 1
            if not _NoCollection._depth:
                gc.enable()
