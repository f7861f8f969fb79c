"""Starts the window: the application object, the hooks for what goes wrong, and the way out."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType

from PySide6.QtCore import QMessageLogContext, Qt, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from tensormorph.errors import UsageError
from tensormorph.gui.background import post, start
from tensormorph.gui.icons import icon
from tensormorph.gui.session import demo_path
from tensormorph.gui.settings import Settings
from tensormorph.gui.window import MainWindow

SWITCH_SECONDS = 0.001
"""How long a thread may keep the interpreter while another waits. With Python's own 5 ms, the threads that read headers
together kept the GUI thread away for 80 ms."""

PREPARE_AFTER_MS = 100
"""By then the start page is painted, which the imports would hold up."""

_QUIET = ("propagateSizeHints", "QStandardPaths: XDG_RUNTIME_DIR")


def check_display() -> None:
    """Say in words what Qt would say by ending the process.

    Raises
    ------
    UsageError
        On Linux without a display.
    """
    if not sys.platform.startswith("linux"):
        return
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("QT_QPA_PLATFORM"):
        return
    raise UsageError(
        "No display is there to show a window. Over ssh, connect with 'ssh -X' or 'ssh -Y', or open the checkpoint "
        "where the screen is. Without a window: tensormorph info, ls, show, check"
    )


def run(paths: Sequence[str | os.PathLike[str]], *, demo: bool = False) -> int:
    """Show the window on a path, on the list of the demo's checkpoints, or on the start page.

    Returns the process's status when the window closes.

    Raises
    ------
    UsageError
        If there is no display.
    """
    check_display()
    sys.setswitchinterval(SWITCH_SECONDS)
    QGuiApplication.setHighDpiScaleFactorRoundingPolicy(Qt.HighDpiScaleFactorRoundingPolicy.PassThrough)
    app = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(app, QApplication)
    app.setApplicationName("tensormorph")
    app.setApplicationDisplayName("Tensormorph")
    app.setDesktopFileName("tensormorph")
    window = MainWindow(Settings())
    app.setWindowIcon(icon("tensormorph", window.tokens.text, 64))
    install_hooks(window)
    window.show()
    QTimer.singleShot(PREPARE_AFTER_MS, lambda: start("load", partial(_prepare, window, post())))
    path = demo_path() if demo else os.fspath(paths[0]) if paths else None
    if path is not None:
        window.open_path(path)
    if len(paths) > 1:
        window.say("The first path is opened; comparing two checkpoints is not part of this version")
    return app.exec()


def _prepare(window: MainWindow, send: Callable[[Callable[[], None]], None]) -> None:
    """Import the readers and what draws while the user still chooses, then build the panels: neither waits for use.

    What is imported then stays for good, so the collector need not look at it again: each of its full passes, which
    stop every thread, took 45 to 60 ms, most of it over modules, and opening 30,000 tensors brings three of them.
    """
    import tensormorph.gui.heatmap
    import tensormorph.gui.workbench
    import tensormorph.readers  # noqa: F401

    gc.freeze()
    send(window.prepare)


def install_hooks(window: MainWindow) -> None:
    """Send everything unexpected to the window's log: exceptions of any thread, and Qt's own complaints."""
    send = post()

    def from_anywhere(text: str) -> None:
        send(lambda: window.report_text(text))

    def on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            window.close()
            return
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.__stderr__.write(text) if sys.__stderr__ is not None else None
        from_anywhere(text)

    def on_thread_exception(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            on_exception(args.exc_type, args.exc_value, args.exc_traceback)

    def on_qt(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
        if not any(quiet in message for quiet in _QUIET):
            send(lambda: window.log(f"Qt: {message}"))

    sys.excepthook = on_exception
    threading.excepthook = on_thread_exception
    qInstallMessageHandler(on_qt)
    quit_on_interrupt(window)


def quit_on_interrupt(window: MainWindow) -> None:
    """Close the window on Ctrl-C in the terminal."""
    signal.signal(signal.SIGINT, lambda number, frame: window.close())
    # Python hears a signal only while it runs, and the event loop may sleep in Qt for long: wake it now and then.
    timer = QTimer(window)
    timer.timeout.connect(lambda: None)
    timer.start(200)
