"""Who holds a region: ranks, files and what no one has, of what is in sight or one element; copied as plain text."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from tensormorph.gui import holders, shards
from tensormorph.gui.holders import Held, holding_text, who_holds
from tensormorph.gui.holders_panel import HoldersPanel
from tensormorph.gui.table import TableView
from tensormorph.gui.window import MainWindow
from tensormorph.region import Region
from tests.gui.conftest import OpenTensors, heatmap_of
from tests.gui.sharded import boxes, grid_of, in_items, numbered, padded, sharded

SHAPE = (40, 60)
VALUES = numbered(SHAPE)
CTRL_SHIFT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier


def open_panel(qtbot: QtBot, window: MainWindow) -> HoldersPanel:
    QTest.keyClick(window, Qt.Key.Key_W, CTRL_SHIFT)
    panel = window.view_actions.panel
    assert panel is not None
    qtbot.waitUntil(lambda: panel.isVisible() and panel.holding is not None)
    return panel


def rows(panel: HoldersPanel) -> list[tuple[str, ...]]:
    model = panel.table.model()
    return [
        tuple(model.data(model.index(row, column)) for column in range(model.columnCount()))
        for row in range(model.rowCount())
    ]


# ---------------------------------------------------------------- the answer


def test_each_part_says_who_holds_how_much_and_the_rest_no_one() -> None:
    kept = [box for k, box in enumerate(boxes(SHAPE, (2, 2))) if k != 1]
    tensor = sharded(VALUES, [*kept, kept[0]], ranks=[0, 2, 3, 5])
    found = who_holds(tensor, Region((10, 20), (30, 40)))
    assert found.parts == (
        Held(0, "__0_0.distcp", Region((10, 20), (20, 30)), 0),
        Held(5, "__5_0.distcp", Region((10, 20), (20, 30)), 1, copy=True),
        Held(2, "__2_0.distcp", Region((20, 20), (30, 30)), 2),
        Held(3, "__3_0.distcp", Region((20, 30), (30, 40)), 3),
        Held(None, None, Region((10, 30), (20, 40)), None),
    )
    assert (found.n_holders, found.n_gone) == (4, 100)
    assert holding_text(found).splitlines() == [
        "w [10:30, 20:40]", "rank\tfile\tregion\telements", "0\t__0_0.distcp\t10:20, 20:30\t100",
        "5\t__5_0.distcp\t10:20, 20:30\t100", "2\t__2_0.distcp\t20:30, 20:30\t100",
        "3\t__3_0.distcp\t20:30, 30:40\t100", "no one\t\t10:20, 30:40\t100",
    ]  # fmt: skip


def test_a_scalar_has_its_holder() -> None:
    tensor = sharded(numbered(()), [Region((), ())])
    assert who_holds(tensor, Region((), ())).parts == (Held(0, "__0_0.distcp", Region((), ()), 0),)


def test_of_many_holders_the_first_are_listed_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = grid_of(30, 2, missing=1)
    whole = Region.whole(tensor.shape)
    assert who_holds(tensor, whole).n_gone == 4
    monkeypatch.setattr(holders, "MOST_HOLDERS", 10)
    monkeypatch.setattr(holders, "MOST_SEARCHED", 100)
    found = who_holds(tensor, whole)
    assert (len(found.parts), found.n_holders, found.n_gone) == (10, 899, None)
    assert holding_text(found).endswith("\nand 889 more holders")
    assert shards.MOST_SEARCHED > 100


def test_a_hundred_thousand_fragments_are_counted() -> None:
    tensor = grid_of(316, 2)
    found = who_holds(tensor, Region.whole(tensor.shape))
    assert (found.n_holders, len(found.parts)) == (316 * 316, holders.MOST_HOLDERS)


# ---------------------------------------------------------------- the panel


def test_the_panel_follows_what_is_in_sight(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(sharded(VALUES, boxes(SHAPE, (2, 2))))
    panel = open_panel(qtbot, window)
    assert not panel.isModal()
    assert panel.in_sight.isChecked()
    assert not panel.element.isEnabled()
    assert panel.region.text == "[0:40, 0:60]"
    qtbot.waitUntil(lambda: len(rows(panel)) == 4)
    assert rows(panel)[3] == ("3", "__3_0.distcp", "20:40, 30:60", "600")
    assert panel.words.text() == "4 holders"
    heatmap_of(window).viewer.show((2, 8), (2, 8))
    qtbot.waitUntil(lambda: len(rows(panel)) == 1)
    assert rows(panel)[0][:2] == ("0", "__0_0.distcp")


def test_of_a_chosen_element_the_panel_names_all_replicas(qtbot: QtBot, window_of: OpenTensors) -> None:
    halves = boxes(SHAPE, (2, 1))
    window = window_of(sharded(VALUES, [*halves, *halves], ranks=[0, 1, 2, 3]))
    window.selection.choose_element((30, 7))
    panel = open_panel(qtbot, window)
    assert panel.element.isChecked()
    qtbot.waitUntil(lambda: len(rows(panel)) == 2)
    assert [row[2] for row in rows(panel)] == ["30:31, 7:8", "30:31, 7:8  replica"]
    QTest.mouseClick(panel.in_sight, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(rows(panel)) == 4)
    QTest.mouseClick(panel.element, Qt.MouseButton.LeftButton)
    window.selection.choose_element((3, 7))
    qtbot.waitUntil(lambda: [row[0] for row in rows(panel)] == ["0", "2"])


def test_the_list_is_copied_and_a_line_chooses_its_fragment(qtbot: QtBot, window_of: OpenTensors) -> None:
    kept = [box for k, box in enumerate(boxes(SHAPE, (2, 2))) if k != 1]
    window = window_of(sharded(VALUES, kept))
    panel = open_panel(qtbot, window)
    qtbot.waitUntil(lambda: len(rows(panel)) == 4)
    assert rows(panel)[3] == ("no one", "", "0:20, 30:60", "600")
    assert panel.words.text() == "3 holders, 600 elements that no one holds"
    QGuiApplication.clipboard().clear()
    QTest.mouseClick(panel.copy, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text().endswith("no one\t\t0:20, 30:60\t600")
    QGuiApplication.clipboard().clear()
    QTest.keyClick(panel.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text().startswith("w0 [0:40, 0:60]")
    panel.table.activated.emit(panel.table.model().index(2, 0))
    assert window.selection.fragment == 2
    panel.table.activated.emit(panel.table.model().index(3, 0))
    assert window.selection.fragment == 2


def test_the_table_gives_its_selected_rectangle(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(sharded(VALUES, boxes(SHAPE, (2, 2))))
    window.workbench.centre.show_view("Table")
    panel = open_panel(qtbot, window)
    table = window.workbench.centre.views["Table"]
    assert isinstance(table, TableView)
    table.grid.select((19, 3), (20, 5))
    qtbot.waitUntil(lambda: panel.region.text == "[19:21, 3:6]")
    qtbot.waitUntil(lambda: [row[3] for row in rows(panel)] == ["3", "3"])


def test_of_a_piece_the_region_is_that_of_the_whole_or_not_known(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(padded(in_items(sharded(VALUES, boxes(SHAPE, (2, 1)))), 0, more=3))
    panel = open_panel(qtbot, window)
    QTest.keyClick(heatmap_of(window), Qt.Key.Key_L)
    qtbot.waitUntil(lambda: panel.words.text() == "Where this is in full() is not known")
    assert not panel.copy.isEnabled()
    QTest.keyClicks(heatmap_of(window), "]")
    qtbot.waitUntil(lambda: panel.region.text == "[20:40, 0:60]")
    qtbot.waitUntil(lambda: [row[0] for row in rows(panel)] == ["1"])


def test_without_a_tensor_the_command_says_why(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(sharded(VALUES, boxes(SHAPE, (2, 1))))
    panel = open_panel(qtbot, window)
    window.selection.choose(None)
    assert not window.actions_["who_holds"].isEnabled()
    assert window.actions_["who_holds"].toolTip().endswith("no tensor is chosen")
    qtbot.waitUntil(lambda: panel.words.text() == "Choose a tensor")
    assert rows(panel) == []


def test_the_picture_offers_it_and_a_theme_reaches_the_panel(qtbot: QtBot, window_of: OpenTensors) -> None:
    kept = boxes(SHAPE, (2, 1))[:1]
    window = window_of(sharded(VALUES, kept))
    assert window.actions_["who_holds"] in heatmap_of(window).picture.actions()
    panel = open_panel(qtbot, window)
    qtbot.waitUntil(lambda: len(rows(panel)) == 2)
    model = panel.table.model()
    for theme in ("dark", "light"):
        window.set_theme(theme)
        colour = model.data(model.index(1, 0), Qt.ItemDataRole.ForegroundRole)
        assert colour.name().upper() == window.tokens.err
        assert model.data(model.index(0, 0), Qt.ItemDataRole.ForegroundRole) is None
