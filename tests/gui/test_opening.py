"""Opening beside the GUI thread: progress, cancel that never waits, and every way in which it can fail."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from tensormorph import errors
from tensormorph.gui.opening import Opening, Report
from tensormorph.model import Checkpoint
from tests.gui.conftest import MakeWindow, llama_names, make_checkpoint, opens, shown


class Stuck:
    """An open function that hangs until it is let go, as a read from a dead mount does; `closed` counts closings."""

    def __init__(self) -> None:
        self.inside, self.go = threading.Event(), threading.Event()
        self.closed = threading.Event()

    def __call__(self, path: str, reader: str | None, report: Report) -> Checkpoint:
        report("Reading headers", 3, 12)
        self.inside.set()
        self.go.wait(20)
        return make_checkpoint({"late": (2,)}, close=self.closed.set)


def test_progress_is_shown_and_cancel_does_not_wait_for_a_stuck_read(qtbot: QtBot, make_window: MakeWindow) -> None:
    stuck = Stuck()
    window = make_window(stuck)
    window.open_path("/somewhere/run")
    assert stuck.inside.wait(5)
    qtbot.waitUntil(lambda: window.pages.currentWidget() is window.opening_page)
    qtbot.waitUntil(lambda: window.opening_page.title.text() == "Reading headers")
    assert window.opening_page.detail.text() == "3 of 12"
    assert window.opening_page.bar.value() == 250
    with qtbot.waitSignal(window.opener.cancelled, timeout=200):
        QTest.mouseClick(window.opening_page.cancel, Qt.MouseButton.LeftButton)
    assert window.pages.currentWidget() is window.start_page
    assert window.workbench.bottom.tasks.tasks[0].state == "cancelled"
    assert not stuck.closed.is_set()
    stuck.go.set()
    assert stuck.closed.wait(5)  # the late checkpoint is closed...
    assert window.opened is None  # ...and shown nowhere


def test_escape_cancels_too_and_what_was_open_stays(qtbot: QtBot, make_window: MakeWindow) -> None:
    stuck = Stuck()
    first = make_checkpoint(llama_names(2), path="first")

    def open_(path: str, reader: str | None, report: Report) -> Checkpoint:
        return first if path.endswith("first") else stuck(path, reader, report)

    window = make_window(open_)
    with qtbot.waitSignal(window.opener.opened):
        window.open_path("first")
    window.open_path("second")
    assert stuck.inside.wait(5)
    with qtbot.waitSignal(window.opener.cancelled, timeout=200):
        QTest.keyClick(window, Qt.Key.Key_Escape)
    assert window.selection.checkpoint is first
    assert window.pages.currentWidget() is window.workbench
    stuck.go.set()
    assert stuck.closed.wait(5)


def test_a_cancelled_worker_hears_it_at_its_next_report(qtbot: QtBot) -> None:
    began, heard = threading.Event(), threading.Event()

    def open_(path: str, reader: str | None, report: Report) -> Checkpoint:
        try:
            while True:
                report("Reading", 0, 0)
                began.set()
        except errors.CancelledError:
            heard.set()
            raise

    opening = Opening("x", None, open_)
    opening.begin()
    assert began.wait(5)
    opening.cancel()
    assert heard.wait(0.2)


def test_opening_again_takes_the_place_of_what_is_being_opened(qtbot: QtBot, make_window: MakeWindow) -> None:
    stuck = Stuck()
    second = make_checkpoint({"w": (2,)}, path="second")

    def open_(path: str, reader: str | None, report: Report) -> Checkpoint:
        return second if path.endswith("second") else stuck(path, reader, report)

    window = make_window(open_)
    window.open_path("first")
    assert stuck.inside.wait(5)
    with qtbot.waitSignal(window.opener.opened):
        window.open_path("second")
    stuck.go.set()
    assert stuck.closed.wait(5)
    assert window.selection.checkpoint is second


def test_the_former_checkpoint_is_closed(qtbot: QtBot, make_window: MakeWindow) -> None:
    closed = threading.Event()
    made = iter([make_checkpoint({"a": (1,)}, close=closed.set), make_checkpoint({"b": (1,)})])
    window = make_window(lambda path, reader, report: next(made))
    for _ in range(2):
        assert not closed.is_set()
        with qtbot.waitSignal(window.opener.opened):
            window.open_path("x")
    assert closed.wait(5)


OURS: list[errors.TensormorphError] = [
    errors.CannotOpenError("/p", "there is nothing"), errors.NotRegularFileError("/p", "a pipe"),
    errors.OutsideRootError("/p", "it leaves"), errors.UnknownFormatError("/p", {"safetensors": "no header"}, ""),
    errors.UnknownFormatError("/p", {}, "It is an HTML page"), errors.AmbiguousFormatError("/p", {"a": "x", "b": "y"}),
    errors.ChooseCheckpointError("/p", ["step-2", "step-10"]), errors.CorruptFileError("/p", "Bad header", 8),
    errors.TruncatedFileError("/p", 20, 10), errors.LimitError("/p", "The header", 10, 5, "max"),
    errors.HelperError("/p", "signal 9"), errors.ReadError("/p", "I/O error"), errors.UsageError("no reader x"),
    errors.ChangedOnDiskError("/p", "size"), errors.CancelledError(),
]  # fmt: skip
OTHERS: list[BaseException] = [
    RuntimeError("boom <b>x</b>"), MemoryError(), OSError(5, "Input/output error"), RecursionError("deep"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), KeyError("k"), SystemExit(3), AssertionError(),
]  # fmt: skip


@pytest.mark.parametrize("error", [*OURS, *OTHERS], ids=lambda error: type(error).__name__)
def test_any_failure_becomes_a_state_and_the_window_lives(
    qtbot: QtBot, make_window: MakeWindow, error: BaseException
) -> None:
    good = make_checkpoint({"w": (2,)})

    def open_(path: str, reader: str | None, report: Report) -> Checkpoint:
        if path.endswith("good"):
            return good
        raise error

    window = make_window(open_)
    with qtbot.waitSignal(window.opener.failed):
        window.open_path("/data/bad")
    page = window.failure_page
    assert window.pages.currentWidget() is page
    assert page.title.text()
    assert page.buttons
    if not isinstance(error, errors.TensormorphError):
        assert "internal-error" in shown(page.sentence)
        assert type(error).__name__ in window.workbench.bottom.log.toPlainText()
    with qtbot.waitSignal(window.opener.opened):
        window.open_path("good")
    assert window.pages.currentWidget() is window.workbench


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("error", [RuntimeError, MemoryError, OSError])
def test_a_failure_while_the_tree_is_built_is_a_state_and_the_checkpoint_is_closed(
    qtbot: QtBot, make_window: MakeWindow, error: type[Exception], at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = threading.Event()
    places = ["outline_build.build", "outline_build.natural_key", "search.Searcher", "outline_build.Outline"]

    def fail(*args: object) -> object:
        raise error("injected")

    monkeypatch.setattr(f"tensormorph.gui.{places[at]}", fail)
    window = make_window(opens(make_checkpoint(llama_names(2), close=closed.set)))
    with qtbot.waitSignal(window.opener.failed):
        window.open_path("x")
    assert window.pages.currentWidget() is window.failure_page
    assert closed.is_set()


def test_several_checkpoints_in_a_folder_are_offered_and_one_opens(qtbot: QtBot, make_window: MakeWindow) -> None:
    asked: list[str] = []

    def open_(path: str, reader: str | None, report: Report) -> Checkpoint:
        asked.append(path)
        if path.endswith("step-10"):
            return make_checkpoint({"w": (2,)}, path=path)
        raise errors.ChooseCheckpointError(path, ["step-2", "step-10"])

    window = make_window(open_)
    with qtbot.waitSignal(window.opener.failed):
        window.open_path("/run")
    choices = window.failure_page.choices
    assert [choice.title for choice in choices.choices] == ["step-2", "step-10"]
    QTest.keyClick(choices, Qt.Key.Key_Down)
    with qtbot.waitSignal(window.opener.opened):
        QTest.mouseClick(window.failure_page.buttons[0], Qt.MouseButton.LeftButton)
    assert asked == ["/run", "/run/step-10"]


def test_of_several_formats_the_chosen_reader_is_used(qtbot: QtBot, make_window: MakeWindow) -> None:
    used: list[str | None] = []

    def open_(path: str, reader: str | None, report: Report) -> Checkpoint:
        used.append(reader)
        if reader is None:
            raise errors.AmbiguousFormatError(path, {"dcp": ".metadata", "safetensors": "index"})
        return make_checkpoint({"w": (2,)})

    window = make_window(open_)
    with qtbot.waitSignal(window.opener.failed):
        window.open_path("/run")
    choices = window.failure_page.choices
    QTest.keyClick(choices, Qt.Key.Key_Down)
    with qtbot.waitSignal(window.opener.opened):
        QTest.keyClick(choices, Qt.Key.Key_Return)
    assert used == [None, "safetensors"]


def test_each_readers_sentence_is_shown_when_asked_for(qtbot: QtBot, make_window: MakeWindow) -> None:
    reasons = {"safetensors": "The header length is larger than the file", "dcp": "There is no .metadata"}

    def open_(path: str, reader: str | None, report: Report) -> Checkpoint:
        raise errors.UnknownFormatError(path, reasons, "It is an HTML page")

    window = make_window(open_)
    with qtbot.waitSignal(window.opener.failed):
        window.open_path("/nowhere/run")
    page = window.failure_page
    assert page.title.text() == "No reader recognises this file"
    assert "It is an HTML page" in shown(page.sentence)
    QTest.mouseClick(page.buttons[0], Qt.MouseButton.LeftButton)
    assert {choice.title: choice.detail for choice in page.choices.choices} == reasons


def test_a_thread_that_is_stuck_does_not_keep_the_window_from_closing(
    qtbot: QtBot, make_window: Callable[..., object]
) -> None:
    stuck = Stuck()
    window = make_window(stuck)
    window.open_path("x")  # type: ignore[attr-defined]
    assert stuck.inside.wait(5)
    with qtbot.waitCallback(timeout=2000) as closed:
        window.close()  # type: ignore[attr-defined]
        closed()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "open")
    stuck.go.set()
