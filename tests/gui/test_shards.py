"""Shard borders over the heatmap: where they are, whose the parts are, what nobody stores, and how much that costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tensormorph.errors import TruncatedFileError
from tensormorph.gui import shards as shards_module
from tensormorph.gui import theme
from tensormorph.gui.camera import Camera, Lens
from tensormorph.gui.heatmap import HeatmapView
from tensormorph.gui.selection import Selection
from tensormorph.gui.settings import Settings
from tensormorph.gui.shard_layer import MOST_CHIPS, Lost, Marks, ShardLayer
from tensormorph.gui.shards import Shards, shards_of
from tensormorph.gui.window import MainWindow
from tensormorph.model import LogicalTensor
from tensormorph.pyramid import Plane
from tensormorph.region import Region
from tests.gui.conftest import opens
from tests.gui.planes import checkpoint_of
from tests.gui.sharded import boxes, grid_of, numbered, sharded

SIZE = (900, 700)
Open = Callable[..., HeatmapView]


@pytest.fixture
def selection() -> Selection:
    return Selection()


@pytest.fixture(params=[theme.LIGHT, theme.DARK], ids=["light", "dark"])
def tokens(qapp: QApplication, request: pytest.FixtureRequest) -> theme.Tokens:
    theme.load_fonts()
    chosen: theme.Tokens = request.param
    return chosen


@pytest.fixture
def open_view(qtbot: QtBot, tokens: theme.Tokens, selection: Selection) -> Iterator[Open]:
    """Show a tensor and wait until its picture is exact and its shards are known."""
    made: list[HeatmapView] = []

    def open_(tensor: LogicalTensor) -> HeatmapView:
        selection.open(checkpoint_of({"w": tensor}))
        view = HeatmapView(selection, tokens)
        made.append(view)
        qtbot.addWidget(view)
        view.resize(*SIZE)
        view.show()
        selection.choose("w")
        qtbot.waitUntil(lambda: view.title.badge.text == "exact", timeout=20_000)
        qtbot.waitUntil(lambda: view.picture.tiles.shards.shards is not None, timeout=20_000)
        return view

    yield open_
    for view in made:
        view.shut()


def marks(view: HeatmapView) -> Marks:
    camera = view.viewer.camera
    assert camera is not None
    return view.picture.tiles.shards.marks(camera)


def labels(view: HeatmapView) -> list[str]:
    return [label.text for label in marks(view).labels]


def shot(view: HeatmapView) -> QImage:
    """Return the picture without its axes, as on screen."""
    view.controls.crosshair.setChecked(False)
    image: QImage = view.picture.grab().toImage()
    corner, (high, wide) = view.picture.screen.topLeft(), view.picture.pixels
    return image.copy(round(corner.x()), round(corner.y()), wide, high)


# ---------------------------------------------------------------- which rectangles


def test_copies_are_one_rectangle_with_one_tint_and_all_their_ranks() -> None:
    halves = boxes((8, 6), (2, 1))
    tensor = sharded(numbered((8, 6)), [*halves, *halves], ranks=[0, 1, 4, 5])
    found = shards_of(tensor, Plane.of(tensor))
    assert found.boxes.T.tolist() == [[0, 4, 0, 6], [4, 8, 0, 6]]
    assert [found.owner(box) for box in range(2)] == ["ranks 0, 4", "ranks 1, 5"]
    assert found.tints.tolist() == [0, 1]


def test_above_eight_shards_all_have_the_neutral_tint() -> None:
    nine = sharded(numbered((9, 3)), boxes((9, 3), (9, 1)))
    eight = sharded(numbered((8, 3)), boxes((8, 3), (8, 1)))
    assert set(shards_of(nine, Plane.of(nine)).tints.tolist()) == {7}
    assert shards_of(eight, Plane.of(eight)).tints.tolist() == list(range(8))


def test_a_plane_of_many_axes_shows_only_the_fragments_that_it_cuts() -> None:
    shape = (4, 3, 10, 12)
    tensor = sharded(numbered(shape), boxes(shape, (2, 1, 2, 3)))
    low = shards_of(tensor, Plane(tensor, (2,), (3,), (1, 2)))
    assert [low.owner(box) for box in range(len(low))] == [f"rank {rank}" for rank in range(6)]
    assert low.boxes.T.tolist()[1] == [0, 5, 4, 8]
    high = shards_of(tensor, Plane(tensor, (3,), (2,), (2, 0)))
    assert {high.owner(box) for box in range(len(high))} == {f"rank {rank}" for rank in range(6, 12)}
    assert high.boxes.T.tolist()[0] == [0, 4, 0, 5]


@pytest.mark.parametrize("shape", [(), (7,)])
def test_tensors_of_no_and_of_one_axis_have_their_shards(shape: tuple[int, ...]) -> None:
    tensor = sharded(numbered(shape), boxes(shape, (2,) * len(shape)))
    found = shards_of(tensor, Plane.of(tensor))
    assert found.boxes.T.tolist() == ([[0, 1, 0, 1]] if not shape else [[0, 1, 0, 3], [0, 1, 3, 7]])


def test_without_ranks_the_owner_is_the_file() -> None:
    tensor = sharded(numbered((4, 4)), boxes((4, 4), (2, 1)), ranks=[-1, -1])
    assert shards_of(tensor, Plane.of(tensor)).owner(0) == "__-1_0.distcp"


def test_many_places_are_those_of_one_after_the_other() -> None:
    for lens in (Lens.at_scale(1000, 600, scale) for scale in (0.13, 0.5, 0.77, 1.0, 1.6, 5.3, 9.0)):
        at = np.arange(1001, dtype=np.int64)
        assert lens.places(at).tolist() == [lens.place(int(i)) for i in at]


# ---------------------------------------------------------------- what is drawn


def test_borders_lie_between_the_elements_of_two_ranks_and_nowhere_else(open_view: Open) -> None:
    view = open_view(sharded(numbered((30, 40)), boxes((30, 40), (3, 2))))
    camera = view.viewer.camera
    assert camera is not None
    flat = sorted(line.y1() for line in marks(view).lines if line.y1() == line.y2())
    steep = sorted(line.x1() for line in marks(view).lines if line.x1() == line.x2())
    assert flat == [camera.down.place(10), camera.down.place(20)]
    assert steep == [camera.right.place(20)]
    assert labels(view) == [f"rank {rank}" for rank in range(6)]


def test_a_border_and_its_halo_are_seen_on_any_ground(open_view: Open, tokens: theme.Tokens) -> None:
    view = open_view(sharded(np.full((30, 40), 3, np.float32), boxes((30, 40), (1, 2))))
    image, line = shot(view), marks(view).lines[0]
    x, y = round(line.x1()), image.height() - 40
    across = [image.pixelColor(x + step, y).lightness() for step in range(-4, 4)]
    ground, halo, core = across[0], across[2], across[4]
    light = tokens.name == "light"
    assert (halo > core + 60) if light else (halo < core - 60)
    assert ground == across[-1]
    assert ground not in (halo, core)


def test_zoomed_in_the_owner_of_what_is_in_sight_is_still_named(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(sharded(numbered((300, 400)), boxes((300, 400), (2, 2))))
    view.viewer.zoom(64, (0, 0))
    assert labels(view) == ["rank 0"]
    assert marks(view).lines == ()
    assert marks(view).labels[0].rect.topLeft().x() == 4


def test_s_and_the_button_take_the_borders_away_and_bring_them_back(open_view: Open) -> None:
    view = open_view(sharded(numbered((30, 40)), boxes((30, 40), (1, 2))))
    before = shot(view)
    view.setFocus()
    QTest.keyClick(view, Qt.Key.Key_S)
    assert (marks(view).lines, labels(view)) == ((), [])
    assert not view.controls.shards.isChecked()
    bare = shot(view)
    assert bare != before
    QTest.mouseClick(view.controls.shards, Qt.MouseButton.LeftButton)
    assert len(marks(view).lines) == 1
    assert labels(view) == ["rank 0", "rank 1"]


def test_a_tensor_of_one_fragment_has_no_border_and_no_chip(qtbot: QtBot, open_view: Open) -> None:
    whole = Region.whole((6, 6))
    view = open_view(sharded(numbered((6, 6)), [whole, whole]))
    assert (marks(view).lines, labels(view)) == ((), [])


def test_another_plane_has_its_own_shards(qtbot: QtBot, open_view: Open) -> None:
    shape = (2, 20, 20)
    view = open_view(sharded(numbered(shape), boxes(shape, (2, 1, 2))))
    assert labels(view) == ["rank 0", "rank 1"]
    view.controls.spins[0].setValue(1)
    qtbot.waitUntil(lambda: labels(view) == ["rank 2", "rank 3"])


# ---------------------------------------------------------------- what has no value


def test_a_gap_is_hatched_edged_and_named_even_without_borders(open_view: Open, tokens: theme.Tokens) -> None:
    three = [box for k, box in enumerate(boxes((300, 40), (3, 1))) if k != 1]
    view = open_view(sharded(numbered((300, 40)), three))
    assert labels(view) == ["rank 0", "rank 1", "gap: 100:200"]
    view.controls.shards.setChecked(False)
    assert labels(view) == ["gap: 100:200"]
    (edge,) = marks(view).edges
    image = shot(view)
    colours = {image.pixelColor(edge.left() + 20 + step, edge.top() + 12).name() for step in range(12)}
    assert QColor(tokens.missing).name() in colours
    red = image.pixelColor(edge.left() + 30, edge.top())
    assert red.red() > red.blue() + 40


def test_a_gap_inside_both_axes_is_written_as_numpy_writes_it(open_view: Open) -> None:
    kept = [box for k, box in enumerate(boxes((60, 60), (2, 2))) if k != 3]
    view = open_view(sharded(numbered((60, 60)), kept))
    assert labels(view)[-1] == "gap: 30:60, 30:60"


def test_a_fragment_that_cannot_be_read_says_why_once(open_view: Open, tokens: theme.Tokens) -> None:
    lost = {1: TruncatedFileError("__1_0.distcp", 11_724_288, 2_739_456)}
    view = open_view(sharded(numbered((300, 300)), boxes((300, 300), (1, 2)), failures=lost))
    (told,) = [text for text in labels(view) if text.startswith("cannot be read")]
    assert told.startswith("cannot be read: The file ends at byte 2,739,456")
    (label,) = [label for label in marks(view).labels if label.text == told]
    assert label.rect.left() > marks(view).lines[0].x1()
    assert marks(view).edges == ()


def test_of_a_fragment_that_fails_in_parts_the_largest_part_in_sight_is_named(qapp: QApplication) -> None:
    tensor = sharded(numbered((100, 100)), boxes((100, 100), (1, 2)))
    layer = layer_of(shards_of(tensor, Plane.of(tensor)))
    camera = Camera(Lens.at_scale(100, 800, 8), Lens.at_scale(100, 800, 8), 1.0)
    for box in ((0, 2, 50, 100), (10, 50, 50, 100), (12, 14, 50, 100), (60, 70, 50, 100)):
        layer.lose(Lost(box, "__1_0.distcp", "bad sector"))
    layer.lose(Lost((0, 100, 0, 50), "__0_0.distcp", "bad sector"))
    lost = [label for label in layer.marks(camera).labels if label.tint < 0]
    assert [label.text for label in lost] == ["cannot be read: bad sector"] * 2
    assert {label.rect.center().y() for label in lost} == {239, 399}


def test_of_too_many_fragments_gaps_are_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = grid_of(4, 8, missing=1)
    assert [gap.text for gap in shards_of(tensor, Plane.of(tensor)).gaps] == ["24:32, 24:32"]
    monkeypatch.setattr(shards_module, "MOST_SEARCHED", 14)
    assert shards_of(tensor, Plane.of(tensor)).gaps == ()


# ---------------------------------------------------------------- the window


def test_the_menu_the_key_and_the_button_agree_and_are_remembered(qtbot: QtBot, tmp_path: Path) -> None:
    checkpoint = checkpoint_of({"w": sharded(numbered((8, 8)), boxes((8, 8), (2, 1)))})
    for turn in range(2):
        window = MainWindow(Settings(tmp_path), open_=opens(checkpoint))
        qtbot.addWidget(window)
        window.show()
        with qtbot.waitSignal(window.opener.opened):
            window.open_path(str(checkpoint.path))
        window.selection.choose("w")
        view = window.workbench.centre.views["Heatmap"]
        assert isinstance(view, HeatmapView)
        action = window.actions_["shard_borders"]
        assert action.isChecked() == view.controls.shards.isChecked() == (turn == 0)
        action.trigger()
        assert view.controls.shards.isChecked() == (turn == 1)
        QTest.keyClick(view, Qt.Key.Key_S)
        assert action.isChecked() == (turn == 0)
        view.controls.shards.setChecked(False)
        window.close()


# ---------------------------------------------------------------- how much it costs


def layer_of(shards: Shards) -> ShardLayer:
    layer = ShardLayer()
    layer.set_shards(shards)
    return layer


@pytest.mark.parametrize(("side", "extent"), [(100, 7), (100, 60), (316, 16)])
@pytest.mark.parametrize("scale", [0.05, 0.5, 1.0, 3.0, 9.0])
def test_what_is_drawn_of_many_fragments_is_bounded(qapp: QApplication, side: int, extent: int, scale: float) -> None:
    """Ten or a hundred thousand fragments: a line an edge in sight at most, so many chips, whatever the zoom."""
    tensor = grid_of(side, extent)
    n = side * extent
    camera = Camera(Lens.at_scale(n, 1000, scale), Lens.at_scale(n, 1400, scale), 1.0)
    layer = layer_of(shards_of(tensor, Plane.of(tensor)))
    image = QImage(camera.right.pixels, camera.down.pixels, QImage.Format.Format_RGB32)
    painter = QPainter(image)
    layer.paint(painter, camera, theme.LIGHT)
    painter.end()
    drawn = layer.marks(camera)
    assert layer.marks(camera) is drawn  # found once a camera
    assert len(drawn.lines) + len(drawn.thin) <= 2 * (side + 1)
    assert len(drawn.labels) <= MOST_CHIPS


@pytest.mark.parametrize("scale", [30, 44, 46, 47, 54, 80, 200])
def test_a_chip_never_covers_the_number_of_a_cell(qapp: QApplication, scale: int) -> None:
    """Where cells show their numbers, the owner stands above the first one, or not at all."""
    tensor = grid_of(2, 3)
    camera = Camera(Lens.at_scale(6, 1200, scale), Lens.at_scale(6, 1400, max(scale, 80)), 1.0)
    drawn = layer_of(shards_of(tensor, Plane.of(tensor))).marks(camera)
    assert bool(drawn.labels) == (scale >= 46)
    for label in drawn.labels:
        assert label.rect.bottom() < (label.rect.top() // scale) * scale + (scale - 14) / 2


def test_fragments_too_small_to_see_have_no_borders_and_small_ones_thin_ones(qapp: QApplication) -> None:
    tensor = grid_of(100, 10)
    shards = shards_of(tensor, Plane.of(tensor))

    def drawn(scale: float) -> Marks:
        camera = Camera(Lens.at_scale(1000, 1000, scale), Lens.at_scale(1000, 1000, scale), 1.0)
        return layer_of(shards).marks(camera)

    assert (drawn(0.25).lines, drawn(0.25).thin) == ((), ())
    assert (len(drawn(1.0).lines), len(drawn(1.0).thin)) == (0, 198)
    assert (len(drawn(2.0).lines), len(drawn(2.0).thin)) == (98, 0)
    assert drawn(2.0).labels == ()


def test_borders_that_meet_on_one_line_are_drawn_as_one(qapp: QApplication) -> None:
    staggered = [
        Region((0, 0), (50, 30)), Region((0, 30), (50, 100)), Region((50, 0), (100, 60)), Region((50, 60), (100, 100)),
    ]  # fmt: skip
    tensor = sharded(numbered((100, 100)), staggered)
    camera = Camera(Lens.at_scale(100, 400, 4), Lens.at_scale(100, 400, 4), 1.0)
    lines = layer_of(shards_of(tensor, Plane.of(tensor))).marks(camera).lines
    assert sorted((line.x1(), line.y1(), line.x2(), line.y2()) for line in lines) == [
        (0, 200, 400, 200), (120, 0, 120, 200), (240, 200, 240, 400),
    ]  # fmt: skip


def test_a_label_never_leaves_its_rectangle(open_view: Open) -> None:
    view = open_view(sharded(numbered((90, 90)), boxes((90, 90), (3, 3))))
    camera = view.viewer.camera
    assert camera is not None
    for label in marks(view).labels:
        rank = int(label.text.split()[1])
        row, col = divmod(rank, 3)
        corner = (camera.right.place(30 * col), camera.down.place(30 * row))
        far = (camera.right.place(30 * col + 30), camera.down.place(30 * row + 30))
        assert QRect(corner[0], corner[1], far[0] - corner[0], far[1] - corner[1]).contains(label.rect)
