"""The Placement tab: the mesh of ranks, clicked, hovered, gone through by keys, in both themes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tensormorph.errors import Problem
from tensormorph.gui.mesh_picture import MeshPicture
from tensormorph.gui.mesh_view import PlacementView
from tensormorph.gui.rank_map import Mark, rank_map
from tensormorph.gui.settings import Settings
from tensormorph.gui.theme import DARK, LIGHT, Tokens
from tensormorph.gui.window import MainWindow
from tensormorph.mesh import Replicate, Shard
from tensormorph.model import Checkpoint
from tests.gui.conftest import OpenTensors, heatmap_of, opens, shown
from tests.gui.planes import checkpoint_of
from tests.gui.sharded import boxes, grid_of, in_items, laid_out, numbered, sharded, two_by_two, two_stages

SHAPE = (40, 60)
VALUES = numbered(SHAPE)
OpenMesh = Callable[[Checkpoint, str], tuple[MainWindow, PlacementView]]


@pytest.fixture
def open_mesh(qtbot: QtBot, tmp_path: Path) -> OpenMesh:
    """Return a maker of windows with the real views on a checkpoint, a tensor chosen and its placement shown."""

    def make(checkpoint: Checkpoint, name: str) -> tuple[MainWindow, PlacementView]:
        window = MainWindow(Settings(tmp_path / "own"), open_=opens(checkpoint))
        qtbot.addWidget(window)
        window.resize(1400, 900)
        with qtbot.waitExposed(window):
            window.show()
        with qtbot.waitSignal(window.opener.opened):
            window.open_path(str(checkpoint.path))
        window.selection.choose(name)
        window.actions_["placement"].trigger()
        view = window.workbench.centre.views["Placement"]
        assert isinstance(view, PlacementView)
        qtbot.waitUntil(lambda: view.picture.ready or view.state.isVisible())
        return window, view

    return make


def click(view: PlacementView, at: int) -> None:
    QTest.mouseClick(view.picture, Qt.MouseButton.LeftButton, pos=view.picture.cell(at).center())


def colours(image: QImage) -> set[str]:
    return {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())}


# ---------------------------------------------------------------- one selection everywhere


def test_a_rank_that_is_clicked_is_looked_at_everywhere(qtbot: QtBot, open_mesh: OpenMesh) -> None:
    window, view = open_mesh(two_by_two(), "rows")
    selection = window.selection
    assert view.mesh.text == "Mesh  axis0 2 × axis1 2"
    assert view.roles.text == "rows axis0, columns axis1"
    assert (view.pill.text, view.why.isVisible()) == ("inferred", False)
    assert view.picture.style_ == "card"
    assert view.picture.selected != 3
    click(view, 3)
    qtbot.waitUntil(lambda: selection.view_key == ("rank", 3) and selection.source is not None)
    assert view.picture.selected == 3
    assert view.title.name.text == "rows  local(rank=3)"
    assert window.workbench.inspector.list.currentIndex().row() == 1
    section = window.workbench.inspector.view
    qtbot.waitUntil(lambda: section.note.text() == "4 of 4 ranks")
    assert shown(section.words) == "float32  20 × 60, holds [20:40, 0:60] of full(), written by rank 2"
    window.workbench.centre.show_view("Heatmap")
    qtbot.waitUntil(lambda: heatmap_of(window).title.badge.text == "exact", timeout=20_000)
    plane = heatmap_of(window).viewer.plane
    assert plane is not None
    assert plane.shape == (20, 60)
    section.chooser.activated.emit(1)
    window.workbench.centre.show_view("Placement")
    assert view.picture.selected == 0


def test_in_a_narrow_window_the_words_that_can_be_elided_give_way(qtbot: QtBot, open_mesh: OpenMesh) -> None:
    window, view = open_mesh(two_by_two(), "grid")
    assert view.mesh.width() == view.mesh.maximumWidth()
    window.resize(window.minimumSize())
    qtbot.waitUntil(lambda: view.mesh.width() < view.mesh.maximumWidth())
    for widget in (view.pill, view.state_mesh):
        assert widget.width() >= widget.sizeHint().width()
    qtbot.waitUntil(lambda: view.picture.ready)
    assert view.picture.style_ != "card"


def test_keys_go_over_the_mesh_and_through_the_ranks(qtbot: QtBot, open_mesh: OpenMesh) -> None:
    window, view = open_mesh(two_by_two(), "grid")
    key = window.selection
    presses = (Qt.Key.Key_Right, Qt.Key.Key_Right, Qt.Key.Key_Down, Qt.Key.Key_Left, Qt.Key.Key_Up, Qt.Key.Key_Up)
    for press, rank in zip(presses, (0, 1, 3, 2, 0, 0), strict=True):
        QTest.keyClick(view, press)
        assert (key.rank, view.picture.selected) == (rank, rank)
    QTest.keyClicks(view, "]")
    assert key.view_key == ("rank", 1)
    QTest.keyClicks(view, "[[")
    assert view.picture.selected == 3
    QTest.keyClicks(view, "l")
    assert view.title.name.text == "grid"
    assert view.picture.selected == 3  # of the fragment that stays chosen


def test_arrows_skip_the_strips_between_blocks(qtbot: QtBot, open_mesh: OpenMesh) -> None:
    tensor = laid_out(sharded(VALUES, boxes(SHAPE, (2, 2))), "pp=2,dp=2,tp=2", Replicate(), Shard(0), Shard(1))
    window, view = open_mesh(checkpoint_of({"w": tensor}), "w")
    assert view.picture.grid is not None
    assert (view.picture.grid.n_panels, view.picture.grid.a_row) == (2, 2)
    assert view.roles.text == "rows dp, columns tp, blocks pp"
    for rank in (0, 1, 4, 5):
        QTest.keyClick(view, Qt.Key.Key_Right)
        assert window.selection.view_key == ("rank", rank)


def test_a_fragment_or_an_element_that_is_chosen_frames_its_rank(qtbot: QtBot, open_mesh: OpenMesh) -> None:
    window, view = open_mesh(two_by_two(), "grid")
    window.selection.choose_fragment(2)
    assert view.picture.selected == 2
    window.selection.choose_element((0, 59))
    assert view.picture.selected == 1
    window.selection.choose("rows")
    qtbot.waitUntil(lambda: view.ranks is not None and view.ranks.tensor is window.selection.tensor)
    assert view.picture.selected is None


# ---------------------------------------------------------------- what is said


def test_the_pointer_is_told_rank_coordinate_region_file_and_bytes(open_mesh: OpenMesh) -> None:
    window, view = open_mesh(two_by_two(), "rows")
    QTest.mouseMove(view.picture, view.picture.cell(1).center())
    assert view.card.isVisible()
    texts = view.card.texts
    assert texts[0] == "rank 1   axis0 0, axis1 1"
    assert texts[1:5] == ["[0:20, 0:60]", "20 × 60, 4.80 kB", "replica: the same part as rank 0", "written by rank 0"]
    assert texts[5] == "__0_0.distcp   bytes 100 to 4,900"
    assert "rank 1   axis0 0, axis1 1" in window.status.element.text()
    QTest.mouseMove(view.picture, QPoint(2, 2))
    assert not view.card.isVisible()
    assert window.status.element.text() == ""


def test_empty_ranks_have_their_mark_and_word(qtbot: QtBot, open_mesh: OpenMesh) -> None:
    tensor = laid_out(in_items(sharded(VALUES[:2], boxes((2, 60), (2, 1)))), "dp=4", Shard(0))
    window, view = open_mesh(checkpoint_of({"w": tensor}), "w")
    assert view.legend.marks == [Mark.HOLDS, Mark.EMPTY]
    QTest.mouseMove(view.picture, view.picture.cell(3).center())
    assert view.card.texts == ["rank 3   dp 3", "empty, as it should be"]
    click(view, 3)
    qtbot.waitUntil(lambda: window.selection.source is not None and window.selection.rank == 3)
    assert "empty, as it should be" in shown(window.workbench.inspector.view.words)


def test_two_readings_draw_no_mesh_but_the_writers(qtbot: QtBot, open_mesh: OpenMesh) -> None:
    window, view = open_mesh(two_stages(), "layers.1.w")
    assert view.mesh.text == "2 ranks"
    assert view.pill.text == ""
    assert shown(view.why).startswith("Two readings fit: one mesh of 4 ranks that replicates, or 2 meshes apart")
    assert shown(view.why).endswith("Drawn are the ranks that stored a part.")
    click(view, 1)
    qtbot.waitUntil(lambda: window.selection.piece == 1)
    assert window.selection.rank == 3
    assert view.picture.selected == 1
    QTest.mouseClick(view.state_mesh, Qt.MouseButton.LeftButton)
    assert window.mesh_stating.dialog is not None
    assert window.mesh_stating.dialog.isVisible()


def test_a_rank_without_a_piece_shows_its_fragment(qtbot: QtBot, open_mesh: OpenMesh) -> None:
    window, view = open_mesh(checkpoint_of({"w": sharded(VALUES, boxes(SHAPE, (2, 1)), [4, 6])}), "w")
    click(view, 1)
    assert (window.selection.view, window.selection.fragment) == (None, 1)
    assert view.picture.selected == 1


def test_without_ranks_there_is_a_sentence(open_mesh: OpenMesh) -> None:
    _, view = open_mesh(checkpoint_of({"w": sharded(VALUES, boxes(SHAPE, (2, 1)), [-1, -1])}), "w")
    assert view.state.isVisible()
    assert shown(view.state.title) == "No rank is known to hold a part of this tensor"


def test_the_view_reads_no_values_and_asks_only_while_it_is_seen(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(laid_out(sharded(VALUES, boxes(SHAPE, (2, 1))), "dp=2", Shard(0)))
    window.actions_["placement"].trigger()
    view = window.workbench.centre.views["Placement"]
    assert isinstance(view, PlacementView)
    qtbot.waitUntil(lambda: view.picture.ready)
    window.workbench.centre.show_view("Table")
    before = view.ranks
    window.selection.choose(None)
    window.selection.choose("w0")
    qtbot.wait(50)
    assert view.ranks is before


# ---------------------------------------------------------------- how it is drawn


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=lambda tokens: tokens.name)
@pytest.mark.parametrize("size", [(700, 400), (220, 120)], ids=str)
def test_marks_are_told_apart_in_both_themes(
    qtbot: QtBot, qapp: QApplication, tokens: Tokens, size: tuple[int, int]
) -> None:
    lost = dataclasses.replace(
        sharded(VALUES[:4], boxes((4, 60), (4, 1))[:3]), complete=False,
        problems=(Problem("missing-file", "error", "gone", tensor="w", file="__1_0.distcp"),
                  Problem("short-file", "error", "short", tensor="w", file="__2_0.distcp")),
    )  # fmt: skip
    tensor = laid_out(lost, "dp=5", Shard(0))
    picture = MeshPicture(tokens)
    qtbot.addWidget(picture)
    picture.resize(*size)
    picture.show()
    ranks = rank_map(checkpoint_of({"w": tensor}), tensor)
    assert ranks is not None
    assert [ranks.mark(at) for at in range(5)] == [Mark.HOLDS, Mark.MISSING, Mark.UNREADABLE, Mark.GAP, Mark.EMPTY]
    picture.show_ranks(ranks)
    qtbot.waitUntil(lambda: picture.ready)
    assert picture.style_ == ("card" if size[0] > 300 else "number")
    image = picture.grab().toImage()
    cells = [image.copy(picture.cell(at)) for at in range(5)]
    found = [colours(cell) for cell in cells]
    assert tokens.rank_fill[0].lower() in found[0]
    assert tokens.err.lower() not in found[0]
    for at in (1, 2, 3):
        assert tokens.err.lower() in found[at]
    assert tokens.err.lower() not in found[4]
    assert len({bytes(cell.constBits()) for cell in cells}) == 5
    picture.select(0)
    assert tokens.accent.lower() in colours(picture.grab().toImage())


def test_themes_change_the_picture(qtbot: QtBot, open_mesh: OpenMesh) -> None:
    window, view = open_mesh(two_by_two(), "grid")
    for mode, tokens in (("light", LIGHT), ("dark", DARK)):
        window.set_theme(mode)
        qtbot.waitUntil(lambda: view.picture.ready)
        found = colours(view.picture.grab().toImage().copy(view.picture.cell(0)))
        assert tokens.rank_fill[0].lower() in found
        assert tokens.rank_fill[1].lower() not in found


@pytest.mark.parametrize("mesh", ["a=32,b=32", "dp=128,tp=8", "pp=4,dp=32,tp=8"])
def test_a_thousand_ranks_are_drawn_a_few_milliseconds_at_a_time(qtbot: QtBot, qapp: QApplication, mesh: str) -> None:
    placements = (Shard(0), Shard(1)) if mesh.count(",") == 1 else (Replicate(), Shard(0), Shard(1))
    tensor = laid_out(grid_of(32, 4), mesh, *placements)
    ranks = rank_map(checkpoint_of({"w": tensor}), tensor)
    assert ranks is not None
    picture = MeshPicture(LIGHT)
    qtbot.addWidget(picture)
    picture.resize(950, 560)
    picture.show()
    best = 1.0
    for _ in range(5):
        times = [_seconds(lambda: picture.show_ranks(ranks))]
        while not picture.ready:
            times.append(_seconds(picture._draw_some))
        times.append(_seconds(picture.repaint))
        best = min(best, max(times))
    assert best < 0.008
    for at in (0, 517, 1023):
        assert picture.place_at(picture.cell(at).center()) == at


def _seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()  # what others take of the processor is not counted
    call()
    return time.thread_time() - began
