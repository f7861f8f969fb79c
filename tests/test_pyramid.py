"""Folding a plane into tiles loses no extreme, no NaN, no Inf and no edge, at any level, however it is cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensormorph.array import Piece
from tensormorph.dtypes import encodings
from tensormorph.errors import CancelledError, LimitError, Problem, ReadError, UnsupportedDtypeError
from tensormorph.picture import pixel_starts
from tensormorph.pyramid import (
    READ_BYTES,
    LevelOfDetail,
    Plane,
    Tile,
    TileKey,
    exact_bytes,
    fold,
    keys,
    numbers,
    sampled_tile,
    sampled_tiles,
    sampling,
    tile,
    tiles,
)
from tensormorph.region import Region


class Memory:
    """An ArraySource over an array that cuts pieces along any axis, counts, and can fail where told."""

    def __init__(self, values: NDArray[Any], fails: Callable[[Region], bool] = lambda region: False) -> None:
        self.values, self.fails = values, fails
        self.read: list[Region] = []

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        if self.fails(region):
            raise ReadError("part.bin", "the disk said no")
        self.read.append(region)
        out[...] = self.values[region.slices()]

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        stack = [region]
        while stack:
            part = stack.pop()
            n_bytes = part.size * self.values.dtype.itemsize
            if n_bytes > max_bytes and part.size > 1:
                axis = next(k for k, n in enumerate(part.shape) if n > 1)
                half = (part.start[axis] + part.stop[axis]) // 2
                stop, start = list(part.stop), list(part.start)
                stop[axis] = start[axis] = half
                stack += [Region(tuple(start), part.stop), Region(part.start, tuple(stop))]
            elif part.size:
                yield Piece(part, n_bytes)


class Cuts(Memory):
    """Gives pieces of random boxes, in random order."""

    def __init__(self, values: NDArray[Any], seed: int, fails: Callable[[Region], bool] = lambda region: False) -> None:
        super().__init__(values, fails)
        self.seed = seed

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        # The same cuts for every question about one region, as storage would give.
        chance = random.Random(f"{self.seed} {region}")
        parts = [region] if region.size else []
        for _ in range(12):
            part = parts.pop(chance.randrange(len(parts))) if parts else None
            if part is None:
                return
            axis = chance.randrange(part.ndim)
            at = chance.randint(part.start[axis], part.stop[axis])
            stop, start = list(part.stop), list(part.start)
            stop[axis] = start[axis] = at
            halves = (Region(part.start, tuple(stop)), Region(tuple(start), part.stop))
            parts += [half for half in halves if half.size]
        chance.shuffle(parts)
        yield from (Piece(part, part.size * self.values.dtype.itemsize) for part in parts)


def never() -> bool:
    return False


def blocks_of(values: NDArray[Any], level: LevelOfDetail) -> Iterator[tuple[int, int, NDArray[Any]]]:
    high, wide = 1 << level.rows, 1 << level.cols
    for row in range(-(-values.shape[0] // high)):
        for col in range(-(-values.shape[1] // wide)):
            yield row, col, values[row * high : (row + 1) * high, col * wide : (col + 1) * wide]


def assert_holds(made: Tile, values: NDArray[Any], level: LevelOfDetail) -> None:
    """Compare a tile with numpy, block by block; `values` are real."""
    assert made.shape == (-(-values.shape[0] >> level.rows), -(-values.shape[1] >> level.cols))
    for row, col, block in blocks_of(values, level):
        wide = block.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        at = (row, col)
        assert made.count[at] == finite.size
        assert made.n_nan[at] == np.isnan(wide).sum()
        assert made.n_posinf[at] == (wide == np.inf).sum()
        assert made.n_neginf[at] == (wide == -np.inf).sum()
        assert made.low[at] == finite.min(initial=np.inf)
        assert made.high[at] == finite.max(initial=-np.inf)
        size = np.abs(finite).sum()
        assert abs(made.total[at] - finite.sum()) <= 1e-12 * size
        assert made.squares[at] == pytest.approx(np.square(finite).sum(), rel=1e-12, abs=0)


def strewn(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Return random values with NaN and both infinities strewn in."""
    chance = np.random.default_rng(seed)
    values = (chance.standard_normal(shape) * 10.0 ** chance.integers(-3, 4, shape)).astype(dtype)
    values[chance.random(shape) < 0.02] = np.nan
    values[chance.random(shape) < 0.02] = np.inf
    values[chance.random(shape) < 0.02] = -np.inf
    return values


# How long a case takes says nothing on a machine that others use.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

LEVELS = st.builds(LevelOfDetail, st.integers(0, 6), st.integers(0, 6))
SHAPES = st.tuples(st.integers(1, 70), st.integers(1, 70))
SEEDS = st.integers(0, 2**32 - 1)


@given(SHAPES, LEVELS, SEEDS)
def test_no_extreme_no_nan_no_inf_and_no_edge_is_lost_at_any_level(
    shape: tuple[int, int], level: LevelOfDetail, seed: int
) -> None:
    values = strewn(shape, seed)
    assert_holds(fold(values, level), values, level)


@given(SHAPES, LEVELS, SEEDS, st.booleans())
def test_a_tile_is_the_same_in_whatever_pieces_and_order_it_was_read(
    shape: tuple[int, int], level: LevelOfDetail, seed: int, flipped: bool
) -> None:
    values = strewn(shape, seed)
    plane = Plane(Cuts(values, seed), (1,), (0,)) if flipped else Plane.of(Cuts(values, seed))
    assert_holds(tile(plane, TileKey(0, level, 0, 0), never), values.T if flipped else values, level)


@given(SHAPES, LEVELS, SEEDS, st.integers(0, 70))
def test_merging_parts_in_any_order_is_folding_the_whole(
    shape: tuple[int, int], level: LevelOfDetail, seed: int, cut: int
) -> None:
    values = strewn(shape, seed)
    rows = [values[k :: 3 + cut % 5] for k in range(3 + cut % 5)]
    parts: list[Tile] = []
    for k, part in enumerate(rows):
        # The rows of a part, laid where they belong, and what is not of it left out by hand.
        laid = np.full(shape, 0.0, np.float32)
        laid[k :: len(rows)] = part
        only = Tile.blank(fold(values, level).shape)
        for row in range(k, shape[0], len(rows)):
            line = fold(laid[row : row + 1], LevelOfDetail(0, level.cols))
            padded = Tile.blank(only.shape)
            for name in ("low", "high", "total", "squares", "count", "n_nan", "n_posinf", "n_neginf"):
                getattr(padded, name)[row >> level.rows] = getattr(line, name)[0]
            only = only.merge(padded)
        parts.append(only)
    random.Random(seed).shuffle(parts)
    merged = parts[0]
    for more in parts[1:]:
        merged = merged.merge(more)
    assert_holds(merged, values, level)


def test_tiles_of_other_shapes_do_not_merge() -> None:
    with pytest.raises(ValueError, match="blocks"):
        Tile.blank((2, 2)).merge(Tile.blank((2, 3)))


@settings(max_examples=25)
@given(SHAPES, SEEDS, st.integers(128, 256), st.integers(128, 256))
def test_blocks_folded_to_device_pixels_lose_nothing(shape: tuple[int, int], seed: int, high: int, wide: int) -> None:
    values = strewn(shape, seed)
    rows, cols = pixel_starts(shape[0], high), pixel_starts(shape[1], wide)
    made = fold(values).regroup(rows, cols)
    for i, (top, bottom) in enumerate(zip(rows, [*rows[1:], shape[0]], strict=True)):
        for j, (left, right) in enumerate(zip(cols, [*cols[1:], shape[1]], strict=True)):
            block = fold(values[top:bottom, left:right], LevelOfDetail(7, 7))
            for name in ("low", "high", "count", "n_nan", "n_posinf", "n_neginf"):
                assert getattr(made, name)[i, j] == getattr(block, name)[0, 0]


def test_nan_in_the_first_and_nine_in_the_last_corner_survive_every_level() -> None:
    values = np.zeros((5, 5), np.float32)
    values[0, 0], values[4, 4] = np.nan, 9.0
    for rows in range(5):
        for cols in range(5):
            made = fold(values, LevelOfDetail(rows, cols))
            assert made.n_nan[0, 0] == 1
            assert made.n_nan.sum() == 1
            assert made.high[-1, -1] == 9.0
            assert made.count.sum() == 24


@pytest.mark.parametrize(("shape", "shifts"), [((15193, 89), (0, 3, 7, 14)), ((1, 1_000_000), (0, 5, 12, 20))])
def test_every_level_of_long_thin_planes_has_all_elements_in_some_tile(
    shape: tuple[int, int], shifts: tuple[int, ...]
) -> None:
    values = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape) % 1021
    plane = Plane.of(Memory(values))
    for rows in shifts[:2] if shape[0] == 1 else shifts:
        for cols in shifts:
            level = LevelOfDetail(rows, cols)
            wanted = keys(0, level, (0, shape[0]), (0, shape[1]))
            if len(wanted) > 200:
                continue
            count, total = 0, 0.0
            for key in wanted:
                made = tile(plane, key, never)
                assert max(made.shape) <= 256
                count += int(made.count.sum())
                total += float(made.total.sum())
            assert (count, total) == (values.size, float(values.sum(dtype=np.float64)))


def test_the_last_tile_of_a_tall_plane_is_its_short_edge() -> None:
    plane = Plane.of(Memory(np.broadcast_to(np.float32(1), (151936, 896))))
    level = LevelOfDetail(9, 1)
    wanted = keys(0, level, (0, 151936), (0, 896))
    assert [(key.row, key.col) for key in wanted] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    made = sampled_tile(plane, wanted[3], never)
    assert made.shape == (41, 192)
    assert (made.count > 0).all()


# ---------------------------------------------------------------- element types


@pytest.mark.parametrize("name", [e.name for e in encodings() if e.readable])
def test_every_element_type_folds_as_its_float64_values_do(name: str) -> None:
    dtype = next(e.dtype for e in encodings() if e.name == name)
    chance = np.random.default_rng(7)
    if dtype.kind == "c":
        values = (chance.standard_normal((9, 13)) + 1j * chance.standard_normal((9, 13))).astype(dtype)
        values[0, 0], values[8, 12], values[4, 4] = complex(np.nan, np.inf), complex(1, -np.inf), 0
        real = np.abs(values.astype(np.complex128))
        real[0, 0] = np.nan
    elif dtype.kind in "iu":
        ends = np.iinfo(dtype)
        values = chance.integers(ends.min, ends.max, (9, 13), dtype=dtype, endpoint=True)
        values[0, 0], values[8, 12] = ends.min, ends.max
        real = values.astype(np.float64)
    elif dtype.kind == "b":
        values = chance.random((9, 13)) < 0.5
        real = values.astype(np.float64)
    else:
        codes = chance.integers(0, 256, (9, 13 * dtype.itemsize), dtype=np.uint8)
        values = (codes & 15 if name.startswith("float4") else codes).view(dtype)
        real = values.astype(np.float64)
    for level in (LevelOfDetail(), LevelOfDetail(1, 2), LevelOfDetail(4, 4)):
        # Sums of numbers near the end of float64 overflow; that is said, and tested on its own.
        bounded = np.where(np.abs(real) > 1e100, np.inf, real) if name in ("float64", "complex128") else real
        folded = np.where(np.abs(real) > 1e100, np.inf, real) if name == "float64" else values
        assert_holds(fold(folded, level), bounded, level)


def test_whole_numbers_of_64_bits_are_compared_before_they_are_rounded() -> None:
    values = np.array([[2**63 - 1, 2**63 - 2, -(2**63), 2**53 + 1]], np.int64)
    made = fold(values, LevelOfDetail(0, 2))
    assert (made.low[0, 0], made.high[0, 0]) == (-(2.0**63), 2.0**63)
    assert fold(np.array([[2**64 - 1, 0]], np.uint64), LevelOfDetail(0, 1)).high[0, 0] == 2.0**64
    assert fold(values[:, 3:], LevelOfDetail()).low[0, 0] == 2.0**53


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(np.float16, 65504.0), (ml_dtypes.bfloat16, 3.3895314e38), (np.float32, 3.4028235e38), (np.int8, -128)],
)
def test_sums_of_the_largest_values_do_not_overflow(dtype: Any, value: float) -> None:
    values = np.full((300, 400), value, dtype)
    made = fold(values, LevelOfDetail(9, 9))
    exactly = float(values[0, 0])
    assert made.total[0, 0] == pytest.approx(exactly * 120_000, rel=1e-6)
    assert made.squares[0, 0] == pytest.approx(exactly**2 * 120_000, rel=1e-6)


def test_small_values_beside_large_ones_keep_their_part_in_the_sum() -> None:
    values = np.full((512, 512), 1e-3, np.float32)
    values[0, 0] = 1e6
    made = fold(values, LevelOfDetail(9, 9))
    assert made.total[0, 0] == pytest.approx(values.astype(np.float64).sum(), rel=1e-12)


def test_a_complex_value_of_finite_parts_is_never_infinite() -> None:
    values = np.array([[complex(1.7e308, 1.7e308)]])
    assert numbers(values)[0, 0] == np.finfo(np.float64).max
    assert fold(values).n_posinf[0, 0] == 0


def test_bytes_that_nothing_decodes_are_refused() -> None:
    with pytest.raises(UnsupportedDtypeError):
        fold(np.zeros((2, 2), "V1"))


# ---------------------------------------------------------------- planes


def test_by_default_a_plane_is_the_last_two_axes_at_zero_on_the_others() -> None:
    values = np.arange(2 * 3 * 4 * 5, dtype=np.float64).reshape(2, 3, 4, 5)
    plane = Plane.of(Memory(values))
    assert (plane.rows, plane.cols, plane.at, plane.shape) == ((2,), (3,), (0, 0), (4, 5))
    assert np.array_equal(tile(plane, TileKey(0, LevelOfDetail(), 0, 0), never).low, values[0, 0])


@pytest.mark.parametrize("rows", range(4))
@pytest.mark.parametrize("cols", range(4))
def test_any_two_axes_of_a_tensor_show_the_elements_that_numpy_finds(rows: int, cols: int) -> None:
    values = np.arange(3 * 4 * 5 * 6, dtype=np.float32).reshape(3, 4, 5, 6)
    if rows == cols:
        with pytest.raises(ValueError, match="not the same"):
            Plane(Memory(values), (rows,), (cols,), (0, 0, 0))
        return
    plane = Plane(Memory(values), (rows,), (cols,), (1, 2))
    index: list[Any] = [0] * 4
    for axis, at in zip(plane.fixed, (1, 2), strict=True):
        index[axis] = at
    index[rows] = index[cols] = slice(None)
    expected = values[tuple(index)] if rows < cols else values[tuple(index)].T
    assert np.array_equal(tile(plane, TileKey(0, LevelOfDetail(), 0, 0), never).low, expected)
    assert values[plane.index(2, 1)] == expected[2, 1]
    assert plane.cell(plane.index(2, 1)) == (2, 1)
    moved = list(plane.index(2, 1))
    moved[plane.fixed[0]] = 0
    assert plane.cell(moved) is None


def test_scalars_vectors_and_empty_tensors_are_planes() -> None:
    scalar = Plane.of(Memory(np.full((), 3, np.float32)))
    assert scalar.shape == (1, 1)
    assert tile(scalar, TileKey(0, LevelOfDetail(), 0, 0), never).low.tolist() == [[3.0]]
    vector = Plane.of(Memory(np.arange(4.0)))
    assert vector.shape == (1, 4)
    column = Plane(Memory(np.arange(4.0)), (0,), ())
    assert tile(column, TileKey(0, LevelOfDetail(), 0, 0), never).low.tolist() == [[0.0], [1.0], [2.0], [3.0]]
    for shape in ((0,), (0, 5), (3, 0, 4)):
        empty = Plane.of(Memory(np.zeros(shape)))
        assert 0 in empty.shape
        assert keys(0, LevelOfDetail(), (0, empty.shape[0]), (0, empty.shape[1])) == []
    assert Plane.of(Memory(np.zeros((0, 4, 5)))).shape == (0, 0)


@pytest.mark.parametrize(("rows", "cols", "at"), [((0,), (1,), ()), ((2,), (3,), (0,)), ((0,), (1,), (5,)),
                                                  ((0, 1), (2,), ())])  # fmt: skip
def test_axes_that_are_no_partition_are_refused(
    rows: tuple[int, ...], cols: tuple[int, ...], at: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"axes|axis"):
        Plane(Memory(np.zeros((2, 3, 4))), rows, cols, at)


# ---------------------------------------------------------------- reading


def test_neighbours_read_in_one_pass_are_the_tiles_read_alone() -> None:
    values = strewn((300, 700), 5)
    plane = Plane.of(Cuts(values, 5))
    wanted = keys(3, LevelOfDetail(0, 0), (0, 300), (0, 700))
    together = tiles(plane, wanted, never)
    assert list(together) == wanted
    for key in wanted:
        down, right = key.spans(plane.shape)
        assert_holds(together[key], values[down[0] : down[1], right[0] : right[1]], LevelOfDetail())


@settings(max_examples=30)
@given(SEEDS, LEVELS, st.booleans())
def test_a_read_that_fails_costs_only_its_part(seed: int, level: LevelOfDetail, flipped: bool) -> None:
    values = strewn((60, 50), seed)
    chance = random.Random(seed)
    bad = Region((chance.randrange(60), chance.randrange(50)), (60, 50))
    source = Cuts(values, seed, lambda region: region.intersect(bad) is not None)
    whole = Region.whole((60, 50))
    lost = np.zeros((60, 50), np.bool_)
    for piece in source.pieces(whole, READ_BYTES):
        lost[piece.region.slices()] = source.fails(piece.region)
    plane = Plane(source, (1,), (0,)) if flipped else Plane.of(source)
    made = tile(plane, TileKey(0, level, 0, 0), never)
    if flipped:
        lost, values = lost.T, values.T
    for row, col, block in blocks_of(lost, level):
        assert made.missing[row, col] == block.any()
    for row, col, block in blocks_of(np.where(lost, np.nan, values), level):
        assert made.count[row, col] == np.isfinite(block).sum()
        assert made.low[row, col] == block[np.isfinite(block)].min(initial=np.inf)
    assert lost.any() == bool(made.problems)
    assert all(problem.sentence == "Reading failed: the disk said no" for problem in made.problems)


def test_a_source_that_fails_to_tell_its_pieces_loses_what_it_did_not_tell() -> None:
    class Unsure(Memory):
        def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
            yield Piece(Region((0, 0), (2, 4)), 32)
            raise ReadError("part.bin", "the directory of the file is broken")

    made = tile(Plane.of(Unsure(np.ones((4, 4)))), TileKey(0, LevelOfDetail(), 0, 0), never)
    assert made.missing.tolist() == [[False] * 4] * 2 + [[True] * 4] * 2
    assert [p.code for p in made.problems] == ["read-failed"]


def test_an_error_that_is_not_ours_is_kept_as_such() -> None:
    class Broken(Memory):
        def read_into(self, region: Region, out: NDArray[Any], /) -> None:
            raise ZeroDivisionError("a bug")

    made = tile(Plane.of(Broken(np.zeros((2, 2)))), TileKey(0, LevelOfDetail(), 0, 0), never)
    assert made.missing.all()
    assert [(p.code, p.sentence) for p in made.problems] == [("internal-error", "ZeroDivisionError: a bug")]


def test_pieces_that_storage_does_not_hold_are_missing_in_samples_wherever_they_lie() -> None:
    class Gap(Memory):
        def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
            hole = Region((700, 100), (701, 101))
            gone = region.intersect(hole)
            if gone is None:
                yield from super().pieces(region, max_bytes)
                return
            yield Piece(gone, 0, Problem("gap", "error", "stored nowhere", region=gone))
            for part in region.minus(hole):
                yield from super().pieces(part, max_bytes)

    plane = Plane.of(Gap(np.ones((1024, 1024), np.float32)))
    made = sampled_tile(plane, TileKey(0, LevelOfDetail(5, 5), 0, 0), never)
    assert np.argwhere(made.missing).tolist() == [[700 >> 5, 100 >> 5]]
    assert [p.sentence for p in made.problems] == ["stored nowhere"]
    assert not made.exact


def test_a_picture_that_costs_too_much_is_refused_before_anything_is_read() -> None:
    source = Memory(np.ones((4096, 1024), np.float32))
    with pytest.raises(LimitError) as caught:
        tile(Plane.of(source), TileKey(0, LevelOfDetail(4, 2), 0, 0), never, max_bytes=8 << 20)
    assert caught.value.found > 8 << 20
    assert source.read == []
    assert exact_bytes(Plane.of(source), (0, 10), (0, 10), 1 << 30) == 400


@pytest.mark.parametrize("after", [0, 1, 3])
def test_reading_stops_when_cancelled_within_a_megabyte(after: int) -> None:
    source = Memory(np.ones((4096, 1024), np.float32))
    asked = iter([False] * after + [True])
    with pytest.raises(CancelledError):
        tile(Plane.of(source), TileKey(0, LevelOfDetail(4, 2), 0, 0), lambda: next(asked))
    assert sum(region.size * 4 for region in source.read) == after * READ_BYTES


# ---------------------------------------------------------------- sampling


@given(
    st.tuples(st.integers(1, 2000), st.integers(1, 2000)),
    st.builds(LevelOfDetail, st.integers(0, 11), st.integers(0, 11)),
    st.booleans(),
)
@settings(max_examples=40)
def test_every_block_of_a_sample_has_a_value_and_the_ratio_is_told(
    shape: tuple[int, int], level: LevelOfDetail, flipped: bool
) -> None:
    source = Memory(np.ones(shape, np.int8))
    plane = Plane(source, (1,), (0,)) if flipped else Plane.of(source)
    wanted = keys(0, level, (0, plane.shape[0]), (0, plane.shape[1]))[:3]
    made = sampled_tiles(plane, wanted, never)
    for key in wanted:
        assert (made[key].count > 0).all()
        down, right = key.spans(plane.shape)
        covered = (down[1] - down[0]) * (right[1] - right[0])
        if made[key].exact:
            assert made[key].step == 1
            assert made[key].count.sum() == covered
        else:
            assert made[key].step >= 2
            assert made[key].count.sum() < covered


def test_samples_are_whole_lines_along_the_faster_axis_and_never_single_elements() -> None:
    source = Memory(np.ones((8192, 2048), np.float32))
    plane, flipped = Plane.of(source), Plane(source, (1,), (0,))
    wanted = keys(0, LevelOfDetail(6, 4), (0, 8192), (0, 2048))
    made = sampled_tiles(plane, wanted, never)
    assert {region.shape for region in source.read} == {(1, 2048)}
    assert len(source.read) == 128
    assert made[wanted[0]].step == 64
    source.read.clear()
    sampled_tiles(flipped, keys(0, LevelOfDetail(4, 6), (0, 2048), (0, 8192)), never)
    assert {region.shape for region in source.read} == {(1, 2048)}


def test_short_lines_are_sampled_as_bands_of_a_page() -> None:
    source = Memory(np.ones((100_003, 32), np.float32))
    wanted = keys(0, LevelOfDetail(9, 0), (0, 100_003), (0, 32))
    made = sampled_tiles(Plane.of(source), wanted, never)
    assert {region.shape for region in source.read} == {(32, 32)}
    assert (made[wanted[0]].count == 32).all()
    assert made[wanted[0]].step == 16


def test_a_band_that_fails_is_missing_in_its_block_alone() -> None:
    values = np.arange(1024 * 512, dtype=np.float32).reshape(1024, 512)
    bad = Region((320, 0), (352, 512))
    source = Memory(values, lambda region: region.intersect(bad) is not None)
    made = sampled_tile(Plane.of(source), TileKey(0, LevelOfDetail(5, 4), 0, 0), never)
    assert np.flatnonzero(made.missing.all(axis=1)).tolist() == [10]
    assert np.flatnonzero(made.missing.any(axis=1)).tolist() == [10]
    assert ((made.count > 0) == ~made.missing).all()
    rows = values.reshape(32, 32, 512)
    held = ~made.missing
    assert (made.low >= rows.min(axis=1).reshape(32, 32, 16).min(axis=2))[held].all()
    assert (made.high <= rows.max(axis=1).reshape(32, 32, 16).max(axis=2))[held].all()


def test_lines_too_long_to_read_are_sampled_by_runs_in_every_block() -> None:
    class Huge(Memory):
        @property
        def shape(self) -> tuple[int, ...]:
            return (2, 10**9)

        def read_into(self, region: Region, out: NDArray[Any], /) -> None:
            self.read.append(region)
            out[...] = 1

    source = Huge(np.ones(1, np.float32))
    plane = Plane.of(source)
    level = LevelOfDetail(0, 21)
    wanted = keys(0, level, (0, 2), (0, 10**9))
    made = sampled_tiles(plane, wanted, never)
    assert all((made[key].count == 1024).all() or key.col == 1 for key in wanted)
    assert all((made[key].count > 0).all() for key in wanted)
    read = sum(region.size * 4 for region in source.read)
    assert read == sampling(plane, level, (0, 2), (0, 10**9), along_rows=True).n_bytes
    assert read < 4 << 20
    assert made[wanted[0]].step == round(2 * 10**9 / (read / 4))


def test_a_sample_finds_the_column_that_differs() -> None:
    values = np.zeros((4096, 512), np.float32)
    values[:, 77] = 5
    made = sampled_tile(Plane.of(Memory(values)), TileKey(0, LevelOfDetail(5, 1), 0, 0), never)
    assert np.argwhere(made.high[0] == 5).tolist() == [[38]]
    assert (made.high[:, 38] == 5).all()


def test_tiles_of_one_value_take_little_memory_and_say_how_much() -> None:
    made = tile(Plane.of(Memory(np.zeros((256, 256), np.float32))), TileKey(0, LevelOfDetail(), 0, 0), never)
    assert made.n_bytes <= 256 * 256 * 8 * 2 + 100
    full = Tile.blank((256, 256))
    assert full.n_bytes == 256 * 256 * (8 * 8 + 1)
