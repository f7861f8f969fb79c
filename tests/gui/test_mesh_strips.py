"""The coordinates of the mesh outside the axes of the heatmap."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from tensormorph.gui.mesh_strips import THICK, bands
from tensormorph.mesh import Placement, Replicate, Shard, StridedShard
from tests.gui.conftest import OpenTensors, heatmap_of
from tests.gui.sharded import boxes, in_items, laid_out, numbered, sharded

SHAPE = (40, 60)
VALUES = numbered(SHAPE)
WHOLE = sharded(VALUES, boxes(SHAPE, (2, 2)))


@pytest.mark.parametrize(
    ("placements", "order", "told"),
    [
        ((Shard(0), Shard(1)), (0, 1), [(0, 20, "dp 0"), (20, 40, "dp 1")]),
        ((Shard(0), Replicate()), (0, 1), [(0, 20, "dp 0"), (20, 40, "dp 1")]),
        ((Replicate(), Shard(1)), (0, 1), []),
        ((Shard(0), Shard(0)), (1, 0),
         [(0, 10, "dp 0, tp 0"), (10, 20, "dp 1, tp 0"), (20, 30, "dp 0, tp 1"), (30, 40, "dp 1, tp 1")]),
        ((StridedShard(0, 2), Replicate()), (0, 1), [(0, 10, "dp 0"), (10, 20, "dp 1"), (20, 30, "dp 0"),
                                                     (30, 40, "dp 1")]),
    ],
)  # fmt: skip
def test_bands_are_what_each_coordinate_cuts(
    placements: tuple[Placement, ...], order: tuple[int, ...], told: list[tuple[int, int, str]]
) -> None:
    found = bands(laid_out(WHOLE, "dp=2,tp=2", *placements, order=order), (0,))
    assert [(band.start, band.stop, band.label) for band in found] == told


def test_an_axis_without_one_cut_has_no_bands() -> None:
    assert bands(WHOLE, (0,)) == ()
    assert bands(laid_out(WHOLE, "dp=2", Shard(0)), ()) == ()
    assert bands(laid_out(WHOLE, "dp=1024", Shard(0)), (0,)) == ()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_strips_stand_outside_the_axes_and_go_with_the_borders(
    qtbot: QtBot, window_of: OpenTensors, theme: str
) -> None:
    window = window_of(laid_out(in_items(WHOLE), "dp=2,tp=2", Shard(0), Shard(1)), WHOLE)
    window.set_theme(theme)
    view = heatmap_of(window)
    left, top = view.picture.strips
    qtbot.waitUntil(lambda: top.size().height() == THICK)
    assert [words for words, _ in left.texts()] == ["dp 0", "dp 1"]
    assert [words for words, _ in top.texts()] == ["tp 0", "tp 1"]
    first, second = (rect for _, rect in top.texts())
    assert abs(first.right() - second.left()) < 1
    camera = view.viewer.camera
    assert camera is not None
    assert abs(second.right() - camera.cell(39, 59)[3] / camera.ratio) < 3
    corner = top.sceneBoundingRect()
    image = view.picture.grab().toImage()
    ratio = image.devicePixelRatio()
    at = (int((corner.left() + 8) * ratio), int((corner.top() + 8) * ratio))
    assert image.pixelColor(*at).name() == window.tokens.neutbg.lower()
    QTest.keyClick(view, Qt.Key.Key_S)
    assert (left.bands, top.bands) == ((), ())
    QTest.keyClick(view, Qt.Key.Key_S)
    assert len(left.bands) == 2
    QTest.keyClick(view, Qt.Key.Key_L)
    qtbot.waitUntil(lambda: left.bands == ())
    window.selection.choose("w1")
    assert top.bands == ()
    qtbot.waitUntil(lambda: top.size().height() == 0)


def test_zooming_moves_the_bands_and_short_ones_have_a_number(qtbot: QtBot, window_of: OpenTensors) -> None:
    window = window_of(laid_out(in_items(WHOLE), "dp=2,tp=2", Shard(0), Shard(1)))
    view = heatmap_of(window)
    view.viewer.show((0, 10), (0, 10))
    qtbot.waitUntil(lambda: [words for words, _ in view.picture.strips[0].texts()] == ["dp 0"])
    many = laid_out(sharded(VALUES, boxes(SHAPE, (40, 1))), "dp=40", Shard(0))
    wide = window_of(many)
    texts = heatmap_of(wide).picture.strips[0].texts()
    qtbot.waitUntil(lambda: len(heatmap_of(wide).picture.strips[0].texts()) == 40)
    assert {words for words, _ in texts} <= {"", *(f"dp {i}" for i in range(40)), *(str(i) for i in range(40))}
