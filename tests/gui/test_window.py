"""The window as a person uses it: ways to open, what follows the selection, panels, keys, what is told."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QMimeData, QObject, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget
from pytestqt.qtbot import QtBot

import tensormorph as tm
from tensormorph.columns import TensorKey
from tensormorph.errors import ChooseCheckpointError, Problem, UsageError
from tensormorph.gui import app
from tensormorph.gui.session import DEMO, DEMO_WORDS
from tensormorph.gui.settings import Recent, Settings
from tensormorph.gui.theme import DARK, LIGHT
from tensormorph.gui.window import MainWindow
from tensormorph.model import Checkpoint, StoredObject, UnreadableTensor
from tensormorph.resources import resource
from tests.gui.conftest import MakeWindow, Picture, llama_names, make_checkpoint, opens, shown

OpenWindow = Callable[[Checkpoint], MainWindow]
CTRL = Qt.KeyboardModifier.ControlModifier


# ---------------------------------------------------------------- ways to open


def open_demo(qtbot: QtBot, window: MainWindow, name: str = "llama-docstrings") -> None:
    """Open one of the demo's checkpoints with a click on its line."""
    with qtbot.waitSignal(window.opener.failed, timeout=20_000):
        window.open_demo()
    choices = window.failure_page.choices
    row = [choice.title for choice in choices.choices].index(name)
    choices.scrollTo(choices.model().index(row, 0))
    place = choices.visualRect(choices.model().index(row, 0)).center()
    with qtbot.waitSignal(window.opener.opened, timeout=20_000):
        QTest.mouseClick(choices.viewport(), Qt.MouseButton.LeftButton, pos=place)


def test_the_demo_opens_and_all_panels_know_it(qtbot: QtBot, make_window: MakeWindow) -> None:
    window = make_window()
    with qtbot.waitSignal(window.opener.failed, timeout=20_000):
        QTest.mouseClick(window.start_page.demo, Qt.MouseButton.LeftButton)
    page = window.failure_page
    assert window.pages.currentWidget() is page
    assert page.title.text() == "demo holds 5 checkpoints"
    assert {choice.title: choice.detail for choice in page.choices.choices} == DEMO_WORDS
    assert all(DEMO_WORDS.values())
    focus = QApplication.focusWidget()
    assert focus is page.choices
    with qtbot.waitSignal(window.opener.opened, timeout=20_000):
        QTest.keyClick(focus, Qt.Key.Key_Return)
    assert window.pages.currentWidget() is window.workbench
    checkpoint = window.selection.checkpoint
    assert checkpoint is not None
    assert window.workbench.outliner.header.title == "llama-docstrings"
    assert f"{len(checkpoint.tensors)} tensors" in window.status.facts.text()
    window.selection.choose("model.norm.weight")
    assert shown(window.workbench.inspector.leaf) == "weight"
    assert shown(window.workbench.inspector.where).startswith("Shard ")
    window.selection.choose_element((3,))
    qtbot.waitUntil(lambda: window.workbench.inspector.value.text() != "")
    value = float(window.workbench.inspector.value.text().replace("\u2212", "-"))
    assert np.float32(value) == checkpoint["model.norm.weight"].full()[3]


@pytest.mark.parametrize("way", ["folder", "file"])
def test_the_dialogs_open_what_is_chosen(
    qtbot: QtBot, make_window: MakeWindow, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    asked: list[str] = []

    def open_(path: str, reader: str | None, report: object) -> Checkpoint:
        asked.append(path)
        return make_checkpoint({"w": (2,)})

    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *args: "/chosen/folder")
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *args: ("/chosen/file", ""))
    window = make_window(open_)
    button = window.start_page.open_folder if way == "folder" else window.start_page.open_file
    with qtbot.waitSignal(window.opener.opened):
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert asked == [f"/chosen/{way}"]


def test_a_dialog_that_is_left_opens_nothing(make_window: MakeWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *args: "")
    window = make_window(opens(make_checkpoint({"w": (2,)})))
    window.ask_folder()
    assert not window.opener.running


def test_a_dropped_path_opens(qtbot: QtBot, make_window: MakeWindow, tmp_path: Path) -> None:
    asked: list[str] = []

    def open_(path: str, reader: str | None, report: object) -> Checkpoint:
        asked.append(path)
        return make_checkpoint({"w": (2,)})

    window = make_window(open_)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "a b & c"))])
    buttons, keys, copy = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, Qt.DropAction.CopyAction
    enter = QDragEnterEvent(QPoint(50, 50), copy, data, buttons, keys)
    QApplication.sendEvent(window, enter)
    assert enter.isAccepted()
    drop = QDropEvent(QPointF(50, 50), copy, data, buttons, keys)
    with qtbot.waitSignal(window.opener.opened):
        QApplication.sendEvent(window, drop)
    assert asked == [str(tmp_path / "a b & c")]


def test_what_is_no_local_path_is_not_taken(make_window: MakeWindow) -> None:
    window = make_window(opens(make_checkpoint({"w": (2,)})))
    data = QMimeData()
    data.setUrls([QUrl("https://host.invalid/x")])
    enter = QDragEnterEvent(QPoint(50, 50), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
                            Qt.KeyboardModifier.NoModifier)  # fmt: skip
    enter.ignore()
    QApplication.sendEvent(window, enter)
    assert not enter.isAccepted()


def test_a_path_typed_into_the_field_opens(qtbot: QtBot, make_window: MakeWindow) -> None:
    asked: list[str] = []

    def open_(path: str, reader: str | None, report: object) -> Checkpoint:
        asked.append(path)
        return make_checkpoint({"w": (2,)})

    window = make_window(open_)
    QTest.keyClick(window, Qt.Key.Key_P, CTRL)
    assert window.bar.field.hasFocus()
    QTest.keyClicks(window.bar.field, "/data/run")
    with qtbot.waitSignal(window.opener.opened):
        QTest.keyClick(window.bar.field, Qt.Key.Key_Return)
    assert asked == ["/data/run"]


def test_recent_entries_open_and_those_that_are_gone_are_marked(
    qtbot: QtBot, make_window: MakeWindow, tmp_path: Path
) -> None:
    settings = Settings(tmp_path / "own")
    here = tmp_path / "here"
    here.mkdir()
    settings.values.recent = [Recent(str(here), "safetensors, 2 files, 1 kB", 0, 2, time.time()), Recent("/gone/run")]
    window = make_window(opens(make_checkpoint({"w": (2,)})), settings)
    page = window.start_page
    qtbot.waitUntil(lambda: page.lost == frozenset({"/gone/run"}))
    rect = page.list.visualRect(page.list.model().index(0, 0))
    with qtbot.waitSignal(window.opener.opened):
        QTest.mouseClick(page.list.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
    assert settings.values.recent[0].path == str(here)
    assert settings.values.recent[0].detail == "safetensors, 2 files, 8 B"
    saved = tmp_path / "own" / "settings.json"
    qtbot.waitUntil(lambda: saved.exists() and "safetensors, 2 files, 8 B" in saved.read_text())


def test_the_recent_list_can_be_cleared(qtbot: QtBot, make_window: MakeWindow, tmp_path: Path) -> None:
    settings = Settings(tmp_path / "own")
    settings.values.recent = [Recent("/gone/run")]
    window = make_window(opens(make_checkpoint({"w": (2,)})), settings)
    QTest.mouseClick(window.start_page.clear, Qt.MouseButton.LeftButton)
    assert settings.values.recent == []
    assert not window.start_page.list.isVisible()


def test_without_a_display_the_reason_is_given_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="ssh -X"):
        app.check_display()
    monkeypatch.setenv("DISPLAY", ":0")
    app.check_display()


# ---------------------------------------------------------------- selection


def test_nothing_chosen_says_so_and_a_tensor_brings_the_picture(open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(2)))
    centre = window.workbench.centre
    assert centre.empty.title.text() == "Choose a tensor"
    assert not centre.findChildren(Picture)  # its libraries are not loaded for a start page
    window.selection.choose("model.norm.weight")
    assert centre.stack.currentWidget() is centre.findChildren(Picture)[0]


def test_an_unreadable_tensor_is_a_state_with_its_reason(qtbot: QtBot, open_window: OpenWindow) -> None:
    problem = Problem("file-missing", "error", "The file gone.safetensors is missing", "m.lost", "gone.safetensors")
    lost = UnreadableTensor("m.lost", TensorKey("", "m.lost"), "float32", (2, 3), "gone.safetensors", (problem,))
    window = open_window(make_checkpoint({"m.w": (2,), "m.v": (2,)}, unreadable=[lost]))
    window.selection.choose("m.lost")
    assert window.selection.tensor is None
    centre, inspector = window.workbench.centre, window.workbench.inspector
    assert shown(centre.empty.title) == "m.lost cannot be read"
    assert shown(centre.empty.sentence) == problem.sentence
    assert shown(inspector.facts["stored"]) == "needs gone.safetensors"
    window.actions_["bottom"].setChecked(False)
    QTest.mouseClick(centre.empty.buttons[0], Qt.MouseButton.LeftButton)
    assert window.workbench.bottom.table.isVisible()
    assert window.workbench.bottom.table.problems.problem(0) == problem


def test_the_inspector_tells_what_a_tensor_is(open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(2), aliases={"lm_head.weight": "model.embed_tokens.weight"}))
    window.selection.choose("lm_head.weight")
    inspector = window.workbench.inspector
    told = {name: shown(label) for name, label in inspector.facts.items()}
    assert told == {
        "dtype": "float32", "shape": "32 × 8", "elements": "256", "stored": "1.02 kB in 1 fragment", "slots": "none",
        "aliases": "this is another name of model.embed_tokens.weight",
    }  # fmt: skip
    assert shown(inspector.where) == "Shard 1 of 2"
    assert shown(inspector.layout_section.evidence) == "Not recorded"
    assert inspector.layout_section.state.isHidden()


def test_back_and_forward_go_through_what_was_chosen(qtbot: QtBot, open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(2)))
    names = ["model.norm.weight", "model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"]
    for name in names:
        window.selection.choose(name)
    alt = Qt.KeyboardModifier.AltModifier
    for expected in (names[1], names[0], names[0]):
        QTest.keyClick(window, Qt.Key.Key_Left, alt)
        assert window.selection.name == expected
    QTest.keyClick(window, Qt.Key.Key_Right, alt)
    assert window.selection.name == names[1]
    window.selection.choose(names[0])
    assert not window.actions_["forward"].isEnabled()


def test_the_field_finds_a_tensor_by_parts_of_its_name(qtbot: QtBot, open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(12)))
    QTest.keyClick(window, Qt.Key.Key_P, CTRL)
    field = window.bar.field
    QTest.keyClicks(field, "11 down")
    qtbot.waitUntil(field.popup.isVisible)
    qtbot.waitUntil(lambda: list(field.popup.names.names) == ["model.layers.11.mlp.down_proj.weight"])
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert window.selection.name == "model.layers.11.mlp.down_proj.weight"
    assert not field.popup.isVisible()


@pytest.mark.parametrize(
    ("typed", "element"), [(":3,7", (3, 7)), (":-1, 0", (31, 0)), (":[2, 2]", (2, 2)), (":9", None), (":40,0", None)]
)
def test_the_field_goes_to_an_element(
    qtbot: QtBot, open_window: OpenWindow, typed: str, element: tuple[int, ...] | None
) -> None:
    window = open_window(make_checkpoint(llama_names(2)))
    window.selection.choose("model.embed_tokens.weight")
    QTest.keyClick(window, Qt.Key.Key_G, CTRL)
    assert window.bar.field.text() == ":"
    QTest.keyClicks(window.bar.field, typed[1:])
    QTest.keyClick(window.bar.field, Qt.Key.Key_Return)
    assert window.selection.element == element
    if element is None:
        assert "no element" in window.status.currentMessage()
        return
    inspector = window.workbench.inspector
    qtbot.waitUntil(lambda: inspector.value.text() == f"{float(element[0] * 8 + element[1])}")
    assert "byte" in inspector.holders.text()
    # The statistics read the tensor's 1,024 bytes once, the element its own four.
    qtbot.waitUntil(lambda: window.status.bytes.text() == "1.03 kB of values read")


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), OSError(5, "Input/output error")])
def test_a_read_that_fails_is_told_in_place(qtbot: QtBot, open_window: OpenWindow, error: Exception) -> None:
    def fail() -> None:
        raise error

    window = open_window(make_checkpoint(llama_names(1), before_read=fail))
    window.selection.choose("model.norm.weight")
    window.selection.choose_element((2,))
    qtbot.waitUntil(lambda: window.workbench.inspector.value.text() == "internal error")
    qtbot.waitUntil(lambda: type(error).__name__ in window.workbench.bottom.log.toPlainText())
    assert window.isVisible()


def test_an_object_shows_its_value(qtbot: QtBot, open_window: OpenWindow) -> None:
    value = {"lr": 0.1, "betas": [0.9, 0.95], "nested": {"a": {"b": "<b>x</b>\x1b[31m"}}}
    stored = StoredObject("optim", "dict", "3 keys", 90, "meta", 0, lambda: value)
    window = open_window(make_checkpoint({"w": (2,)}, objects=[stored]))
    window.workbench.outliner.objectChosen.emit("optim")
    text = window.workbench.inspector.objects.value
    qtbot.waitUntil(lambda: "lr: 0.1" in text.toPlainText())
    assert "betas: [0.9, 0.95]" in text.toPlainText()
    assert "<b>x</b>\\x1b[31m" in text.toPlainText()


# ---------------------------------------------------------------- panels, keys, themes


@pytest.mark.parametrize(("key", "panel"), [("B", "outliner"), ("J", "bottom"), ("I", "inspector")])
def test_panels_hide_and_come_back_in_their_size(qtbot: QtBot, open_window: OpenWindow, key: str, panel: str) -> None:
    window = open_window(make_checkpoint(llama_names(2)))
    widget = getattr(window.workbench, panel)
    before = widget.size()
    code = getattr(Qt.Key, f"Key_{key}")
    QTest.keyClick(window, code, CTRL)
    assert not widget.isVisible()
    QTest.keyClick(window, code, CTRL)
    assert widget.isVisible()
    qtbot.waitUntil(lambda: widget.size() == before)


def test_panels_begin_in_the_sizes_of_the_design_and_are_remembered(
    qtbot: QtBot, open_window: OpenWindow, make_window: MakeWindow, tmp_path: Path
) -> None:
    window = open_window(make_checkpoint(llama_names(2)))
    assert window.workbench.panel_sizes() == {"outliner": 304, "inspector": 320, "bottom": 176}
    window.actions_["inspector"].setChecked(False)
    window.workbench.set_panel_sizes({"outliner": 400, "bottom": 200})
    window.close()
    # A busy machine may take longer to write than the window waits for.
    qtbot.waitUntil(lambda: Settings(tmp_path / "settings").values.panels.get("outliner") == 400)
    again = Settings(tmp_path / "settings")
    assert again.values.hidden_panels == ["inspector"]
    second = make_window(opens(make_checkpoint(llama_names(2))), again)
    with qtbot.waitSignal(second.opener.opened):
        second.open_path("x")
    assert not second.workbench.inspector.isVisible()
    assert second.workbench.panel_sizes()["outliner"] == 400


def test_f6_goes_through_the_panels(qtbot: QtBot, open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(2), problems=[Problem("gap", "error", "A gap")]))
    window.activateWindow()
    window.workbench.outliner.tree.setFocus()
    seen = []
    for _ in range(4):
        QTest.keyClick(window, Qt.Key.Key_F6)
        seen.append(QApplication.focusWidget())
    assert len(set(seen)) == 4
    assert seen[-1] is window.workbench.outliner.tree


def test_escape_clears_the_element_then_the_tensor(qtbot: QtBot, open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(2)))
    window.selection.choose("model.norm.weight")
    window.selection.choose_element((1,))
    QTest.keyClick(window, Qt.Key.Key_Escape)
    assert window.selection.element is None
    assert window.selection.name == "model.norm.weight"
    QTest.keyClick(window, Qt.Key.Key_Escape)
    assert window.selection.name is None


def test_the_table_shows_the_exact_values_of_the_chosen_tensor(qtbot: QtBot, open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint({"w": (3, 4)}))
    window.selection.choose("w")
    window.actions_["table"].trigger()
    centre = window.workbench.centre
    assert centre.tabs.tabText(centre.tabs.currentIndex()) == "Table"
    assert centre.shown is centre.views["Table"]
    window.actions_["heatmap"].trigger()
    assert centre.shown is centre.views["Heatmap"]


def test_themes_change_all_parts_at_once(open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(2)))
    window.selection.choose("model.norm.weight")
    picture = window.workbench.centre.views["Heatmap"]
    assert isinstance(picture, Picture)
    for mode, tokens in (("dark", DARK), ("light", LIGHT)):
        window.set_theme(mode)
        assert window.tokens.name == picture.tokens.name == mode
        for page in (window.start_page, window.failure_page, window.opening_page, window.workbench.centre.stack):
            image = page.grab().toImage()
            assert image.width() > 1
        assert window.workbench.outliner.grab().toImage().pixelColor(2, 300).name().upper() == tokens.panel
    assert window.settings.values.theme == "light"


def test_what_cannot_run_is_grey_and_says_why(make_window: MakeWindow) -> None:
    window = make_window(opens(make_checkpoint({"w": (2,)})))
    for name in ("check", "outliner", "go_element", "compare"):
        assert not window.actions_[name].isEnabled()
    assert "no checkpoint is open" in window.actions_["check"].toolTip()
    assert "not part of this version" in window.actions_["compare"].toolTip()


def test_closing_the_checkpoint_leads_back_to_the_start(qtbot: QtBot, open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(2)))
    QTest.keyClick(window, Qt.Key.Key_W, CTRL)
    assert window.pages.currentWidget() is window.start_page
    assert window.windowTitle() == "Tensormorph"
    assert window.selection.checkpoint is None


# ---------------------------------------------------------------- what the system tells


def test_a_change_on_disk_is_told_and_opened_again(qtbot: QtBot, make_window: MakeWindow) -> None:
    name = "model-00001-of-00002.safetensors"
    made = [make_checkpoint(llama_names(1), changed_files=lambda: (name,)), make_checkpoint(llama_names(1))]
    rest = iter(made)
    window = make_window(lambda path, reader, report: next(rest))
    with qtbot.waitSignal(window.opener.opened):
        window.open_path("x")
    window.look_for_changes()
    banner = window.workbench.centre.banner
    qtbot.waitUntil(banner.isVisible)
    assert "model-00001-of-00002.safetensors" in banner.text.text()
    with qtbot.waitSignal(window.opener.opened):
        QTest.mouseClick(banner.again, Qt.MouseButton.LeftButton)
    assert window.selection.checkpoint is made[1]
    assert not banner.isVisible()


def test_unexpected_errors_of_any_thread_reach_the_log(
    qtbot: QtBot, make_window: MakeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import threading

    from PySide6.QtCore import qInstallMessageHandler

    window = make_window(opens(make_checkpoint({"w": (2,)})))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(app, "quit_on_interrupt", lambda window: None)
    monkeypatch.setattr(sys, "__stderr__", None)
    former = qInstallMessageHandler(None)
    try:
        app.install_hooks(window)
        threading.excepthook(threading.ExceptHookArgs((ValueError, ValueError("in <b>a</b> thread"), None, None)))
        sys.excepthook(KeyError, KeyError("in a slot"), None)
        log = window.workbench.bottom.log
        qtbot.waitUntil(lambda: "in <b>a</b> thread" in log.toPlainText() and "in a slot" in log.toPlainText())
        assert "internal error" in log.toPlainText()
    finally:
        qInstallMessageHandler(former)


def test_the_demo_is_where_the_window_looks_for_it() -> None:
    assert resource(DEMO).is_dir()


@pytest.mark.parametrize(("name", "title", "tensors"), [
    ("run/step-100", "run / step-100", 85), ("run/step-200", "run / step-200", 85),
    ("run/step-300-fsdp-tp", "run / step-300-fsdp-tp", 85), ("run/step-300-ranks", "run / step-300-ranks", 21),
])  # fmt: skip
def test_the_demos_sharded_saves_open_with_a_click(
    qtbot: QtBot, make_window: MakeWindow, name: str, title: str, tensors: int
) -> None:
    window = make_window()
    open_demo(qtbot, window, name)
    assert window.workbench.outliner.header.title == title
    assert f"{tensors} tensors" in window.status.facts.text()
    assert window.workbench.bottom.table.problems.counts() == {"error": 0, "warning": 0, "info": 0}


def test_the_list_is_there_again_while_a_checkpoint_of_the_demo_is_open(qtbot: QtBot, make_window: MakeWindow) -> None:
    window = make_window()
    open_demo(qtbot, window)
    open_demo(qtbot, window, "run/step-200")
    assert window.workbench.outliner.header.title == "run / step-200"


def test_a_folder_that_is_not_the_demo_has_no_words_of_it(
    qtbot: QtBot, make_window: MakeWindow, tmp_path: Path
) -> None:
    def open_(path: str, reader: str | None, report: object) -> Checkpoint:
        raise ChooseCheckpointError(path, list(DEMO_WORDS))

    window = make_window(open_)
    with qtbot.waitSignal(window.opener.failed):
        window.open_path(str(tmp_path))
    assert {choice.detail for choice in window.failure_page.choices.choices} == {""}


def test_the_start_page_shows_before_numpy_and_the_readers_are_imported(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from PySide6.QtWidgets import QApplication
import tensormorph.gui.app
from tensormorph.gui.settings import Settings
from tensormorph.gui.window import MainWindow
app = QApplication([])
window = MainWindow(Settings(Path(sys.argv[1])))
window.show()
app.processEvents()
assert window.pages.currentWidget() is window.start_page and window.start_page.isVisible()
window.set_theme("dark")
window.close()
print([name for name in ("numpy", "tensormorph.readers", "tensormorph.model") if name in sys.modules])
assert window.workbench.outliner.tree is not None
"""
    done = subprocess.run(  # in a process of its own, where nothing has imported them yet
        [sys.executable, "-c", program, str(tmp_path / "settings")], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_panel_sizes_are_kept_by_a_window_that_never_showed_its_panels(make_window: MakeWindow, tmp_path: Path) -> None:
    settings = Settings(tmp_path / "kept")
    settings.values.panels = {"outliner": 333, "inspector": 444, "bottom": 222}
    settings.values.hidden_panels = ["bottom"]
    window = make_window(settings=settings)
    window.close()
    again = Settings(tmp_path / "kept").values
    assert again.panels == {"outliner": 333, "inspector": 444, "bottom": 222}
    assert again.hidden_panels == ["bottom"]


def test_building_the_panels_shows_no_window_beside_the_window(qtbot: QtBot, make_window: MakeWindow) -> None:
    window = make_window()
    shown_alone: list[QWidget] = []

    class Watch(QObject):
        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() == QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
                shown_alone.append(watched)
            return False

    watch = Watch()
    app = QApplication.instance()
    assert app is not None
    app.installEventFilter(watch)
    window.prepare()
    open_demo(qtbot, window)
    window.selection.choose("model.norm.weight")
    QTest.qWait(50)
    app.removeEventFilter(watch)
    assert shown_alone == []


def test_an_alias_is_no_further_tensor(qtbot: QtBot, make_window: MakeWindow) -> None:
    window = make_window()
    open_demo(qtbot, window)
    with tm.open(resource(DEMO) / "llama-docstrings") as checkpoint:
        assert set(checkpoint.aliases) == {"lm_head.weight"}
        said = f"{len(checkpoint)} tensors"
    assert said == "47 tensors"
    assert said in window.workbench.outliner.header.subtitle
    assert said in window.status.facts.text()
    assert shown(window.workbench.inspector.overview.facts["tensors"]) == "47"
