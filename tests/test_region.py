"""Boxes against numpy masks: all pairs in a small grid, so that no wrong corner can hide."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensormorph.region import Region, flat_range

GRID = (3, 3)
RUNS = [(low, high) for low in range(4) for high in range(low, 4)]
BOXES = [Region((a, c), (b, d)) for (a, b), (c, d) in itertools.product(RUNS, RUNS)]
HUGE = 1 << 80


def mask(region: Region, shape: tuple[int, ...] = GRID) -> NDArray[np.bool_]:
    """The elements of a region, painted by numpy."""
    cells = np.zeros(shape, bool)
    cells[region.slices()] = True
    return cells


def bits(region: Region) -> int:
    """The elements of a region of the grid as a set of bits."""
    return sum(1 << int(i) for i in np.flatnonzero(mask(region)))


BITS = {box: bits(box) for box in BOXES}


def all_pairs() -> itertools.product[tuple[Region, Region]]:
    return itertools.product(BOXES, BOXES)


def test_the_grid_has_a_hundred_boxes_and_both_shape_and_size_count_their_elements() -> None:
    assert len(BITS) == 100
    for box in BOXES:
        assert box.size == BITS[box].bit_count() == math.prod(box.shape)
        assert box.empty == (BITS[box] == 0)
        assert mask(box).sum() == box.size


def test_the_intersection_holds_exactly_the_common_elements() -> None:
    for a, b in all_pairs():
        shared = a.intersect(b)
        if BITS[a] & BITS[b]:
            assert shared is not None
            assert BITS[shared] == BITS[a] & BITS[b]
        else:
            assert shared is None, f"{a} and {b}"


def test_the_difference_is_disjoint_exact_small_and_without_empty_boxes() -> None:
    for a, b in all_pairs():
        left = a.minus(b)
        covered = 0
        for box in left:
            assert BITS[box], f"{a} minus {b} has an empty box"
            assert not covered & BITS[box], f"{a} minus {b} holds an element twice"
            covered |= BITS[box]
        assert covered == BITS[a] & ~BITS[b], f"{a} minus {b}"
        assert len(left) <= 2 * len(GRID)


def test_a_region_contains_another_when_no_element_is_outside() -> None:
    for a, b in all_pairs():
        assert a.contains(b) == (BITS[b] & ~BITS[a] == 0), f"{a} contains {b}"


def test_coordinates_within_an_outer_box_lead_back() -> None:
    for box, outer in all_pairs():
        inside = all(
            first <= low and high <= last
            for low, high, first, last in zip(box.start, box.stop, outer.start, outer.stop, strict=True)
        )
        if not inside:
            with pytest.raises(ValueError, match="is not inside"):
                box.within(outer)
            continue
        local = box.within(outer)
        assert local.offset_by(outer.start) == box
        cells = np.zeros(GRID, bool)
        cells[outer.slices()][local.slices()] = True
        assert (cells == mask(box)).all()


def test_a_region_without_axes_is_one_element() -> None:
    scalar = Region((), ())
    assert scalar == Region.whole(())
    assert (scalar.size, scalar.shape, scalar.ndim, scalar.empty, scalar.slices()) == (1, (), 0, False, ())
    assert scalar.intersect(scalar) == scalar
    assert scalar.contains(scalar)
    assert scalar.minus(scalar) == ()
    assert scalar.within(scalar) == scalar.offset_by(()) == scalar
    assert str(scalar) == "all"


@st.composite
def boxes_in_three_dimensions(draw: st.DrawFn) -> Region:
    ends = [sorted(draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))) for _ in range(3)]
    return Region(tuple(low for low, _ in ends), tuple(high for _, high in ends))


@settings(deadline=None, max_examples=200)
@given(boxes_in_three_dimensions(), boxes_in_three_dimensions())
def test_boxes_of_three_axes_obey_numpy_too(a: Region, b: Region) -> None:
    shape = (5, 5, 5)
    shared = a.intersect(b)
    assert ((mask(a, shape) & mask(b, shape)) == (mask(shared, shape) if shared else False)).all()
    times = sum((mask(box, shape).astype(int) for box in a.minus(b)), np.zeros(shape, int))
    assert (times == (mask(a, shape) & ~mask(b, shape))).all()


def test_extents_beyond_sixty_four_bits_are_exact() -> None:
    whole = Region.whole((HUGE, HUGE))
    assert whole.size == HUGE * HUGE
    corner = Region((HUGE - 1, HUGE - 2), (HUGE, HUGE))
    assert sum(box.size for box in whole.minus(corner)) == HUGE * HUGE - 2
    assert corner.within(corner).offset_by(corner.start) == corner
    [(box, at)] = flat_range((HUGE, HUGE), HUGE * HUGE - 1, HUGE * HUGE)
    assert (box.start, at) == ((HUGE - 1, HUGE - 1), HUGE * HUGE - 1)


def test_a_region_reads_as_numpy_writes_it() -> None:
    assert str(Region((0, 384), (192, 768))) == "0:192, 384:768"


@pytest.mark.parametrize(
    ("start", "stop"), [((0,), (1, 2)), ((2,), (1,)), ((-1,), (1,)), ((0, 5), (1, 4)), ((), (1,))], ids=str
)
def test_what_is_no_half_open_box_is_refused(start: tuple[int, ...], stop: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"axes|half-open"):
        Region(start, stop)


def test_regions_of_different_tensors_do_not_mix() -> None:
    flat, square = Region((0,), (2,)), Region((0, 0), (2, 2))
    for ask in (flat.intersect, flat.minus, flat.within, flat.contains):
        with pytest.raises(ValueError, match=r"axes|inside"):
            ask(square)
    with pytest.raises(ValueError, match=r"zip|shorter|longer"):
        square.offset_by((1,))


SHAPES = [
    (), (0,), (1,), (5,), (1, 4), (4, 1), (2, 3), (3, 2), (0, 3), (3, 0), (1, 1, 3), (3, 1, 2), (1, 3, 1), (2, 3, 4),
    (2, 2, 2, 2), (2, 1, 2, 1, 2),
]  # fmt: skip


def assert_run_is_split_exactly(shape: tuple[int, ...], first: int, last: int) -> int:
    """Check the boxes of a run against the positions that numpy gives them; return how many there are."""
    positions = np.arange(math.prod(shape)).reshape(shape)
    expected, n_boxes = first, 0
    for box, at in flat_range(shape, first, last):
        held = positions[box.slices()].ravel()
        assert at == expected
        assert held.tolist() == list(range(at, at + box.size)), f"{box} of {shape} is not contiguous"
        expected += box.size
        n_boxes += 1
    assert expected == last
    return n_boxes


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_run_of_a_small_shape_splits_into_few_boxes_in_order(shape: tuple[int, ...]) -> None:
    total = math.prod(shape)
    for first in range(total + 1):
        for last in range(first, total + 1):
            assert assert_run_is_split_exactly(shape, first, last) <= max(1, 2 * len(shape) - 1)


def test_the_bound_on_boxes_is_reached() -> None:
    assert assert_run_is_split_exactly((4, 4, 4), 1, 63) == 5


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple), st.data())
def test_any_run_of_any_shape_splits_into_few_boxes(shape: tuple[int, ...], data: st.DataObject) -> None:
    total = math.prod(shape)
    first = data.draw(st.integers(0, total))
    last = data.draw(st.integers(first, total))
    assert assert_run_is_split_exactly(shape, first, last) <= 2 * len(shape) - 1


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (3, 2), (0, 7)])
def test_a_run_outside_the_tensor_is_refused(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="of 6 elements"):
        list(flat_range((2, 3), first, last))
