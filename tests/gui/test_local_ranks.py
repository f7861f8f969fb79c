"""local(rank=3): what the layout gives a rank, read from whoever stored it, beside the stored pieces."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from tensormorph.errors import LayoutError
from tensormorph.gui.local_views import RankView
from tensormorph.gui.piece_section import BY_RANK, STORED, PieceSection
from tensormorph.gui.rank_parts import part_as_tensor
from tensormorph.gui.table import TableView
from tensormorph.gui.window import MainWindow
from tensormorph.mesh import Partial, Replicate, Shard, StridedShard
from tensormorph.model import LogicalTensor
from tensormorph.region import Region
from tests.gui.conftest import OpenTensors, heatmap_of, shown
from tests.gui.sharded import boxes, in_items, laid_out, numbered, sharded

SHAPE = (40, 60)
VALUES = numbered(SHAPE)


def written_once() -> LogicalTensor:
    """Return a tensor in two halves, replicated over `dp`, of which only ranks 0 and 1 wrote theirs."""
    return laid_out(in_items(sharded(VALUES, boxes(SHAPE, (2, 1)))), "dp=2,tp=2", Replicate(), Shard(0))


def shows_rank(qtbot: QtBot, window: MainWindow, rank: int) -> None:
    selection = window.selection
    qtbot.waitUntil(lambda: selection.view_key == ("rank", rank) and selection.source is not None)
    qtbot.waitUntil(lambda: heatmap_of(window).title.badge.text == "exact", timeout=20_000)


def rows_of(section: PieceSection) -> list[str]:
    return [section.chooser.itemText(row) for row in range(section.chooser.count())]


# ---------------------------------------------------------------- what a rank's part is


@pytest.mark.parametrize("rank", range(4))
def test_a_part_is_what_the_layout_says_whoever_wrote_it(rank: int) -> None:
    tensor = sharded(VALUES, boxes(SHAPE, (2, 1)))
    part = part_as_tensor(laid_out(tensor, "dp=2,tp=2", Replicate(), Shard(0)), rank)
    low = 20 * (rank % 2)
    assert (part.full()[...] == VALUES[low : low + 20]).all()
    assert part.complete
    holder = part.where((3, 4))[0]
    assert (holder.rank, holder.file) == (rank % 2, f"__{rank % 2}_0.distcp")
    assert holder.offset == tensor.where((low + 3, 4))[0].offset
    assert sum(piece.nbytes for piece in part.pieces(Region.whole(part.shape), 100)) == part.n_bytes


def test_a_strided_part_of_several_boxes_knows_its_places() -> None:
    tensor = laid_out(sharded(VALUES, boxes(SHAPE, (4, 1))), "dp=2,tp=2", StridedShard(0, 2), Shard(0))
    view = RankView(tensor, 1)
    assert view.part is not None
    rows = [range(*runs) for runs in view.part.axes[0]]
    wanted = np.concatenate([VALUES[r.start : r.stop] for r in rows])
    local = view.read()
    assert (local.full()[...] == wanted).all()
    for index in ((0, 0), (local.shape[0] - 1, 7)):
        place = view.to_full(local, index)
        assert place is not None
        assert VALUES[place] == wanted[index]
        assert view.from_full(local, place) == index
    assert view.region_in_full(local, Region((0, 0), (1, 60))) == Region((rows[0].start, 0), (rows[0].start + 1, 60))


def test_a_part_that_no_one_wrote_is_missing_and_a_term_is_the_rank_s_own() -> None:
    half = laid_out(sharded(VALUES, boxes(SHAPE, (2, 1))[:1]), "tp=2", Shard(0))
    assert not part_as_tensor(half, 1).complete
    assert part_as_tensor(half, 0).complete
    terms = in_items(sharded(VALUES, [Region.whole(SHAPE)] * 2))
    summed = dataclasses.replace(laid_out(terms, "tp=3", Partial()), reduction="sum")
    with pytest.raises(LayoutError, match="rank 2 is stored nowhere"):
        part_as_tensor(summed, 2)
    with pytest.raises(LayoutError, match="No layout tells"):
        part_as_tensor(half, 5)


# ---------------------------------------------------------------- the chooser and the keys


def test_l_and_the_brackets_go_through_the_ranks(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(written_once())
    view, section = heatmap_of(window), window.workbench.inspector.view
    assert rows_of(section) == [
        BY_RANK, "rank 0 (0, 0)", "rank 1 (0, 1)", "rank 2 (1, 0)  written by rank 0",
        "rank 3 (1, 1)  written by rank 1", STORED, "rank 0  __0_0.distcp", "rank 1  __1_0.distcp",
    ]  # fmt: skip
    for keys, rank in (("l", 0), ("]", 1), ("]]", 3), ("]", 0), ("[", 3)):
        QTest.keyClicks(view, keys)
        shows_rank(qtbot, window, rank)
        low = 20 * (rank % 2)
        by = f", written by rank {rank % 2}" if rank > 1 else ""
        assert shown(section.words) == f"float32  20 × 60, holds [{low}:{low + 20}, 0:60] of full(){by}"
        assert section.note.text() == f"{rank + 1} of 4 ranks"
        assert view.title.name.text == f"w0  local(rank={rank})"
        assert section.chooser.currentText() == rows_of(section)[1 + rank]
    QTest.keyClicks(view, "l")
    qtbot.waitUntil(lambda: window.selection.view is None)


def test_the_chooser_changes_between_ranks_and_stored_pieces(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(written_once())
    section, view = window.workbench.inspector.view, heatmap_of(window)
    assert not section.chooser.model().index(0, 0).flags() & Qt.ItemFlag.ItemIsEnabled
    assert not section.chooser.model().index(5, 0).flags() & Qt.ItemFlag.ItemIsEnabled
    section.chooser.activated.emit(7)
    qtbot.waitUntil(lambda: window.selection.piece == 1)
    qtbot.waitUntil(lambda: section.note.text() == "2 of 2 stored")
    assert view.title.name.text == "w0  local(1)"
    QTest.keyClicks(view, "ll")  # to full() and back to what was looked at last
    qtbot.waitUntil(lambda: window.selection.piece == 1)
    QTest.keyClicks(view, "]")
    qtbot.waitUntil(lambda: window.selection.piece == 0)
    section.chooser.activated.emit(4)
    shows_rank(qtbot, window, 3)
    assert window.selection.rank == 3
    section.chooser.activated.emit(0)  # a head stands for nothing
    shows_rank(qtbot, window, 3)


def test_table_statistics_and_element_are_those_of_the_part(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(written_once())
    selection, inspector = window.selection, window.workbench.inspector
    selection.choose_element((25, 37))
    selection.choose_rank(3)
    shows_rank(qtbot, window, 3)
    qtbot.waitUntil(lambda: selection.element == (5, 37))
    assert shown(inspector.index) == "local(rank=3) [5, 37] = full [25, 37]"
    qtbot.waitUntil(lambda: shown(inspector.holders).startswith("rank 1   __1_0.distcp   byte "))
    assert float(inspector.value.text()) == VALUES[25, 37]
    low = f"{VALUES[20:].min():.6g}"
    qtbot.waitUntil(lambda: inspector.statistics.numbers["min"].text() == low)
    assert inspector.statistics.heading.text() == "Statistics of local(rank=3)"
    assert selection.in_full(Region((0, 0), (2, 3))) == Region((20, 0), (22, 3))
    window.workbench.centre.show_view("Table")
    table = window.workbench.centre.views["Table"]
    assert isinstance(table, TableView)
    qtbot.waitUntil(lambda: table.title.badge.text == "exact")
    assert table.plane is not None
    assert table.plane.shape == (20, 60)


def test_an_empty_rank_is_empty_as_it_should_be(qtbot: QtBot, window_of: OpenTensors) -> None:
    tensor = laid_out(in_items(sharded(VALUES[:2], boxes((2, 60), (2, 1)))), "dp=4", Shard(0))
    window = window_of(tensor)
    section, view = window.workbench.inspector.view, heatmap_of(window)
    assert rows_of(section)[3:5] == ["rank 2 (2)  empty, as it should be", "rank 3 (3)  empty, as it should be"]
    QTest.keyClicks(view, "l[")
    qtbot.waitUntil(lambda: window.selection.view_key == ("rank", 3) and window.selection.source is not None)
    qtbot.waitUntil(lambda: shown(view.state.title) == "Empty, as it should be")
    assert "empty, as it should be" in shown(section.words)
    assert window.selection.fragment is None


def test_a_fragment_that_is_clicked_shows_its_rank(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(written_once())
    fragments = window.workbench.inspector.list
    window.selection.choose_rank(2)
    shows_rank(qtbot, window, 2)
    assert window.selection.fragment == 0
    rect = fragments.visualRect(fragments.model().index(1, 0))
    QTest.mouseClick(fragments.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
    shows_rank(qtbot, window, 1)


def test_without_a_layout_a_rank_is_its_stored_piece(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(dataclasses.replace(written_once(), layout=None))
    window.selection.choose_rank(1)
    qtbot.waitUntil(lambda: window.selection.piece == 1)
    window.selection.choose_rank(9)
    assert window.selection.piece == 1


def test_a_layout_without_stored_pieces_has_no_heads(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(laid_out(sharded(VALUES, boxes(SHAPE, (2, 1))), "tp=2", Shard(0)))
    section = window.workbench.inspector.view
    assert rows_of(section) == ["rank 0 (0)", "rank 1 (1)"]
    QTest.keyClicks(heatmap_of(window), "l")
    shows_rank(qtbot, window, 0)
    assert section.note.text() == "1 of 2"


def test_a_part_of_very_many_boxes_is_not_searched_in_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = laid_out(sharded(VALUES, boxes(SHAPE, (4, 1))), "dp=2", StridedShard(0, 20))
    assert RankView(tensor, 0).fragment == 0
    monkeypatch.setattr("tensormorph.gui.rank_parts._MOST_COMPARED", 3)
    view = RankView(tensor, 0)
    assert (view.fragment, view.place) == (None, "rank 0 (0)")
    assert view.read().complete
