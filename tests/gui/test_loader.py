"""The loader gives what the screen wants now, whatever happens meanwhile, and no read can stop it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QCoreApplication
from pytestqt.qtbot import QtBot

from tensormorph.errors import CancelledError, ReadError
from tensormorph.gui.jobs import (
    CellsRequest,
    CellsResult,
    ElementRequest,
    ElementResult,
    SurveyResult,
    TileResult,
    View,
    fitting,
)
from tensormorph.gui.loader import Loader, TileCache
from tensormorph.picture import Levels, Paint, picture
from tensormorph.pyramid import READ_BYTES, LevelOfDetail, Plane, Tile, TileKey, fold, keys
from tensormorph.region import Region
from tests.gui.planes import Source, array_source, tensor_of

RED = Paint.of("mean", Levels(-1, 1), dark=False)
WIDE = Paint.of("mean", Levels(-9, 9), dark=False)


@pytest.fixture
def loader(qtbot: QtBot) -> Iterator[Loader]:
    made = Loader(n_threads=2)
    yield made
    made.close()


class Heard:
    """Collects what a loader gives."""

    def __init__(self, loader: Loader) -> None:
        self.all: list[object] = []
        loader.arrived.connect(self.all.append)

    @property
    def tiles(self) -> dict[TileKey, TileResult]:
        return {result.key: result for result in self.all if isinstance(result, TileResult)}


def view(plane: Plane, wanted: list[TileKey], paint: Paint = RED, number: int = 1, **more: Any) -> View:
    chosen: dict[str, Any] = {"sample_keys": (), "exact_bytes": 1 << 40, "along_rows": True, "marks": False,
                              "tile_pixels": (256, 256), "level": wanted[0].level} | more  # fmt: skip
    return View(plane=plane, keys=tuple(wanted), paint=paint, paint_number=number, **chosen)


def ramp(rows: int = 600, cols: int = 700) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.linspace(-1, 1, rows * cols, dtype=np.float32).reshape(rows, cols)


def expected(values: np.ndarray[Any, Any], key: TileKey, paint: Paint = RED) -> list[list[int]]:
    down, right = key.spans((values.shape[0], values.shape[1]))
    return picture(fold(values[down[0] : down[1], right[0] : right[1]], key.level), paint).tolist()  # type: ignore[no-any-return]


FULL = LevelOfDetail()


def whole(plane: Plane, level: LevelOfDetail = FULL) -> list[TileKey]:
    return keys(1, level, (0, plane.shape[0]), (0, plane.shape[1]))


def test_every_tile_that_is_wanted_comes_with_its_colours(qtbot: QtBot, loader: Loader) -> None:
    values = ramp()
    plane = Plane.of(tensor_of(array_source(values)))
    heard, wanted = Heard(loader), whole(plane)
    loader.show(view(plane, wanted))
    qtbot.waitUntil(lambda: len(heard.tiles) == len(wanted))
    for key in wanted:
        drawn = heard.tiles[key].drawn
        assert drawn is not None
        assert drawn.exact
        assert drawn.pixels.tolist() == expected(values, key)
    assert loader.n_bytes_read == loader.n_bytes_of(1) == values.nbytes


def test_no_read_happens_in_the_gui_thread(qtbot: QtBot, loader: Loader) -> None:
    source = array_source(ramp())
    plane = Plane.of(tensor_of(source))
    heard = Heard(loader)
    loader.survey(1, plane)
    qtbot.waitUntil(lambda: bool(heard.all))
    loader.show(view(plane, whole(plane)))
    loader.ask(ElementRequest(1, tensor_of(source), (1, 2)))
    qtbot.waitUntil(lambda: len(heard.tiles) == 9 and any(isinstance(r, ElementResult) for r in heard.all))
    assert source.threads
    assert threading.get_ident() not in source.threads


def test_finished_tiles_are_coloured_anew_without_reading(qtbot: QtBot, loader: Loader) -> None:
    values = ramp()
    source = array_source(values)
    plane = Plane.of(tensor_of(source))
    heard, wanted = Heard(loader), whole(plane)
    loader.show(view(plane, wanted))
    qtbot.waitUntil(lambda: len(heard.tiles) == len(wanted))
    before = source.n_bytes
    heard.all.clear()
    loader.show(view(plane, wanted, WIDE, 2, drawn={wanted[0]: True}))
    qtbot.waitUntil(lambda: len(heard.tiles) == len(wanted) - 1)
    assert source.n_bytes == before
    drawn = heard.tiles[wanted[3]].drawn
    assert drawn is not None
    assert drawn.pixels.tolist() == expected(values, wanted[3], WIDE)
    assert wanted[0] not in heard.tiles


class Gate:
    """Stops reads until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, region: Region) -> None:
        self.reached.set()
        assert self.open.wait(20)


def test_what_the_screen_no_longer_wants_is_dropped_within_a_megabyte(qtbot: QtBot) -> None:
    gate = Gate()
    source = Source((4096, 4096), array_source(ramp()).encoding, lambda region: np.float32(1), gate)  # type: ignore[arg-type,return-value]
    plane = Plane.of(tensor_of(source))
    loader = Loader(n_threads=1)
    heard = Heard(loader)
    coarse = whole(plane, LevelOfDetail(4, 4))
    loader.show(view(plane, coarse))
    assert gate.reached.wait(10)
    other = [TileKey(1, LevelOfDetail(), 0, 0)]
    loader.show(view(plane, other, number=2))
    gate.open.set()
    qtbot.waitUntil(lambda: other[0] in heard.tiles)
    assert list(heard.tiles) == other
    assert source.n_bytes <= READ_BYTES + 256 * 256 * 4
    loader.close()


def test_a_read_goes_on_while_the_view_moves_and_is_painted_as_the_last_view_wants(qtbot: QtBot) -> None:
    values = ramp(200, 200)
    gate = Gate()
    source = array_source(values, gate)
    plane = Plane.of(tensor_of(source))
    loader = Loader(n_threads=1)
    heard, wanted = Heard(loader), whole(plane)
    loader.show(view(plane, wanted, RED, 1))
    assert gate.reached.wait(10)
    for number in range(2, 30):
        loader.show(view(plane, wanted, WIDE, number))
    gate.open.set()
    qtbot.waitUntil(lambda: bool(heard.tiles))
    drawn = heard.tiles[wanted[0]].drawn
    assert drawn is not None
    assert drawn.pixels.tolist() == expected(values, wanted[0], WIDE)
    assert source.n_bytes == values.nbytes
    loader.close()


def test_a_result_of_an_older_paint_is_not_given_but_painted_again(qtbot: QtBot, loader: Loader) -> None:
    values = ramp(200, 200)
    plane = Plane.of(tensor_of(array_source(values)))
    heard, wanted = Heard(loader), whole(plane)
    loader.show(view(plane, wanted, RED, 1))
    key = wanted[0]
    old = TileResult(key, 1, fold(values, key.level), None)
    loader.show(view(plane, wanted, WIDE, 2))
    loader._results.append(old)
    loader._ring()
    qtbot.waitUntil(lambda: bool(heard.tiles))
    assert {r.paint_number for r in heard.tiles.values()} == {2}
    drawn = heard.tiles[key].drawn
    assert drawn is not None
    assert drawn.pixels.tolist() == expected(values, key, WIDE)


@pytest.mark.parametrize("seed", range(6))
def test_views_that_change_at_any_moment_leave_the_last_one_complete(qtbot: QtBot, loader: Loader, seed: int) -> None:
    values = ramp(3000, 2000)
    chance = random.Random(seed)
    plane = Plane.of(tensor_of(array_source(values)))
    heard = Heard(loader)
    for number in range(1, 25):
        level = LevelOfDetail(chance.randrange(4), chance.randrange(4))
        top, left = chance.randrange(2500), chance.randrange(1500)
        wanted = keys(1, level, (top, top + 400), (left, left + 400))
        loader.show(view(plane, wanted, chance.choice([RED, WIDE]), number))
        for _ in range(chance.randrange(4)):
            QCoreApplication.processEvents()
    heard.all.clear()
    final = keys(1, LevelOfDetail(1, 1), (0, 3000), (0, 2000))
    loader.show(view(plane, final, RED, 99))
    qtbot.waitUntil(lambda: set(heard.tiles) >= set(final), timeout=20_000)
    for key in final:
        drawn = heard.tiles[key].drawn
        assert drawn is not None
        assert drawn.pixels.tolist() == expected(values, key)


def test_a_view_that_comes_back_just_after_its_read_was_broken_off_is_read_again(
    qtbot: QtBot, loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, asked = loader._read_tiles, iter([True])

    def broken_off_once(*args: Any) -> dict[TileKey, Tile]:
        if next(asked, False):
            raise CancelledError  # the view that it belonged to had gone, and is back by now
        return read(*args)

    monkeypatch.setattr(loader, "_read_tiles", broken_off_once)
    plane = Plane.of(tensor_of(array_source(ramp(200, 200))))
    heard, wanted = Heard(loader), whole(plane)
    loader.show(view(plane, wanted))
    qtbot.waitUntil(lambda: bool(heard.tiles))
    assert heard.tiles[wanted[0]].drawn is not None


# ---------------------------------------------------------------- failures


def test_a_failing_part_is_missing_and_the_rest_comes(qtbot: QtBot, loader: Loader) -> None:
    values = ramp(2000, 2000)
    bad = Region((512, 0), (768, 2000))

    def refuse(region: Region) -> None:
        if region.intersect(bad) is not None:
            raise ReadError("model.safetensors", "the disk said no")

    plane = Plane.of(tensor_of(array_source(values, refuse)))
    heard, wanted = Heard(loader), whole(plane)
    loader.show(view(plane, wanted))
    qtbot.waitUntil(lambda: len(heard.tiles) == len(wanted))
    for key, result in heard.tiles.items():
        assert result.drawn is not None
        assert result.tile is not None
        if key.row == 2:
            assert result.tile.missing.all()
            assert result.drawn.missing == ((0, *result.tile.shape[:1], 0, result.tile.shape[1]),)
            assert any("the disk said no" in problem.sentence for problem in result.drawn.problems)
        elif key.row in (0, 5, 6):
            assert result.drawn.missing == ()


@pytest.mark.parametrize("error", [ReadError("f", "no"), OSError(5, "Input/output error"), ValueError("a bug")])
def test_no_exception_ends_a_thread(qtbot: QtBot, error: Exception) -> None:
    fails = [True]

    def maybe(region: Region) -> None:
        if fails[0]:
            raise error

    source = array_source(ramp(100, 100), maybe)
    plane = Plane.of(tensor_of(source))
    loader = Loader(n_threads=1)
    heard, wanted = Heard(loader), whole(plane)
    loader.survey(1, plane)
    qtbot.waitUntil(lambda: bool(heard.all))
    first = heard.all[0]
    assert isinstance(first, SurveyResult)
    assert first.survey is not None
    assert first.survey.count == 0
    assert len(first.survey.problems) == 1
    loader.show(view(plane, wanted))
    loader.ask(ElementRequest(1, tensor_of(source), (0, 0)))
    qtbot.waitUntil(lambda: len(heard.all) == 3)
    result = heard.tiles[wanted[0]]
    assert result.tile is not None
    assert result.tile.missing.all()
    answer = next(r for r in heard.all if isinstance(r, ElementResult))
    assert answer.problem is not None
    assert answer.value is None
    fails[0] = False
    loader.cache.clear()
    heard.all.clear()
    loader.show(view(plane, wanted, number=2))
    qtbot.waitUntil(lambda: bool(heard.tiles))
    again = heard.tiles[wanted[0]].tile
    assert again is not None
    assert not again.missing.any()
    loader.close()


def test_an_error_outside_any_read_is_a_result_too(qtbot: QtBot, loader: Loader) -> None:
    class Broken(Source):
        @property
        def dtype(self) -> np.dtype[Any]:
            raise RuntimeError("a bug in the source")

    good = array_source(ramp(100, 100))
    plane = Plane.of(Broken(good.shape, good.encoding, lambda region: np.zeros(region.shape, np.float32)))
    heard = Heard(loader)
    loader.survey(5, plane)
    qtbot.waitUntil(lambda: bool(heard.all))
    answer = heard.all[0]
    assert isinstance(answer, SurveyResult)
    assert answer.problem is not None
    assert answer.problem.sentence == "RuntimeError: a bug in the source"


def test_what_costs_more_than_it_may_says_how_much_it_needs(qtbot: QtBot, loader: Loader) -> None:
    source = Source(
        (1 << 14, 1 << 14), array_source(ramp()).encoding, lambda region: np.zeros(region.shape, np.float32)
    )
    plane = Plane.of(tensor_of(source))
    heard, wanted = Heard(loader), whole(plane, LevelOfDetail(6, 6))
    loader.show(view(plane, wanted, exact_bytes=1 << 20))
    qtbot.waitUntil(lambda: bool(heard.tiles))
    assert heard.tiles[wanted[0]].tile is None
    assert heard.tiles[wanted[0]].needed > 32 << 20
    assert source.n_bytes == 0


def test_closing_does_not_wait_for_a_read_that_is_stuck(qtbot: QtBot) -> None:
    gate = Gate()
    source = array_source(ramp(), gate)
    plane = Plane.of(tensor_of(source))
    loader = Loader(n_threads=1)
    heard = Heard(loader)
    loader.show(view(plane, whole(plane)))
    loader.ask(ElementRequest(1, tensor_of(source), (0, 0)))
    assert gate.reached.wait(10)
    loader.close()  # hangs here, if it waits
    gate.open.set()
    with qtbot.assertNotEmitted(loader.arrived, wait=100):
        loader._ring()
    assert heard.all == []


def test_threads_end_when_closed(qtbot: QtBot) -> None:
    before = set(threading.enumerate())
    loader = Loader(n_threads=3)
    own = set(threading.enumerate()) - before
    assert len(own) == 4
    loader.close()
    for thread in own:
        thread.join(10)
    assert not any(thread.is_alive() for thread in own)


# ---------------------------------------------------------------- samples


def test_a_sample_comes_first_and_the_exact_tile_takes_its_place(qtbot: QtBot) -> None:
    values = ramp(2048, 512)
    plane = Plane.of(tensor_of(array_source(values)))
    loader = Loader(n_threads=1)
    heard, wanted = Heard(loader), whole(plane, LevelOfDetail(4, 2))
    loader.show(view(plane, wanted, sample_keys=tuple(wanted)))
    qtbot.waitUntil(lambda: len(heard.all) == 2)
    drawn = [r.drawn for r in heard.all if isinstance(r, TileResult)]
    assert [d is not None and d.exact for d in drawn] == [False, True]
    assert drawn[0] is not None
    assert drawn[0].step > 1
    assert drawn[1] is not None
    assert drawn[1].pixels.tolist() == expected(values, wanted[0])
    loader.close()


def test_nothing_exact_is_read_where_nothing_may_be(qtbot: QtBot, loader: Loader) -> None:
    values = ramp(2048, 512)
    source = array_source(values)
    plane = Plane.of(tensor_of(source))
    heard, wanted = Heard(loader), whole(plane, LevelOfDetail(4, 2))
    loader.show(view(plane, wanted, sample_keys=tuple(wanted), exact_bytes=0))
    qtbot.waitUntil(lambda: len(heard.all) == 1)
    loader.ask(ElementRequest(1, tensor_of(source), (0, 0)))
    qtbot.waitUntil(lambda: len(heard.all) == 2)
    assert source.n_bytes == values.nbytes // 8 + 4


# ---------------------------------------------------------------- cache


def test_the_cache_keeps_what_was_used_last_within_its_bytes() -> None:
    tiles = {TileKey(1, LevelOfDetail(), 0, k): Tile.blank((8, 8)) for k in range(5)}
    one = Tile.blank((8, 8)).n_bytes
    cache = TileCache(3 * one)
    names = list(tiles)
    for key in names[:3]:
        cache.put(key, tiles[key])
    assert cache.get(names[0]) is tiles[names[0]]
    cache.put(names[3], tiles[names[3]])
    assert cache.n_bytes == 3 * one
    assert cache.get(names[1]) is None
    assert cache.get(names[0]) is not None
    cache.clear()
    assert cache.n_bytes == 0


def test_a_sample_never_replaces_an_exact_tile() -> None:
    cache, key = TileCache(), TileKey(1, LevelOfDetail(), 0, 0)
    exact, sample = Tile.blank((4, 4)), Tile.blank((4, 4))
    sample.exact = False
    cache.put(key, sample)
    cache.put(key, exact)
    cache.put(key, sample)
    assert cache.get(key) is exact
    assert cache.n_bytes == exact.n_bytes


# ---------------------------------------------------------------- single elements


def test_an_element_is_read_alone_with_its_place(qtbot: QtBot, loader: Loader) -> None:
    values = ramp(40, 30)
    source = array_source(values)
    heard = Heard(loader)
    loader.ask(ElementRequest(1, tensor_of(source), (7, 9)))
    qtbot.waitUntil(lambda: bool(heard.all))
    answer = heard.all[0]
    assert isinstance(answer, ElementResult)
    assert (answer.text, answer.value) == (str(values[7, 9]), float(values[7, 9]))
    assert [(h.file, h.offset, h.rank) for h in answer.holders] == [("model.safetensors", 1000 + 4 * (7 * 30 + 9), 3)]
    assert source.n_bytes == loader.n_bytes_read == 4


def test_of_questions_that_wait_only_the_last_is_answered(qtbot: QtBot) -> None:
    gate = Gate()
    tensor = tensor_of(array_source(ramp(40, 30), gate))
    loader = Loader(n_threads=1)
    heard = Heard(loader)
    loader.ask(ElementRequest(1, tensor, (0, 0)))
    assert gate.reached.wait(10)
    for k in range(1, 20):
        loader.ask(ElementRequest(1, tensor, (k, k)))
    gate.open.set()
    qtbot.waitUntil(lambda: len(heard.all) == 2)
    assert [r.index for r in heard.all if isinstance(r, ElementResult)] == [(0, 0), (19, 19)]
    loader.close()


def test_cells_are_texts_of_the_elements(qtbot: QtBot, loader: Loader) -> None:
    values = np.array([[1.5, -0.25, 1e-12], [np.nan, np.inf, 123456.78]], np.float32)
    plane = Plane.of(tensor_of(array_source(values)))
    heard = Heard(loader)
    loader.ask(CellsRequest(1, plane, (0, 2), (0, 3), 6))
    qtbot.waitUntil(lambda: bool(heard.all))
    answer = heard.all[0]
    assert isinstance(answer, CellsResult)
    assert answer.texts == (("1.5", "−0.25", "1e−12"), ("NaN", "Inf", "123457"))
    assert answer.rounded


@pytest.mark.parametrize(
    ("value", "room", "shown"),
    [
        (np.float32(0.1), 5, ("0.1", True)),
        (np.float32(-0.0023841858), 8, ("−0.00238", False)),
        (np.float32(-0.0023841858), 5, ("−2e−3", False)),
        (np.float32(0.5), 2, ("", False)),
        (np.int64(-(2**62)), 6, ("−5e18", False)),
        (np.complex64(1 + 2j), 8, ("1.0+2.0j", True)),
        (np.complex64(1 + 2j), 4, ("", False)),
        (np.float64("inf"), 2, ("", False)),
    ],
)
def test_texts_are_rounded_to_the_room_and_say_so(value: Any, room: int, shown: tuple[str, bool]) -> None:
    assert fitting(value, room) == shown
