"""The table shows exactly what is stored, wherever one looks, reads no more than that, and copies what reads back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QSize, Qt
from PySide6.QtGui import QAction, QColor, QGuiApplication, QHelpEvent, QImage, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractSlider, QApplication, QMainWindow, QToolTip
from pytestqt.qtbot import QtBot

from tensormorph.columns import TensorKey
from tensormorph.dtypes import Encoding, encoding, encodings, text
from tensormorph.errors import ChangedOnDiskError, ReadError
from tensormorph.gui.selection import Selection
from tensormorph.gui.table import TableView
from tensormorph.gui.table_blocks import BLOCK_COLS, BLOCK_ROWS, BlockKey, Blocks, Subject
from tensormorph.gui.table_cells import GAP, LOST, fitted, read_block, room, texts
from tensormorph.gui.theme import DARK, LIGHT, apply
from tensormorph.model import LogicalTensor, UnreadableTensor
from tensormorph.pyramid import Plane
from tensormorph.region import Region
from tests import memory_source
from tests.gui.planes import Source, array_source, checkpoint_of, tensor_of

READABLE = [e for e in encodings() if e.readable]
BLOCK = BLOCK_ROWS * BLOCK_COLS
SHIFT, CONTROL = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier
PLAIN = Qt.KeyboardModifier.NoModifier


def bits(kind: Encoding, shape: tuple[int, ...], seed: int = 5) -> NDArray[Any]:
    """Return elements of random bit patterns; all that a type can hold, its NaN and infinities too."""
    rng = np.random.default_rng(seed)
    if kind.kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if kind.name == "float4_e2m1fn":
        return rng.integers(0, 16, shape, dtype=np.uint8).view(kind.dtype)
    values = np.frombuffer(rng.bytes(int(np.prod(shape)) * kind.dtype.itemsize), kind.dtype).reshape(shape).copy()
    if kind.kind in ("float", "complex"):
        special = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf, -1.5])
        if kind.kind == "complex":
            parts = np.empty((6, 6), kind.dtype)
            parts.real, parts.imag = special[:, np.newaxis], special
            special = parts.reshape(-1)
        often = rng.random(shape) < 0.5
        values[often] = rng.choice(special.astype(kind.dtype), often.sum())
    return values


def numbered(shape: tuple[int, ...], kind: str = "int64") -> Source:
    """Return a source of any size whose elements are their row-major numbers."""

    def values(region: Region) -> NDArray[Any]:
        total = np.zeros((1,) * region.ndim, np.int64)
        for axis in range(region.ndim):
            extent = [1] * region.ndim
            extent[axis] = region.shape[axis]
            places = np.arange(region.start[axis], region.stop[axis], dtype=np.int64).reshape(extent)
            total = total * shape[axis] + places
        return total.astype(encoding(kind).dtype)

    return Source(shape, encoding(kind), values)


class Table:
    """A view on its own selection, and what it said."""

    def __init__(self, qtbot: QtBot, view: TableView, selection: Selection) -> None:
        self._qtbot, self.view, self.selection = qtbot, view, selection
        self.said: list[str] = []
        view.status.connect(self.said.append)

    def open(self, *tensors: LogicalTensor, name: str = "w", **more: Any) -> None:
        self.selection.open(checkpoint_of({tensor.name: tensor for tensor in tensors}, **more))
        self.selection.choose(name)

    def settle(self) -> None:
        self._qtbot.waitUntil(lambda: self.view.title.badge.text == "exact", timeout=10_000)

    def told(self, index: tuple[int, ...]) -> str:
        """Go to an element and return what the status line says of it."""
        self.view.go_to(index)
        self.settle()
        start = f"[{', '.join(map(str, index))}] = "
        assert self.said[-1].startswith(start)
        return self.said[-1].removeprefix(start)

    def press(self, key: Qt.Key, held: Qt.KeyboardModifier = PLAIN) -> None:
        QTest.keyClick(self.view.grid, key, held)

    def copied(self, held: Qt.KeyboardModifier = CONTROL) -> str:
        self.press(Qt.Key.Key_C, held)
        self._qtbot.waitUntil(lambda: self.said[-1].startswith(("Copied", "Nothing copied")))
        return QGuiApplication.clipboard().text()

    def picture(self, ratio: int = 1) -> QImage:
        viewport = self.view.grid.viewport()
        image = QImage(viewport.size() * ratio, QImage.Format.Format_RGB32)
        image.setDevicePixelRatio(ratio)
        viewport.render(image)
        return image

    def rect(self, cell: tuple[int, int], ratio: int = 1) -> QRect:
        rect = self.view.grid.cell_rect(cell)
        return QRect(rect.topLeft() * ratio, rect.size() * ratio)


def colours(image: QImage, rect: QRect) -> dict[str, int]:
    """Return how often each colour stands in a part of a picture."""
    found: dict[str, int] = {}
    for y in range(rect.top(), rect.bottom() + 1):
        for x in range(rect.left(), rect.right() + 1):
            name = image.pixelColor(x, y).name().upper()
            found[name] = found.get(name, 0) + 1
    return found


@pytest.fixture
def table(qtbot: QtBot) -> Iterator[Table]:
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    tokens = apply(app, "light")
    selection = Selection()
    view = TableView(selection, tokens)
    qtbot.addWidget(view)
    view.resize(900, 600)
    with qtbot.waitExposed(view):
        view.show()
    yield Table(qtbot, view, selection)
    view.shut()


# ---------------------------------------------------------------- what it says


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_the_text_of_an_element_is_the_one_of_its_dtype_and_reads_back(table: Table, kind: Encoding) -> None:
    values = bits(kind, (150, 70))
    parts = memory_source.cut(values, [Region((0, 0), (80, 70)), Region((80, 0), (150, 70))], kind)
    if kind.packed:
        table.open(tensor_of(Source((150, 70), kind, lambda region: values[region.slices()])))
    else:
        table.open(memory_source.tensor((150, 70), parts, kind))
    rng = np.random.default_rng(1)
    for index in zip(rng.integers(0, 150, 25).tolist(), rng.integers(0, 70, 25).tolist(), strict=True):
        told = table.told(index).replace("−", "-")
        whole = text(values[index])
        assert told == whole or (len(told) < len(whole) and "e+" in told)
        assert_reads_back([told], values[index].reshape(1))


def assert_same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    """Bit for bit, but that texts do not tell one NaN from another."""
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        nan, again = (np.isnan(values.astype(np.float64)) for values in (expected, found))
    assert np.array_equal(again, nan)
    assert found[~nan].tobytes() == expected[~nan].tobytes()


def assert_reads_back(found: Sequence[str], values: NDArray[Any]) -> None:
    if values.dtype.kind == "b":
        assert found == [str(bool(value)) for value in values]
    elif values.dtype.kind in "iu":
        assert [int(t) for t in found] == values.tolist()
    else:
        parse: Any = complex if values.dtype.kind == "c" else float
        back = np.array([parse(t) for t in found]).astype(values.dtype)
        parts = [(back.real, values.real), (back.imag, values.imag)] if parse is complex else [(back, values)]
        for again, value in parts:
            assert_same(again, value)


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_no_element_is_wider_than_its_cell(kind: Encoding) -> None:
    size = kind.dtype.itemsize
    if kind.kind == "bool":
        values = np.array([False, True])
    elif kind.kind in ("int", "uint"):
        values = np.array([np.iinfo(kind.dtype).min, np.iinfo(kind.dtype).max], kind.dtype)
    elif size <= 2:
        codes = np.arange(16 if kind.packed else 1 << 8 * size, dtype=np.uint32)[:: 1 if size == 1 else 7]
        values = codes.astype(f"u{size}").view(kind.dtype)
    else:
        real = np.array([1234567890123456.7, -1234567890123456.7, -1.2345678901234567e-38, -1e15, 9.9e15, 1e22])
        values = np.concatenate([bits(kind, (4000,)), real.astype(kind.dtype)])
        if kind.kind == "complex":
            values = np.concatenate([values, real.astype(kind.dtype) * (1 - 1j)])
    most = room(kind.dtype)
    shown = [fitted(whole, value, most) for whole, value in zip(texts(values), values, strict=True)]
    assert max(map(len, shown)) <= most
    assert_reads_back(shown, values)


def test_a_value_too_long_to_be_written_out_has_the_same_digits_with_an_exponent(table: Table) -> None:
    table.open(tensor_of(array_source(np.array([[1234567890123456.0, 1e15, -1e15, 0.0001]], np.float32))))
    assert table.told((0, 0)) == "1.234568e+15"
    assert table.told((0, 1)) == "1e+15"
    assert table.told((0, 2)) == "−1e+15"
    assert table.told((0, 3)) == "0.0001"


@pytest.mark.parametrize(
    ("shape", "index"), [((), ()), ((300,), (299,)), ((2, 3, 40, 5), (1, 2, 39, 4)), ((1, 1), (0, 0))]
)
def test_tensors_of_any_rank_have_a_table(table: Table, shape: tuple[int, ...], index: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    table.open(tensor_of(array_source(values)))
    assert table.told(index) == str(values[index])
    plane = table.view.plane
    assert plane is not None
    assert plane.shape == ((shape[-2:] or (1, 1)) if len(shape) != 1 else (300, 1))  # a vector is a column
    assert table.view.controls.isVisible() == (len(shape) > 1)


def test_axes_are_chosen_as_in_the_heatmap(table: Table) -> None:
    values = np.arange(2 * 30 * 40, dtype=np.int32).reshape(2, 30, 40)
    table.open(tensor_of(array_source(values)))
    table.view.controls.planeChosen.emit((2,), (0,), (7,))
    table.settle()
    assert table.told((1, 7, 33)) == str(values[1, 7, 33])
    assert table.view.grid.selected == ((33, 34), (1, 2))
    block = table.view.blocks.get(table.view.grid.keys[0])
    assert block is not None
    assert [block.text(row, 1) for row in range(40)] == [str(v) for v in values[1, 7]]


# ---------------------------------------------------------------- size


def test_row_10_to_the_8_is_read_in_blocks_and_beside_the_gui_thread(table: Table) -> None:
    source = numbered((3 * 10**8, 10**5))
    table.open(tensor_of(source))
    table.settle()
    before = source.n_bytes
    assert table.told((10**8, 77_777)) == str(10**13 + 77_777)
    assert table.told((10**8 + 1, 77_778)) == str(10**13 + 10**5 + 77_778)
    assert before <= 2 * 8 * BLOCK
    assert 0 < source.n_bytes - before <= 4 * 8 * BLOCK
    assert table.view.blocks.n_bytes_read == source.n_bytes
    assert threading.get_ident() not in source.threads


def test_2_to_the_40_rows_have_a_first_a_last_and_a_middle(table: Table) -> None:
    n = 2**40
    table.open(tensor_of(numbered((n, 3))))
    grid, bar = table.view.grid, table.view.grid.verticalScrollBar()
    assert table.told((n - 1, 2)) == str(3 * n - 1)
    rows, _ = grid.sight
    assert rows[1] == n
    assert bar.value() == bar.maximum() < 2**31
    bar.setValue(0)
    assert grid.top_left == (0, 0)
    bar.setValue(bar.maximum() // 2)
    assert abs(grid.top_left[0] - n // 2) < n // 2**20
    bar.setValue(bar.maximum())
    assert grid.sight[0][1] == n
    # What the bar cannot tell apart, the view can.
    table.view.go_to((n // 2 + 5, 0))
    assert grid.anchor == (n // 2 + 5, 0)
    rows, page = grid.sight[0], (grid.viewport().height() - 24) // 24
    bar.triggerAction(QAbstractSlider.SliderAction.SliderPageStepAdd)
    assert grid.top_left[0] == rows[0] + page
    bar.triggerAction(QAbstractSlider.SliderAction.SliderSingleStepSub)
    assert grid.top_left[0] == rows[0] + page - 1
    table.settle()
    table.picture()  # with what is selected far out of sight, and no number beyond what Qt can count
    grid.scroll_to(0, 0)
    table.picture()
    table.view.go_to((0, 0))
    grid.scroll_to(n, 0)
    table.picture()


def test_340_million_rows_by_3_open_and_the_wheel_moves_by_rows(table: Table) -> None:
    table.open(tensor_of(numbered((340_205_976, 3), "int32")))
    assert table.told((340_205_975, 1)) == str(340_205_975 * 3 + 1)
    grid = table.view.grid
    grid.scroll_to(1000, 0)

    def turn(down: int) -> None:
        at, none = QPointF(200, 200), Qt.ScrollPhase.NoScrollPhase
        wheel = QWheelEvent(at, at, QPoint(), QPoint(0, down), Qt.MouseButton.NoButton, PLAIN, none, False)
        QApplication.sendEvent(grid.viewport(), wheel)

    turn(-120)
    assert grid.top_left == (1003, 0)
    for _ in range(4):
        turn(10)
    assert grid.top_left == (1002, 0)  # a fine wheel moves too, when its parts make a row
    turn(80)
    assert grid.top_left == (1000, 0)


def test_blocks_take_no_more_memory_than_they_may(qtbot: QtBot) -> None:
    source = numbered((10**6, 40), "float32")
    tensor = tensor_of(source)
    plane = Plane.of(tensor)
    one = read_block(tensor, plane, (0, BLOCK_ROWS), (0, BLOCK_COLS), 15, lambda: False).n_bytes
    source.n_bytes = 0
    blocks = Blocks(cache_bytes=5 * one)
    blocks.open(Subject(1, tensor, plane, 15))

    def show(row: int) -> None:
        blocks.show((row * BLOCK_ROWS, (row + 1) * BLOCK_ROWS), (0, BLOCK_COLS))
        qtbot.waitUntil(lambda: blocks.get(BlockKey(1, row, 0)) is not None)
        assert blocks.n_bytes <= 5 * one

    for row in range(20):
        show(row)
    assert source.n_bytes == 20 * 4 * BLOCK
    for row in (19, 15, 0):
        show(row)
    assert source.n_bytes == 21 * 4 * BLOCK  # the first was dropped and read again; the last five were not


def test_a_small_tensor_after_a_large_one_begins_at_its_first_element(table: Table) -> None:
    table.open(tensor_of(numbered((10**6, 10**4))), tensor_of(numbered((200, 60)), "small"))
    table.view.go_to((10**6 - 1, 10**4 - 1))
    grid = table.view.grid
    seen: list[tuple[int, int]] = []
    grid.moved.connect(lambda: seen.append(grid.top_left))
    table.selection.choose("small")
    assert set(seen) == {(0, 0)}  # not where the bars of the larger one stood either
    assert [bar.value() for bar in (grid.verticalScrollBar(), grid.horizontalScrollBar())] == [0, 0]
    grid.scroll_to(1000, 1000)
    assert (grid.sight[0][1], grid.sight[1][1]) == (200, 60)
    table.view.resize(1200, 900)
    assert (grid.sight[0][1], grid.sight[1][1]) == (200, 60)


def test_nothing_is_read_before_it_is_seen(table: Table, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    table.view.hide()
    asked: list[object] = []
    show = table.view.blocks.show

    def ask(*sight: Any) -> None:
        asked.append(sight)
        show(*sight)

    monkeypatch.setattr(table.view.blocks, "show", ask)
    source = numbered((100, 100))
    table.open(tensor_of(source))
    table.view.go_to((99, 99))
    assert asked == []
    said = len(table.said)
    table.view.go_to((50, 50))
    table.view.go_to((99, 99))
    assert len(table.said) == said  # the status line is the view's that is seen
    with qtbot.waitExposed(table.view):
        table.view.show()
    table.settle()
    assert source.n_bytes > 0
    assert table.view.grid.sight[0][1] == 100
    assert table.said[-1] == "[99, 99] = 9999"


# ---------------------------------------------------------------- what cannot be read


def holed() -> tuple[NDArray[Any], LogicalTensor]:
    values = np.arange(100 * 40, dtype=np.float32).reshape(100, 40)
    boxes = [Region((0, 0), (10, 40)), Region((10, 0), (12, 3)), Region((10, 5), (12, 40)), Region((12, 0), (100, 40))]
    return values, memory_source.tensor((100, 40), memory_source.cut(values, boxes), encoding("float32"))


def test_a_gap_is_just_the_elements_that_no_file_stores(table: Table) -> None:
    values, tensor = holed()
    table.open(tensor)
    table.settle()
    block = table.view.blocks.get(table.view.grid.keys[0])
    assert block is not None
    expected = np.zeros((BLOCK_ROWS, BLOCK_COLS), bool)
    expected[10:12, 3:5] = True
    assert np.array_equal(block.kinds == GAP, expected)
    assert not (block.kinds == LOST).any()
    assert block.text(10, 3) == ""
    assert block.words(10, 2, 5).split() == ["gap", "gap"]
    assert block.text(10, 2) == str(values[10, 2])
    assert "no file stores it" in table.told((11, 4))
    assert table.told((11, 5)) == str(values[11, 5])
    assert table.view.trouble.text().startswith("4 elements in sight have no value: w, region 10:12, 3:5 cannot be")


def test_what_fails_costs_only_its_own_rows_and_says_why(table: Table) -> None:
    def fail(region: Region) -> None:
        if region.start[0] <= 5 < region.stop[0]:
            raise ReadError("model.safetensors", "Input/output error" + 40 * " again")

    source = numbered((200, 10), "float32")
    source.before_read = fail
    table.open(tensor_of(source))
    assert "Input/output error" in table.told((5, 3))
    assert table.told((4, 9)) == "49.0"
    assert table.told((6, 0)) == "60.0"
    block = table.view.blocks.get(table.view.grid.keys[0])
    assert block is not None
    assert np.array_equal(np.flatnonzero((block.kinds == LOST).any(axis=1)), [5])
    assert block.words(5, 0, 1).strip() == "no value"
    _, cols = table.view.grid.sight
    assert table.view.trouble.text().startswith(f"{cols[1] - cols[0]} elements in sight have no value: ")
    assert table.view.minimumSizeHint().width() < 600  # however long the reason is
    # Chosen again, it is read again.
    source.before_read = lambda region: None
    table.selection.choose(None)
    table.selection.choose("w")
    assert table.told((5, 3)) == "53.0"
    assert table.view.trouble.text() == ""


@pytest.mark.parametrize(
    "error", [ChangedOnDiskError("f", "its size"), ValueError("a bug"), OSError(5, "EIO")], ids=type
)
def test_no_error_stops_the_worker(table: Table, error: Exception) -> None:
    broken, good = numbered((50, 50)), numbered((50, 50))
    n_reads: list[Region] = []

    def fail(region: Region) -> None:
        n_reads.append(region)
        raise error

    broken.before_read = fail
    table.open(tensor_of(broken), tensor_of(good, "good"))
    table.settle()
    told = table.told((2, 2))
    assert told.startswith("no value: ")
    assert str(error.args[-1] if not isinstance(error, ChangedOnDiskError) else "changed on disk") in told
    if isinstance(error, ChangedOnDiskError):
        assert len(n_reads) == len(table.view.grid.keys)  # old and new are never mixed: no second try
    table.selection.choose("good")
    assert table.told((2, 2)) == "102"


def test_the_reason_is_shown_by_the_pointer_too(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    _, tensor = holed()
    table.open(tensor)
    table.settle()
    shown: list[str] = []
    monkeypatch.setattr(QToolTip, "showText", lambda at, text, widget: shown.append(text))
    viewport = table.view.grid.viewport()
    for cell in ((10, 3), (9, 3)):
        at = table.rect(cell).center()
        QApplication.sendEvent(viewport, QHelpEvent(QEvent.Type.ToolTip, at, viewport.mapToGlobal(at)))
    assert "no file stores it" in shown[0]
    assert shown[1] == ""


# ---------------------------------------------------------------- what is late


class Gate:
    """Holds reads up until it is opened."""

    def __init__(self) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        self.regions: list[Region] = []

    def __call__(self, region: Region) -> None:
        self.regions.append(region)
        self.reached.set()
        assert self.open.wait(20)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def test_elements_on_their_way_are_dots_and_no_numbers(table: Table, gate: Gate, qtbot: QtBot) -> None:
    source = numbered((200, 50))
    source.before_read = gate
    table.open(tensor_of(source))
    qtbot.waitUntil(gate.reached.is_set)
    table.view.go_to((3, 3))
    assert table.said[-1] == "[3, 3] = …"
    assert table.view.title.badge.text == "reading"
    waiting = colours(table.picture(), table.rect((3, 4)))
    assert 0 < sum(n for name, n in waiting.items() if name != LIGHT.canvas.upper()) < 30
    gate.open.set()
    table.settle()
    assert table.said[-1] == "[3, 3] = 153"
    come = colours(table.picture(), table.rect((3, 4)))
    assert sum(n for name, n in come.items() if name != LIGHT.canvas.upper()) > 30


def test_an_answer_for_a_former_tensor_is_dropped(table: Table, gate: Gate, qtbot: QtBot) -> None:
    late, now = numbered((40, 5)), array_source(-np.ones((40, 5), np.int64))
    late.before_read = gate
    table.open(tensor_of(late), tensor_of(now, "now"))
    qtbot.waitUntil(gate.reached.is_set)
    table.selection.choose("now")
    gate.open.set()
    assert table.told((7, 3)) == "−1"
    qtbot.waitUntil(lambda: table.view.blocks.n_bytes_of(1) > 0)
    assert table.view.blocks.n_bytes_of(1) == late.n_bytes  # it was read, and that is told
    assert table.view.blocks.get(BlockKey(1, 0, 0)) is None
    assert table.told((8, 3)) == "−1"


def test_what_has_left_the_screen_is_not_read(table: Table, gate: Gate, qtbot: QtBot) -> None:
    source = numbered((10**6, 10**4))
    source.before_read = gate
    table.open(tensor_of(source))
    qtbot.waitUntil(gate.reached.is_set)
    for row in (15_000, 25_000, 35_000, 45_000):
        table.view.go_to((row, 0))
    gate.open.set()
    table.settle()
    assert {region.start[0] // 10_000 for region in gate.regions} == {0, 4}  # and not what came between
    assert table.said[-1] == f"[45000, 0] = {45_000 * 10**4}"


def test_a_block_that_fails_is_given_up_when_it_has_left_the_screen(table: Table, gate: Gate, qtbot: QtBot) -> None:
    def fail(region: Region) -> None:
        gate(region)
        if region.start[0] < 1000:
            raise ReadError("model.safetensors", "Input/output error")

    source = numbered((10**6, 10))
    source.before_read = fail
    table.open(tensor_of(source))
    qtbot.waitUntil(gate.reached.is_set)
    table.view.go_to((500_000, 0))
    gate.open.set()
    table.settle()
    assert sum(region.start[0] < 1000 for region in gate.regions) == 1  # and not row by row


# ---------------------------------------------------------------- selection


def test_an_element_chosen_anywhere_comes_into_sight(table: Table) -> None:
    table.open(tensor_of(numbered((3, 5000, 400))))
    grid, controls = table.view.grid, table.view.controls
    table.selection.choose_element((2, 4000, 300))
    assert grid.anchor == (4000, 300)
    (top, bottom), (left, right) = grid.sight
    assert top < 4000 < bottom - 1
    assert left <= 300 < right
    assert [spin.value() for spin in controls.spins] == [2]
    assert table.told((2, 4000, 300)) == str((2 * 5000 + 4000) * 400 + 300)
    grid.scroll_to(0, 0)
    table.view.go_to((2, 4000, 300))  # chosen already
    assert grid.sight[0][0] <= 4000 < grid.sight[0][1]
    grid.scroll_to(0, 0)
    table.view.go_to((2, grid.sight[0][1] + 3, 0))  # near: not into the middle
    assert grid.top_left[0] < 8
    table.selection.choose_element(None)
    assert grid.selected is None
    assert table.said[-1] == ""


@pytest.mark.parametrize(
    ("key", "held", "selected"),
    [
        (Qt.Key.Key_Left, PLAIN, ((500, 501), (49, 50))),
        (Qt.Key.Key_Right, PLAIN, ((500, 501), (51, 52))),
        (Qt.Key.Key_Up, PLAIN, ((499, 500), (50, 51))),
        (Qt.Key.Key_Down, PLAIN, ((501, 502), (50, 51))),
        (Qt.Key.Key_Home, PLAIN, ((500, 501), (0, 1))),
        (Qt.Key.Key_End, PLAIN, ((500, 501), (99, 100))),
        (Qt.Key.Key_Home, CONTROL, ((0, 1), (0, 1))),
        (Qt.Key.Key_End, CONTROL, ((999, 1000), (99, 100))),
        (Qt.Key.Key_PageDown, PLAIN, ((520, 521), (50, 51))),
        (Qt.Key.Key_PageUp, PLAIN, ((480, 481), (50, 51))),
        (Qt.Key.Key_Right, SHIFT, ((500, 501), (50, 52))),
        (Qt.Key.Key_Up, SHIFT, ((499, 501), (50, 51))),
        (Qt.Key.Key_End, SHIFT, ((500, 501), (50, 100))),
        (Qt.Key.Key_Home, CONTROL | SHIFT, ((0, 501), (0, 51))),
        (Qt.Key.Key_A, CONTROL, ((0, 1000), (0, 100))),
    ],
)
def test_keys_move_and_stretch(table: Table, key: Qt.Key, held: Qt.KeyboardModifier, selected: Any) -> None:
    table.open(tensor_of(numbered((1000, 100))))
    grid = table.view.grid
    grid.resize(grid.width(), 24 + 20 * 24 + grid.horizontalScrollBar().height())
    assert grid.sight[0][1] == 20
    table.view.go_to((500, 50))
    table.press(key, held)
    assert grid.selected == selected
    stretches = held & SHIFT
    moved = (selected[0][0], selected[1][0])
    assert table.selection.element == ((500, 50) if stretches else moved)
    ends = {(r, c) for r in (selected[0][0], selected[0][1] - 1) for c in (selected[1][0], selected[1][1] - 1)}
    (top, bottom), (left, right) = grid.sight
    assert any(top <= r < bottom and left <= c < right for r, c in ends)


def test_keys_at_the_edges_stay(table: Table) -> None:
    table.open(tensor_of(numbered((3, 3))))
    table.press(Qt.Key.Key_Down)
    assert table.selection.element == (0, 0)  # the first key chooses what is first in sight
    for key in (Qt.Key.Key_Up, Qt.Key.Key_Left, Qt.Key.Key_PageUp):
        table.press(key)
        assert table.selection.element == (0, 0)
    table.press(Qt.Key.Key_End, CONTROL)
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Right, Qt.Key.Key_PageDown):
        table.press(key)
        assert table.selection.element == (2, 2)


def test_the_mouse_chooses_stretches_and_hovers(table: Table, qtbot: QtBot) -> None:
    table.open(tensor_of(numbered((1000, 100))))
    table.settle()
    grid, left = table.view.grid, Qt.MouseButton.LeftButton
    viewport = grid.viewport()
    QTest.mousePress(viewport, left, PLAIN, table.rect((3, 1)).center())
    assert table.selection.element == (3, 1)
    QTest.mouseMove(viewport, table.rect((5, 2)).center())
    assert grid.selected == ((3, 6), (1, 3))
    QTest.mouseMove(viewport, QPoint(table.rect((3, 1)).center().x(), viewport.height() + 200))
    assert grid.top_left == (1, 0)  # beyond the edge it scrolls
    QTest.mouseRelease(viewport, left, PLAIN, table.rect((3, 1)).center())
    assert table.selection.element == (3, 1)
    QTest.mouseMove(viewport, table.rect((8, 2)).center())
    assert table.said[-1] == "[8, 2] = 802"
    chosen = grid.selected
    QTest.mouseMove(viewport, QPoint(2, 2))
    assert table.said[-1] == "[3, 1] = 301"
    QTest.mouseClick(viewport, left, PLAIN, QPoint(2, 200))  # a number of a row
    assert grid.selected == chosen
    QTest.mouseClick(viewport, left, SHIFT, table.rect((9, 3)).center())
    assert grid.selected == ((3, 10), (1, 4))
    QTest.mouseClick(viewport, left, PLAIN, table.rect((3, 1)).center())
    assert grid.selected == ((3, 4), (1, 2))


# ---------------------------------------------------------------- copying


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_copies_read_back_bit_for_bit(table: Table, kind: Encoding) -> None:
    values = bits(kind, (90, 50), seed=9)
    table.open(tensor_of(Source(values.shape, kind, lambda region: values[region.slices()])))
    table.view.go_to((60, 28))
    for _ in range(7):
        table.press(Qt.Key.Key_Down, SHIFT)
    for _ in range(5):
        table.press(Qt.Key.Key_Right, SHIFT)
    expected = values[60:68, 28:34]
    lines = [line.split("\t") for line in table.copied().split("\n")]
    assert [len(line) for line in lines] == [6] * 8
    assert_reads_back([cell for line in lines for cell in line], expected.reshape(-1))
    if kind.kind in ("float", "int", "uint"):
        wide = np.float64 if kind.kind == "float" else kind.dtype
        loaded = np.loadtxt(QGuiApplication.clipboard().text().splitlines(), wide, delimiter="\t")
        assert_same(loaded.astype(kind.dtype), expected)
    assert table.said[-1] == "Copied 48 elements as TSV"
    assert_evaluates(table.copied(CONTROL | SHIFT), expected)
    assert table.said[-1] == "Copied 48 elements as NumPy"


def assert_evaluates(expression: str, expected: NDArray[Any]) -> None:
    found = eval(expression, {"np": np, "ml_dtypes": ml_dtypes})
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype.kind not in "biu":
        pairs = [(found.real, expected.real), (found.imag, expected.imag)] if expected.dtype.kind == "c" else []
        for again, value in pairs or [(found, expected)]:
            assert_same(again, value)
    else:
        assert np.array_equal(found, expected)


def test_a_copy_has_the_axes_that_are_shown(table: Table) -> None:
    vector = np.array([0.1, -0.0, np.inf], np.float32)
    scalar = np.array(2.5, ml_dtypes.bfloat16)
    cube = np.arange(2 * 3 * 4, dtype=np.int16).reshape(2, 3, 4)
    tensors = {"vector": vector, "scalar": scalar, "cube": cube}
    table.open(*(tensor_of(array_source(v), name) for name, v in tensors.items()), name="vector")
    table.press(Qt.Key.Key_A, CONTROL)
    assert table.copied() == "0.1\n-0.0\nInf"
    assert table.copied(CONTROL | SHIFT) == "np.array([0.1, -0.0, np.inf], dtype=np.float32)"
    table.selection.choose("scalar")
    table.press(Qt.Key.Key_A, CONTROL)
    assert table.copied(CONTROL | SHIFT) == "np.array(2.5, dtype=ml_dtypes.bfloat16)"
    table.selection.choose("cube")
    table.view.controls.planeChosen.emit((2,), (0,), (1,))
    table.press(Qt.Key.Key_A, CONTROL)
    assert_evaluates(table.copied(CONTROL | SHIFT), cube[:, 1, :].T)


def test_too_much_or_nothing_is_not_copied(table: Table) -> None:
    source = numbered((10**8, 10**4))
    table.open(tensor_of(source))
    clipboard = QGuiApplication.clipboard()
    clipboard.setText("before")
    table.copied()
    assert table.said[-1] == "Nothing copied: no element is selected"
    table.settle()
    table.press(Qt.Key.Key_A, CONTROL)
    table.settle()
    before = source.n_bytes
    table.copied()
    assert table.said[-1] == "Nothing copied: 1,000,000,000,000 elements are selected, 100,000 is the most"
    table.view.go_to((0, 0))
    for _ in range(9):
        table.press(Qt.Key.Key_Down, SHIFT)
    table.press(Qt.Key.Key_End, SHIFT)
    assert table.copied().count("\t") == 10 * 9999  # just as many as may be
    assert source.n_bytes - before >= 8 * 10**5
    assert threading.get_ident() not in source.threads
    assert table.view.blocks.n_bytes_read == source.n_bytes
    clipboard.setText("before")
    table.press(Qt.Key.Key_Down, SHIFT)
    assert table.copied() == "before"


def test_a_copy_never_leaves_out_what_has_no_value(table: Table) -> None:
    _, tensor = holed()
    table.open(tensor)
    QGuiApplication.clipboard().setText("before")
    table.view.go_to((9, 3))
    table.press(Qt.Key.Key_Down, SHIFT)
    assert table.copied() == "before"
    assert table.said[-1].startswith("Nothing copied: ")
    assert "no file stores it" in table.said[-1]


def test_the_keys_of_a_copy_are_not_the_windows(qtbot: QtBot, table: Table) -> None:
    window = QMainWindow()
    qtbot.addWidget(window)
    fired: list[str] = []
    action = QAction("Copy tensor name", window)
    action.setShortcut("Ctrl+Shift+C")
    action.triggered.connect(lambda: fired.append("window"))
    window.addAction(action)
    view = TableView(table.selection, LIGHT)
    window.setCentralWidget(view)
    with qtbot.waitExposed(window):
        window.show()
    window.activateWindow()
    view.setFocus()
    qtbot.waitUntil(view.grid.hasFocus)
    table.open(tensor_of(array_source(np.array([[7]], np.int8))))
    view.go_to((0, 0))
    with qtbot.waitSignal(view.grid.copyWanted) as asked:
        QTest.keyClick(view.grid, Qt.Key.Key_C, CONTROL | SHIFT)
    assert asked.args == ["NumPy"]
    assert fired == []
    window.setCentralWidget(None)  # type: ignore[arg-type]
    view.shut()


# ---------------------------------------------------------------- pictures


@pytest.mark.parametrize("ratio", [1, 2])
def test_numbers_stand_right_in_their_cells_and_marks_beside_their_words(table: Table, ratio: int) -> None:
    values = np.full((100, 40), -0.012345678, np.float32)
    values[2, 1], values[3, 1], values[4, 1] = np.nan, np.inf, -np.inf
    values[6] = 1.0
    table.open(tensor_of(array_source(values)))
    table.settle()
    image = table.picture(ratio)
    assert image.size() == table.view.grid.viewport().size() * ratio
    canvas = LIGHT.canvas.upper()
    for cell in ((0, 0), (5, 3), (10, 4)):
        rect = table.rect(cell, ratio)
        corner = table.rect(cell).topLeft()
        near = [QPointF(corner) + QPointF(x, y) for x in (-0.6, 0.6) for y in (-0.5, 0.5)]
        assert table.view.grid.cell_at(near[3]) == cell
        assert all(table.view.grid.cell_at(point) != cell for point in near[:3])
        inked = [x for x in range(rect.left(), rect.right() + 1) if ink(image, x, rect, canvas)]
        away = rect.right() - inked[-1]
        assert 5 * ratio <= away <= 10 * ratio  # one blank
        assert 11.5 * 7 * ratio <= inked[-1] - inked[0] <= 13 * 7.2 * ratio  # −0.012345678
    for row, mark in ((2, LIGHT.nan), (3, LIGHT.positive_infinity), (4, LIGHT.negative_infinity)):
        found = colours(image, table.rect((row, 1), ratio))
        assert found[mark.upper()] > 60 * ratio**2
        assert LIGHT.text.upper() in found or min(QColor(name).lightness() for name in found) < 90  # and the word
        assert mark.upper() not in colours(image, table.rect((row, 2), ratio))


def ink(image: QImage, x: int, rect: QRect, ground: str) -> bool:
    return any(image.pixelColor(x, y).name().upper() != ground for y in range(rect.top(), rect.bottom() + 1))


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=lambda tokens: tokens.name)
def test_a_gap_is_hatched_with_a_red_edge_and_never_a_number(table: Table, tokens: Any) -> None:
    _, tensor = holed()
    table.view.set_tokens(tokens)
    table.open(tensor)
    table.settle()
    image = table.picture()
    hatched, edge = tokens.missing.upper(), tokens.err.upper()
    for cell in ((10, 3), (11, 4)):
        found = colours(image, table.rect(cell))
        assert found[hatched] > 50
        assert found[edge] > 20
        assert tokens.text.upper() not in found
    for cell in ((9, 3), (10, 2), (12, 4), (11, 5)):
        found = colours(image, table.rect(cell))
        assert hatched not in found
        assert edge not in found
    assert colours(image, QRect(table.rect((50, 0)).x(), 200, 4, 4)) == {tokens.canvas.upper(): 16}


def test_only_whole_columns_are_drawn_and_the_rest_is_counted(table: Table) -> None:
    table.open(tensor_of(numbered((50, 1000))))
    table.settle()
    grid = table.view.grid
    (_, right), width = grid.sight[1], grid.viewport().width()
    last = table.rect((0, right - 1))
    assert last.right() < width
    assert right < 1000
    assert table.rect((0, right)).right() >= width
    image = table.picture()
    beyond = QRect(QPoint(last.right() + 2, 30), QSize(max(1, width - last.right() - 3), 200))
    assert set(colours(image, beyond)) == {LIGHT.panel.upper()}
    table.press(Qt.Key.Key_End)
    assert grid.sight[1][1] == 1000


def test_the_selection_is_seen(table: Table) -> None:
    table.open(tensor_of(numbered((50, 10))))
    table.settle()
    table.view.go_to((3, 1))
    table.press(Qt.Key.Key_Right, SHIFT)
    found = colours(table.picture(), table.rect((3, 2)))
    tint = {LIGHT.accentbg.upper(), LIGHT.selin.upper()} & set(found)
    assert sum(found[name] for name in tint) > 500
    assert LIGHT.accent.upper() in found
    assert not tint & set(colours(table.picture(), table.rect((4, 2))))
    assert table.view.caption.text() == "1 × 2 elements selected"


# ---------------------------------------------------------------- states


def lost(name: str) -> UnreadableTensor:
    return UnreadableTensor(name, TensorKey("", name), None, None, None, ())


def undecodable() -> LogicalTensor:
    kind = encoding("float6_e2m3fn")
    return tensor_of(Source((4, 4), kind, lambda region: np.zeros(region.shape, "V1")))


@pytest.mark.parametrize(
    ("make", "name", "title"),
    [
        (lambda: (tensor_of(numbered((2, 2))),), None, "Choose a tensor"),
        (lambda: (tensor_of(numbered((0, 7))),), "w", "No elements"),
        (lambda: (undecodable(),), "w", "Values of dtype float6_e2m3fn cannot be decoded"),
        (lambda: (tensor_of(numbered((2, 2))),), "gone", "gone cannot be read"),
    ],
    ids=["nothing chosen", "no elements", "no decoding", "unreadable"],
)
def test_what_has_no_values_says_so(
    table: Table, make: Callable[[], tuple[LogicalTensor, ...]], name: str | None, title: str
) -> None:
    table.selection.open(checkpoint_of({tensor.name: tensor for tensor in make()}, unreadable=(lost("gone"),)))
    table.selection.choose(name)
    view = table.view
    assert view.state.isVisible()
    assert not view.grid.isVisible()
    assert view.state.title.text().replace("​", "") == title
    assert view.title.badge.text == ""
    view.go_to((0, 0))
    view.copy("TSV")
    assert table.said[-1] == "Nothing copied: no element is selected"
    assert view.blocks.n_bytes_read == 0


def test_another_checkpoint_starts_afresh(table: Table) -> None:
    table.open(tensor_of(array_source(np.full((3, 3), 5, np.int8))))
    assert table.told((1, 1)) == "5"
    table.open(tensor_of(array_source(np.full((3, 3), 6, np.int8))))
    assert table.told((1, 1)) == "6"
    table.selection.open(None)
    assert table.view.state.title.text() == "Choose a tensor"
