"""Indexing against numpy: every key of small arrays, drawn keys of larger ones; and what a stepped read may cost."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices
from numpy.typing import NDArray

from tensormorph import array
from tensormorph.array import SCRATCH_BYTES, ArraySource, ArrayView, Piece, parse_index, select
from tensormorph.errors import BadIndexError
from tensormorph.region import Region


@dataclass
class Counted:
    """A numpy array that is read by region and counts it."""

    values: NDArray[Any]
    reads: list[Region] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        assert Region.whole(self.shape).contains(region)
        assert out.shape == region.shape
        self.reads.append(region)
        out[...] = self.values[region.slices()]

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        yield Piece(region, region.size * self.dtype.itemsize)


@dataclass
class Endless:
    """A float32 array of any extents that stores nothing: each element is its row-major position, modulo 2**24."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))
    most: int = 1 << 30
    asked: int = 0
    calls: int = 0

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        self.asked += region.size * 4
        self.calls += 1
        assert self.asked <= self.most, "asked for too much"
        out[...] = self.at(*(range(low, high) for low, high in zip(region.start, region.stop, strict=True)))

    def at(self, *ranges: range) -> NDArray[Any]:
        """The elements at the products of these indices."""
        place: NDArray[Any] = np.zeros((1,) * len(ranges), np.uint32)  # wraps, as the modulus allows
        step = 1
        for axis, (r, extent) in reversed(list(enumerate(zip(ranges, self.shape, strict=True)))):
            index = np.array(r, np.int64).astype(np.uint32) * np.uint32(step % 2**24)
            place = place + index.reshape((-1,) + (1,) * (len(ranges) - axis - 1))
            step *= extent
        return (place % np.uint32(2**24)).astype(np.float32)

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        yield Piece(region, region.size * 4)


def numbered(shape: tuple[int, ...]) -> NDArray[np.int64]:
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


def assert_as_numpy(values: NDArray[Any], key: Any) -> None:
    """A view answers a key with numpy's values and shape, or refuses where numpy does."""
    source = Counted(values)
    try:
        expected = values[key]
    except IndexError:
        with pytest.raises(BadIndexError):
            ArrayView(source)[key]
        return
    found = ArrayView(source)[key]
    assert isinstance(found, np.ndarray)
    assert found.dtype == values.dtype
    assert found.shape == np.shape(expected), key
    np.testing.assert_array_equal(found, expected, err_msg=str(key))
    if found.size == 0:
        assert not source.reads, "an empty selection reads nothing"


ENDS = [None, -6, -5, -4, -1, 0, 1, 2, 3, 4, 5, 9]
STEPS = [None, 1, 2, 3, 4, 7, -1, -2, -3, -4, -7]


@pytest.mark.parametrize("extent", [0, 1, 2, 4])
def test_every_key_of_one_axis(extent: int) -> None:
    """R9: integers, negative ones, steps of both signs, steps beyond the extent, empty results."""
    values = numbered((extent,)) * 10
    for start, stop, step in itertools.product(ENDS, ENDS, STEPS):
        assert_as_numpy(values, slice(start, stop, step))
    for i in range(-6, 6):
        assert_as_numpy(values, i)
        assert_as_numpy(values, np.int8(i))


KEYS: list[Any] = [
    0, 1, -1, np.int64(1), 9, slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2),
    slice(-1, None, -2), slice(2, 1), slice(0, 9, 7), slice(None, 0, -1),
]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (3, 0), (2, 1, 3)], ids=str)
def test_every_combination_of_keys_and_ellipses(shape: tuple[int, ...]) -> None:
    values = numbered(shape)
    for n in range(len(shape) + 2):
        for keys in itertools.product(KEYS if len(shape) < 3 else KEYS[::2], repeat=n):
            assert_as_numpy(values, keys)
            if len(keys) == 1:
                assert_as_numpy(values, keys[0])
            for at in range(n + 1):
                assert_as_numpy(values, (*keys[:at], ..., *keys[at:]))
    assert_as_numpy(values, ...)


@settings(deadline=None, max_examples=300)
@given(array_shapes(max_dims=4, max_side=9), st.data())
def test_any_key_of_any_array(shape: tuple[int, ...], data: st.DataObject) -> None:
    assert_as_numpy(numbered(shape), data.draw(basic_indices(shape, allow_ellipsis=True, allow_newaxis=False)))


@settings(deadline=None, max_examples=150)
@given(
    array_shapes(max_dims=3, max_side=12), st.sampled_from([8, 64, 200]), st.sampled_from([1, 24, 1 << 20]), st.data()
)
def test_the_result_does_not_depend_on_how_a_stepped_read_is_cut(
    shape: tuple[int, ...], scratch: int, skip: int, data: st.DataObject
) -> None:
    key = data.draw(basic_indices(shape, allow_ellipsis=True, allow_newaxis=False))
    source = Counted(numbered(shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array, "SCRATCH_BYTES", scratch)
        patch.setattr(array, "_SKIP_BYTES", skip)
        found = ArrayView(source)[key]
    np.testing.assert_array_equal(found, source.values[key])
    if any(axis.step != 1 and axis.count > 1 for axis in select(key, shape)):
        assert all(region.size * 8 <= scratch or max(region.shape) == region.size for region in source.reads)


@pytest.mark.parametrize(
    "key", [True, False, np.True_, None, [0], (0, [1]), np.array([0]), np.array(0), 1.0, "0", slice(0.5), slice("a"),
            slice(None, None, 0), (..., ...), (0, 0, 0), (None, 0), (slice(None), True)], ids=repr
)  # fmt: skip
def test_what_is_no_basic_index_is_refused(key: Any) -> None:
    with pytest.raises(BadIndexError):
        ArrayView(Counted(numbered((2, 2))))[key]


def test_the_refusal_names_the_index_and_the_reason() -> None:
    view = ArrayView(Counted(numbered((2, 3))))
    for key, told in [
        ((0, 3), r"Index \[0, 3\] does not fit: 3 is out of range on axis 1 of 3 elements"),
        ((0, slice(1, 2, -1), ..., 0), r"Index \[0, 1:2:-1, \.\.\., 0\] does not fit: 3 indices for 2 axes"),
        ((..., ...), r"'\.\.\.' stands more than once"),
        (slice(None, None, 0), r"Index \[::0\] does not fit: slice step cannot be zero"),
        (None, "NoneType on axis 0: give whole numbers, slices or '...'"),
    ]:
        with pytest.raises(BadIndexError, match=told):
            view[key]


# ---------------------------------------------------------------- the view as an array


def test_numpy_takes_a_view_for_an_array() -> None:
    values = numbered((2, 3))
    view = ArrayView(Counted(values))
    np.testing.assert_array_equal(np.asarray(view), values)
    assert np.asarray(view, dtype=np.float32).dtype == np.float32
    assert np.array(view, copy=True).tolist() == values.tolist()
    with pytest.raises(ValueError, match="copy"):
        np.asarray(view, copy=False)
    np.testing.assert_array_equal(np.add(view, 1), values + 1)


def test_a_view_knows_its_form() -> None:
    view = ArrayView(Counted(numbered((2, 3))))
    assert (view.shape, view.ndim, view.size, len(view), view.dtype) == ((2, 3), 2, 6, 2, np.dtype(np.int64))
    assert isinstance(view.source, ArraySource)
    assert [row.tolist() for row in view] == [[0, 1, 2], [3, 4, 5]]


def test_a_tensor_without_axes_is_one_value() -> None:
    """R8: it is read by () and by ...; it has no length and nothing to walk over."""
    view = ArrayView(Counted(np.array(3.5)))
    assert view[()].tolist() == view[...].tolist() == 3.5
    assert np.asarray(view).shape == ()
    assert view.size == 1
    with pytest.raises(TypeError, match="0-d"):
        len(view)
    with pytest.raises(TypeError, match="0-d"):
        list(view)
    with pytest.raises(BadIndexError, match="1 indices for 0 axes"):
        view[0]


def test_steps_of_one_read_straight_into_the_result() -> None:
    source = Endless((1 << 20, 1 << 20))
    found = ArrayView(source)[-5:-1, 7]
    assert source.calls == 1
    np.testing.assert_array_equal(found, source.at(range((1 << 20) - 5, (1 << 20) - 1), range(7, 8))[:, 0])


# ---------------------------------------------------------------- what a stepped read costs

MIB = 1 << 20
COSTS = [
    # shape, key, most bytes asked of the source, most calls
    ((10_000_000,), np.s_[::1000], 40_000_000, 10),  # steps of 4 kB: read as one, once
    ((1 << 40,), np.s_[:: 1 << 30], 4 * 1024, 1024),  # steps of 4 GB: the elements alone
    ((1 << 40,), np.s_[:: -(1 << 30)], 4 * 1024, 1024),
    ((1 << 40,), np.s_[5 : 1 << 34 : 100_000], 4 * 171_799, 171_799),
    ((1 << 20, 1 << 20), np.s_[:: 1 << 15, :10], 4 * 10 * 32, 32),  # rows far apart: only they
    ((1 << 20, 1000), np.s_[:: 1 << 12, :], 4 * 1000 * 256, 256),
    ((1 << 20, 1 << 20), np.s_[:: 1 << 16, ::1000], 16 * 4 * MIB, 16),
    ((1000, 1 << 20), np.s_[:, :: 1 << 17], 4 * 1000 * 8, 8),  # columns far apart
    ((3, 1 << 22), np.s_[::-1, ::2], 3 * 4 * (4 << 20), 12),  # all of it, in pieces of the scratch
    ((1 << 22, 3), np.s_[::2, ::2], 3 * 4 * (4 << 20), 16),
    ((1 << 20, 1 << 20), np.s_[7, :: 1 << 10], 4 * MIB, 1),
    ((4096, 64, 1024), np.s_[:: 1 << 8, 3, ::-1], 4 * 1024 * 16, 16),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "key", "n_bytes", "calls"), COSTS, ids=lambda v: str(v)[:60])
def test_a_stepped_read_asks_for_no_more_than_is_sensible(
    shape: tuple[int, ...], key: Any, n_bytes: int, calls: int
) -> None:
    source = Endless(shape, most=n_bytes)
    found = ArrayView(source)[key]
    assert source.calls <= calls
    axes = select(key, shape)
    expected = source.at(*(range(a.start, a.start + a.count * a.step, a.step) for a in axes))
    np.testing.assert_array_equal(found.ravel(), expected.ravel())


@pytest.mark.parametrize(
    ("shape", "key"),
    [((50_000_000,), np.s_[::1000]), ((3, 1 << 22), np.s_[::-1, ::7]), ((1 << 16, 1000), np.s_[::3, 5]),
     ((2000, 30, 700), np.s_[::-1, ::4, ::9])],
    ids=str,
)  # fmt: skip
def test_the_scratch_of_a_stepped_read_stays_small(shape: tuple[int, ...], key: Any) -> None:
    class Zeros(Endless):
        def read_into(self, region: Region, out: NDArray[Any], /) -> None:
            out[...] = 0

    view = ArrayView(Zeros(shape))
    view[(slice(0, 1),) * len(shape)]
    tracemalloc.start()
    try:
        found = view[key]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - found.nbytes <= SCRATCH_BYTES + 64 * 1024


# ---------------------------------------------------------------- an index as text


@pytest.mark.parametrize(
    ("told", "key"),
    [
        ("", ()), ("  ", ()), ("[]", ()), ("5,7", (5, 7)), ("5, 7,", (5, 7)), ("[0:4, :, -1]", np.s_[0:4, :, -1]),
        ("...", (...,)), ("..., 0", np.s_[..., 0]), (":", np.s_[:,]), ("::-1", np.s_[::-1,]),
        ("1:2:3", np.s_[1:2:3,]), ("-1_000", (-1000,)), (" : 10 : ", np.s_[:10:,]), ("+3", (3,)),
        ("9223372036854775807", (2**63 - 1,)), ("-9223372036854775808", (-(2**63),)),
    ],
)  # fmt: skip
def test_an_index_is_written_as_in_numpy(told: str, key: tuple[Any, ...]) -> None:
    assert parse_index(told) == key


@pytest.mark.parametrize(
    "told", ["a", "1.5", "1:2:3:4", ",", "0,,1", ",0", "_", ":_", "None", "True", "0 1", "....", "1;2", "0x10",
             "9" * 5000, "(0)", "w\x1b[31m", "[0][1]", "x" * 70_000], ids=lambda text: repr(text[:12])
)  # fmt: skip
def test_what_is_no_index_is_refused_in_a_short_harmless_sentence(told: str) -> None:
    with pytest.raises(BadIndexError) as caught:
        parse_index(told)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def written(key: Any) -> str:
    """A key as a person writes it."""
    if isinstance(key, slice):
        ends = ["" if v is None else str(v) for v in (key.start, key.stop, key.step)]
        return ":".join(ends)
    return "..." if key is Ellipsis else str(key)


@settings(deadline=None, max_examples=200)
@example((2, 3), None)
@given(array_shapes(max_dims=4, max_side=9), st.data())
def test_a_written_index_reads_back(shape: tuple[int, ...], data: st.DataObject | None) -> None:
    key: Any = (0, slice(None)) if data is None else data.draw(basic_indices(shape, allow_newaxis=False))
    keys = key if isinstance(key, tuple) else (key,)
    assert parse_index(", ".join(map(written, keys))) == keys
    np.testing.assert_array_equal(numbered(shape)[parse_index(",".join(map(written, keys)))], numbered(shape)[key])
