"""What is expensive is asked for first: the sampled picture comes at once, the exact one waits for a click."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from tensormorph.gui import statistics_section, viewer
from tensormorph.gui.heatmap import HeatmapView
from tensormorph.gui.selection import Selection
from tensormorph.gui.settings import COSTLY_BYTES, Settings
from tensormorph.gui.theme import DARK, LIGHT, Tokens
from tensormorph.gui.window import MainWindow
from tensormorph.model import LogicalTensor
from tests.gui.conftest import opens, shown
from tests.gui.planes import checkpoint_of
from tests.gui.sharded import boxes, in_items, sharded

SHAPE = (3000, 2000)
WHOLE = "24.0 MB"


@pytest.fixture
def tensor(monkeypatch: pytest.MonkeyPatch) -> LogicalTensor:
    """Return a tensor of 24 MB in 8 files, which counts as one of many GB."""
    monkeypatch.setattr(viewer, "EXACT_BYTES", 1 << 20)
    monkeypatch.setattr("tensormorph.survey.HELD_BYTES", 1 << 20)
    values = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
    return in_items(sharded(values, boxes(SHAPE, (4, 2))))


def open_window(qtbot: QtBot, folder: Path, tensor: LogicalTensor, limit: int, theme: str = "light") -> MainWindow:
    settings = Settings(folder)
    settings.values.costly_bytes = limit
    settings.values.theme = "dark" if theme == "dark" else "light"
    checkpoint = checkpoint_of({"w": tensor})
    window = MainWindow(settings, open_=opens(checkpoint))
    qtbot.addWidget(window)
    window.resize(1400, 900)
    with qtbot.waitExposed(window):
        window.show()
    with qtbot.waitSignal(window.opener.opened):
        window.open_path(str(checkpoint.path))
    window.selection.choose("w")
    return window


def view_of(window: MainWindow) -> HeatmapView:
    view = window.workbench.centre.views["Heatmap"]
    assert isinstance(view, HeatmapView)
    return view


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
def test_a_costly_picture_is_sampled_at_once_and_says_what_all_of_it_costs(
    qtbot: QtBot, tmp_path: Path, tensor: LogicalTensor, tokens: Tokens
) -> None:
    window = open_window(qtbot, tmp_path, tensor, 10_000_000, tokens.name)
    view = view_of(window)
    qtbot.waitUntil(lambda: view.title.badge.text.startswith("sampled"), timeout=20_000)
    step = view.title.badge.text.removeprefix("sampled ")
    assert view.cost.isVisible()
    assert view.cost.title.text() == f"full() reads {WHOLE} from 8 files"
    needs = view.cost.sentence.text().removeprefix(f"A sampled picture ({step}) needs ")
    assert needs.endswith("kB")
    assert 0 < view.viewer.sample_cost < 3_000_000
    assert view.cost.sentence.width() >= view.cost.sentence.sizeHint().width()
    assert view.read_all.isHidden()  # the card offers it
    assert view.cost.all.text() == f"Read all {WHOLE}"
    qtbot.wait(200)
    assert view.loader.n_bytes_of(view.viewer.number) < 6_000_000
    assert view.cost.title.palette().windowText().color().name() == tokens.text.lower()
    image = view.cost.grab().toImage()
    assert image.pixelColor(6, image.height() // 2).name() == tokens.raised.lower()


def test_the_exact_picture_comes_when_it_is_asked_for(qtbot: QtBot, tmp_path: Path, tensor: LogicalTensor) -> None:
    window = open_window(qtbot, tmp_path, tensor, 10_000_000)
    view = view_of(window)
    qtbot.waitUntil(view.cost.isVisible, timeout=20_000)
    QTest.mouseClick(view.cost.all, Qt.MouseButton.LeftButton)
    assert not view.cost.isVisible()
    qtbot.waitUntil(lambda: view.title.badge.text == "exact", timeout=20_000)
    assert view.loader.n_bytes_of(view.viewer.number) >= 24_000_000


def test_a_sample_will_do_until_the_button_below_is_pressed(
    qtbot: QtBot, tmp_path: Path, tensor: LogicalTensor
) -> None:
    window = open_window(qtbot, tmp_path, tensor, 10_000_000)
    view = view_of(window)
    qtbot.waitUntil(view.cost.isVisible, timeout=20_000)
    QTest.mouseClick(view.cost.sample, Qt.MouseButton.LeftButton)
    assert not view.cost.isVisible()
    qtbot.waitUntil(lambda: view.title.badge.text.startswith("sampled"), timeout=20_000)
    view.viewer.pan(1, 1)
    assert not view.cost.isVisible()
    assert view.read_all.isVisible()
    assert view.read_all.text() == f"Read all {WHOLE}"
    QTest.mouseClick(view.read_all, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: view.title.badge.text == "exact", timeout=20_000)


def test_below_the_limit_nothing_is_asked(qtbot: QtBot, tmp_path: Path, tensor: LogicalTensor) -> None:
    window = open_window(qtbot, tmp_path, tensor, 24_000_000)
    view = view_of(window)
    qtbot.waitUntil(lambda: view.title.badge.text == "exact", timeout=20_000)
    assert not view.cost.isVisible()


def test_what_is_in_sight_is_what_counts(qtbot: QtBot, tmp_path: Path, tensor: LogicalTensor) -> None:
    window = open_window(qtbot, tmp_path, tensor, 10_000_000)
    view = view_of(window)
    qtbot.waitUntil(view.cost.isVisible, timeout=20_000)
    view.viewer.show((0, 300), (0, 300))
    qtbot.waitUntil(lambda: view.title.badge.text == "exact", timeout=20_000)
    assert not view.cost.isVisible()
    view.viewer.fit()
    qtbot.waitUntil(view.cost.isVisible)


def test_the_limit_is_chosen_in_the_menu_and_remembered(qtbot: QtBot, tmp_path: Path, tensor: LogicalTensor) -> None:
    window = open_window(qtbot, tmp_path, tensor, 10_000_000)
    view = view_of(window)
    qtbot.waitUntil(view.cost.isVisible, timeout=20_000)
    limits = {action.text(): action for action in window.actions_.limits.actions()}
    assert list(limits) == ["10.0 MB", "250 MB", "1.00 GB", "2.00 GB", "8.00 GB", "32.0 GB"]
    assert limits["10.0 MB"].isChecked()
    limits["1.00 GB"].trigger()
    qtbot.waitUntil(lambda: view.title.badge.text == "exact", timeout=20_000)
    assert not view.cost.isVisible()
    window.close()
    assert Settings(tmp_path).values.costly_bytes == 1_000_000_000


def test_a_piece_is_named_as_what_it_costs(qtbot: QtBot, tmp_path: Path, tensor: LogicalTensor) -> None:
    window = open_window(qtbot, tmp_path, tensor, 2_000_000)
    view = view_of(window)
    qtbot.waitUntil(view.cost.isVisible, timeout=20_000)
    QTest.keyClick(view, Qt.Key.Key_L)
    qtbot.waitUntil(lambda: view.cost.title.text() == "local(0) reads 3.00 MB from 1 file")
    assert view.cost.isVisible()


def test_costly_statistics_say_what_they_cost(
    qtbot: QtBot, tmp_path: Path, tensor: LogicalTensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_section, "UNASKED_BYTES", 1_000_000)
    window = open_window(qtbot, tmp_path, tensor, 10_000_000)
    section = window.workbench.inspector.statistics
    assert shown(section.words) == f"full() reads {WHOLE} from 8 files, for numbers over every element"
    assert section.read.text() == f"Read all {WHOLE}"
    next(action for action in window.actions_.limits.actions() if action.text() == "2.00 GB").trigger()
    assert shown(section.words) == "Numbers over every element need the whole tensor read once"
    QTest.mouseClick(section.read, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: section.badge.text == "exact", timeout=20_000)
    assert section.numbers["zeros"].text() == "0"


def test_a_limit_below_what_is_read_unasked_counts_for_statistics_too(
    qtbot: QtBot, tmp_path: Path, tensor: LogicalTensor
) -> None:
    window = open_window(qtbot, tmp_path, tensor, 10_000_000)
    assert window.workbench.inspector.statistics.badge.text == ""
    assert window.workbench.inspector.statistics.read.isVisible()


def test_a_view_of_its_own_has_the_limit_of_the_settings(qtbot: QtBot) -> None:
    view = HeatmapView(Selection(), LIGHT)
    qtbot.addWidget(view)
    assert view.viewer.costly_bytes == COSTLY_BYTES == 2_000_000_000
    view.shut()


@pytest.mark.parametrize("stored", ["2", "true", "-5", "0", "1e9", "99999999999999999999", "null"])
def test_a_limit_that_is_none_falls_back(tmp_path: Path, stored: str) -> None:
    (tmp_path / "settings.json").write_text(f'{{"costly_bytes": {stored}}}')
    expected = 2 if stored == "2" else COSTLY_BYTES
    assert Settings(tmp_path).values.costly_bytes == expected
