"""Tensors put together from parts: whatever way numpy's array was cut, every region reads as numpy's; what is missing
is named, never filled."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensormorph.dtypes import encoding
from tensormorph.errors import CancelledError, ChangedOnDiskError, MissingRegionError, Problem, ReadError
from tensormorph.fragments import FragmentTable
from tensormorph.model import LogicalTensor
from tensormorph.region import Region
from tests.memory_source import MemoryFile, MemorySource, Part, cut, store, table, tensor

F32, BF16 = encoding("float32"), encoding("bfloat16")
KINDS = [encoding(name) for name in ("float32", "bfloat16", "int64", "float8_e4m3fn", "bool", "complex64")]
POISON = -12345.0


def numbered(*shape: int) -> NDArray[np.float32]:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def rows(*ends: int, width: int) -> list[Region]:
    """Boxes of whole rows that end at these rows."""
    return [Region((low, 0), (high, width)) for low, high in itertools.pairwise((0, *ends))]


def read(t: LogicalTensor, region: Region | None = None) -> NDArray[Any]:
    """A region (or all) of a tensor, read into poison."""
    region = Region.whole(t.shape) if region is None else region
    out = np.full(region.shape, POISON if t.dtype.kind != "b" else 1).astype(t.dtype)
    t.read_into(region, out)
    return out


def paint(regions: Sequence[Region], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """How often each element is in the regions."""
    cells = np.zeros(shape, np.int64)
    for region in regions:
        cells[region.slices()] += 1
    return cells


@st.composite
def inside(draw: st.DrawFn, shape: tuple[int, ...]) -> Region:
    ends = [sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    return Region(tuple(low for low, _ in ends), tuple(high for _, high in ends))


@st.composite
def cuttings(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Region]:
    """Disjoint boxes that cover a shape: cut and cut again, which gives rows, columns, grids and nests."""
    boxes = [Region.whole(shape)]
    for _ in range(draw(st.integers(0, 7))):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        if not shape:
            return [box]
        axis = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(box.start[axis], box.stop[axis]))  # at an end: an empty shard, as R44 has them
        low, high = list(box.stop), list(box.start)
        low[axis] = high[axis] = at
        boxes += [Region(box.start, tuple(low)), Region(tuple(high), box.stop)]
    return draw(st.permutations(boxes))


SHAPES = st.lists(st.integers(0, 6), max_size=3).map(tuple)


@st.composite
def cut_tensors(draw: st.DrawFn, copies: bool = True) -> tuple[NDArray[Any], list[Part], LogicalTensor]:
    """An array, and the same array in parts over several files, with copies."""
    shape = draw(SHAPES)
    kind = draw(st.sampled_from(KINDS))
    values = numbered(*shape).astype(kind.dtype)
    files = [MemoryFile(f"{i}.bin", bytearray(b"x" * i)) for i in range(3)]
    boxes = draw(cuttings(shape))
    if copies:
        boxes += draw(st.lists(st.sampled_from(boxes), max_size=3))
    pick = draw(st.lists(st.integers(0, 2), min_size=len(boxes), max_size=len(boxes)))
    parts = cut(values, boxes, kind, file_of=lambda i: files[pick[i]], column_major=draw(st.booleans()))
    return values, parts, tensor(shape, parts, kind)


# ---------------------------------------------------------------- reading


@settings(deadline=None, max_examples=250)
@given(cut_tensors(), st.data())
def test_any_region_reads_the_same_however_the_tensor_was_cut(
    case: tuple[NDArray[Any], list[Part], LogicalTensor], data: st.DataObject
) -> None:
    values, _, t = case
    region = data.draw(inside(t.shape))
    assert read(t, region).tobytes() == np.ascontiguousarray(values[region.slices()]).tobytes()
    assert read(t).tobytes() == values.tobytes()
    assert t.complete


@settings(deadline=None, max_examples=60)
@given(cut_tensors(copies=False), st.data())
def test_no_element_is_read_twice(case: tuple[NDArray[Any], list[Part], LogicalTensor], data: st.DataObject) -> None:
    _, parts, t = case
    region = data.draw(inside(t.shape))
    read(t, region)
    asked = [r.offset_by(part.region.start) for part in parts for r in part.source.reads]
    assert (paint(asked, t.shape) == paint([region], t.shape)).all()


@pytest.mark.parametrize(
    ("n", "parts_of_ranks"),
    [
        (8, [(0, 2), (4, 6), (2, 4), (6, 8)]),  # R40: dp 2 over tp 2, ranks (0,0) (0,1) (1,0) (1,1)
        (6, [(0, 2), (3, 5), (2, 3), (5, 6)]),  # R41: uneven strided
        (5, [(0, 2), (2, 3), (3, 5), (5, 5)]),  # R42 by what is recorded: rank 0 holds two boxes, one rank none
        (6, [(0, 2), (2, 4), (4, 6), (6, 6)]),  # R44: rank 3 holds no part
        (4, [(3, 4), (2, 3), (1, 2), (0, 1)]),
    ],
)
def test_recorded_boxes_decide_and_not_the_order_of_ranks(n: int, parts_of_ranks: list[tuple[int, int]]) -> None:
    values = numbered(n, 3)
    t = tensor((n, 3), cut(values, [Region((a, 0), (b, 3)) for a, b in parts_of_ranks]), F32)
    np.testing.assert_array_equal(read(t), values)
    assert t.complete
    assert len(t.fragments) == len(parts_of_ranks), "an empty shard is a fragment too"


def test_a_scalar_that_every_rank_stores_is_one_value() -> None:
    """R49."""
    scalar = Region((), ())
    parts = cut(np.array(3.5, np.float32), [scalar] * 4)
    t = tensor((), parts, F32)
    assert read(t).tolist() == 3.5
    assert sum(len(part.source.reads) for part in parts) == 1
    assert [p.region for p in t.pieces(scalar, 100)] == [scalar]


def test_an_empty_tensor_reads_without_a_file() -> None:
    """R7."""
    for parts in ([], cut(numbered(2, 0), [Region((0, 0), (2, 0))])):
        t = tensor((2, 0), parts, F32)
        assert read(t).shape == (2, 0)
        assert t.complete
        assert list(t.pieces(Region.whole((2, 0)), 100)) == []


def test_values_land_in_a_strided_target_too() -> None:
    values = numbered(4, 4)
    t = tensor((4, 4), cut(values, rows(1, 4, width=4)), F32)
    wide = np.full((4, 8), POISON, np.float32)
    t.read_into(Region.whole((4, 4)), wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], values)
    assert (wide[:, 1::2] == POISON).all()


# ---------------------------------------------------------------- gaps


def test_a_gap_is_named_and_never_filled() -> None:
    """R51: shape 256 x 256, one part of 128 x 256."""
    t = tensor((256, 256), cut(numbered(256, 256), rows(128, width=256)), F32)
    lost = Region((128, 0), (256, 256))
    assert t.fragments.gaps(Region.whole((256, 256))) == [lost]
    assert not t.complete
    out = np.full((256, 256), POISON, np.float32)
    with pytest.raises(
        MissingRegionError, match=r"^w, region 128:256, 0:256 cannot be read: no file stores it$"
    ) as caught:
        t.read_into(Region.whole((256, 256)), out)
    assert caught.value.region == lost
    assert (out[128:] == POISON).all()
    np.testing.assert_array_equal(read(t, Region((0, 0), (128, 256))), numbered(256, 256)[:128])


@settings(deadline=None, max_examples=250)
@given(cut_tensors(), st.data())
def test_gaps_are_exactly_what_no_part_stores(
    case: tuple[NDArray[Any], list[Part], LogicalTensor], data: st.DataObject
) -> None:
    values, parts, _ = case
    kept = data.draw(st.lists(st.sampled_from(parts), max_size=len(parts), unique_by=id))
    t = tensor(values.shape, kept, parts[0].source.encoding)
    region = data.draw(inside(values.shape))
    held = paint([part.region for part in kept], values.shape) > 0
    gaps = t.fragments.gaps(region)
    times = paint(gaps, values.shape)
    assert (times == (paint([region], values.shape) > 0) & ~held).all()
    assert not any(gap.empty for gap in gaps)
    if not gaps:
        assert read(t, region).tobytes() == np.ascontiguousarray(values[region.slices()]).tobytes()
        return
    out = np.full(region.shape, 1).astype(t.dtype)
    before = out.tobytes()
    with pytest.raises(MissingRegionError, match="no file stores it") as caught:
        t.read_into(region, out)
    assert caught.value.region in gaps
    assert out.tobytes() == before, "known to be incomplete, so nothing is read"


def test_a_tensor_without_fragments_has_no_values_not_zeros() -> None:
    for reduction in (None, "sum", "avg"):
        t = tensor((2, 2), [], F32, reduction=reduction)
        with pytest.raises(MissingRegionError, match="no file stores it"):
            read(t)
        [piece] = t.pieces(Region.whole((2, 2)), 100)
        assert piece.problem is not None


# ---------------------------------------------------------------- overlaps and copies


def overlapping_pair(**change: float) -> tuple[NDArray[np.float32], LogicalTensor]:
    """Rows 0-2 and rows 2-4 of five: row 2 is stored twice; `change` alters its second copy."""
    values = numbered(5, 4)
    second = values.copy()
    for column, value in change.items():
        second[2, int(column[1:])] = value
    file = MemoryFile("a.bin")
    parts = [
        Part(box, store(file, source[box.slices()], F32))
        for box, source in ((Region((0, 0), (3, 4)), values), (Region((2, 0), (5, 4)), second))
    ]
    return values, tensor((5, 4), parts, F32)


def test_overlapping_parts_with_equal_bytes_read() -> None:
    values, t = overlapping_pair()
    np.testing.assert_array_equal(read(t), values)


def test_overlapping_parts_that_disagree_refuse_with_the_region_and_only_there() -> None:
    values, t = overlapping_pair(c3=POISON)
    with pytest.raises(MissingRegionError, match="overlap there hold different bytes") as caught:
        read(t)
    assert caught.value.region == Region((2, 0), (3, 4))
    with pytest.raises(MissingRegionError) as caught:
        read(t, Region((1, 3), (4, 4)))
    assert caught.value.region == Region((2, 3), (3, 4))
    for agreed in (Region((0, 0), (2, 4)), Region((3, 0), (5, 4)), Region((0, 0), (5, 3))):
        np.testing.assert_array_equal(read(t, agreed), values[agreed.slices()])


@pytest.mark.parametrize(("first", "second", "agree"), [(np.nan, np.nan, True), (0.0, -0.0, False)])
def test_agreement_is_of_bytes_not_of_values(first: float, second: float, agree: bool) -> None:
    file = MemoryFile("a.bin")
    parts = [
        Part(Region((0,), (2,)), store(file, np.array([1, first], np.float32), F32)),
        Part(Region((1,), (3,)), store(file, np.array([second, 2], np.float32), F32)),
    ]
    t = tensor((3,), parts, F32)
    if agree:
        assert np.isnan(read(t)[1])
    else:
        with pytest.raises(MissingRegionError, match="different bytes"):
            read(t)


def test_a_gap_beside_an_overlap_is_still_a_gap() -> None:
    """Their sizes cancel: four rows stored, four rows asked for, one of them nowhere."""
    values = numbered(4, 1)
    t = tensor((4, 1), cut(values, [Region((0, 0), (2, 1)), Region((1, 0), (3, 1))]), F32)
    with pytest.raises(MissingRegionError, match="region 3:4, 0:1"):
        read(t)


@settings(deadline=None, max_examples=100)
@given(st.lists(inside((5, 4)), min_size=1, max_size=6), st.integers(0, 5), inside((5, 4)))
def test_random_overlaps_read_or_refuse_as_their_elements_say(boxes: list[Region], odd: int, region: Region) -> None:
    values = numbered(5, 4)
    parts = cut(values, boxes)
    if odd < len(parts):  # one part disagrees with all others, in every element
        parts[odd] = Part(boxes[odd], store(parts[odd].source.file, -values[boxes[odd].slices()], F32))
    t = tensor((5, 4), parts, F32)
    wanted = paint([region], (5, 4)) > 0
    if (wanted & (paint(boxes, (5, 4)) == 0)).any():
        with pytest.raises(MissingRegionError, match="no file stores it"):
            read(t, region)
        return
    others = [box for box in boxes if odd >= len(boxes) or box != boxes[odd]]
    doubtful = odd < len(boxes) and (wanted & (paint([boxes[odd]], (5, 4)) > 0) & (paint(others, (5, 4)) > 0)).any()
    if doubtful:
        with pytest.raises(MissingRegionError, match="different bytes"):
            read(t, region)
    else:
        np.testing.assert_array_equal(np.abs(read(t, region)), values[region.slices()])


def two_copies(first: Exception | None, second: Exception | None) -> LogicalTensor:
    values = numbered(2, 3)
    files = [MemoryFile("0.bin", failure=first), MemoryFile("1.bin", failure=second)]
    return tensor((2, 3), cut(values, [Region.whole((2, 3))] * 2, file_of=lambda i: files[i]), F32)


def test_a_copy_serves_where_the_first_cannot_be_read() -> None:
    broken = ReadError("0.bin", "input/output error")
    np.testing.assert_array_equal(read(two_copies(broken, None)), numbered(2, 3))
    np.testing.assert_array_equal(read(two_copies(None, broken)), numbered(2, 3))
    [piece] = two_copies(broken, None).pieces(Region.whole((2, 3)), 1000)
    assert piece.problem is None


def test_without_a_readable_copy_the_error_says_what_failed_and_where() -> None:
    t = two_copies(ReadError("0.bin", "input/output error"), ReadError("1.bin", "no such file"))
    with pytest.raises(MissingRegionError, match=r"input/output error \(0\.bin\)") as caught:
        read(t)
    assert isinstance(caught.value.__cause__, ReadError)
    assert caught.value.region == Region.whole((2, 3))
    [piece] = t.pieces(Region.whole((2, 3)), 1000)
    assert piece.problem is not None
    assert (piece.problem.code, piece.problem.tensor, piece.problem.file, piece.problem.region) == (
        "read-failed", "w", "0.bin", Region.whole((2, 3)),
    )  # fmt: skip


@pytest.mark.parametrize("failure", [CancelledError(), ChangedOnDiskError("0.bin", "size"), RuntimeError("a bug")])
def test_some_errors_no_copy_makes_good(failure: Exception) -> None:
    with pytest.raises(type(failure)):
        read(two_copies(failure, None))


def test_the_reason_given_is_that_of_the_region_named() -> None:
    """Rows 0-1 have a broken first copy, rows 2-3 are broken for good: the error is about the latter."""
    files = {name: MemoryFile(name) for name in "abc"}
    values = numbered(4, 1)
    boxes = [Region((0, 0), (2, 1)), Region((0, 0), (2, 1)), Region((2, 0), (4, 1))]
    parts = cut(values, boxes, file_of=lambda i: files["abc"[i]])
    files["a"].failure, files["c"].failure = ReadError("a", "first"), ReadError("c", "third")
    with pytest.raises(MissingRegionError, match=r"region 2:4, 0:1 cannot be read: .*third \(c\)"):
        read(tensor((4, 1), parts, F32))


def test_an_overlap_that_cannot_be_compared_refuses() -> None:
    values = numbered(5, 1)
    files = [MemoryFile("0.bin"), MemoryFile("1.bin", failure=ReadError("1.bin", "gone"))]
    boxes = [Region((0, 0), (5, 1)), Region((2, 0), (4, 1))]
    t = tensor((5, 1), cut(values, boxes, file_of=lambda i: files[i]), F32)
    with pytest.raises(MissingRegionError, match=r"cannot be read and so not be compared: .*gone") as caught:
        read(t)
    assert caught.value.region == Region((2, 0), (4, 1))
    np.testing.assert_array_equal(read(t, Region((0, 0), (2, 1))), values[:2])


def test_an_unreadable_copy_of_a_compared_part_does_not_hinder() -> None:
    values = numbered(5, 1)
    files = [MemoryFile("0.bin", failure=ReadError("0.bin", "gone")), MemoryFile("1.bin"), MemoryFile("2.bin")]
    boxes = [Region((0, 0), (3, 1)), Region((0, 0), (3, 1)), Region((2, 0), (5, 1))]
    t = tensor((5, 1), cut(values, boxes, file_of=lambda i: files[i]), F32)
    np.testing.assert_array_equal(read(t), values)


def test_a_part_of_another_type_is_never_cast() -> None:
    file = MemoryFile("a.bin")
    boxes = rows(1, 2, width=2)
    parts = [
        Part(boxes[0], store(file, numbered(1, 2), F32)),
        Part(boxes[1], store(file, numbered(1, 2), BF16)),
    ]
    t = tensor((2, 2), parts, F32)
    np.testing.assert_array_equal(read(t, boxes[0]), numbered(1, 2))
    with pytest.raises(MissingRegionError, match="holds bfloat16, the tensor is float32") as caught:
        read(t)
    assert caught.value.region == boxes[1]
    good, bad = t.pieces(Region.whole((2, 2)), 1000)
    assert (good.region, good.problem) == (boxes[0], None)
    assert bad.region == boxes[1]
    assert bad.problem is not None


# ---------------------------------------------------------------- terms that add up


def summands(
    terms: Sequence[NDArray[Any]], kind: str, reduction: str | None, boxes: Sequence[Sequence[Region]] = ()
) -> LogicalTensor:
    """A tensor stored as terms; each may be cut in its own way. They lie in files in reverse order."""
    shape = terms[0].shape
    parts: list[Part] = []
    for term, values in reversed(list(enumerate(terms))):
        file = MemoryFile(f"{len(terms) - term}.bin")
        cuts = boxes[term] if boxes else [Region.whole(shape)]
        parts += [Part(box, store(file, values[box.slices()], encoding(kind)), term, term) for box in cuts]
    return tensor(shape, parts, encoding(kind), reduction=reduction)


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from(["float32", "float64", "float16"]), st.sampled_from(["sum", "avg"]), st.integers(1, 5),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_terms_are_summed_in_double_precision_and_rounded_once(kind: str, op: str, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    terms = [rng.normal(size=(3, 2)).astype(kind) * np.array(10, kind) ** int(rng.integers(0, 4)) for _ in range(n)]
    expected = np.zeros((3, 2))
    for term in terms:
        expected = expected + term.astype(np.float64)
    expected = expected / n if op == "avg" else expected
    found = read(summands(terms, kind, op))
    assert found.dtype == np.dtype(kind)
    np.testing.assert_array_equal(found, expected.astype(kind))


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(["sum", "avg"]), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_no_bfloat16_is_nearer_to_the_sum_than_the_one_read(op: str, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    terms = [rng.normal(size=16).astype(BF16.dtype) for _ in range(n)]
    expected = sum((term.astype(np.float64) for term in terms), np.zeros(16)) / (n if op == "avg" else 1)
    found = read(summands(terms, "bfloat16", op))
    error = np.abs(found.astype(np.float64) - expected)
    for step in (1, -1):
        other = (found.view(np.int16) + np.int16(step)).view(BF16.dtype).astype(np.float64)
        assert not (error > np.abs(other - expected)).any()


def test_a_sum_beside_a_tie_of_bfloat16_is_not_rounded_twice() -> None:
    terms = [np.full(2, v).astype(BF16.dtype) for v in (1.0, 2.0**-8, 2.0**-40)]
    assert [float(v) for v in read(summands(terms, "bfloat16", "sum"))] == [1 + 2.0**-7] * 2


def test_terms_are_added_in_the_order_of_ranks_not_of_files() -> None:
    terms = [np.full(1, v) for v in (1e16, 1.0, -1e16)]
    assert read(summands(terms, "float64", "sum")).tolist() == [0.0]
    terms = [np.full(1, v) for v in (1e16, -1e16, 1.0)]
    assert read(summands(terms, "float64", "sum")).tolist() == [1.0]


def test_whole_numbers_are_summed_exactly() -> None:
    big = 2**53 + 1
    assert read(summands([np.array([big]), np.array([2])], "int64", "sum")).tolist() == [big + 2]
    assert read(summands([np.array([2**64 - 2], np.uint64), np.array([1], np.uint64)], "uint64", "sum")) == [2**64 - 1]
    assert read(summands([np.array([big])], "int64", "sum")).tolist() == [big]
    assert read(summands([np.array([1, -3], np.int8), np.array([2, -4], np.int8)], "int8", "avg")).tolist() == [2, -4]


def test_complex_terms_and_infinite_sums() -> None:
    terms = [np.array([1 + 2j, 3], np.complex64), np.array([0.5j, -3], np.complex64)]
    assert read(summands(terms, "complex64", "sum")).tolist() == [1 + 2.5j, 0]
    huge = [np.array([3e38, np.inf, -np.inf], np.float32)] * 2
    assert read(summands(huge, "float32", "sum")).tolist() == [np.inf, np.inf, -np.inf]
    assert np.isnan(read(summands([np.array([np.inf], np.float32), np.array([-np.inf], np.float32)], "float32", "sum")))


def test_terms_may_be_cut_in_different_ways() -> None:
    terms = [numbered(4, 2), 10 * numbered(4, 2)]
    t = summands(terms, "float32", "sum", [rows(1, 4, width=2), [Region((0, 0), (4, 1)), Region((0, 1), (4, 2))]])
    np.testing.assert_array_equal(read(t), 11 * numbered(4, 2))
    np.testing.assert_array_equal(read(t, Region((1, 1), (3, 2))), 11 * numbered(4, 2)[1:3, 1:2])
    assert sum(piece.nbytes for piece in t.pieces(Region.whole((4, 2)), 8)) == 2 * 4 * 8


@pytest.mark.parametrize(
    ("reduction", "why"),
    [("max", "the reduction 'max' of its terms is unknown"), (None, "nothing says how they add up")],
)
def test_terms_without_a_known_reduction_cannot_be_read(reduction: str | None, why: str) -> None:
    t = summands([numbered(2, 2)] * 2, "float32", reduction)
    with pytest.raises(MissingRegionError, match=why):
        read(t)
    [piece] = t.pieces(Region.whole((2, 2)), 4)
    assert piece.region == Region.whole((2, 2))
    assert piece.problem is not None
    assert why in piece.problem.sentence


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_an_element_that_one_term_lacks_is_missing_not_the_sum_of_the_others(lost: int) -> None:
    all_rows = rows(4, width=2)
    boxes = [rows(3, width=2) if term == lost else all_rows for term in range(3)]
    t = summands([numbered(4, 2)] * 3, "float32", "sum", boxes)
    np.testing.assert_array_equal(read(t, Region((0, 0), (3, 2))), 3 * numbered(4, 2)[:3])
    for region in (Region.whole((4, 2)), Region((3, 0), (4, 2))):
        with pytest.raises(MissingRegionError) as caught:
            read(t, region)
        assert caught.value.region == Region((3, 0), (4, 2))
        *good, bad = t.pieces(region, 1000)
        assert bad.region == Region((3, 0), (4, 2))
        assert bad.problem is not None
        assert [piece.region for piece in good] == ([Region((0, 0), (3, 2))] if region.start[0] == 0 else [])


# ---------------------------------------------------------------- pieces


def assert_partition(t: LogicalTensor, region: Region, max_bytes: int) -> None:
    """Pieces cover a region once; those without a problem read, each one with a problem does not."""
    pieces = list(t.pieces(region, max_bytes))
    assert (paint([p.region for p in pieces], t.shape) == paint([region], t.shape)).all()
    assert not any(p.region.empty for p in pieces)
    good = [p for p in pieces if p.problem is None]
    assert pieces[: len(good)] == good, "what cannot be read comes last"
    for piece in pieces:
        if piece.problem is None:
            read(t, piece.region)
        else:
            assert piece.problem.region == piece.region
            assert piece.problem.tensor == t.name
            assert piece.nbytes == 0
            with pytest.raises(MissingRegionError):
                read(t, piece.region)


@settings(deadline=None, max_examples=200)
@given(cut_tensors(copies=False), st.sampled_from([1, 16, 40, 10_000]), st.data())
def test_pieces_partition_a_region_in_storage_order_and_read_nothing(
    case: tuple[NDArray[Any], list[Part], LogicalTensor], max_bytes: int, data: st.DataObject
) -> None:
    values, parts, t = case
    region = data.draw(inside(t.shape))
    pieces = list(t.pieces(region, max_bytes))
    assert not any(part.source.reads for part in parts)
    size = t.encoding.n_bytes(1)
    assert sum(piece.nbytes for piece in pieces) == region.size * size
    assert all(piece.nbytes <= max(max_bytes, size) for piece in pieces)
    places = []
    for piece in pieces:
        [holder] = {(h.file, h.offset) for h in t.where(tuple(slice(i, i + 1) for i in piece.region.start))}
        places.append(holder)
        assert read(t, piece.region).tobytes() == np.ascontiguousarray(values[piece.region.slices()]).tobytes()
    files = [file for file, _ in places]
    assert files == sorted(files)
    if not any(part.source.strides[:1] < part.source.strides[1:] for part in parts):
        assert places == sorted(places), "row-major parts are walked in the order of their bytes"
    assert_partition(t, region, max_bytes)


@settings(deadline=None, max_examples=200)
@given(cut_tensors(), st.sampled_from([1, 40, 10_000]), st.data())
def test_each_piece_says_truly_whether_it_reads(
    case: tuple[NDArray[Any], list[Part], LogicalTensor], max_bytes: int, data: st.DataObject
) -> None:
    """Parts are lost, files fail when asked, sources know of problems; copies stand in."""
    values, parts, _ = case
    kept = data.draw(st.lists(st.sampled_from(parts), max_size=len(parts), unique_by=id))
    broken = ReadError("a file", "gone")
    told = Problem("truncated", "error", "the file is short", region=Region((7,), (8,)))
    for part in kept:
        state = data.draw(st.sampled_from(["good", "good", "file fails", "source knows"]))
        if state != "good":
            part.source.file = replace(part.source.file, failure=broken)
        part.source.problem = told if state == "source knows" else None
    t = tensor(values.shape, kept, parts[0].source.encoding)
    assert_partition(t, data.draw(inside(values.shape)), max_bytes)


def test_a_source_s_own_problem_is_told_in_the_tensor_s_coordinates() -> None:
    parts = cut(numbered(4, 2), rows(2, 4, width=2))
    parts[1].source.problem = Problem("truncated", "error", "the file is short", file="model.bin")
    first, second = tensor((4, 2), parts, F32).pieces(Region((1, 0), (4, 1)), 1000)
    assert (first.region, first.problem) == (Region((1, 0), (2, 1)), None)
    assert second.region == Region((2, 0), (4, 1))
    assert second.problem == Problem("truncated", "error", "the file is short", "w", "model.bin", None, second.region)


def test_what_a_smaller_copy_leaves_of_an_unreadable_part_is_told_exactly() -> None:
    files = [MemoryFile("0.bin", failure=ReadError("0.bin", "gone")), MemoryFile("1.bin")]
    boxes = [Region((0, 0), (3, 2)), Region((1, 0), (3, 2))]
    t = tensor((3, 2), cut(numbered(3, 2), boxes, file_of=lambda i: files[i]), F32)
    served, lost = t.pieces(Region.whole((3, 2)), 1000)
    assert (served.region, served.problem) == (boxes[1], None)
    assert lost.region == Region((0, 0), (1, 2))
    assert lost.problem is not None
    assert (lost.problem.region, lost.problem.code) == (lost.region, "read-failed")


def test_a_gap_in_pieces_carries_its_problem() -> None:
    t = tensor((4, 2), cut(numbered(4, 2), [Region((2, 0), (3, 2))]), F32)
    held, *gaps = t.pieces(Region.whole((4, 2)), 1000)
    assert held.region == Region((2, 0), (3, 2))
    assert {gap.region for gap in gaps} == {Region((0, 0), (2, 2)), Region((3, 0), (4, 2))}
    for gap in gaps:
        assert gap.problem is not None
        assert (gap.problem.code, gap.problem.severity, gap.nbytes) == ("missing-region", "error", 0)
        assert gap.problem.sentence == f"w, region {gap.region} cannot be read: no file stores it"


@pytest.mark.parametrize("failure", [CancelledError(), RuntimeError("a bug")])
def test_pieces_swallow_neither_cancel_nor_a_bug(failure: Exception) -> None:
    class Stubborn(MemorySource):
        def pieces(self, region: Region, max_bytes: int, /) -> Any:
            raise failure

    [part] = cut(numbered(2, 2), [Region.whole((2, 2))])
    source = part.source
    stubborn = Stubborn(source.file, source.encoding, source.offset, source.shape, source.strides)
    with pytest.raises(type(failure)):
        list(tensor((2, 2), [replace(part, source=stubborn)], F32).pieces(Region.whole((2, 2)), 100))


# ---------------------------------------------------------------- the table


def random_table(n: int, ndim: int, seed: int, extent: int = 60) -> FragmentTable:
    """A table of random boxes, empty ones among them, in random order within equal first coordinates."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, extent, (n, ndim))
    start = start[np.argsort(start[:, 0], kind="stable")] if ndim else start
    return FragmentTable(
        start, start + rng.integers(0, extent // 6, (n, ndim)), rng.integers(0, 5, n).astype(np.int32),
        rng.integers(0, 9, n) * 100, np.full(n, 4), np.full(n, -1, np.int32), np.zeros(n, np.int32),
        tuple("abcde"), lambda row: pytest.fail("opened a source"),
    )  # fmt: skip


@pytest.mark.parametrize("ndim", [0, 1, 2, 3])
def test_overlapping_finds_what_a_naive_scan_finds_in_storage_order(ndim: int) -> None:
    n = 2000
    fragments = random_table(n, ndim, seed=ndim)
    rng = random.Random(ndim)
    boxes = [fragments.region(row) for row in range(n)]
    for _ in range(20):
        ends = [sorted((rng.randint(0, 70), rng.randint(0, 70))) for _ in range(ndim)]
        region = Region(tuple(low for low, _ in ends), tuple(high for _, high in ends))
        expected = [row for row in range(n) if boxes[row].intersect(region) is not None]
        expected.sort(key=lambda row: (fragments.file[row], fragments.offset[row], row))
        assert fragments.overlapping(region).tolist() == expected


def test_coordinates_beyond_thirty_two_bits_are_found() -> None:
    """R117."""
    far = 2**62
    box = Region((far, 0), (far + 2, 1))
    [part] = cut(numbered(2, 1), [Region((0, 0), (2, 1))])
    t = tensor((far + 2, 1), [replace(part, region=box)], F32)
    assert t.fragments.overlapping(Region((far + 1, 0), (far + 2, 1))).tolist() == [0]
    assert read(t, Region((far + 1, 0), (far + 2, 1))).tolist() == [[2.0]]
    assert t.fragments.gaps(Region.whole(t.shape)) == [Region((0, 0), (far, 1))]


def test_reading_many_parts_in_any_order_takes_no_square_time() -> None:
    n = 3000
    boxes = rows(*range(1, n + 1), width=2)
    random.Random(1).shuffle(boxes)
    values = numbered(n, 2)
    t = tensor((n, 2), cut(values, boxes), F32)
    work = threading.local()
    work.n = 0
    plain_minus = Region.minus

    def counted(self: Region, other: Region) -> tuple[Region, ...]:
        work.n += 1
        return plain_minus(self, other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Region, "minus", counted)
        np.testing.assert_array_equal(read(t), values)
        assert len(list(t.pieces(Region.whole(t.shape), 1 << 20))) == n
    assert work.n <= 4 * n


def test_a_table_is_a_sequence_of_fragments() -> None:
    parts = cut(numbered(4, 2), rows(1, 3, 4, width=2))
    fragments = table(2, [*parts[:2], replace(parts[2], rank=-1)])
    assert len(fragments) == 3
    assert [f.region for f in fragments] == [part.region for part in parts]
    assert [f.rank for f in fragments] == [0, 1, None]
    assert fragments[-1] == fragments[2]
    assert [f.region for f in fragments[::2]] == [parts[0].region, parts[2].region]
    assert fragments[0].source is parts[0].source
    assert fragments[0].file == "model.bin"
    assert all(f.source.shape == f.region.shape for f in fragments)
    for index in (3, -4):
        with pytest.raises(IndexError):
            fragments[index]
    with pytest.raises(IndexError):
        FragmentTable.empty(2)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"file": np.zeros(1, np.int32)}, {"stop": np.zeros((1, 2), np.int64)}, {"stop": np.zeros((2, 1), np.int64)},
        {"start": np.array([[1, 0], [0, 0]])}, {"start": np.array([[-1, 0], [0, 0]])},
        {"stop": np.array([[1, 1], [0, 1]])}, {"start": np.zeros(2, np.int64), "stop": np.zeros(2, np.int64)},
    ],
    ids=lambda change: ", ".join(change),
)  # fmt: skip
def test_columns_that_make_no_table_are_refused(change: dict[str, Any]) -> None:
    good = table(2, cut(numbered(2, 2), rows(1, 2, width=2)))
    with pytest.raises(ValueError, match=r"columns|boxes|sorted|box"):
        replace(good, **change)


# ---------------------------------------------------------------- several threads


def test_eight_threads_read_regions_at_once() -> None:
    values = numbered(48, 40)
    boxes = [Region((i, j), (i + 6, j + 8)) for i in range(0, 48, 6) for j in range(0, 40, 8)]
    t = tensor((48, 40), cut(values, [*boxes, Region((3, 3), (20, 30))]), F32)
    start = threading.Barrier(8)

    def work(seed: int) -> int:
        rng = random.Random(seed)
        start.wait()
        for _ in range(40):
            (a, b), (c, d) = (sorted(rng.sample(range(n + 1), 2)) for n in t.shape)
            np.testing.assert_array_equal(t.full()[a:b, c:d], values[a:b, c:d])
        return seed

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == list(range(8))
