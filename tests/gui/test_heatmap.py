"""The heatmap shows the right element at the right place, says how exactly, and hides nothing that is wrong."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QImage, QMouseEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tensormorph.columns import TensorKey
from tensormorph.dtypes import encoding, text
from tensormorph.errors import Problem, ReadError
from tensormorph.gui import theme, viewer
from tensormorph.gui.camera import MARK_FROM
from tensormorph.gui.heatmap import HeatmapView
from tensormorph.gui.hover import deviation_text, value_text
from tensormorph.gui.jobs import ElementResult, TileResult
from tensormorph.gui.selection import Selection
from tensormorph.model import LogicalTensor, UnreadableTensor
from tensormorph.picture import Paint, pixel, shade
from tensormorph.pyramid import Plane
from tensormorph.region import Region
from tests.gui.planes import Source, array_source, checkpoint_of, tensor_of

SIZE = (760, 560)
NONE = Qt.KeyboardModifier.NoModifier
Open = Callable[..., HeatmapView]


@pytest.fixture
def tokens(qapp: QApplication) -> theme.Tokens:
    theme.load_fonts()
    return theme.LIGHT


@pytest.fixture
def selection() -> Selection:
    return Selection()


@pytest.fixture
def open_view(qtbot: QtBot, tokens: theme.Tokens, selection: Selection) -> Iterator[Open]:
    """Show tensors, the first one chosen, and wait until the picture is exact."""
    made: list[HeatmapView] = []

    def open_(*tensors: LogicalTensor | NDArray[Any], badge: str = "exact", **more: Any) -> HeatmapView:
        named = {
            f"w{k}": dataclasses.replace(t, name=f"w{k}")
            if isinstance(t, LogicalTensor)
            else tensor_of(array_source(t))
            for k, t in enumerate(tensors)
        }
        selection.open(checkpoint_of(named, **more))
        view = HeatmapView(selection, tokens)
        made.append(view)
        qtbot.addWidget(view)
        view.resize(*SIZE)
        view.show()
        if named:
            selection.choose("w0")
            qtbot.waitUntil(lambda: view.title.badge.text.startswith(badge), timeout=20_000)
        return view

    yield open_
    for view in made:
        view.shut()


def exact(qtbot: QtBot, view: HeatmapView) -> None:
    qtbot.waitUntil(lambda: view.title.badge.text == "exact", timeout=20_000)


def pixels_of(view: HeatmapView) -> NDArray[np.uint32]:
    """Return the picture without its axes, as on screen, and without pointers."""
    view.controls.crosshair.setChecked(False)
    view.picture.tiles.point(None, None)
    image = view.picture.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    shot = np.array(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    whole = np.ascontiguousarray(shot[:, : 4 * image.width()]).view(np.uint32)
    corner, (high, wide) = view.picture.screen.topLeft(), view.picture.pixels
    ratio = view.picture.devicePixelRatioF()
    y, x = round(corner.y() * ratio), round(corner.x() * ratio)
    return whole[y : y + high, x : x + wide]


def paint_of(view: HeatmapView) -> Paint:
    assert view.viewer.paint is not None
    return view.viewer.paint


def inside(shot: NDArray[np.uint32], view: HeatmapView) -> NDArray[np.uint32]:
    """Return the pixels of the picture, without what lies beside it."""
    camera = view.viewer.camera
    assert camera is not None
    high = min(camera.down.extent + camera.down.origin, camera.down.pixels)
    wide = min(camera.right.extent + camera.right.origin, camera.right.pixels)
    return shot[:high, :wide]


def oracle(values: NDArray[Any], view: HeatmapView) -> NDArray[np.uint32]:
    """Return what `inside` must be: each pixel the mean of just the elements that fall into it."""
    camera = view.viewer.camera
    assert camera is not None
    means = values
    for lens in (camera.down, camera.right):
        n = means.shape[0]
        at = np.arange(-lens.origin, min(lens.extent, lens.pixels - lens.origin))
        if lens.tile > 256:
            means = means[np.minimum(((at + 0.5) / lens.scale).astype(int), n - 1)]
        else:
            place = (np.arange(n) >> lens.shift) * lens.tile // 256
            starts = np.searchsorted(place, at)
            sizes = np.searchsorted(place, at, "right") - starts
            stop = starts[-1] + sizes[-1]
            means = np.add.reduceat(means[:stop].astype(np.float64), starts, axis=0) / sizes[:, None]
        means = means.T
    return shade(means.astype(np.float64), paint_of(view))


def cell_centre(view: HeatmapView, row: int, col: int) -> QPoint:
    camera = view.viewer.camera
    assert camera is not None
    top, bottom, left, right = camera.cell(row, col)
    corner = view.picture.screen.topLeft()
    return QPoint(
        int(corner.x() + (left + right) / 2 / camera.ratio), int(corner.y() + (top + bottom) / 2 / camera.ratio)
    )


def hover(qtbot: QtBot, view: HeatmapView, at: QPoint) -> None:
    move(view, at - QPoint(0, 1))
    move(view, at)


def move(view: HeatmapView, at: QPoint, button: Qt.MouseButton = Qt.MouseButton.NoButton) -> None:
    """Move the pointer; QTest's own goes by the cursor of the system, which knows no halves of a logical pixel."""
    port = view.picture.viewport()
    where = (QPointF(at), QPointF(port.mapToGlobal(at)))
    QApplication.sendEvent(port, QMouseEvent(QEvent.Type.MouseMove, *where, Qt.MouseButton.NoButton, button, NONE))


# ---------------------------------------------------------------- orientation and scale


def test_the_corners_of_a_small_matrix_are_where_numpy_has_them(open_view: Open) -> None:
    values = np.zeros((5, 5), np.float32)
    values[0, 0], values[0, 4], values[4, 0], values[4, 4] = np.nan, np.inf, -np.inf, 9.0
    values[1, 2] = -9.0
    view = open_view(values)
    shot, paint = inside(pixels_of(view), view), paint_of(view)
    assert [shot[3, 3], shot[3, -4], shot[-4, 3], shot[-4, -4]] == [
        paint.nan,
        paint.posinf,
        paint.neginf,
        paint.table[255],
    ]
    side = view.viewer.camera.right.tile // 256  # type: ignore[union-attr]
    high = view.viewer.camera.down.tile // 256  # type: ignore[union-attr]
    assert shot[high + 4, 2 * side + 4] == paint.table[0]
    assert shot[2 * high + 4, side + 4] == paint.canvas


@pytest.mark.parametrize("shape", [(3, 7), (50, 3), (1, 40), (300, 1), (40, 150), (129, 2)])
def test_every_pixel_shows_the_element_under_its_middle(open_view: Open, shape: tuple[int, int]) -> None:
    values = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    view = open_view(values)
    view.picture.tiles.set_cells(None)
    assert np.array_equal(inside(pixels_of(view), view), oracle(values, view))


@pytest.mark.parametrize("shape", [(700, 900), (1030, 333), (5, 5000), (2600, 4)])
def test_every_pixel_of_a_larger_matrix_is_the_mean_of_just_the_elements_in_it(
    open_view: Open, shape: tuple[int, int]
) -> None:
    values = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    view = open_view(values)
    ours, told = inside(pixels_of(view), view), oracle(values.astype(np.float64), view)
    assert ours.shape == told.shape
    # A mean in another order of summing may fall on the other side of a border between two colours.
    assert (ours != told).mean() < 1e-4


def test_an_outlier_and_a_nan_are_seen_at_every_zoom(qtbot: QtBot, open_view: Open) -> None:
    values = np.zeros((3000, 2000), np.float32)
    values[2999, 1999], values[0, 0] = 5.0, np.nan
    view = open_view(values)
    view.controls.fold.setCurrentIndex(1)
    paint_before = paint_of(view)
    for _ in range(12):
        exact(qtbot, view)
        shot, paint = pixels_of(view), paint_of(view)
        assert paint.reduction == "envelope"
        camera = view.viewer.camera
        assert camera is not None
        if camera.down.visible[0] == 0 and camera.right.visible[0] == 0:
            assert (shot == paint.nan).any()
        if camera.down.visible[1] == 3000 and camera.right.visible[1] == 2000:
            assert (shot == paint.table[255]).any()
        view.viewer.zoom(1.7, (0, 0))
    assert paint_before.levels == paint.levels


def test_axes_change_places_and_the_picture_turns_with_them(qtbot: QtBot, open_view: Open) -> None:
    values = np.random.default_rng(5).standard_normal((30, 70)).astype(np.float32)
    view = open_view(values)
    view.controls.rows.setCurrentIndex(1)
    view.controls.rows.activated.emit(1)
    exact(qtbot, view)
    assert view.viewer.plane is not None
    assert (view.viewer.plane.rows, view.viewer.plane.cols) == ((1,), (0,))
    assert (view.controls.rows.currentIndex(), view.controls.cols.currentIndex()) == (1, 0)
    assert np.array_equal(inside(pixels_of(view), view), oracle(values.T, view))


def test_a_tensor_of_five_axes_shows_any_plane_of_it(qtbot: QtBot, open_view: Open) -> None:
    values = np.random.default_rng(6).standard_normal((2, 3, 4, 20, 30)).astype(np.float32)
    view = open_view(values)
    assert np.array_equal(inside(pixels_of(view), view), oracle(values[0, 0, 0], view))
    spins = view.controls.spins
    assert [spin.maximum() for spin in spins] == [1, 2, 3]
    spins[0].setValue(1)
    spins[2].setValue(3)
    exact(qtbot, view)
    assert view.controls.spins == spins  # a box in use is not replaced under the hand
    assert np.array_equal(inside(pixels_of(view), view), oracle(values[1, 0, 3], view))
    view.controls.rows.setCurrentIndex(0)
    view.controls.rows.activated.emit(0)
    exact(qtbot, view)
    assert view.viewer.plane is not None
    assert view.viewer.plane.at == (0, 3, 0)
    assert np.array_equal(inside(pixels_of(view), view), oracle(values[:, 0, 3, 0, :], view))


@pytest.mark.parametrize(
    ("shape", "plane"), [((), (1, 1)), ((9,), (1, 9)), ((1, 9), (1, 9)), ((9, 1), (9, 1)), ((8, 6, 3), (6, 3))]
)
def test_tensors_of_any_number_of_axes_are_pictures(
    open_view: Open, shape: tuple[int, ...], plane: tuple[int, int]
) -> None:
    values = np.random.default_rng(8).standard_normal(shape).astype(np.float32)
    view = open_view(values)
    assert view.viewer.plane is not None
    assert view.viewer.plane.shape == plane
    flat = values.reshape(plane) if len(shape) < 3 else values[0]
    view.picture.tiles.set_cells(None)
    assert np.array_equal(inside(pixels_of(view), view), oracle(flat, view))
    assert view.controls.rows.isVisible() == (len(shape) > 1)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int64", "uint8", "bool", "complex64"])
def test_every_kind_of_number_is_drawn_by_its_value_or_magnitude(open_view: Open, name: str) -> None:
    dtype = encoding(name).dtype
    chance = np.random.default_rng(9)
    values: NDArray[Any] = (chance.standard_normal((12, 17)) * 3).astype(np.float32)
    if dtype.kind == "c":
        values = values + 1j * values[::-1]
    values = np.abs(values).astype(dtype) if name == "uint8" else values.astype(dtype)
    view = open_view(values)
    real = np.abs(values.astype(np.complex128)) if dtype.kind == "c" else values.astype(np.float64)
    view.picture.tiles.set_cells(None)
    assert np.array_equal(inside(pixels_of(view), view), oracle(real, view))
    assert (paint_of(view).levels.low == 0) == (dtype.kind in "ubc")


# ---------------------------------------------------------------- exactness and cost


class Huge(Source):
    """4.2 GB of bfloat16 that nobody stores: each value tells its row."""

    def __init__(self, before_read: Callable[[Region], None] = lambda region: None) -> None:
        super().__init__((128_256, 16_384), encoding("bfloat16"), self.make, before_read)

    def make(self, region: Region) -> NDArray[Any]:
        rows = np.arange(region.start[0], region.stop[0], dtype=np.float32) / 128_256 - 0.5
        return np.broadcast_to(rows[:, None], region.shape).astype(ml_dtypes.bfloat16)


def test_the_first_picture_of_a_huge_tensor_is_a_sample_of_at_most_one_percent(qtbot: QtBot, open_view: Open) -> None:
    source = Huge()
    view = open_view(tensor_of(source), badge="sampled")
    qtbot.waitUntil(lambda: set(view.viewer._coarse) <= set(view.picture.tiles.current))
    whole = 128_256 * 16_384 * 2
    assert 0 < source.n_bytes <= whole // 100
    assert view.loader.n_bytes_read == source.n_bytes
    kind, step = view.viewer.exactness()
    assert (kind, view.title.badge.text) == ("sampled", f"sampled 1:{step}")
    assert 64 <= step <= 1024
    assert view.title.read.text().endswith("MB of 4.20 GB read")
    assert view.cost.title.text() == "full() reads 4.20 GB from 1 file"
    assert not view.read_all.isVisible()
    QTest.mouseClick(view.cost.sample, Qt.MouseButton.LeftButton)
    assert view.read_all.isVisible()
    assert view.read_all.text() == "Read all 4.20 GB"
    assert "a sample" in view.caption.text()
    shot, paint = inside(pixels_of(view), view), paint_of(view)
    assert np.argwhere(shot[0] != paint.table[0]).size == 0
    assert np.argwhere(shot[-1] != paint.table[255]).size == 0
    places = {int(colour): k for k, colour in enumerate(paint.table)}
    order = [places[int(colour)] for colour in shot[:, 5]]
    assert order == sorted(order)


def test_the_picture_is_exact_only_when_the_last_tile_is(qtbot: QtBot, open_view: Open) -> None:
    values = np.random.default_rng(1).standard_normal((700, 900)).astype(np.float32)
    view = open_view(values)
    key, drawn = next(iter(view.picture.tiles.current.items()))
    view.picture.tiles.put(key, dataclasses.replace(drawn, exact=False, step=12))
    view.loader.progressed.emit()
    assert view.title.badge.text == "sampled 1:12"
    view.viewer._on_arrived(TileResult(key, 0, None, drawn))
    view.loader.progressed.emit()
    assert view.title.badge.text == "exact"


def small_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a picture costly from 64 kB on, and unaffordable from 256 kB on."""
    monkeypatch.setattr(viewer, "EXACT_BYTES", 64 << 10)
    monkeypatch.setattr(viewer, "BACKGROUND_BYTES", 256 << 10)
    monkeypatch.setattr("tensormorph.survey.HELD_BYTES", 0)
    monkeypatch.setattr("tensormorph.survey.SURVEY_BYTES", 16 << 10)


def test_a_picture_of_middling_cost_becomes_exact_by_itself(open_view: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    small_budgets(monkeypatch)
    values = np.random.default_rng(2).standard_normal((2000, 30)).astype(np.float32)
    view = open_view(values)
    assert not view.read_all.isVisible()
    assert np.array_equal(inside(pixels_of(view), view), oracle(values.astype(np.float64), view))


def test_a_costly_picture_is_read_when_asked_for(
    qtbot: QtBot, open_view: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_budgets(monkeypatch)
    values = np.random.default_rng(2).standard_normal((4000, 100)).astype(np.float32)
    view = open_view(values, badge="sampled")
    assert view.read_all.text() == "Read all 1.60 MB"
    QTest.mouseClick(view.read_all, Qt.MouseButton.LeftButton)
    exact(qtbot, view)
    assert not view.read_all.isVisible()
    assert (inside(pixels_of(view), view) != oracle(values.astype(np.float64), view)).mean() < 1e-3


def test_escape_stops_reading_all_and_the_sample_stays(
    qtbot: QtBot, open_view: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_budgets(monkeypatch)
    gate, reached, closed = threading.Event(), threading.Event(), [False]

    def wait(region: Region) -> None:
        if closed[0]:
            reached.set()
            assert gate.wait(20)

    values = np.ones((6000, 100), np.float32)
    source = array_source(values, wait)
    view = open_view(tensor_of(source), badge="sampled")
    before = source.n_bytes
    closed[0] = True
    view.read_all.click()
    assert reached.wait(10)
    assert view.read_all.text() == "Cancel"
    QTest.keyClick(view, Qt.Key.Key_Escape)
    assert not view.viewer.reads_all
    closed[0] = False
    gate.set()
    qtbot.waitUntil(lambda: view.read_all.text().startswith("Read all"))
    assert view.title.badge.text.startswith("sampled")
    # What was being read when the key was pressed: one piece.
    qtbot.waitUntil(lambda: not view.loader._busy)
    assert source.n_bytes <= before + (1 << 20)


def test_bytes_are_told_beyond_two_gigabytes(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.ones((3, 3), np.float32))
    with qtbot.waitSignal(view.bytes_read) as told:
        view.loader._counted(77)(5 << 30)
        view.loader._ring()
    assert told.args == [(5 << 30) + 36]


def test_what_has_not_come_yet_is_grey_and_not_a_zero(
    qtbot: QtBot, open_view: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensormorph.survey.HELD_BYTES", 0)
    gate, closed = threading.Event(), [False]

    def wait(region: Region) -> None:
        if closed[0]:
            assert gate.wait(20)

    view = open_view(tensor_of(array_source(np.zeros((3000, 3000), np.float32), wait)))
    closed[0] = True
    view.viewer.one_to_one((0, 0))
    view.picture.tiles._behind.clear()
    assert view.title.badge.text == "reading"
    grey = pixel(theme.LIGHT.neutbg)
    assert (inside(pixels_of(view), view) == grey).all()
    gate.set()
    exact(qtbot, view)
    assert (inside(pixels_of(view), view) == paint_of(view).canvas).all()


def test_a_coarser_picture_stands_in_until_the_finer_one_comes(
    qtbot: QtBot, open_view: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensormorph.survey.HELD_BYTES", 0)
    gate, closed = threading.Event(), [False]

    def wait(region: Region) -> None:
        if closed[0]:
            assert gate.wait(20)

    view = open_view(tensor_of(array_source(np.full((3000, 3000), -3, np.float32), wait)))
    closed[0] = True
    view.viewer.one_to_one((0, 0))
    assert view.title.badge.text == "reading"
    assert (inside(pixels_of(view), view) == paint_of(view).table[0]).all()
    gate.set()
    exact(qtbot, view)


# ---------------------------------------------------------------- what is wrong


def test_a_part_that_cannot_be_read_is_hatched_and_the_reason_stands_below(qtbot: QtBot, open_view: Open) -> None:
    def refuse(region: Region) -> None:
        if region.start[0] >= 1024:
            raise ReadError("model.safetensors", "the disk said no")

    values = np.full((2048, 512), 4.0, np.float32)
    view = open_view(tensor_of(array_source(values, refuse)))
    shot, paint = inside(pixels_of(view), view), paint_of(view)
    half = view.viewer.camera.down.place(1024)  # type: ignore[union-attr]
    assert (shot[: half - 1] == paint.table[255]).all()
    tokens = theme.LIGHT
    assert set(shot[half + 1 :].ravel().tolist()) == {paint.canvas, pixel(tokens.missing), pixel(tokens.err)}
    assert (shot[half] == pixel(tokens.err)).all()
    assert "the disk said no" in view.trouble.text
    assert view.width() == SIZE[0]  # a long sentence does not widen the window
    hover(qtbot, view, cell_centre(view, 1500, 100))
    qtbot.waitUntil(lambda: "no value" in view.card.texts)
    assert any("the disk said no" in line for line in [" ".join(view.card.texts)])


def test_a_source_that_fails_at_random_hatches_only_those_parts(
    open_view: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensormorph.survey.HELD_BYTES", 0)
    chance = np.random.default_rng(11)
    lost: list[Region] = []

    def refuse(region: Region) -> None:
        if region.size > 100_000 and (region in lost or chance.random() < 0.3):
            lost.append(region)
            raise ReadError("model.safetensors", "bad sector")

    values = np.full((4096, 1024), 4.0, np.float32)
    view = open_view(tensor_of(array_source(values, refuse)))
    assert lost
    shot, paint = inside(pixels_of(view), view), paint_of(view)
    lens = view.viewer.camera.down  # type: ignore[union-attr]
    gone = np.zeros(shot.shape[0], np.bool_)
    for region in lost:
        gone[lens.place(region.start[0]) : lens.place(region.stop[0] - 1) + 1] = True
    assert (shot[~gone] == paint.table[255]).all()
    assert (shot[gone] != paint.table[255]).all()


@pytest.mark.parametrize(
    ("tensor", "title", "sentence"),
    [
        (LogicalTensor("w", TensorKey("", "w"), (4, 4), encoding("float6_e2m3fn"), tensor_of(
            array_source(np.zeros((4, 4), np.float32))).fragments, True),
         "Values of dtype float6_e2m3fn cannot be decoded", "No published packing"),
        (np.zeros((3, 0, 5), np.float32), "No elements", "3 × 0 × 5"),
        (np.zeros((0,), np.float32), "No elements", "Its shape is 0"),
    ],
)  # fmt: skip
def test_where_there_can_be_no_picture_there_are_words(open_view: Open, tensor: Any, title: str, sentence: str) -> None:
    view = open_view(tensor, badge="")
    assert view.state.isVisible()
    assert view.state.title.text().replace("\u200b", "") == title
    assert sentence in view.state.sentence.text().replace("\u200b", "")
    assert view.title.badge.text == ""


def test_an_unreadable_tensor_says_why(open_view: Open, selection: Selection) -> None:
    why = Problem("short-file", "error", "The file ends at byte 10; its header ends at byte 900")
    lost = UnreadableTensor("gone", TensorKey("", "gone"), None, None, None, (why,))
    view = open_view(np.ones((2, 2), np.float32), unreadable=(lost,))
    selection.choose("gone")
    assert view.state.title.text().replace("\u200b", "") == "gone cannot be read"
    assert "ends at byte 10" in view.state.sentence.text()
    selection.choose(None)
    assert view.state.title.text() == "Choose a tensor"
    selection.open(None)
    assert view.state.title.text() == "Choose a tensor"


def test_marks_stand_in_large_cells(open_view: Open) -> None:
    values = np.zeros((10, 10), np.float32)
    values[2, 3] = np.nan
    view = open_view(values)
    assert view.viewer.camera is not None
    assert view.viewer.camera.right.scale >= MARK_FROM
    shot = inside(pixels_of(view), view)
    top, bottom, left, right = view.viewer.camera.cell(2, 3)
    cell = shot[top:bottom, left:right]
    assert set(np.unique(cell)) > {paint_of(view).nan}
    assert cell[cell.shape[0] // 2, cell.shape[1] // 2] == 0xFFFFFFFF
    assert cell[1, 1] == paint_of(view).nan


# ---------------------------------------------------------------- pointer


def test_hover_reads_the_element_and_says_where_it_is(qtbot: QtBot, open_view: Open) -> None:
    values = np.random.default_rng(12).standard_normal((2000, 3000)).astype(ml_dtypes.bfloat16)
    view = open_view(values)
    told: list[str] = []
    view.status.connect(told.append)
    camera = view.viewer.camera
    assert camera is not None
    assert camera.down.elements_a_pixel > 1  # a pixel shows a mean: the card must not
    at = QPoint(300, 200)
    hover(qtbot, view, at)
    qtbot.waitUntil(lambda: len(view.card.texts) >= 3)
    cell = camera.element(view.picture.pixel(QPointF(at)))
    assert cell is not None
    row, col = cell
    assert view.card.texts[0] == f"[{row}, {col}]"
    assert view.card.texts[1] == text(values[row, col]).replace("-", "−")
    assert view.card.texts[-1] == f"rank 3   model.safetensors   byte {1000 + 2 * (row * 3000 + col):,}"
    assert told[-1] == f"[{row}, {col}] = {text(values[row, col]).replace('-', '−')}"


def test_an_answer_for_an_element_that_the_pointer_has_left_is_not_shown(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.zeros((20, 20), np.float32))
    hover(qtbot, view, cell_centre(view, 4, 4))
    qtbot.waitUntil(lambda: "0.0" in view.card.texts)
    view.viewer.element.emit(ElementResult(view.viewer.number, (4, 5), "77.0", 77.0, ()))
    assert view.card.texts[:2] == ["[4, 4]", "0.0"]


def test_hover_says_how_many_deviations_only_where_all_was_read(qtbot: QtBot, open_view: Open) -> None:
    values = np.zeros((20, 20), np.float32)
    values[4, 4] = 8
    view = open_view(values)
    hover(qtbot, view, cell_centre(view, 4, 4))
    away = (8 - values.mean()) / values.std()
    qtbot.waitUntil(lambda: f"{away:.0f} σ above the mean" in view.card.texts)
    assert deviation_text(1.0, None, None) == ""
    assert deviation_text(1.0, 1.0, 0.0) == ""
    assert deviation_text(float("inf"), 0.0, 1.0) == ""
    assert deviation_text(-1.0, 0.0, 2.0) == "0.5 σ below the mean"


def test_the_card_goes_when_the_pointer_leaves_and_stays_inside(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.ones((40, 40), np.float32))
    hover(qtbot, view, cell_centre(view, 39, 39))
    qtbot.waitUntil(view.card.isVisible)
    assert view.picture.rect().contains(view.card.geometry())
    view.picture.hovered.emit(None)
    assert not view.card.isVisible()


def test_a_click_chooses_the_element(qtbot: QtBot, open_view: Open, selection: Selection) -> None:
    view = open_view(np.arange(12 * 17, dtype=np.float32).reshape(12, 17))
    at = cell_centre(view, 7, 11)
    QTest.mouseClick(view.picture.viewport(), Qt.MouseButton.LeftButton, NONE, at)
    qtbot.waitUntil(lambda: selection.element == (7, 11))
    QTest.keyClick(view, Qt.Key.Key_Escape)
    assert selection.element is None


def test_an_element_chosen_elsewhere_comes_into_sight(qtbot: QtBot, open_view: Open, selection: Selection) -> None:
    view = open_view(np.zeros((4, 3000, 2000), np.float32))
    view.viewer.one_to_one((0, 0))
    selection.choose_element((2, 2900, 1900))
    exact(qtbot, view)
    plane, camera = view.viewer.plane, view.viewer.camera
    assert plane is not None
    assert camera is not None
    assert plane.at == (2,)
    assert [spin.value() for spin in view.controls.spins] == [2]
    assert camera.down.visible[0] <= 2900 < camera.down.visible[1]
    assert view.picture.tiles._selected == (2900, 1900)


def wheel(view: HeatmapView, at: QPoint, notches: int) -> None:
    port = view.picture.viewport()
    event = QWheelEvent(QPointF(at), QPointF(port.mapToGlobal(at)), QPoint(), QPoint(0, 120 * notches),
                        Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase,
                        False)  # fmt: skip
    QApplication.sendEvent(port, event)


def test_the_wheel_zooms_about_the_pointer(open_view: Open) -> None:
    view = open_view(np.zeros((3000, 3000), np.float32))
    at = QPoint(420, 310)
    pixel_at = view.picture.pixel(QPointF(at))
    before = view.viewer.camera
    assert before is not None
    wheel(view, at, 5)
    after = view.viewer.camera
    assert after is not None
    assert after.right.scale > 2.5 * before.right.scale
    old, new = before.element(pixel_at), after.element(pixel_at)
    assert old is not None
    assert new is not None
    assert abs(old[0] - new[0]) <= 2 * before.down.elements_a_pixel
    assert abs(old[1] - new[1]) <= 2 * before.right.elements_a_pixel
    wheel(view, at, -50)
    assert view.viewer.camera is not None
    assert view.viewer.camera.down.scale == pytest.approx(before.down.scale, rel=0.01)


def test_dragging_carries_the_picture(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.zeros((3000, 3000), np.float32))
    view.viewer.one_to_one((0, 0))
    port = view.picture.viewport()
    QTest.mousePress(port, Qt.MouseButton.LeftButton, NONE, QPoint(400, 300))
    for step in range(1, 11):
        move(view, QPoint(400 - 10 * step, 300 - 5 * step), Qt.MouseButton.LeftButton)
    QTest.mouseRelease(port, Qt.MouseButton.LeftButton, NONE, QPoint(300, 250))
    camera = view.viewer.camera
    assert camera is not None
    assert (camera.down.origin, camera.right.origin) == (round(-50 * camera.ratio), round(-100 * camera.ratio))


# ---------------------------------------------------------------- keyboard


def test_keys_move_and_zoom(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.zeros((5000, 5000), np.float32))

    def origins() -> tuple[int, int]:
        camera = view.viewer.camera
        assert camera is not None
        return -camera.down.origin, -camera.right.origin

    fit = view.viewer.camera
    QTest.keyClick(view, Qt.Key.Key_1)
    assert view.viewer.camera is not None
    assert view.viewer.camera.down.scale == view.viewer.camera.right.scale == 1
    high, wide = view.picture.pixels
    start = origins()
    QTest.keyClick(view, Qt.Key.Key_Right)
    assert origins() == (start[0], start[1] + wide // 8)
    QTest.keyClick(view, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    assert origins() == (start[0] + high, start[1] + wide // 8)
    QTest.keyClick(view, Qt.Key.Key_Up, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClick(view, Qt.Key.Key_Left)
    assert origins() == start
    QTest.keyClick(view, Qt.Key.Key_Plus)
    assert view.viewer.camera.right.scale == pytest.approx(2**0.5, rel=0.01)
    QTest.keyClick(view, Qt.Key.Key_Minus)
    QTest.keyClick(view, Qt.Key.Key_Minus)
    assert view.viewer.camera.right.scale < 1
    QTest.keyClick(view, Qt.Key.Key_0)
    assert view.viewer.camera == fit


def test_keys_change_fold_and_crosshair(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.random.default_rng(1).standard_normal((3000, 50)).astype(np.float32))
    rules = []
    for _ in range(4):
        QTest.keyClick(view, Qt.Key.Key_R)
        exact(qtbot, view)
        rules.append(paint_of(view).reduction)
        assert rules[-1] in view.caption.text()
    assert rules == ["envelope", "absolute maximum", "RMS", "mean"]
    hover(qtbot, view, QPoint(300, 200))
    assert view.picture.tiles._crosshair is not None
    QTest.keyClick(view, Qt.Key.Key_X)
    assert view.picture.tiles._crosshair is None


def test_keys_that_are_commands_of_the_window_are_left_to_it(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.zeros((50, 50), np.float32))
    before = view.viewer.camera
    QTest.keyClick(view, Qt.Key.Key_0, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClick(view, Qt.Key.Key_1, Qt.KeyboardModifier.AltModifier)
    assert view.viewer.camera == before


# ---------------------------------------------------------------- life


def test_the_last_chosen_tensor_is_shown_however_fast_they_change(
    qtbot: QtBot, open_view: Open, selection: Selection
) -> None:
    tensors = [np.full((300 + k, 200), float(k + 1), np.float32) for k in range(6)]
    view = open_view(*tensors)
    for k in (1, 2, 3, 4, 5, 2, 3, 1, 5, 4):
        selection.choose(f"w{k}")
    exact(qtbot, view)
    assert view.viewer.plane is not None
    assert view.viewer.plane.shape == (304, 200)
    assert paint_of(view).levels.high == 5.0


def test_coming_back_to_a_tensor_reads_nothing(qtbot: QtBot, open_view: Open, selection: Selection) -> None:
    source = array_source(np.ones((500, 400), np.float32))
    view = open_view(tensor_of(source), np.ones((4, 4), np.float32))
    before = source.n_bytes
    selection.choose("w1")
    exact(qtbot, view)
    selection.choose("w0")
    exact(qtbot, view)
    assert source.n_bytes == before == 500 * 400 * 4


def test_nothing_is_read_while_hidden(qtbot: QtBot, tokens: theme.Tokens, selection: Selection) -> None:
    source = array_source(np.ones((50, 40), np.float32))
    selection.open(checkpoint_of({"w": tensor_of(source)}))
    view = HeatmapView(selection, tokens)
    qtbot.addWidget(view)
    selection.choose("w")
    for _ in range(5):
        QApplication.processEvents()
    assert source.n_bytes == 0
    view.show()
    exact(qtbot, view)
    view.shut()


def test_another_theme_colours_anew(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.zeros((300, 300), np.float32))
    view.set_tokens(theme.DARK)
    exact(qtbot, view)
    assert set(np.unique(inside(pixels_of(view), view))) == {pixel(theme.DARK.canvas)}


def test_another_size_fits_again(qtbot: QtBot, open_view: Open) -> None:
    values = np.random.default_rng(13).standard_normal((900, 700)).astype(np.float32)
    view = open_view(values)
    view.resize(500, 430)
    qtbot.waitUntil(
        lambda: view.viewer.camera is not None and view.viewer.camera.right.pixels == view.picture.pixels[1]
    )
    exact(qtbot, view)
    assert view.viewer.camera is not None
    assert view.viewer.camera.right.visible == (0, 700)
    assert (inside(pixels_of(view), view) != oracle(values.astype(np.float64), view)).mean() < 1e-4


def test_the_scale_can_be_lowest_to_highest(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.linspace(2, 3, 100, dtype=np.float32).reshape(10, 10))
    view.controls.scale.setCurrentIndex(1)
    exact(qtbot, view)
    assert (paint_of(view).levels.low, paint_of(view).levels.high) == (2, 3)
    assert view.scale.levels == paint_of(view).levels
    view.picture.tiles.set_cells(None)
    shot = inside(pixels_of(view), view)
    assert shot[3, 3] == paint_of(view).table[0]
    assert shot[-4, -4] == paint_of(view).table[255]


def test_a_minus_on_screen_is_a_true_minus(qtbot: QtBot, open_view: Open) -> None:
    view = open_view(np.full((5, 5), -2.5, np.float32))
    hover(qtbot, view, cell_centre(view, 1, 1))
    qtbot.waitUntil(lambda: "−2.5" in view.card.texts)
    assert value_text is not None


def test_the_axes_label_elements_and_the_end(open_view: Open) -> None:
    view = open_view(np.zeros((3000, 1500), np.float32))
    down = [label for _, label in view.picture.left.labels()]
    right = [label for _, label in view.picture.top.labels()]
    assert down[0] == right[0] == "0"
    assert (down[-1], right[-1]) == ("3,000", "1,500")
    assert "1,024" in down
    assert "512" in right


def test_a_plane_of_one_axis_can_stand_upright(qtbot: QtBot, open_view: Open) -> None:
    values = np.random.default_rng(14).standard_normal(40).astype(np.float32)
    view = open_view(values)
    assert view.viewer.plane is not None
    upright = Plane(view.viewer.plane.source, (0,), ())
    view._open(upright)
    exact(qtbot, view)
    view.picture.tiles.set_cells(None)
    assert np.array_equal(inside(pixels_of(view), view), oracle(values.reshape(40, 1), view))
