"""local(): a stored piece as it lies in its file, in every view, beside full() and never in its place."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from tensormorph.errors import TruncatedFileError
from tensormorph.gui.piece_section import NO_PIECES
from tensormorph.gui.pieces import as_tensor, fragment_of, name_of, piece_of
from tensormorph.gui.table import TableView
from tensormorph.gui.window import MainWindow
from tensormorph.model import LogicalTensor
from tests.gui.conftest import OpenTensors, heatmap_of, shown
from tests.gui.sharded import boxes, in_items, numbered, padded, sharded

SHAPE = (40, 60)
VALUES = numbered(SHAPE)


def items() -> LogicalTensor:
    return in_items(sharded(VALUES, boxes(SHAPE, (2, 2))))


def shows_piece(qtbot: QtBot, window: MainWindow, piece: int | None) -> None:
    """Wait until the heatmap shows a piece, or the whole, exactly."""
    qtbot.waitUntil(lambda: window.selection.piece == piece and window.selection.source is not None)
    qtbot.waitUntil(lambda: heatmap_of(window).viewer.plane is not None)
    qtbot.waitUntil(lambda: heatmap_of(window).title.badge.text == "exact", timeout=20_000)


def texts_in_sight(table: TableView) -> list[list[str]]:
    rows, cols = table.grid.sight
    block = table.blocks.get(table.grid.keys[0])
    assert block is not None
    return [[block.text(row, col) for col in range(*cols)] for row in range(*rows)]


# ---------------------------------------------------------------- the switch


def test_l_and_the_brackets_go_through_the_pieces(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(items())
    view, section = heatmap_of(window), window.workbench.inspector.view
    assert (section.full.isChecked(), section.local.isChecked()) == (True, False)
    for keys, piece in (("L", 0), ("]", 1), ("]", 2), ("[", 1), ("[[", 3)):
        QTest.keyClicks(view, keys.lower())
        shows_piece(qtbot, window, piece)
        row, col = divmod(piece, 2)
        assert view.viewer.plane is not None
        assert view.viewer.plane.shape == (20, 30)
        region = f"{20 * row}:{20 * row + 20}, {30 * col}:{30 * col + 30}"
        assert shown(section.words) == f"float32  20 × 30, holds [{region}] of full()"
        assert section.chooser.currentText() == f"rank {piece}  __{piece}_0.distcp"
        assert section.note.text() == f"{piece + 1} of 4"
        assert view.title.name.text == f"w0  local({piece})"
        assert (section.full.isChecked(), section.local.isChecked()) == (False, True)
    QTest.keyClicks(view, "l")
    shows_piece(qtbot, window, None)
    assert view.viewer.plane is not None
    assert view.viewer.plane.shape == SHAPE
    assert view.title.name.text == "w0"
    assert section.words.isHidden()


def test_the_buttons_the_chooser_and_the_menu_do_the_same(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(items())
    section, action = window.workbench.inspector.view, window.actions_["local"]
    assert not window.actions_["next_piece"].isEnabled()
    QTest.mouseClick(section.local, Qt.MouseButton.LeftButton)
    shows_piece(qtbot, window, 0)
    assert action.isChecked()
    assert window.actions_["next_piece"].isEnabled()
    section.chooser.setCurrentIndex(2)
    section.chooser.activated.emit(2)
    shows_piece(qtbot, window, 2)
    window.actions_["next_piece"].trigger()
    shows_piece(qtbot, window, 3)
    QTest.mouseClick(section.full, Qt.MouseButton.LeftButton)
    shows_piece(qtbot, window, None)
    assert not action.isChecked()
    action.trigger()
    shows_piece(qtbot, window, 3)  # the piece of the fragment that is chosen


def test_a_tensor_without_pieces_says_why_it_has_no_local(window_of: OpenTensors) -> None:
    window = window_of(sharded(VALUES, boxes(SHAPE, (2, 1))))
    section, action = window.workbench.inspector.view, window.actions_["local"]
    assert (section.local.isEnabled(), section.chooser.isHidden()) == (False, True)
    assert section.local.toolTip() == NO_PIECES
    assert not action.isEnabled()
    assert action.toolTip().endswith("neither layout nor stored pieces of it are known")
    QTest.keyClick(heatmap_of(window), Qt.Key.Key_L)
    assert window.selection.piece is None


def test_another_tensor_is_seen_whole(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(items(), items())
    QTest.keyClick(heatmap_of(window), Qt.Key.Key_L)
    shows_piece(qtbot, window, 0)
    window.selection.choose("w1")
    shows_piece(qtbot, window, None)
    assert heatmap_of(window).title.name.text == "w1"
    assert window.workbench.inspector.view.full.isChecked()


# ---------------------------------------------------------------- what views show


def test_the_table_has_the_piece_s_own_elements(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(items())
    window.workbench.centre.show_view("Table")
    table = window.workbench.centre.views["Table"]
    assert isinstance(table, TableView)
    qtbot.waitUntil(lambda: table.title.badge.text == "exact")
    QTest.keyClicks(table.grid, "l]]]")
    qtbot.waitUntil(lambda: table.plane is not None and table.plane.shape == (20, 30))
    qtbot.waitUntil(lambda: table.title.badge.text == "exact")
    assert table.title.name.text == "w0  local(3)"
    assert float(texts_in_sight(table)[1][2]) == VALUES[21, 32]


def test_statistics_are_those_of_the_piece_and_say_so(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(items())
    section = window.workbench.inspector.statistics
    for keys, part, heading in (
        ("", VALUES, "Statistics"), ("l", VALUES[:20, :30], "Statistics of local(0)"),
        ("]]]", VALUES[20:, 30:], "Statistics of local(3)"), ("l", VALUES, "Statistics"),
    ):  # fmt: skip
        QTest.keyClicks(heatmap_of(window), keys)
        limits = (f"{part.min():.6g}", f"{part.max():.6g}", heading, "exact")

        def told(limits: tuple[str, ...] = limits) -> bool:
            numbers = section.numbers
            shows = (numbers["min"].text(), numbers["max"].text(), section.heading.text(), section.badge.text)
            return shows == limits

        qtbot.waitUntil(told)


def test_shard_borders_are_only_in_full(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(items())
    view = heatmap_of(window)

    def lines() -> int:
        camera = view.viewer.camera
        return 0 if camera is None else len(view.picture.tiles.shards.marks(camera).lines)

    qtbot.waitUntil(lambda: lines() == 2)
    QTest.keyClick(view, Qt.Key.Key_L)
    shows_piece(qtbot, window, 0)
    qtbot.wait(100)
    assert lines() == 0
    QTest.keyClick(view, Qt.Key.Key_L)
    qtbot.waitUntil(lambda: lines() == 2)


def test_an_element_keeps_its_place_and_its_bytes_are_those_of_the_piece(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(items())
    selection, inspector = window.selection, window.workbench.inspector
    selection.choose_element((25, 37))
    QTest.keyClick(heatmap_of(window), Qt.Key.Key_L)
    shows_piece(qtbot, window, 3)
    qtbot.waitUntil(lambda: selection.element == (5, 7))
    assert selection.full_element == (25, 37)
    assert shown(inspector.index) == "local(3) [5, 7] = full [25, 37]"
    byte = 100 + 10 * 3 + 4 * (5 * 30 + 7)
    qtbot.waitUntil(lambda: shown(inspector.holders) == f"rank 3   __3_0.distcp   byte {byte}")
    assert float(inspector.value.text()) == VALUES[25, 37]
    selection.choose_element((0, 0))
    QTest.keyClick(heatmap_of(window), Qt.Key.Key_L)
    qtbot.waitUntil(lambda: selection.element == (20, 30))
    QTest.keyClicks(heatmap_of(window), "l[")
    shows_piece(qtbot, window, 2)
    qtbot.waitUntil(lambda: selection.element is None)  # it is in none of the elements of that piece
    QTest.keyClick(heatmap_of(window), Qt.Key.Key_L)
    qtbot.waitUntil(lambda: selection.element == (20, 30))


def test_a_fragment_that_is_clicked_in_local_is_the_piece_to_look_at(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(items())
    fragments = window.workbench.inspector.list
    QTest.keyClick(heatmap_of(window), Qt.Key.Key_L)
    shows_piece(qtbot, window, 0)
    rect = fragments.visualRect(fragments.model().index(2, 0))
    QTest.mouseClick(fragments.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
    shows_piece(qtbot, window, 2)
    assert fragments.currentIndex().row() == 2


def test_what_is_no_part_of_the_tensor_is_shown_and_counted(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(padded(in_items(sharded(VALUES, boxes(SHAPE, (2, 1)))), 1, more=3))
    QTest.keyClicks(heatmap_of(window), "l]")
    shows_piece(qtbot, window, 1)
    view, section = heatmap_of(window), window.workbench.inspector.view
    assert view.viewer.plane is not None
    assert view.viewer.plane.shape == (23, 60)
    assert shown(section.words) == (
        "float32  23 × 60, holds [20:40, 0:60] of full(), and 180 elements that are no part of it"
    )
    assert section.chooser.currentText() == "rank 1  __1_0.distcp  cuda:1"
    window.selection.choose_element((22, 0))
    assert window.selection.full_element is None
    assert shown(window.workbench.inspector.index) == "local(1) [22, 0]"


# ---------------------------------------------------------------- what goes wrong


def test_a_piece_that_cannot_be_read_says_why_and_the_others_are_there(qtbot: QtBot, window_of: OpenTensors) -> None:
    lost = TruncatedFileError("__1_0.distcp", 1000, 500)
    window = window_of(in_items(sharded(VALUES, boxes(SHAPE, (2, 1))), failures={1: lost}))
    view, section = heatmap_of(window), window.workbench.inspector.view
    QTest.keyClicks(view, "l]")
    qtbot.waitUntil(lambda: view.state.isVisible())
    assert shown(view.state.title) == "local(1) cannot be read"
    assert "The file ends at byte 500" in shown(view.state.sentence)
    assert "The file ends at byte 500" in shown(section.words)
    assert window.workbench.inspector.statistics.isHidden()
    assert "internal error" not in window.workbench.bottom.log.toPlainText()
    QTest.keyClicks(view, "]")
    shows_piece(qtbot, window, 0)
    assert not view.state.isVisible()


def test_while_a_file_is_slow_it_says_what_it_looks_at_and_the_latest_counts(
    qtbot: QtBot, window_of: OpenTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = window_of(items())
    view, held = heatmap_of(window), threading.Event()

    def slowly(tensor: object, piece: int) -> object:
        held.wait(5)
        return as_tensor(tensor, piece)  # type: ignore[arg-type]

    monkeypatch.setattr("tensormorph.gui.pieces.as_tensor", slowly)
    QTest.keyClicks(view, "l")
    qtbot.waitUntil(lambda: view.state.isVisible())
    assert shown(view.state.title) == "Looking at what is stored"
    assert shown(view.state.sentence) == "rank 0  __0_0.distcp"
    QTest.keyClicks(view, "]")
    held.set()
    shows_piece(qtbot, window, 1)
    assert view.title.name.text == "w0  local(1)"


def test_many_pieces_cost_nothing_until_they_are_seen(qtbot: QtBot, window_of: OpenTensors) -> None:
    class Many(tuple):  # type: ignore[type-arg]
        made = 0

        def __len__(self) -> int:
            return 200_000

        def __getitem__(self, index: object) -> object:  # type: ignore[override]
            Many.made += 1
            return dataclasses.replace(tuple.__getitem__(self, 0), rows=None)

    tensor = in_items(sharded(VALUES, boxes(SHAPE, (2, 1))))
    window = window_of(dataclasses.replace(tensor, locals=Many(tensor.locals)))
    assert Many.made < 100
    section = window.workbench.inspector.view
    QTest.keyClick(heatmap_of(window), Qt.Key.Key_L)
    shows_piece(qtbot, window, 0)
    QTest.keyClicks(heatmap_of(window), "[")
    shows_piece(qtbot, window, 199_999)
    assert section.note.text() == "200,000 of 200,000"
    assert shown(section.words) == "float32  20 × 60, stored as w"
    assert Many.made < 1000


def test_names_of_pieces_tell_what_is_known() -> None:
    tensor = in_items(sharded(VALUES, boxes(SHAPE, (2, 1))))
    assert name_of(tensor, 1).short == "local(1)"
    one = dataclasses.replace(tensor.locals[0], rank=None, rows=None)
    bare = dataclasses.replace(tensor, locals=(one,))
    assert dataclasses.astuple(name_of(bare, 0)) == ("local()", "piece 1", None)


def test_pieces_and_fragments_find_one_another_where_that_is_told() -> None:
    tensor = in_items(sharded(VALUES, boxes(SHAPE, (2, 1))))
    turned = dataclasses.replace(tensor, locals=(tensor.locals[1], tensor.locals[0]))
    assert [fragment_of(turned, piece) for piece in range(2)] == [1, 0]
    assert [piece_of(turned, row) for row in range(2)] == [1, 0]
    both = dataclasses.replace(tensor.locals[0], rows=(0, 1))
    fused = dataclasses.replace(tensor, locals=(both,))
    assert fragment_of(fused, 0) is None
    assert piece_of(fused, 1) is None
    whole = sharded(VALUES, boxes(SHAPE, (1, 1)))
    single = dataclasses.replace(whole, locals=(dataclasses.replace(tensor.locals[0], rows=None),))
    assert (fragment_of(single, 0), piece_of(single, 0)) == (0, 0)


def test_the_view_section_is_not_there_for_no_tensor(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(items())
    section: QWidget = window.workbench.inspector.view
    window.selection.choose(None)
    assert section.isHidden()
