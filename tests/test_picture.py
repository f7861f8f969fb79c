"""Values become colours by the rule that is named, and what is no ordinary value never looks like one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensormorph import colours
from tensormorph.picture import (
    REDUCTIONS,
    Levels,
    Paint,
    boxes,
    levels,
    picture,
    pixel,
    pixel_starts,
    reduced,
    shade,
    to_pixels,
    two_digits,
)
from tensormorph.pyramid import LevelOfDetail, Plane, fold
from tensormorph.survey import Held, Survey, survey


def seen(values: NDArray[Any]) -> Survey:
    return survey(Plane.of(Held(np.atleast_2d(values), ())), lambda: False, lambda n: None)


def paint(low: float = -1, high: float = 1, dark: bool = False) -> Paint:
    return Paint.of("mean", Levels(low, high), dark)


def rgb(colour: str) -> int:
    return pixel(colour)


# ---------------------------------------------------------------- reductions


def test_each_reduction_is_what_its_name_says() -> None:
    block = np.array([[1.0, -3.0], [2.0, np.nan]])
    tile = fold(block, LevelOfDetail(1, 1))
    assert {r: float(reduced(tile, r)[0, 0]) for r in REDUCTIONS} == {
        "mean": 0.0,
        "envelope": -3.0,
        "absolute maximum": 3.0,
        "RMS": pytest.approx(np.sqrt(14 / 3)),
    }


def test_a_block_without_a_finite_value_has_no_reduced_value() -> None:
    tile = fold(np.array([[np.nan, np.inf]]), LevelOfDetail(0, 1))
    assert all(np.isnan(reduced(tile, r)[0, 0]) for r in REDUCTIONS)


def test_the_mean_of_the_largest_numbers_is_not_infinite() -> None:
    tile = fold(np.full((2, 2), 1.7e308), LevelOfDetail(1, 1))
    assert reduced(tile, "mean")[0, 0] == 1.7e308


# ---------------------------------------------------------------- levels


def test_zero_centred_levels_hold_99_in_100_magnitudes_rounded_to_two_digits() -> None:
    values = np.arange(-500, 500, dtype=np.float32) / 4000
    values[0] = 1e6
    assert levels(seen(values), "zero-centred", False) == Levels(-0.12, 0.12)
    assert levels(seen(values), "zero-centred", True) == Levels(0, 0.12)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=400))
def test_the_survey_finds_the_99_in_100_that_numpy_finds(values: list[float]) -> None:
    found = seen(np.array(values))
    inside = np.abs(np.array(values)) <= found.most
    assert inside.mean() >= 0.99
    assert (np.abs(np.array(values)) < found.most).mean() < 0.99
    assert (found.low, found.high) == (min(values), max(values))
    assert found.exact


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0] * 500, Levels(-1, 1)),
        ([0.0] * 500 + [-7.0], Levels(-7, 7)),
        ([np.nan, np.inf], Levels(-1, 1)),
        ([1.7976931348623157e308], Levels(-1.7976931348623157e308, 1.7976931348623157e308)),
        ([5e-324], Levels(-5e-324, 5e-324)),
    ],
)
def test_levels_exist_whatever_the_values_are(values: list[float], expected: Levels) -> None:
    assert levels(seen(np.array(values)), "zero-centred", False) == expected


def test_min_to_max_is_what_it_says() -> None:
    values = np.array([-3.0, 1.0, 9.0])
    assert levels(seen(values), "min to max", False) == Levels(-3, 9)
    assert levels(seen(values), "min to max", True) == Levels(0, 9)
    assert levels(seen(np.array([2.0, 2.0])), "min to max", False) == Levels(1.5, 2.5)
    huge = levels(seen(np.array([1.7e308])), "min to max", False)
    assert huge.low < 1.7e308 < huge.high


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_levels_that_are_no_range_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="levels"):
        Levels(low, high)


def test_two_digits() -> None:
    assert [two_digits(v) for v in (0.1249, 99.6, 0.0, 1e-9)] == [0.12, 100.0, 0.0, 1e-9]


# ---------------------------------------------------------------- colours


def test_zero_is_the_canvas_and_the_ends_are_the_ends_of_the_table() -> None:
    for dark in (False, True):
        table = colours.colour_map("diverging", dark)
        ends = [0xFF000000 | int(r) << 16 | int(g) << 8 | int(b) for r, g, b in (table[0], table[255])]
        shaded = shade(np.array([[-1.0, 0.0, 1.0, -50.0, 50.0]]), paint(dark=dark))
        canvas = rgb(colours.CANVAS["dark" if dark else "light"])
        assert shaded.tolist() == [[ends[0], canvas, ends[1], ends[0], ends[1]]]


def test_colours_rise_through_the_table_one_by_one() -> None:
    own = paint(0, 256)
    shaded = shade(np.arange(256, dtype=np.float64).reshape(1, 256) + 0.5, own)
    assert shaded[0].tolist() == own.table.tolist()


def test_levels_as_far_apart_as_float64_goes_still_shade() -> None:
    own = paint(-1.7e308, 1.7e308)
    assert shade(np.array([[-1.7e308, 1.7e308]]), own).tolist() == [[int(own.table[0]), int(own.table[255])]]


def test_a_block_with_any_nan_or_infinity_is_drawn_as_that() -> None:
    values = np.zeros((4, 8), np.float32)
    values[0, 0] = np.nan
    values[0, 1] = values[1, 2] = np.inf
    values[1, 3] = values[2, 4] = -np.inf
    made = picture(fold(values, LevelOfDetail(2, 1)), paint())
    own = paint()
    assert made.tolist() == [[own.nan, own.posinf, own.neginf, own.canvas]]
    assert own.nan == rgb("#CC00FF")


def test_a_missing_block_has_no_colour_of_a_value() -> None:
    tile = fold(np.full((2, 4), 1.0, np.float32), LevelOfDetail(1, 1))
    tile.missing[0, 1] = True
    made = picture(tile, paint())
    assert made[0, 0] == paint().table[255]
    assert made[0, 1] == paint().canvas


def test_marks_are_no_colours_of_any_table_in_use() -> None:
    for dark in (False, True):
        for kind in (Levels(-1, 1), Levels(0, 1)):
            own = Paint.of("mean", kind, dark)
            assert not {own.nan, own.posinf, own.neginf} & set(own.table.tolist())


# ---------------------------------------------------------------- device pixels


@given(st.integers(1, 256), st.integers(128, 256))
def test_every_block_falls_into_one_pixel_and_none_is_empty(n: int, tile_pixels: int) -> None:
    starts = pixel_starts(n, tile_pixels)
    place = [k * tile_pixels // 256 for k in range(n)]
    assert len(starts) == place[-1] + 1
    assert [place[int(s)] for s in starts] == list(range(len(starts)))
    assert starts[0] == 0


def test_a_tile_folded_to_pixels_keeps_an_outlier_at_its_place() -> None:
    values = np.zeros((256, 256), np.float32)
    values[3, 255], values[255, 0] = 7, np.nan
    small = to_pixels(fold(values), 129, 400)
    assert small.shape == (129, 256)
    assert np.argwhere(small.high == 7).tolist() == [[3 * 129 // 256, 255]]
    assert np.argwhere(small.n_nan).tolist() == [[128, 0]]
    assert picture(small, paint()).flags.c_contiguous
    same = fold(values)
    assert to_pixels(same, 256, 300) is same


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**81 - 1))
def test_boxes_hold_exactly_the_true_entries(rows: int, cols: int, bits: int) -> None:
    mask = np.array([bits >> k & 1 for k in range(rows * cols)], np.bool_).reshape(rows, cols)
    drawn = np.zeros(mask.shape, np.int64)
    for row, row_stop, col, col_stop in boxes(mask):
        drawn[row:row_stop, col:col_stop] += 1
    assert np.array_equal(drawn, mask)


def test_a_full_mask_is_one_box() -> None:
    assert boxes(np.ones((5, 7), np.bool_)) == [(0, 5, 0, 7)]


# ---------------------------------------------------------------- surveys


def test_a_survey_of_a_large_plane_is_a_sample_and_says_of_how_many() -> None:
    class Large(Held):
        reads = 0

        def read_into(self, region: Any, out: NDArray[Any], /) -> None:
            type(self).reads += out.nbytes
            super().read_into(region, out)

    values = np.broadcast_to(np.linspace(-1, 1, 4096, dtype=np.float32), (1 << 13, 4096))
    plane = Plane.of(Large(values, ()))
    total: list[int] = []
    found = survey(plane, lambda: False, total.append)
    assert found.plane is plane
    assert not found.exact
    assert Large.reads <= 2 << 20
    assert sum(total) == Large.reads
    assert found.step == values.nbytes // Large.reads
    assert (found.low, found.high) == (-1, 1)
    assert found.most == pytest.approx(0.99, abs=0.001)
    assert found.mean is None


def test_a_survey_of_a_small_plane_holds_it_with_its_moments() -> None:
    values = np.array([[1.0, 2.0], [3.0, np.nan]], np.float32)
    found = seen(values)
    assert found.held
    assert found.mean == 2.0
    assert found.deviation == pytest.approx(np.std([1, 2, 3]))
    assert found.count == 3
