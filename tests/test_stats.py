"""Statistics agree with oracles that know nothing of ours: exact fractions, or numpy in float64."""

from __future__ import annotations

import math
import os
import pickle
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import tensormorph
from tensormorph import moments, stats
from tensormorph.array import Piece
from tensormorph.audit import check_values
from tensormorph.dtypes import encoding, encodings
from tensormorph.errors import CancelledError, Problem, ReadError, UnsupportedDtypeError
from tensormorph.model import LogicalTensor
from tensormorph.moments import Moments
from tensormorph.region import Region
from tensormorph.stats import FirstBad, Statistics, statistics, unread_problem
from tests.checkpoints import checkpoint
from tests.memory_source import MemoryFile, MemorySource, Part, cut, store, tensor

READABLE = [kind.name for kind in encodings() if kind.readable]
FLOATS = [kind.name for kind in encodings() if kind.readable and kind.kind == "float"]


# ---------------------------------------------------------------- oracles


def root(square: Fraction) -> float:
    """Return the square root, rounded from fifty digits; works where no float64 holds the square."""
    with localcontext() as context:
        context.prec = 50
        context.Emax, context.Emin = 10**6, -(10**6)
        exact = (Decimal(square.numerator) / Decimal(square.denominator)).sqrt()
        return float(exact)  # beyond the longest float64 this is infinite


def assert_exact(found: Statistics, values: Sequence[int | float], tolerance: float = 1e-12) -> None:
    """Compare with exact fractions; `values` are finite, and at least one."""
    exact = [Fraction(v) for v in values]
    n = len(exact)
    mean = sum(exact, Fraction(0)) / n
    assert found.n_finite == n
    assert (found.min, found.max) == (min(values), max(values))
    assert found.abs_max == max(abs(v) for v in values)
    assert max(float(found.std or 0), float(found.rms or 0)) <= found.abs_max
    assert found.l2 is not None
    assert found.l2 >= float(found.abs_max)
    assert float(min(values)) <= float(found.mean or 0) <= float(max(values))
    assert found.n_zero == sum(v == 0 for v in values)
    # A mean far below the values themselves is a difference of theirs: it cannot be nearer than their last bits.
    assert found.mean == pytest.approx(float(mean), rel=tolerance, abs=float(found.abs_max) * 1e-14)
    smallest = 5e-324
    std = root(sum(((v - mean) ** 2 for v in exact), Fraction(0)) / n)
    assert found.std == pytest.approx(std, rel=tolerance, abs=max(smallest, float(found.abs_max) * 1e-14))
    square = sum((v * v for v in exact), Fraction(0))
    assert found.rms == pytest.approx(root(square / n), rel=tolerance, abs=smallest)
    norm = root(square)
    assert found.l2 == pytest.approx(norm, rel=tolerance, abs=smallest) or (
        found.l2 == math.inf and norm > 1.797693e308
    )


def assert_numpy(found: Statistics, values: NDArray[Any]) -> None:
    """Compare with numpy's two passes in float64; complex values by their magnitude."""
    with np.errstate(all="ignore"):
        nan = np.isnan(values)
        size = np.abs(values.astype(np.complex128)) if values.dtype.kind == "c" else values
    size = np.where(nan, np.nan, size) if values.dtype.kind == "c" else size
    posinf, neginf = np.asarray(size == np.inf), np.asarray(size == -np.inf)
    assert (found.n_nan, found.n_posinf, found.n_neginf) == (int(nan.sum()), int(posinf.sum()), int(neginf.sum()))
    bad = np.argwhere(np.asarray(nan | posinf | neginf))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        kind = "nan" if nan[index] else "+inf" if posinf[index] else "-inf"
        assert found.first_bad is not None
        assert (found.first_bad.index, found.first_bad.kind) == (index, kind)
    else:
        assert found.first_bad is None
    finite = np.asarray(size)[np.asarray(~(nan | posinf | neginf))]
    assert found.n_elements == values.size
    assert found.n_finite == finite.size
    assert found.n_zero == int((finite == 0).sum())
    numbers = (found.min, found.max, found.mean, found.std, found.rms, found.abs_max, found.l2)
    if not finite.size:
        assert numbers == (None,) * 7
        return
    wide = finite.astype(np.float64)
    if finite.dtype.kind in "iu":
        assert (found.min, found.max) == (int(finite.min()), int(finite.max()))
    else:
        assert (found.min, found.max) == (float(wide.min()), float(wide.max()))
    assert found.min is not None
    assert found.max is not None
    assert found.abs_max == max(abs(found.min), abs(found.max))
    near = 1e-12 * float(np.abs(wide).max())
    assert found.mean == pytest.approx(float(wide.mean()), rel=1e-9, abs=near)
    assert found.std == pytest.approx(float(wide.std()), rel=1e-9, abs=near)
    assert found.rms == pytest.approx(math.sqrt(float((wide * wide).mean())), rel=1e-9)
    assert found.l2 == pytest.approx(float(np.linalg.norm(wide)), rel=1e-9)


def of(values: NDArray[Any], kind: str | None = None) -> Statistics:
    """Return the statistics of an array that lies in one file."""
    whole = Region.whole(values.shape)
    stored = encoding(kind or values.dtype.name)
    return statistics(tensor(values.shape, cut(values, [whole], stored), stored))


def drawn(kind: str, shape: tuple[int, ...], seed: int = 5) -> NDArray[Any]:
    """Return values of a type with zeros of both signs and, where it has them, NaN and infinities among them."""
    rng = np.random.default_rng(seed)
    dtype = encoding(kind).dtype
    if kind == "bool":
        return rng.random(shape) < 0.4
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.2, dtype.type(0), values)
    with np.errstate(all="ignore"):
        if dtype.kind == "c":
            part = np.float32 if kind == "complex64" else np.float64
            real, imag = (drawn(np.dtype(part).name, shape, seed + i) for i in range(2))
            both = np.empty(shape, dtype)
            both.real, both.imag = real, imag
            return both
        values = (rng.standard_normal(shape) * 3).astype(dtype)
        for share, special in ((0.1, 0.0), (0.1, -0.0), (0.05, np.nan), (0.05, np.inf), (0.05, -np.inf)):
            values = np.where(rng.random(shape) < share, np.array(special).astype(dtype), values)
    return values


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 9), (3, 4, 5)])
@pytest.mark.parametrize("kind", READABLE)
def test_every_type_agrees_with_numpy(kind: str, shape: tuple[int, ...]) -> None:
    for seed in range(4):
        values = drawn(kind, shape, seed)
        assert_numpy(of(values, kind), values)


@pytest.mark.parametrize("kind", READABLE)
def test_runs_longer_than_one_step_agree_with_numpy(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps and an odd rest, in numbers and in codes."""
    monkeypatch.setattr(moments, "_STEP", 64)
    monkeypatch.setattr(moments, "_CODES_STEP", 64)
    values = drawn(kind, (191,))
    assert_numpy(of(values, kind), values)
    last = np.ones(191, encoding(kind).dtype)
    if encoding(kind).kind == "float" and np.isnan(np.array(np.nan).astype(last.dtype)):
        last[190] = np.nan
        assert_numpy(of(last, kind), last)


@pytest.mark.parametrize("kind", [name for name in FLOATS if name.startswith(("float8", "float4"))])
def test_every_code_of_a_small_type_is_what_its_own_conversion_says(kind: str) -> None:
    dtype = encoding(kind).dtype
    codes = np.arange(16 if kind.startswith("float4") else 256, dtype=np.uint8)
    for code in np.split(codes, len(codes)):
        assert_numpy(of(code.view(dtype), kind), code.view(dtype))
    many = np.repeat(codes, 3).view(dtype)
    assert_numpy(of(many, kind), many)


def test_every_code_of_bfloat16_and_float16() -> None:
    for kind in ("bfloat16", "float16"):
        values = np.arange(1 << 16, dtype=np.uint16).view(encoding(kind).dtype)
        assert_numpy(of(values, kind), values)


@pytest.mark.parametrize(
    ("kind", "bits"),
    [("float16", 0x7D00), ("bfloat16", 0x7FA0), ("float32", 0x7FA00000), ("float64", 0x7FF4000000000000)],
)
def test_a_nan_that_signals_is_a_nan(kind: str, bits: int) -> None:
    """And no warning, which would be an error here."""
    dtype = encoding(kind).dtype
    values = np.ones(40, dtype)
    values.view(f"u{dtype.itemsize}")[17] = bits
    found = of(values, kind)
    assert (found.n_nan, found.n_finite, found.mean) == (1, 39, 1.0)
    assert found.first_bad is not None
    assert found.first_bad.index == (17,)


def test_bfloat16_ones_have_mean_one_and_no_deviation() -> None:
    """R110."""
    found = of(np.ones(768, ml_dtypes.bfloat16), "bfloat16")
    assert (found.mean, found.std, found.rms) == (1.0, 0.0, 1.0)
    assert found.l2 == pytest.approx(math.sqrt(768))


@pytest.mark.parametrize("value", [0.1, 1 / 3, -3.3e38, 1e-45, 0.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_values_have_no_deviation_at_all(dtype: type[np.floating[Any]], value: float) -> None:
    for n in (1, 3, 10, 77, 50_001, 200_001):
        found = of(np.full(n, value, dtype))
        assert found.mean == found.min == found.max == float(dtype(value))
        assert found.std == 0.0


@pytest.mark.parametrize("kind", [name for name in FLOATS if name != "float4_e2m1fn"])
def test_all_nan_has_no_numbers(kind: str) -> None:
    """R113."""
    found = of(np.full((3, 4), np.nan).astype(encoding(kind).dtype), kind)
    assert found.exact
    assert (found.n_nan, found.n_finite, found.n_zero) == (12, 0, 0)
    assert (found.min, found.max, found.mean, found.std, found.rms, found.abs_max, found.l2) == (None,) * 7
    assert found.first_bad is not None
    assert (found.first_bad.index, found.first_bad.kind) == ((0, 0), "nan")


def test_zeros_of_both_signs_and_denormals() -> None:
    """R114."""
    tiny = 5e-324
    found = of(np.array([0.0, -0.0, tiny, -tiny, 2 * tiny]))
    assert_exact(found, [0.0, -0.0, tiny, -tiny, 2 * tiny])
    assert (found.n_zero, found.min, found.max) == (2, -tiny, 2 * tiny)
    assert found.rms == tiny  # sqrt(6/5) of it: there is no other float64 nearby
    assert found.l2 == 2 * tiny
    small = of(np.array([1e-45, -1e-45, 0.0], np.float32))
    assert small.n_zero == 1
    assert small.abs_max == float(np.float32(1e-45)) > 0


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 4)])
@pytest.mark.parametrize("kind", ["float32", "float8_e4m3fn", "int64", "complex64"])
def test_no_elements_have_no_numbers(kind: str, shape: tuple[int, ...]) -> None:
    """R7: neither NaN nor 0."""
    found = of(np.zeros(shape, encoding(kind).dtype), kind)
    assert found.exact
    assert (found.n_elements, found.n_finite, found.n_zero, found.n_nan) == (0, 0, 0, 0)
    assert (found.min, found.max, found.mean, found.std, found.rms, found.abs_max, found.l2) == (None,) * 7
    assert found.first_bad is None


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
def test_whole_numbers_keep_every_digit(dtype: type[np.integer[Any]]) -> None:
    limits = np.iinfo(dtype)
    values = [limits.max, limits.max - 1, limits.min, limits.min + 1, 7]
    found = of(np.array(values, dtype))
    assert (found.min, found.max) == (limits.min, limits.max)
    assert isinstance(found.max, int)
    assert found.abs_max == max(abs(limits.min), limits.max)
    assert_exact(found, values)
    alike = of(np.full(3, limits.max, dtype))
    assert (alike.min, alike.mean, alike.std) == (limits.max, float(limits.max), 0.0)


def test_truth_values_count_as_zero_and_one_whatever_their_byte() -> None:
    found = of(np.array([0, 1, 2, 255, 0, 0], np.uint8).view(np.bool_), "bool")
    assert (found.min, found.max, found.mean, found.n_zero) == (0, 1, 0.5, 3)
    assert type(found.min) is int


def test_a_complex_element_counts_by_its_magnitude() -> None:
    inf, nan = np.inf, np.nan
    values = np.array([3 + 4j, -5j, 0, complex(inf, nan), complex(-inf, 1), complex(1, nan)], np.complex64)
    found = of(values)
    assert (found.min, found.max, found.n_zero) == (0.0, 5.0, 1)
    assert (found.n_nan, found.n_posinf, found.n_neginf) == (2, 1, 0)
    assert found.mean == pytest.approx(10 / 3)


# ---------------------------------------------------------------- sums


def test_a_large_mean_leaves_a_small_deviation_its_digits() -> None:
    rng = np.random.default_rng(1)
    values = 1e8 + rng.standard_normal(300_000) * 1e-3
    found = of(values)
    mean = math.fsum(values) / values.size
    std = math.sqrt(math.fsum((values - mean) ** 2) / values.size)
    assert found.mean == pytest.approx(mean, rel=1e-15)
    assert found.std == pytest.approx(std, rel=1e-9)
    last_bits = rng.integers(-100, 100, 300_000)
    found = of(1e8 + last_bits * 2.0**-26)
    assert found.std == pytest.approx(float(last_bits.std()) * 2.0**-26, rel=1e-9)
    narrow = (1e8 + rng.integers(-3, 4, 300_000) * 8).astype(np.float32)
    assert_numpy(of(narrow), narrow)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (np.float32, [3.4028235e38, -3.4028235e38, 3.4028235e38]),
        (np.float64, [1.7976931348623157e308] * 3),
        (np.float64, [1.7976931348623157e308, -1.7976931348623157e308, 1e308]),
        (np.float64, [1e200, 1.5e200, -1e-200, 3.0]),
        (np.float64, [1e-200, 3e-200, 2e-300]),
        (np.float64, [1e-310, 3e-310, 0.0]),
        (np.float64, [1e-320, -1e300]),
        (np.int64, [-(2**63), 2**63 - 1]),
        (np.uint64, [2**64 - 1, 0]),
    ],
)  # fmt: skip
def test_nothing_overflows_or_vanishes(dtype: type[np.generic], values: list[float]) -> None:
    whole = np.array(values, dtype)
    assert_exact(of(whole), whole.tolist())
    apart = [Moments.of(whole[i : i + 1], (i,)) for i in range(whole.size)]
    for order in (apart, apart[::-1]):
        merged = Moments()
        for part in order:
            merged = merged.merge(part)
        assert_exact(finished(merged, whole), whole.tolist())


def test_the_last_bit_makes_nothing_longer_or_shorter_than_it_can_be() -> None:
    """Both ends of the range of float64, where rounding would lead beyond it; neighbours; one that is not zero."""
    rng = np.random.default_rng(2)
    longest = float(np.finfo(np.float64).max)
    for n in range(2, 60):
        ends = np.repeat([longest, -longest], n)
        near = np.where(rng.random(n) < 0.1, 0.7, np.nextafter(0.7, 1))
        lone = np.zeros(n)
        lone[0] = 0.1
        for values in (ends, near, lone):
            for at in (0, 1, n // 3):
                merged = Moments.of(values[:at]).merge(Moments.of(values[at:]))
                assert_exact(finished(merged, values), values.tolist())


def test_only_a_norm_may_be_longer_than_the_longest_float() -> None:
    found = of(np.array([1.7e308, 1.7e308]))
    assert found.l2 == math.inf
    assert (found.mean, found.rms, found.std) == (1.7e308, 1.7e308, 0.0)


def finished(found: Moments, values: NDArray[Any]) -> Statistics:
    """Return moments as statistics."""
    source = tensor(values.shape, cut(values, [Region.whole(values.shape)]), encoding(values.dtype.name))
    return stats._finished(source, found, (), 0)


any_float = st.floats(allow_nan=True, allow_infinity=True)
plain_float = st.floats(-1e6, 1e6)


@given(st.lists(any_float, max_size=20) | st.lists(plain_float, max_size=40), st.data())
def test_parts_merge_in_any_order(values: list[float], data: st.DataObject) -> None:
    """Counts, range and the first place are the same to the bit, the rest within stated limits."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=6)))
    edges = [0, *cuts, len(values)]
    parts = [Moments.of(np.array(values[a:b]), (a,)) for a, b in pairwise(edges)]
    waiting = data.draw(st.permutations(parts))
    while len(waiting) > 1:  # a random tree, not only a chain
        i = data.draw(st.integers(0, len(waiting) - 2))
        waiting[i : i + 2] = [waiting[i].merge(waiting[i + 1])]
    whole = Moments.of(np.array(values))
    merged = waiting[0]
    for field in ("n_finite", "low", "high", "n_zero", "n_nan", "n_posinf", "n_neginf", "first"):
        assert getattr(merged, field) == getattr(whole, field), field
    finite = [v for v in values if math.isfinite(v)]
    found = finished(merged, np.array(values))
    if finite:
        assert_exact(found, finite, 1e-9)
    else:
        assert found.mean is None
    bad = next((i for i, v in enumerate(values) if not math.isfinite(v)), None)
    assert (whole.first is None) == (bad is None)
    assert whole.first is None or whole.first[0] == (bad,)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30), st.integers(0, 30))
def test_whole_numbers_merge_exactly(values: list[int], at: int) -> None:
    array = np.array(values, np.int64)
    merged = Moments.of(array[at:], (at,)).merge(Moments.of(array[:at]))
    assert (merged.low, merged.high) == (min(values), max(values))
    assert merged.n_zero == values.count(0)


def test_bytes_that_nothing_decodes_are_refused() -> None:
    with pytest.raises(UnsupportedDtypeError):
        Moments.of(np.zeros(3, "V1"))


# ---------------------------------------------------------------- places


def three_shards(values: NDArray[Any], kind: str) -> tuple[LogicalTensor, list[MemoryFile]]:
    """A tensor in three files of three columns each, the last columns in the first file."""
    files = [MemoryFile(f"shard-{i}.bin", bytearray(b"header:" + bytes(i))) for i in range(3)]
    boxes = [Region((0, 3 * i), (len(values), 3 * i + 3)) for i in (2, 1, 0)]
    return tensor(values.shape, cut(values, boxes, encoding(kind), file_of=lambda i: files[i]), encoding(kind)), files


def test_one_nan_in_three_shards_is_found_where_it_is() -> None:
    """R115: bfloat16 0x7FC0 at [5, 7]: the coordinate, the shard, the file and the byte."""
    bits = np.full((8, 9), 0x3F80, np.uint16)
    bits[5, 7] = 0x7FC0
    weight, files = three_shards(bits.view(ml_dtypes.bfloat16), "bfloat16")
    found = statistics(weight)
    offset = 7 + (5 * 3 + 1) * 2
    assert found.first_bad == FirstBad((5, 7), "nan", "shard-0.bin", offset, 2, rank=0)
    assert files[0].data[offset : offset + 2] == b"\xc0\x7f"
    assert (found.exact, found.n_nan, found.n_finite, found.mean, found.std) == (True, 1, 71, 1.0, 0.0)
    assert found.n_bytes == 144


@pytest.mark.parametrize("kind", ["float32", "float8_e5m2", "complex64"])
def test_the_first_is_first_in_rows_and_not_in_storage(kind: str) -> None:
    values = np.ones((8, 9), encoding(kind).dtype)
    values[4, 8], values[3, 0], values[3, 1] = np.nan, np.inf, np.nan  # the first file holds the last columns
    found = statistics(three_shards(values, kind)[0], piece_bytes=16)
    assert found.first_bad is not None
    assert (found.first_bad.index, found.first_bad.kind, found.first_bad.file) == ((3, 0), "+inf", "shard-2.bin")


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 8)), max_size=5), st.sampled_from([4, 16, 40, 1 << 20]))
def test_the_first_of_any_and_the_rest_whatever_the_pieces(places: set[tuple[int, int]], piece_bytes: int) -> None:
    values = (np.arange(72, dtype=np.float32) - 30).reshape(8, 9)
    for i, place in enumerate(places):
        values[place] = (np.nan, np.inf, -np.inf)[i % 3]
    weight, files = three_shards(values, "float32")
    found = statistics(weight, piece_bytes=piece_bytes)
    assert_numpy(found, values)
    if found.first_bad is not None:
        file = next(f for f in files if f.name == found.first_bad.file)
        at = found.first_bad.offset
        assert at is not None
        assert not math.isfinite(struct.unpack("<f", file.data[at : at + 4])[0])


def test_column_major_and_strided_storage() -> None:
    values = drawn("float32", (6, 9))
    for column_major in (False, True):
        parts = cut(values, [Region((0, 0), (4, 9)), Region((4, 0), (6, 9))], column_major=column_major)
        assert_numpy(statistics(tensor((6, 9), parts, encoding("float32")), piece_bytes=12), values)


def test_padding_is_never_counted() -> None:
    """The stored array has two more columns of NaN, and a row; the fragment's source leaves them out."""
    file = MemoryFile("rank0.bin")
    stored = np.full((5, 6), np.nan, np.float32)
    stored[:4, :4] = np.arange(16).reshape(4, 4)
    file.append(stored)
    source = MemorySource(file, encoding("float32"), 0, (4, 4), (6, 1))
    found = statistics(tensor((4, 4), [Part(Region.whole((4, 4)), source, 0)], encoding("float32")))
    assert_exact(found, list(range(16)))
    assert (found.n_nan, found.n_elements, found.first_bad) == (0, 16, None)


def test_a_copy_is_counted_once_and_the_one_that_was_read_is_named() -> None:
    values = np.array([1, np.nan, 3], np.float32)
    files = [MemoryFile("rank0.bin"), MemoryFile("rank1.bin")]
    parts = [Part(Region((0,), (3,)), store(f, values, encoding("float32")), i) for i, f in enumerate(files)]
    weight = tensor((3,), parts, encoding("float32"))
    found = statistics(weight)
    assert (found.n_nan, found.n_finite) == (1, 2)
    assert found.first_bad == FirstBad((1,), "nan", "rank0.bin", 4, 4, rank=0)
    files[0].failure = ReadError("rank0.bin", "gone")
    found = statistics(weight)
    assert found.exact
    assert found.first_bad == FirstBad((1,), "nan", "rank1.bin", 4, 4, rank=1)


def test_of_the_terms_of_a_sum_the_one_to_blame_is_named() -> None:
    terms = [np.array([1, 2, 3], np.float32), np.array([1, np.inf, 3], np.float32)]
    files = [MemoryFile("rank0.bin"), MemoryFile("rank1.bin")]
    parts = [
        Part(Region((0,), (3,)), store(f, v, encoding("float32")), i, term=i)
        for i, (f, v) in enumerate(zip(files, terms, strict=True))
    ]
    found = statistics(tensor((3,), parts, encoding("float32"), reduction="sum"))
    assert (found.min, found.max, found.n_posinf) == (2.0, 6.0, 1)
    assert found.first_bad == FirstBad((1,), "+inf", "rank1.bin", 4, 4, rank=1)
    files[1].data[4:8] = struct.pack("<f", 3.4e38)
    files[0].data[4:8] = struct.pack("<f", 3.4e38)
    found = statistics(tensor((3,), parts, encoding("float32"), reduction="sum"))
    assert found.first_bad is not None  # the sum overflows, and no term is to blame
    assert (found.first_bad.kind, found.first_bad.file) == ("+inf", "rank0.bin")


def test_a_source_without_a_file_has_places_without_one() -> None:
    """What is seen of a local part, or of a difference of two tensors."""
    source = store(MemoryFile("m.bin"), np.array([[1, 2], [np.nan, 4]]), encoding("float64"))
    assert statistics(source).first_bad == FirstBad((1, 0), "nan")


class Zeros(MemorySource):
    """Zeros that no memory holds, and a last element that is 1, or the NaN of float8_e4m3fn."""

    last = 0x38

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        out.view(np.uint8)[...] = 0
        if region.stop == self.shape:
            out.view(np.uint8)[-1] = self.last


def test_the_last_of_two_billion_elements_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """R117: the range, the count, the coordinate and the byte take more than 32 bits."""
    n = (1 << 31) + 8
    kind = encoding("float8_e4m3fn")
    source = Zeros(MemoryFile("m.bin"), kind, 90, (n,), (1,))
    long = tensor((n,), [Part(Region((0,), (n,)), source)], kind)
    found = statistics(long)
    assert (found.exact, found.n_elements, found.n_finite, found.n_bytes) == (True, n, n, n)
    assert (found.n_zero, found.min, found.max) == (n - 1, 0.0, 1.0)
    assert found.mean == pytest.approx(1 / n, rel=1e-12)
    assert found.std == pytest.approx(math.sqrt(1 / n - 1 / n / n), rel=1e-9)
    assert found.l2 == pytest.approx(1, rel=1e-12)


def test_the_last_of_two_billion_elements_has_its_place() -> None:
    """R117, where only the last of the pieces can be read."""
    n = (1 << 31) + 8
    kind = encoding("float8_e4m3fn")

    class Tail(Zeros):
        last = 0x7F

        def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
            lost = Problem("gap", "error", "not there")
            yield Piece(Region((0,), (n - 100,)), 0, lost)
            yield Piece(Region((n - 100,), (n,)), 100)

    found = statistics(tensor((n,), [Part(Region((0,), (n,)), Tail(MemoryFile("m.bin"), kind, 90, (n,), (1,)))], kind))
    assert found.first_bad == FirstBad((n - 1,), "nan", "m.bin", 90 + n - 1, 1, None)
    assert (found.exact, found.n_unread, found.n_zero) == (False, n - 100, 99)


# ---------------------------------------------------------------- what cannot be read


def test_a_file_that_fails_costs_its_part_only() -> None:
    values = drawn("float32", (8, 9))
    weight, files = three_shards(values, "float32")
    files[1].failure = ReadError("shard-1.bin", "the storage reported an input/output error")
    found = statistics(weight)
    assert not found.exact
    assert found.n_unread == 24
    assert [lost.region for lost in found.unread] == [Region((0, 3), (8, 6))]
    assert found.unread[0].foreseen
    assert "input/output" in found.unread[0].problem.sentence
    rest = np.delete(values, [3, 4, 5], axis=1)
    again = of(rest)
    for field in ("n_finite", "min", "max", "n_nan", "n_posinf", "n_neginf", "n_zero", "abs_max"):
        assert getattr(found, field) == getattr(again, field), field
    assert found.mean == pytest.approx(again.mean, rel=1e-12)
    assert found.n_elements == 72


class Failing(MemorySource):
    """Fails, with what `raised` is, to read a region that holds element 40."""

    raised: Exception = ReadError("m.bin", "bad sector")

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        if region.start[0] <= 40 < region.stop[0]:
            raise self.raised
        super().read_into(region, out)


def failing(raised: Exception) -> LogicalTensor:
    kind = encoding("float32")
    stored = store(MemoryFile("m.bin"), np.arange(64, dtype=np.float32), kind)
    source = Failing(stored.file, kind, stored.offset, (64,), (1,))
    source.raised = raised
    return tensor((64,), [Part(Region((0,), (64,)), source)], kind)


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (ReadError("m.bin", "bad sector"), "unreadable-values", "bad sector"),
        (ZeroDivisionError("ours"), "internal-error", "ZeroDivisionError: ours"),
    ],
)
def test_a_read_that_fails_costs_its_piece_only(raised: Exception, code: str, words: str) -> None:
    weight = failing(raised)
    found = statistics(weight, piece_bytes=32)
    (lost,) = found.unread
    assert (lost.region, lost.foreseen) == (Region((40,), (48,)), False)
    assert (lost.problem.code, lost.problem.severity, lost.problem.tensor) == (code, "error", "w")
    assert words in lost.problem.sentence
    assert not found.exact
    assert_exact(found, [v for v in range(64) if not 40 <= v < 48])
    assert unread_problem(weight, found, told=True) == lost.problem


def test_a_read_that_is_cancelled_cancels_all() -> None:
    with pytest.raises(CancelledError):
        statistics(failing(CancelledError()), piece_bytes=32)


def test_a_source_that_cannot_tell_its_pieces_is_unread_from_there_on() -> None:
    class Broken(MemorySource):
        def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
            yield Piece(Region((0,), (3,)), 24)
            raise ReadError("m.bin", "the directory is damaged")

    file = MemoryFile("m.bin")
    file.append(np.arange(8.0))
    found = statistics(Broken(file, encoding("float64"), 0, (8,), (1,)))
    assert (found.exact, found.n_finite, found.max) == (False, 3, 2.0)
    assert [lost.region for lost in found.unread] == [Region((3,), (8,))]
    assert "directory is damaged" in found.unread[0].problem.sentence


def test_pieces_that_leave_elements_out_are_never_called_exact() -> None:
    class Short(MemorySource):
        def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
            yield Piece(Region((0,), (3,)), 24)

    file = MemoryFile("m.bin")
    file.append(np.arange(8.0))
    assert not statistics(Short(file, encoding("float64"), 0, (8,), (1,))).exact


def test_a_gap_and_a_type_that_nothing_decodes() -> None:
    values = np.arange(9, dtype=np.float32)
    gap = tensor((9,), cut(values, [Region((0,), (4,)), Region((6,), (9,))]), encoding("float32"))
    found = statistics(gap)
    assert (found.exact, found.n_unread) == (False, 2)
    assert_exact(found, [0, 1, 2, 3, 6, 7, 8])
    kind = encoding("float6_e2m3fn")
    raw = MemorySource(MemoryFile("m.bin", bytearray(8)), encoding("uint8"), 0, (8,), (1,))
    opaque = tensor((8,), [Part(Region((0,), (8,)), raw)], kind)
    found = statistics(opaque)
    assert (found.exact, found.n_unread, found.mean, found.n_zero) == (False, 8, None, 0)


def test_many_unread_parts_are_told_as_one() -> None:
    values = np.arange(9, dtype=np.float32)
    weight = tensor((9,), cut(values, [Region((1,), (4,)), Region((6,), (9,))]), encoding("float32"))
    found = statistics(weight)
    problem = unread_problem(weight, found, told=False)
    assert problem is not None
    assert (problem.severity, problem.tensor) == ("error", "w")
    assert "3 of 9 values cannot be read" in problem.sentence
    assert unread_problem(weight, found, told=True) is None  # the metadata's own error says it
    whole = statistics(tensor((9,), cut(values, [Region((0,), (9,))]), encoding("float32")))
    assert unread_problem(weight, whole, told=False) is None


# ---------------------------------------------------------------- threads, progress, cancel


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """One piece of 256 bytes makes a task."""
    monkeypatch.setattr(stats, "_BATCH_BYTES", 256)
    monkeypatch.setattr(stats, "_PIECE_COST", 1)


def long_tensor(n: int = 10_000, kind: type[MemorySource] = MemorySource) -> tuple[LogicalTensor, MemorySource]:
    rng = np.random.default_rng(8)
    values = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)
    values[rng.integers(0, n, 5)] = np.nan
    stored = store(MemoryFile("m.bin"), values, encoding("float64"))
    source = kind(stored.file, stored.encoding, stored.offset, stored.shape, stored.strides)
    return tensor((n,), [Part(Region((0,), (n,)), source)], encoding("float64")), source


class Backwards(Executor):
    """Runs, when a result is asked for, all that waits, the last first, and pickles what goes in and comes out."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.most = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        backwards = self

        class Lazy(Future[Any]):
            @property
            def _condition(self) -> Any:
                while backwards.waiting:
                    backwards.waiting.pop()()
                return self.held

            @_condition.setter
            def _condition(self, condition: Any) -> None:
                self.held = condition

        future = Lazy()
        self.waiting.append(lambda: future.set_result(pickle.loads(pickle.dumps(function(*args, **kwargs)))))
        self.most = max(self.most, len(self.waiting))
        return future


@pytest.mark.usefixtures("small_batches")
def test_the_answer_is_the_same_to_the_bit_whoever_is_faster() -> None:
    class Jumpy(MemorySource):
        def read_into(self, region: Region, out: NDArray[Any], /) -> None:
            if region.start[0] % 5 == 0:
                time.sleep(0.002)
            super().read_into(region, out)

    weight, _ = long_tensor(2000)
    jumpy, _ = long_tensor(2000, Jumpy)
    expected = statistics(weight, piece_bytes=256)
    with ThreadPoolExecutor(7) as pool:
        assert statistics(jumpy, piece_bytes=256, executor=pool) == expected
    backwards = Backwards()
    assert statistics(weight, piece_bytes=256, executor=backwards) == expected
    assert backwards.most > 1
    one_by_one = [statistics(weight, piece_bytes=n) for n in (8, 1 << 20)]
    for found in one_by_one:
        for field in ("n_finite", "min", "max", "n_nan", "n_zero", "first_bad", "exact", "n_bytes"):
            assert getattr(found, field) == getattr(expected, field)
        assert found.std == pytest.approx(expected.std, rel=1e-12)


@pytest.mark.usefixtures("small_batches")
def test_only_a_few_tasks_are_ahead_of_the_answer() -> None:
    """Otherwise a huge tensor would fill the memory with what waits."""
    weight, _ = long_tensor()
    backwards = Backwards()
    statistics(weight, piece_bytes=256, executor=backwards)
    assert backwards.most <= 2 * (os.cpu_count() or 1) + 1


def test_small_pieces_share_a_task() -> None:
    parts = [Piece(Region((i,), (i + 1,)), 8) for i in range(5000)]
    batches = list(stats._batches(parts))
    assert [piece for batch in batches for piece in batch] == parts
    assert len(batches) == math.ceil(5000 * 4096 / (4 << 20))
    large = [Piece(Region((i,), (i + 1,)), 4 << 20) for i in range(3)]
    assert list(map(len, stats._batches(large))) == [1, 1, 1]


def test_a_small_source_is_read_here_and_told_of_piece_by_piece() -> None:
    weight, source = long_tensor(1000)
    told: list[int] = []
    before = threading.active_count()
    statistics(weight, piece_bytes=256, report=told.append)
    assert threading.active_count() == before
    assert told == sorted(told)
    assert len(told) == len(source.reads) - 1  # the first NaN is read once more, for its place
    assert max(region.size for region in source.reads) * 8 <= 256
    assert sum(region.size for region in source.reads) == 1000 + 1


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("seed", range(8))
def test_a_cancel_is_heard_anywhere_and_then_nothing_reads(seed: int) -> None:
    weight, source = long_tensor()
    stop_at = random.Random(seed).randrange(1, 200)
    calls = 0

    def report(n_bytes: int) -> None:
        nonlocal calls
        calls += 1
        if calls == stop_at:
            raise CancelledError

    before = threading.active_count()
    with pytest.raises(CancelledError):
        statistics(weight, piece_bytes=256, report=report)
    n_reads = len(source.reads)
    assert threading.active_count() == before
    time.sleep(0.01)
    assert len(source.reads) == n_reads < 10_000 * 8 / 156


@pytest.mark.usefixtures("small_batches")
def test_a_cancel_leaves_a_foreign_executor_usable_and_idle() -> None:
    class Slow(MemorySource):
        def read_into(self, region: Region, out: NDArray[Any], /) -> None:
            time.sleep(0.01)
            super().read_into(region, out)

    weight, source = long_tensor(10_000, Slow)

    def report(n_bytes: int) -> None:
        if n_bytes:
            raise CancelledError

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(CancelledError):
            statistics(weight, piece_bytes=256, report=report, executor=pool)
        n_reads = len(source.reads)
        time.sleep(0.05)
        assert len(source.reads) == n_reads
        assert pool.submit(lambda: 7).result() == 7


@pytest.mark.usefixtures("small_batches")
def test_a_cancel_is_heard_while_the_storage_is_slow() -> None:
    class Stuck(MemorySource):
        def read_into(self, region: Region, out: NDArray[Any], /) -> None:
            time.sleep(0.6)
            super().read_into(region, out)

    weight, _ = long_tensor(64, Stuck)
    told: list[float] = []
    statistics(weight, piece_bytes=256, report=lambda n_bytes: told.append(time.monotonic()))
    assert len(told) >= 4
    assert max(b - a for a, b in pairwise(told)) < 0.5


@pytest.mark.usefixtures("small_batches")
def test_a_failure_in_a_thread_costs_its_piece_only() -> None:
    found = statistics(failing(ReadError("m.bin", "bad sector")), piece_bytes=128)
    (lost,) = found.unread
    assert lost.region == Region((32,), (64,))
    assert_exact(found, list(range(32)))
    with pytest.raises(CancelledError):
        statistics(failing(CancelledError()), piece_bytes=128)


# ---------------------------------------------------------------- the audit, which stands on them


def test_the_audit_says_what_the_statistics_say(tmp_path: Path) -> None:
    values = np.array([1, -np.inf, np.nan, np.inf, -np.inf, 3], np.float32)
    made = [
        tensor((6,), cut(values, [Region((0,), (6,))]), encoding("float32"), name="w"),
        tensor((6,), cut(np.arange(6), [Region((0,), (6,))]), encoding("int64"), name="i"),
    ]
    told: list[tuple[int, int]] = []

    def report(what: str, done: int, total: int) -> None:
        if what == "Reading values":
            told.append((done, total))

    found, n_bytes = check_values(checkpoint(tmp_path, made), [], report)
    (problem,) = found
    assert problem.sentence.startswith("w holds 1 NaN and 3 Inf among 6 values; the first is Inf at [1]")
    assert problem.byte_range == (7 + 4, 7 + 8)
    assert n_bytes == 24 + 48
    assert sorted(told) == told == [(0, 72), (told[1][0], 72)]
    assert told[1][0] in (24, 48)  # the bytes of the first, whichever that was


# ---------------------------------------------------------------- files


def test_a_file_that_the_library_wrote(tmp_path: Path) -> None:
    torch.manual_seed(3)
    base = torch.randn(37, 53) * 4
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
             torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64)  # fmt: skip
    values = {str(kind): base.abs().to(kind) if kind is torch.uint8 else base.to(kind) for kind in kinds}
    values["scalar"] = torch.tensor(-2.5)
    values["empty"] = torch.zeros(0, 3)
    safetensors.torch.save_file(values, tmp_path / "m.safetensors")
    with tensormorph.open(tmp_path / "m.safetensors") as opened:
        for name, value in values.items():
            wide = value.abs() if value.is_complex() else value
            found = statistics(opened[name])
            assert found.exact, name
            assert_numpy(found, wide.to(torch.float64).numpy())
