"""Carries one opening through the window: progress page and task while it runs, then the checkpoint or the reason."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from tensormorph.errors import ChooseCheckpointError
from tensormorph.gui.opening import Failed, Opened, OpenFunction, Opening, open_with_readers
from tensormorph.gui.pages import OpeningPage
from tensormorph.gui.tasks import Task, TaskTable

if TYPE_CHECKING:
    from tensormorph.mesh import DeviceMesh

SHOW_PAGE_AFTER_MS = 500


class Opener(QObject):
    """Opens one path at a time; beginning another cancels the one that runs."""

    opened = Signal(object)
    failed = Signal(object)
    cancelled = Signal()
    pageWanted = Signal()  # noqa: N815  # it takes long enough for the page with the progress

    def __init__(self, open_: OpenFunction, page: OpeningPage, tasks: Callable[[], TaskTable], parent: QObject) -> None:
        super().__init__(parent)
        self._open = open_
        self._page = page
        self._tasks = tasks
        self._opening: Opening | None = None
        self._task: Task | None = None

    @property
    def running(self) -> bool:
        """Whether a path is being opened."""
        return self._opening is not None

    def begin(self, path: str, reader: str | None = None, mesh: DeviceMesh | None = None) -> None:
        """Begin to open a path, with a mesh where one is stated."""
        self.cancel()
        open_ = self._open if mesh is None else partial(open_with_readers, mesh=mesh)
        opening = Opening(os.path.abspath(path), reader, open_, self)
        opening.progressed.connect(partial(self._progressed, opening))
        opening.finished.connect(partial(self._finished, opening))
        opening.cancelled.connect(partial(self._was_cancelled, opening))
        self._opening = opening
        self._task = self._tasks().add(f"Open {opening.path}", opening.cancel)
        self._page.begin(opening.path)
        QTimer.singleShot(SHOW_PAGE_AFTER_MS, partial(self._ask_for_page, opening))
        opening.begin()

    def cancel(self) -> None:
        """Stop waiting for what is being opened, if anything is."""
        if self._opening is not None:
            self._opening.cancel()

    def _ask_for_page(self, opening: Opening) -> None:
        if opening is self._opening:
            self.pageWanted.emit()

    def _progressed(self, opening: Opening, what: str, done: int, total: int, since_change: float) -> None:
        if opening is self._opening and self._task is not None:
            self._page.show_progress(what, done, total, since_change, time.monotonic() - opening.began)
            self._tasks().progress(self._task, done / total if total else None, what)

    def _end(self, opening: Opening, state: str) -> None:
        if self._task is not None:
            self._tasks().end(self._task, state)
        self._opening = self._task = None
        opening.deleteLater()

    def _was_cancelled(self, opening: Opening) -> None:
        self._end(opening, "cancelled")
        self.cancelled.emit()

    def _finished(self, opening: Opening, outcome: Opened | Failed) -> None:
        if isinstance(outcome, Opened):
            self._end(opening, "done")
            self.opened.emit(outcome)
        else:
            self._end(opening, "done" if isinstance(outcome.error, ChooseCheckpointError) else "failed")
            self.failed.emit(outcome)
