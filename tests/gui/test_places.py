"""Where elements and fragments lie, in the Inspector, the card and the views: one choice, followed by all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from tensormorph.gui.fragment_list import FragmentList, rank_known_from
from tensormorph.gui.hover import HoverCard, others_text, place_text
from tensormorph.gui.inspector import Inspector
from tensormorph.gui.jobs import ElementResult
from tensormorph.gui.selection import Selection
from tensormorph.gui.table import TableView
from tensormorph.gui.theme import DARK, LIGHT, Tokens
from tensormorph.mesh import DeviceMesh, Layout
from tensormorph.model import Holder
from tensormorph.region import Region
from tests.gui.conftest import OpenTensors, heatmap_of, shown
from tests.gui.planes import checkpoint_of
from tests.gui.sharded import boxes, grid_of, numbered, sharded


def click_row(fragments: FragmentList, row: int) -> None:
    rect = fragments.visualRect(fragments.model().index(row, 0))
    QTest.mouseClick(fragments.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())


def chosen(selection: Selection) -> tuple[tuple[int, ...] | None, int | None]:
    return selection.element, selection.fragment


def holder(rank: int | None, term: int = 0, file: str = "f") -> Holder:
    return Holder(file, 8, 0, 4, rank, Region((0,), (1,)), term)


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("holders", "words"),
    [
        ([], ""),
        ([holder(0)], ""),
        ([holder(0), holder(4)], "1 replica on rank 4"),
        ([holder(0), holder(4), holder(8)], "2 replicas on ranks 4, 8"),
        ([holder(r) for r in range(9)], "8 replicas on ranks 1, 2, 3, 4 and 4 more"),
        ([holder(None), holder(None, file="g")], "1 replica in g"),
        ([holder(0), holder(1, term=1)], "one of 2 terms that add up"),
        ([holder(0), holder(2), holder(1, term=1)], "1 replica on rank 2, one of 2 terms that add up"),
    ],
)
def test_replicas_and_terms_are_told_apart(holders: list[Holder], words: str) -> None:
    assert others_text(holders) == words


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
def test_the_card_names_the_place_and_who_else_holds_it(qtbot: QtBot, window_of: OpenTensors, tokens: Tokens) -> None:
    window = window_of(sharded(numbered((4, 4)), boxes((4, 4), (2, 1))))
    card = HoverCard(tokens, heatmap_of(window))
    card.show_element(ElementResult(1, (0, 1), "2.0", 2.0, (holder(0), holder(4))), "", QPoint(10, 10))
    assert card.texts == ["[0, 1]", "2.0", "rank 0   f   byte 8", "1 replica on rank 4"]
    with_one = card.height()
    card.show_element(ElementResult(1, (0, 1), "2.0", 2.0, (holder(0),)), "", QPoint(10, 10))
    assert card.height() < with_one


def test_how_a_rank_is_known_is_said() -> None:
    tensor = sharded(numbered((4, 4)), boxes((4, 4), (2, 1)))
    assert rank_known_from(tensor, 1) == "rank from the names of the files"
    assert rank_known_from(dataclasses.replace(tensor, rank_evidence=""), 1) == "rank recorded in the checkpoint"
    layout = Layout(DeviceMesh((), (), (3,)), (), (), "inferred", "")
    assert rank_known_from(dataclasses.replace(tensor, layout=layout), 1) == "rank from the names of the files"
    without = dataclasses.replace(tensor, layout=layout, rank_evidence="")
    assert rank_known_from(without, 1) == "rank inferred with the layout"
    unranked = dataclasses.replace(tensor.fragments, rank=np.full(2, -1, np.int32))
    assert rank_known_from(dataclasses.replace(tensor, fragments=unranked), 1) == ""


# ---------------------------------------------------------------- the list


def test_the_list_has_ranks_regions_and_places(window_of: OpenTensors) -> None:
    window = window_of(sharded(numbered((8, 6)), boxes((8, 6), (2, 2))))
    inspector = window.workbench.inspector
    assert inspector.fragments.note.text() == "4, no copies"
    assert inspector.fragments.place_head.text() == "bytes at"
    model = inspector.list.model()
    assert model.data(model.index(3, 0)) == "[4:8, 3:6] bytes 130 to 178"
    assert "rank 3, __3_0.distcp" in model.data(model.index(3, 0), Qt.ItemDataRole.ToolTipRole)
    assert shown(inspector.where) == "File 1 of 2, rank 0"
    assert shown(inspector.file) == "__0_0.distcp"
    assert shown(inspector.origin.rank) == "rank from the names of the files"


def test_copies_are_counted(window_of: OpenTensors) -> None:
    halves = boxes((8, 6), (2, 1))
    window = window_of(sharded(numbered((8, 6)), [*halves, *halves], ranks=[0, 1, 2, 3]))
    assert window.workbench.inspector.fragments.note.text() == "4 of 2 regions"


def test_where_only_items_have_a_place_that_is_what_is_said(qtbot: QtBot) -> None:
    tensor = sharded(numbered((8, 6)), boxes((8, 6), (2, 1)))
    made = checkpoint_of({"w": tensor})
    checkpoint = dataclasses.replace(made, table=dataclasses.replace(made.table, in_items=True))
    selection = Selection()
    inspector = Inspector(selection, LIGHT)
    qtbot.addWidget(inspector)
    selection.open(checkpoint)
    selection.choose("w")
    assert inspector.fragments.place_head.text() == "item at"
    assert shown(inspector.bytes) == "item at bytes 100 to 196"
    selection.choose_element((5, 1))
    # The element's own byte, which only the source knows.
    place = f"rank 1   __1_0.distcp   byte {110 + 4 * (1 * 6 + 1)}"
    qtbot.waitUntil(lambda: shown(inspector.holders) == place)


def test_an_element_whose_byte_is_not_known_has_its_holder_all_the_same() -> None:
    lost = dataclasses.replace(holder(2), offset=None, n_bytes=None)
    assert place_text(lost) == "rank 2   f"


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
def test_the_chosen_row_is_a_rounded_one_and_nothing_beside_it(qtbot: QtBot, tokens: Tokens) -> None:
    fragments = FragmentList(tokens)
    qtbot.addWidget(fragments)
    fragments.resize(320, 60)
    fragments.show_fragments(sharded(numbered((8, 6)), boxes((8, 6), (2, 1))))
    fragments.show()
    image = fragments.viewport().grab().toImage()
    middle = fragments.visualRect(fragments.model().index(0, 0)).center().y()
    assert image.pixelColor(3, middle).name() == tokens.panel.lower()
    assert image.pixelColor(12, middle).name() == tokens.accentbg.lower()


def test_a_place_that_is_not_known_is_no_number(window_of: OpenTensors) -> None:
    tensor = sharded(numbered((8, 6)), boxes((8, 6), (2, 1)))
    unknown = np.full(2, -1, np.int64)
    fragments = dataclasses.replace(tensor.fragments, offset=unknown, length=unknown)
    window = window_of(dataclasses.replace(tensor, fragments=fragments))
    inspector = window.workbench.inspector
    assert shown(inspector.bytes) == "its bytes are known once it is read"
    assert "-" not in inspector.facts["stored"].text()


def test_without_ranks_several_files_are_told_by_name(window_of: OpenTensors) -> None:
    tensor = sharded(numbered((8, 6)), boxes((8, 6), (2, 1)))
    fragments = dataclasses.replace(tensor.fragments, rank=np.full(2, -1, np.int32))
    window = window_of(dataclasses.replace(tensor, fragments=fragments))
    inspector = window.workbench.inspector
    assert inspector.fragments.place_head.text() == "file"
    assert not inspector.list.ranks
    assert inspector.origin.rank.isHidden()


# ---------------------------------------------------------------- one choice


def test_a_clicked_fragment_is_chosen_and_moved_into_sight(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(sharded(numbered((600, 800)), boxes((600, 800), (2, 4))))
    view, inspector = heatmap_of(window), window.workbench.inspector
    qtbot.waitUntil(lambda: view.picture.tiles.shards.shards is not None)
    click_row(inspector.list, 5)
    assert window.selection.fragment == 5
    camera = view.viewer.camera
    assert camera is not None
    down, right = camera.down.visible, camera.right.visible
    assert down[0] <= 300 < 600 <= down[1]
    assert right[0] <= 200 < 400 <= right[1]
    assert right[1] - right[0] < 500
    marks = view.picture.tiles.shards.marks(camera)
    assert marks.frame is not None
    assert [label.text for label in marks.labels if label.chosen] == ["rank 5"]
    assert shown(inspector.where).endswith("rank 5")


def test_the_table_selects_the_fragment_even_if_it_is_made_later(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(sharded(numbered((600, 800)), boxes((600, 800), (2, 4))))
    click_row(window.workbench.inspector.list, 5)
    window.workbench.centre.show_view("Table")
    table = window.workbench.centre.views["Table"]
    assert isinstance(table, TableView)
    assert table.grid.selected == ((300, 600), (200, 400))
    click_row(window.workbench.inspector.list, 0)
    assert table.grid.selected == ((0, 300), (0, 200))
    assert table.grid.top_left == (0, 0)
    assert table.caption.text() == "300 × 200 elements selected"


def test_an_element_chooses_its_fragment_in_the_list_and_keeps_a_replica(qtbot: QtBot, window_of: OpenTensors) -> None:
    halves = boxes((8, 6), (2, 1))
    window = window_of(sharded(numbered((8, 6)), [*halves, *halves], ranks=[0, 1, 2, 3]))
    inspector, selection = window.workbench.inspector, window.selection
    selection.choose_element((6, 0))
    first = selection.fragment
    assert first is not None
    assert inspector.list.currentIndex().row() == first
    assert shown(inspector.where).endswith("rank 1")
    rows = np.flatnonzero(selection.tensor.fragments.rank == 3)  # type: ignore[union-attr]
    click_row(inspector.list, int(rows[0]))
    assert chosen(selection) == ((6, 0), rows[0])  # the replica holds it too
    selection.choose_element((7, 0))
    assert chosen(selection) == ((7, 0), rows[0])
    click_row(inspector.list, 0)
    assert chosen(selection) == (None, 0)
    selection.choose_element((0, 0))
    QTest.keyClick(heatmap_of(window), Qt.Key.Key_Escape)
    assert chosen(selection) == (None, None)


def test_a_fragment_of_another_plane_is_gone_to(qtbot: QtBot, window_of: OpenTensors) -> None:
    shape = (4, 20, 30)
    window = window_of(sharded(numbered(shape), boxes(shape, (4, 1, 2))))
    view = heatmap_of(window)
    click_row(window.workbench.inspector.list, 5)
    assert view.viewer.plane is not None
    assert view.viewer.plane.at == (2,)
    qtbot.waitUntil(lambda: view.viewer.camera is not None and view.viewer.camera.right.visible[0] > 5)


def test_arrows_in_the_list_choose_and_another_tensor_chooses_nothing(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(*(sharded(numbered((80, 60)), boxes((80, 60), (4, 1))) for _ in range(2)))
    inspector, selection = window.workbench.inspector, window.selection
    inspector.list.setFocus()
    assert chosen(selection) == (None, None)
    QTest.keyClick(inspector.list, Qt.Key.Key_Down)
    assert chosen(selection) == (None, 1)
    selection.choose("w1")
    assert chosen(selection) == (None, None)
    assert inspector.list.currentIndex().row() == 0


def test_thousands_of_fragments_are_listed_and_the_last_is_reached(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(grid_of(60, 4))
    inspector, selection = window.workbench.inspector, window.selection
    assert inspector.fragments.note.text() == "3,600, no copies"
    assert inspector.fragments.more.text() == "3,594 more"
    selection.choose_element((239, 239))
    assert inspector.list.currentIndex().row() == 3599
    assert inspector.list.n_more() == 0
    rect = inspector.list.visualRect(inspector.list.model().index(3599, 0))
    assert inspector.list.viewport().rect().contains(rect)


def test_an_element_outside_chooses_no_fragment(qtbot: QtBot) -> None:
    selection = Selection()
    selection.open(checkpoint_of({"w": sharded(numbered((4, 4)), boxes((4, 4), (2, 1)))}))
    selection.choose("w")
    selection.choose_element((3, 3))
    assert chosen(selection) == ((3, 3), 1)
    selection.choose_fragment(9)
    assert chosen(selection) == ((3, 3), None)
    selection.choose_element((4, 0))
    assert chosen(selection) == (None, None)
