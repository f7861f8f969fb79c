"""Elements and device pixels: tiles meet without seams, every element is somewhere, nothing is squeezed out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormorph.gui.axes import ticks
from tensormorph.gui.camera import LARGEST, WHOLE_FROM, Camera, Lens

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

COUNTS = st.one_of(st.integers(1, 3000), st.sampled_from([151_936, 10**6, 10**9]))
LENSES = st.builds(Lens.at_scale, COUNTS, st.integers(1, 3000), st.floats(-12, 8).map(lambda e: 2.0**e))


@given(LENSES, st.data())
def test_every_pixel_of_the_picture_shows_an_element_and_finds_it_again(lens: Lens, data: st.DataObject) -> None:
    pixel = data.draw(st.integers(0, lens.extent - 1))
    element = lens.element(pixel + lens.origin)
    assert element is not None
    assert 0 <= element < lens.n
    if lens.tile <= 256:
        assert lens.place(element) == pixel
    else:
        assert lens.place(element) <= pixel < lens.place(element + 1)
    assert lens.element(lens.origin - 1) is None
    assert lens.element(lens.origin + lens.extent) is None


@given(LENSES)
def test_a_tile_takes_whole_pixels_and_a_large_element_too(lens: Lens) -> None:
    for k in range(min(4, lens.n >> (lens.shift + 8))):
        assert lens.place(k * 256 << lens.shift) == k * lens.tile
    assert lens.tile >= 128
    if lens.shift:
        assert lens.tile <= 256
    if lens.scale >= WHOLE_FROM:
        assert lens.tile % 256 == 0


@given(COUNTS, st.integers(1, 3000), st.integers(8, LARGEST))
def test_what_is_fitted_fits_and_wastes_little(n: int, pixels: int, largest: int) -> None:
    lens = Lens.fit(n, pixels, largest)
    assert 0 < lens.extent <= pixels
    assert lens.scale <= largest
    if lens.scale < WHOLE_FROM:
        assert lens.extent > pixels * 0.98 - 2
    assert lens.visible == (0, n)


@given(LENSES, st.integers(-5000, 5000), st.integers(-5000, 5000))
def test_a_picture_cannot_be_lost_by_moving_it(lens: Lens, first: int, second: int) -> None:
    moved = lens.moved(first).moved(second)
    assert moved.origin <= 0
    low, high = moved.visible
    assert low < high
    if lens.extent >= lens.pixels:
        assert moved.origin + moved.extent >= moved.pixels
    else:
        assert moved.origin == 0


@given(st.integers(1, 5000), st.integers(1, 5000), st.floats(1.05, 3), st.integers(0, 599), st.integers(0, 799))
def test_zooming_in_always_gets_closer_and_out_comes_back_to_the_fit(
    rows: int, cols: int, factor: float, down: int, right: int
) -> None:
    fit = Camera.fit((rows, cols), (600, 800), 1.0, 120)
    camera, steps = fit, 0
    while camera.right.scale < LARGEST or camera.down.scale < LARGEST:
        closer = camera.zoomed(factor, (down, right), fit)
        assert closer.right.scale > camera.right.scale or camera.right.scale == LARGEST
        assert closer.down.scale > camera.down.scale or camera.down.scale == LARGEST
        camera, steps = closer, steps + 1
        assert steps < 1000
    for _ in range(2 * steps + 50):
        camera = camera.zoomed(1 / factor, (down, right), fit)
    assert camera.right.scale <= max(1.0, fit.right.scale)
    assert camera.zoomed(0.01, (down, right), fit).right.scale == pytest.approx(min(1, fit.right.scale), rel=0.01)


@given(LENSES, st.floats(-6, 7), st.data())
def test_what_is_under_the_pointer_stays_there(lens: Lens, power: float, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, lens.pixels - 1))
    before = (at - lens.origin) / lens.scale
    made = lens.scaled(2.0**power, at)
    if made.origin in (0, made.pixels - made.extent):
        return  # at an end of the picture something has to give
    assert abs((at - made.origin) / made.scale - before) <= 1 / made.scale


def test_one_to_one_is_one_pixel_an_element() -> None:
    lens = Lens.at_scale(1000, 300, 1.0)
    assert (lens.shift, lens.tile, lens.extent, lens.scale) == (0, 256, 1000, 1.0)


@given(COUNTS, st.floats(0, 1), st.floats(0.001, 1), st.integers(50, 2000), st.integers(30, 80))
def test_ticks_are_multiples_of_one_power_of_two_and_the_end(
    n: int, part: float, share: float, pixels: int, least: int
) -> None:
    first = part * n * (1 - share)
    last = first + share * n
    places = ticks(n, first, last, pixels, least)
    inner = [place for place in places if place != n]
    assert places == sorted(set(places))
    assert all(0 <= place <= n for place in places)
    assert all(first <= place <= last for place in inner)
    if len(inner) > 1:
        step = inner[1] - inner[0]
        assert step & (step - 1) == 0
        assert all(place % step == 0 for place in inner)
        assert step * pixels / (last - first) >= least * 0.999
    if last >= n:
        assert places[-1] == n
    if len(places) > 1:
        gap = (places[-1] - places[-2]) * pixels / (last - first)
        assert gap >= least * 0.7 or places[-2] == 0


def test_ticks_of_the_mock() -> None:
    assert ticks(1536, 0, 1536, 617, 64) == [0, 256, 512, 768, 1024, 1280, 1536]
    assert ticks(384, 0, 384, 440, 40) == [0, 64, 128, 192, 256, 320, 384]
    assert ticks(5, 0, 6.5, 780, 64) == [0, 1, 2, 3, 4, 5]
    assert ticks(5, 0, 0, 780, 64) == []


def test_a_cell_is_where_its_element_is_drawn() -> None:
    camera = Camera.fit((5, 7), (500, 700), 1.0, 96)
    assert camera.cell(1, 2) == (96, 192, 192, 288)
    far = Camera.fit((5000, 7000), (500, 700), 1.0, 96)
    top, bottom, left, right = far.cell(4999, 0)
    assert (bottom - top, right - left) == (1, 1)
    assert top == far.down.extent - 1
    assert far.element((top, left)) == (math.floor(4999 / 16) * 16, 0)
