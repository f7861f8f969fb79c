"""Gaps and overlaps of boxes, against boxes painted into an array of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensormorph import coverage as module
from tensormorph.coverage import MOST_TOLD, coverage, tiles
from tensormorph.region import Region

Boxes = tuple[NDArray[np.int64], NDArray[np.int64]]


def arrays(boxes: list[Region], ndim: int) -> Boxes:
    low = np.array([box.start for box in boxes], np.int64).reshape(len(boxes), ndim)
    high = np.array([box.stop for box in boxes], np.int64).reshape(len(boxes), ndim)
    return low, high


def painted(shape: tuple[int, ...], boxes: list[Region]) -> NDArray[np.int64]:
    """Return how many different boxes hold each element."""
    counts = np.zeros(shape, np.int64)
    for box in dict.fromkeys(boxes):
        counts[box.slices()] += 1
    return counts


@st.composite
def covered(draw: Any) -> tuple[tuple[int, ...], list[Region]]:
    """A grid over a small tensor, uneven as torch cuts, with boxes lost, doubled, moved and emptied."""
    shape = tuple(draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
    edges = []
    for extent in shape:
        step = max(1, draw(st.integers(1, 4)))
        edges.append([(low, min(extent, low + step)) for low in range(0, extent, step)] or [(0, 0)])
    grid = [Region(tuple(low for low, _ in cell), tuple(high for _, high in cell)) for cell in _product(edges)]
    boxes = [box for box in grid if draw(st.integers(0, 9))]
    for _ in range(draw(st.integers(0, 2))):
        start = tuple(draw(st.integers(0, extent)) for extent in shape)
        stop = tuple(draw(st.integers(low, extent)) for low, extent in zip(start, shape, strict=True))
        boxes.append(Region(start, stop))
    if boxes and draw(st.integers(0, 1)):
        boxes.append(boxes[draw(st.integers(0, len(boxes) - 1))])
    shuffled: list[Region] = list(draw(st.permutations(boxes)))
    return shape, shuffled


def _product(edges: list[list[tuple[int, int]]]) -> list[tuple[tuple[int, int], ...]]:
    out: list[tuple[tuple[int, int], ...]] = [()]
    for axis in edges:
        out = [(*cell, edge) for cell in out for edge in axis]
    return out


@settings(max_examples=400, deadline=None)
@given(covered())
def test_gaps_and_overlaps_are_those_of_the_painted_boxes(case: tuple[tuple[int, ...], list[Region]]) -> None:
    shape, boxes = case
    low, high = arrays(boxes, len(shape))
    counts = painted(shape, boxes)
    found = coverage(shape, low, high)
    assert found.n_missing == int((counts == 0).sum())
    assert found.whole == bool((counts > 0).all())
    assert tiles(shape, low, high) == bool((counts == 1).all())
    missing = np.zeros(shape, np.int64)
    for gap in found.gaps:
        missing[gap.slices()] += 1
    assert np.array_equal(missing, (counts == 0).astype(np.int64))
    assert bool(found.overlaps) == bool((counts > 1).any())
    for a, b, shared in found.overlaps:
        assert boxes[a] != boxes[b]
        assert boxes[a].intersect(boxes[b]) == shared


def test_a_scalar_is_held_by_any_box() -> None:
    one = np.empty((1, 0), np.int64)
    assert tiles((), one, one)
    assert tiles((), one[[0, 0]], one[[0, 0]])
    none = np.empty((0, 0), np.int64)
    assert not tiles((), none, none)
    assert coverage((), none, none).n_missing == 1


def test_copies_are_no_overlap_and_empty_boxes_hold_nothing() -> None:
    low, high = arrays([Region((0,), (3,)), Region((0,), (3,)), Region((3,), (5,)), Region((5,), (5,))], 1)
    assert tiles((5,), low, high)
    assert coverage((5,), low, high).overlaps == ()


def test_a_large_grid_is_known_by_its_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sweep and no cut: the cost of 64 x 64 boxes is a few sorts."""
    monkeypatch.setattr(module, "_overlaps", None)
    monkeypatch.setattr(module, "_outside", None)
    edges = np.arange(64) * 8
    low = np.stack(np.meshgrid(edges, edges), -1).reshape(-1, 2)
    assert tiles((512, 512), low, low + 8)


def test_a_hostile_pile_of_boxes_comes_to_an_end() -> None:
    """Five thousand boxes, each over all others: so many overlaps are told, the rest is left."""
    n = 5000
    low = np.stack([np.arange(n), np.zeros(n, np.int64)], 1)
    high = np.full((n, 2), 2 * n)
    found = coverage((2 * n, 2 * n), low, high)
    assert len(found.overlaps) == MOST_TOLD
    assert found.n_missing == 0


def test_gaps_that_take_too_many_cuts_are_counted_by_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_STEPS", 10)
    low = np.array([[2 * i, 2 * (i % 7)] for i in range(50)])
    found = coverage((100, 14), low, low + 1)
    assert found.n_missing == 1400 - 50
    assert found.gaps == ()
    crossed = coverage((100, 14), np.concatenate([low, [[0, 0]]]), np.concatenate([low + 1, [[99, 3]]]))
    assert crossed.n_missing is None
    assert not crossed.whole
