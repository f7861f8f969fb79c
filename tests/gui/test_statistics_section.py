"""The statistics in the Inspector: exact over every element, of large tensors only when asked for, and cancellable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from tensormorph.gui import statistics_section
from tensormorph.gui.selection import Selection
from tensormorph.gui.statistics_section import StatisticsSection
from tensormorph.gui.theme import LIGHT
from tensormorph.readers import open_checkpoint
from tests.readers.oracle import container, entry


@pytest.fixture
def section(qtbot: QtBot) -> StatisticsSection:
    made = StatisticsSection(Selection(), LIGHT)
    qtbot.addWidget(made)
    made.show()
    return made


def _choose(section: StatisticsSection, folder: Path, values: NDArray[np.float32]) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(container({"w": entry(0, values.nbytes, values.shape)}, values.tobytes()))
    section._selection.open(open_checkpoint(path))
    section._selection.choose("w")
    section.show_tensor(section._selection.tensor)


def test_the_numbers_are_those_of_numpy(qtbot: QtBot, section: StatisticsSection, tmp_path: Path) -> None:
    values = np.linspace(-2, 5, 600, dtype=np.float32).reshape(20, 30)
    values[3, 4] = 0
    _choose(section, tmp_path, values)
    qtbot.waitUntil(lambda: section.badge.text == "exact")
    shown = {name: label.text().replace("\u2212", "-") for name, label in section.numbers.items()}
    wide = values.astype(np.float64)
    for name, expected in (("min", wide.min()), ("max", wide.max()), ("mean", wide.mean()), ("std", wide.std())):
        assert shown[name] == f"{expected:.6g}"
    assert shown["zeros"] == "1"
    assert section.first_bad.isHidden()


def test_a_nan_is_counted_and_its_place_is_one_click_away(
    qtbot: QtBot, section: StatisticsSection, tmp_path: Path
) -> None:
    values = np.ones((6, 5), np.float32)
    values[4, 2] = np.nan
    _choose(section, tmp_path, values)
    qtbot.waitUntil(lambda: section.badge.text == "exact")
    assert section.numbers["NaN, Inf"].text() == "1"
    with qtbot.waitSignal(section.elementWanted) as wanted:
        QTest.mouseClick(section.first_bad, Qt.MouseButton.LeftButton)
    assert wanted.args == [(4, 2)]


def test_a_large_tensor_is_read_only_when_asked_for(
    qtbot: QtBot, section: StatisticsSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_section, "UNASKED_BYTES", 100)
    _choose(section, tmp_path, np.ones((20, 30), np.float32))
    assert section.read.text() == "Read all 2.40 kB"
    assert section.badge.text == ""
    QTest.mouseClick(section.read, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: section.badge.text == "exact")
    assert section.numbers["mean"].text() == "1"


def test_cancelling_leaves_no_numbers_and_another_tensor_replaces_the_question(
    qtbot: QtBot, section: StatisticsSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_section, "UNASKED_BYTES", 100)
    _choose(section, tmp_path, np.ones((20, 30), np.float32))
    QTest.mouseClick(section.read, Qt.MouseButton.LeftButton)
    section._cancelled()
    qtbot.wait(50)
    assert section.badge.text == ""
    assert section.numbers["mean"].isHidden()
    section.show_tensor(None)
    assert section.isHidden()
