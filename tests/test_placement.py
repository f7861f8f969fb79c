"""What a layout gives each rank, against torch's own placements cutting real tensors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate as TorchReplicate
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from tensormorph.mesh import DeviceMesh, Layout, Partial, Placement, Replicate, Shard, StridedShard
from tensormorph.placement import in_order, part_at, part_of


def cut_by_torch(values: torch.Tensor, mesh: tuple[int, ...], at: tuple[int, ...], placed: list[Placement]) -> Any:
    """Return the local tensor that torch's own placement classes cut, axis by axis."""
    for size, index, placement in zip(mesh, at, placed, strict=True):
        if isinstance(placement, Shard):
            values = TorchShard(placement.dim)._split_tensor(values, size, with_padding=False, contiguous=True)[0][
                index
            ]
        elif isinstance(placement, StridedShard):
            cut = _StridedShard(placement.dim, split_factor=placement.split_factor)
            values = cut._split_tensor(values, size, with_padding=False, contiguous=True)[0][index]
    return values.numpy()


@st.composite
def placed_tensors(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], list[Placement]]:
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    dims = st.integers(0, len(shape) - 1)
    one = st.one_of(
        st.builds(Shard, dims), st.just(Replicate()), st.builds(StridedShard, dims, st.integers(1, 4)),
        st.just(Partial()),
    )  # fmt: skip
    return shape, mesh, [draw(one) for _ in mesh]


@settings(max_examples=400, deadline=None)
@given(placed_tensors())
def test_a_rank_holds_what_torch_gives_it(
    case: tuple[tuple[int, ...], tuple[int, ...], list[Placement]],
) -> None:
    shape, mesh, placements = case
    values = torch.arange(math.prod(shape)).reshape(shape)
    whole = values.numpy()
    for at in itertools.product(*map(range, mesh)):
        part = part_at(mesh, placements, range(len(mesh)), shape, at)
        expected = cut_by_torch(values, mesh, at, placements)
        assert part.shape == expected.shape
        assert part.empty == (expected.size == 0)
        ours = np.full(part.shape, -1)
        for local, region in part.boxes():
            ours[local.slices()] = whole[region.slices()]
        assert np.array_equal(ours, expected)


@pytest.mark.parametrize("n", range(13))
@pytest.mark.parametrize("mesh", [(1,), (2,), (3,), (4,), (2, 2), (2, 3), (3, 2), (2, 2, 2)], ids=str)
def test_offsets_are_those_of_dtensor(mesh: tuple[int, ...], n: int) -> None:
    """torch's DTensor tells shape and first element of each rank's box, uneven and empty cuts included."""
    for dims in itertools.product((0, 1, None), repeat=len(mesh)):
        ours = [Replicate() if d is None else Shard(d) for d in dims]
        theirs = [TorchReplicate() if d is None else TorchShard(d) for d in dims]
        for at in itertools.product(*map(range, mesh)):
            size, offset = _compute_local_shape_and_global_offset((n, 5), mesh, list(at), theirs)
            part = part_at(mesh, ours, range(len(mesh)), (n, 5), at)
            assert part.shape == tuple(size)
            box = part.box()
            assert (box is None) == part.empty
            if box is not None:
                assert box.start == tuple(offset)


def test_tensor_parallel_first_then_fsdp() -> None:
    """R40: FSDP2 on tensor parallel, 2 x 2: rows 0-1, 4-5, 2-3, 6-7; concatenating in rank order is the bug."""
    layout = Layout(two_by_two(), (StridedShard(0, 2), Shard(0)), (0, 1), "recorded")
    rows = [part_of(layout, (8,), rank).axes[0] for rank in range(4)]
    assert rows == [((0, 2),), ((4, 6),), ((2, 4),), ((6, 8),)]
    plain = in_order(layout, (8,))
    assert (plain.placements, plain.order) == ((Shard(0), Shard(0)), (1, 0))
    assert [part_of(plain, (8,), rank).axes[0] for rank in range(4)] == rows


def test_uneven_rows_of_fsdp_on_tensor_parallel() -> None:
    """R41: six rows over 2 x 2: 0-1, 3-4, 2, 5."""
    layout = Layout(two_by_two(), (StridedShard(0, 2), Shard(0)), (0, 1), "recorded")
    rows = [part_of(layout, (6,), rank).axes[0] for rank in range(4)]
    assert rows == [((0, 2),), ((3, 5),), ((2, 3),), ((5, 6),)]


def test_a_lone_strided_cut_is_not_one_box() -> None:
    """R42: five rows, split factor 2, over two ranks, as torch 2.13 cuts them: 0, 1, 3 and 2, 4; it stays strided."""
    layout = Layout(DeviceMesh(("dp",), (2,), (0, 1)), (StridedShard(0, 2),), (0,), "recorded")
    assert [part_of(layout, (5,), rank).axes[0] for rank in range(2)] == [((0, 2), (3, 4)), ((2, 3), (4, 5))]
    assert part_of(layout, (5,), 0).box() is None
    assert in_order(layout, (5,)) == layout


def test_a_rank_that_gets_nothing_holds_no_part() -> None:
    """R44: six rows over four ranks leave nothing for the last: empty, as it should be."""
    layout = Layout(DeviceMesh(("dp",), (4,), (0, 1, 2, 3)), (Shard(0),), (0,), "recorded")
    parts = [part_of(layout, (6, 2), rank) for rank in range(4)]
    assert [part.shape for part in parts] == [(2, 2), (2, 2), (2, 2), (0, 2)]
    assert [part.empty for part in parts] == [False, False, False, True]
    assert list(parts[3].boxes()) == []


def test_what_cannot_be_asked() -> None:
    layout = Layout(two_by_two(), (Shard(1), Replicate()), (0, 1), "stated")
    with pytest.raises(ValueError, match="axis 1 of a tensor of 1 axes"):
        part_of(layout, (4,), 0)
    with pytest.raises(ValueError, match="not in"):
        part_of(layout, (4, 4), 7)


def two_by_two() -> DeviceMesh:
    return DeviceMesh(("dp", "tp"), (2, 2), (0, 1, 2, 3))
