"""Work beside the GUI thread: daemon threads, each answer brought back by one queued signal.

A read from a dead network mount cannot be broken off. So nobody waits for these threads: not the window, which drops
an answer that it no longer wants, and not the end of the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from PySide6.QtCore import QObject, Qt, Signal

T = TypeVar("T")
_IDLE_SECONDS = 2.0


class _Post(QObject):
    """Runs what other threads send it in the GUI thread, in order."""

    arrived = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.arrived.connect(self._run, Qt.ConnectionType.QueuedConnection)

    def _run(self, call: Callable[[], None]) -> None:
        call()


_post: _Post | None = None


def post() -> Callable[[Callable[[], None]], None]:
    """Return a function with which any thread has something called in the GUI thread. Call this in the GUI thread.

    The object behind it has no parent and is never deleted: a thread that answers late finds it alive.
    """
    global _post
    if _post is None:
        _post = _Post()
    return _post.arrived.emit


def start(name: str, work: Callable[[], object]) -> threading.Thread:
    """Run `work` in a thread of its own, which does not keep the program from ending."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


class Lane:
    """One thread for one kind of question, of which only the latest counts.

    A question that has not begun is replaced by the next one, and the answer of one that was overtaken is dropped:
    however long the storage hangs, one thread waits. To be used from the GUI thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._send = post()
        self._wake = threading.Condition()
        self._waiting: Callable[[], None] | None = None
        self._running = False
        self._latest = 0

    def ask(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        """Have `work` run in the thread, then in the GUI thread `done` with what it returned, or `failed`."""
        self._latest += 1
        number = self._latest

        def run() -> None:
            try:
                answer = partial(done, work())
            except Exception as error:
                answer = partial(failed, error)
            self._send(partial(self._deliver, number, answer))

        with self._wake:
            self._waiting = run
            if self._running:
                self._wake.notify()
            else:
                self._running = True
                start(self._name, self._work)

    def drop(self) -> None:
        """Forget the question: its answer is not delivered."""
        self._latest += 1
        with self._wake:
            self._waiting = None

    def _deliver(self, number: int, answer: Callable[[], None]) -> None:
        if number == self._latest:
            answer()

    def _work(self) -> None:
        while True:
            with self._wake:
                if self._waiting is None:
                    self._wake.wait(_IDLE_SECONDS)
                run, self._waiting = self._waiting, None
                if run is None:
                    self._running = False
                    return
            run()
