"""The measured side of the window's benchmarks, a process each: prints one JSON document.

``empty`` shows a bare window with a tree; ``first-paint`` the program; ``stall PATH`` opens PATH in the program.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

STEP_MS = 5
"""Interval of the timer whose lateness is the stall."""


def _print(**told: object) -> None:
    print(json.dumps(told), flush=True)


def _ended() -> None:
    os._exit(0)  # what closing takes is no part of it


def _tell_first_paint(kind: type[Any]) -> None:
    """Have windows of a class print the time, on a clock that all processes share, when their first paint is done."""
    from PySide6.QtCore import QTimer

    paint: Callable[[Any, Any], None] = kind.paintEvent
    seen: list[int] = []

    def painted() -> None:
        _print(painted_ns=time.monotonic_ns())
        _ended()

    def first(self: Any, event: Any) -> None:
        paint(self, event)
        if not seen:
            seen.append(1)
            QTimer.singleShot(0, painted)  # behind the paint of all that lies in the window

    kind.paintEvent = first


def empty() -> None:
    """Show a bare main window with an empty tree in it."""
    from PySide6.QtWidgets import QApplication, QMainWindow, QTreeView

    class Window(QMainWindow):
        pass

    _tell_first_paint(Window)
    app = QApplication(sys.argv[:1])
    window = Window()
    window.setCentralWidget(QTreeView())
    window.resize(1440, 900)
    window.show()
    app.exec()


def first_paint() -> None:
    """Start the program as its command does."""
    from tensormorph.gui.window import MainWindow

    _tell_first_paint(MainWindow)
    from tensormorph.__main__ import main

    sys.argv = ["tensormorph"]
    main()


def stall(path: str) -> None:
    """Open a path in the window as the program does, and print the longest time the GUI thread was away."""
    from PySide6.QtCore import QTimer

    from tensormorph.gui import app
    from tensormorph.gui.window import MainWindow

    beats: list[float] = []
    began: list[float] = []
    state: dict[str, float] = {}

    class Watched(MainWindow):
        """The program's window with a heartbeat. It is idle for a second, then opens the path."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.beat = QTimer(self)
            self.beat.setInterval(STEP_MS)
            self.beat.timeout.connect(self._tick)
            self.beat.start()
            QTimer.singleShot(1000, beats.clear)
            QTimer.singleShot(2000, self._begin)
            QTimer.singleShot(60_000, self._give_up)

        def _begin(self) -> None:
            state["idle"] = max(b - a for a, b in pairwise(beats))
            beats.clear()
            began.append(time.perf_counter())
            self.open_path(path)

        def _give_up(self) -> None:
            print(f"{path} was not opened within a minute", file=sys.stderr, flush=True)
            os._exit(1)

        def _tick(self) -> None:
            now = time.perf_counter()
            beats.append(now)
            if self.selection.checkpoint is not None:
                state.setdefault("opened", now)
                if now > state["opened"] + 1:
                    gaps = [b - a for a, b in pairwise(beats)]
                    longest = max(range(len(gaps)), key=gaps.__getitem__)
                    _print(
                        stall_ms=1000 * gaps[longest] - STEP_MS,
                        idle_ms=1000 * state["idle"] - STEP_MS,
                        at_ms=1000 * (beats[longest] - began[0]),
                        opened_ms=1000 * (state["opened"] - began[0]),
                    )
                    _ended()

    vars(app)["MainWindow"] = Watched
    app.run([])


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "stall":
        stall(*arguments)
    else:
        (empty if what == "empty" else first_paint)()
