"""Meshes found from boxes and writers: the truth is found or among its rivals, and nothing is found in nonsense."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormorph.inference import Inferred, Stored, agree, infer
from tensormorph.mesh import DeviceMesh, Placement, Replicate, Shard
from tensormorph.placement import part_at, part_of


def boxes_of(
    shape: tuple[int, ...],
    mesh: tuple[int, ...],
    placements: tuple[Placement, ...],
    order: tuple[int, ...],
    seed: int = 0,
) -> Stored:
    """Return what a save stores of one tensor: each box once, by any of the ranks that hold it."""
    owners: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for rank, at in enumerate(itertools.product(*map(range, mesh))):
        box = part_at(mesh, placements, order, shape, at).box()
        if box is not None:
            owners.setdefault((box.start, box.stop), []).append(rank)
    rng = np.random.default_rng(seed)
    edges = list(owners)
    low = np.array([start for start, _ in edges], np.int64).reshape(len(edges), len(shape))
    high = np.array([stop for _, stop in edges], np.int64).reshape(len(edges), len(shape))
    writers = np.array([rng.choice(ranks) for ranks in owners.values()], np.int64)
    return Stored(shape, low, high, writers)


def explains(found: Inferred, tensors: list[Stored]) -> None:
    """Assert that every layout gives each stored box to its writer, and no rank anything that is not stored."""
    for stored, layout in zip(tensors, found.layouts, strict=True):
        assert layout is not None
        assert layout.provenance == "inferred"
        kept = {(tuple(a), tuple(b)) for a, b in zip(stored.start.tolist(), stored.stop.tolist(), strict=True)}
        for rank in layout.mesh.ranks:
            box = part_of(layout, stored.shape, rank).box()
            assert box is None or (box.start, box.stop) in kept
        for low, high, rank in zip(stored.start.tolist(), stored.stop.tolist(), stored.rank.tolist(), strict=True):
            box = part_of(layout, stored.shape, rank).box()
            assert box is not None
            assert (box.start, box.stop) == (tuple(low), tuple(high))


@st.composite
def models(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Stored]]:
    mesh = tuple(draw(st.lists(st.integers(2, 4), min_size=1, max_size=3)))
    tensors = []
    for seed in range(draw(st.integers(1, 6))):
        shape = tuple(draw(st.lists(st.integers(1, 24), min_size=1, max_size=3)))
        dims = st.integers(-1, len(shape) - 1)
        placements = tuple(Replicate() if d < 0 else Shard(d) for d in (draw(dims) for _ in mesh))
        order = tuple(draw(st.permutations(range(len(mesh)))))
        tensors.append(boxes_of(shape, mesh, placements, order, seed))
    return mesh, tensors


@settings(max_examples=150, deadline=None)
@given(models())
def test_what_is_found_explains_every_box_and_writer(model: tuple[tuple[int, ...], list[Stored]]) -> None:
    mesh, tensors = model
    found = infer(tensors, range(math.prod(mesh)), budget=30)
    assert found.candidates, found.words
    # The truth, or a coarser mesh of which it is a refinement: nothing in the boxes tells the two apart.
    axes = min(len(candidate.shape) for candidate in found.candidates)
    assert axes <= len(mesh)
    if len(mesh) == axes:
        assert mesh in {candidate.shape for candidate in found.candidates}
    if found.mesh is not None:
        explains(found, tensors)


def test_fsdp_on_tensor_parallel_is_found_with_its_order() -> None:
    """The later axis was cut first: ranks 0 to 3 hold rows 0, 4, 2 and 6 of eight."""
    tensors = [boxes_of((8, 4), (2, 2), (Shard(0), Shard(0)), (1, 0)),
               boxes_of((6, 8), (2, 2), (Shard(0), Shard(1)), (0, 1))]  # fmt: skip
    found = infer(tensors, range(4))
    assert found.mesh is not None
    assert found.mesh.shape == (2, 2)
    assert found.layouts[0] is not None
    assert found.layouts[0].order == (1, 0)
    assert str(found.layouts[1].placements[1] if found.layouts[1] else "") == "Shard(1)"


def test_several_meshes_are_all_told_and_none_is_taken() -> None:
    """Halves on eight ranks, by writers that fit two arrangements: 2 x 4 and 4 x 2."""
    tensors = [Stored((8,), np.array([[0], [4]]), np.array([[4], [8]]), np.array([0, 7]))]
    found = infer(tensors, range(8))
    assert found.mesh is None
    assert {candidate.shape for candidate in found.candidates} == {(2, 4), (4, 2)}
    assert found.layouts == (None,)
    assert "2 meshes" in found.words


def test_whole_tensors_fit_any_mesh_and_that_is_said() -> None:
    found = infer([boxes_of((4, 4), (6,), (Replicate(),), (0,))], range(6))
    assert found.mesh is not None
    assert found.mesh.shape == (6,)
    assert "any mesh of 6 ranks" in found.words


@pytest.mark.parametrize(
    ("start", "stop", "ranks"),
    [
        ([[0], [2], [5]], [[2], [5], [6]], [0, 1, 2]),  # uneven as torch never cuts
        ([[0], [3]], [[3], [6]], [1, 0]),  # the wrong writers
        ([[0, 0], [2, 0], [2, 2]], [[2, 4], [4, 2], [4, 4]], [0, 1, 2]),  # no grid
    ],
)
def test_boxes_that_no_mesh_gives_are_not_explained(
    start: list[list[int]], stop: list[list[int]], ranks: list[int]
) -> None:
    shape = tuple(np.max(stop, axis=0).tolist())
    stored = Stored(shape, np.array(start), np.array(stop), np.array(ranks))
    found = infer([stored], range(len(ranks)))
    assert found.candidates == ()
    assert found.layouts == (None,)


def test_512_ranks_and_a_thousand_tensors_are_explained() -> None:
    mesh = (8, 16, 4)
    kinds: list[tuple[tuple[int, ...], tuple[Placement, ...], tuple[int, ...]]] = [
        ((4096, 512), (Shard(0), Shard(0), Shard(1)), (1, 0, 2)),
        ((512,), (Replicate(), Shard(0), Replicate()), (0, 1, 2)),
        ((1024, 256), (Replicate(), Shard(1), Shard(0)), (0, 1, 2)),
        ((64, 64), (Replicate(), Replicate(), Replicate()), (0, 1, 2)),
    ]
    tensors = []
    for i in range(1000):
        (rows, *rest), placements, order = kinds[i % 4]
        tensors.append(boxes_of((rows + 64 * (i // 40), *rest), mesh, placements, order, i % 8))
    found = infer(tensors, range(512), budget=60)  # it takes 0.13 s; the clock of a busy machine decides nothing here
    assert found.mesh is not None
    assert found.mesh.shape == mesh
    explains(Inferred(found.candidates, found.layouts[:4], found.words), tensors[:4])


def test_no_time_is_an_answer() -> None:
    found = infer([boxes_of((8,), (4,), (Shard(0),), (0,))], range(4), budget=-1)
    assert found.candidates == ()
    assert "not inferred" in found.words


def test_a_stated_mesh_is_asked_whether_it_fits() -> None:
    tensors = [boxes_of((8, 4), (2, 2), (Shard(0), Shard(1)), (0, 1)), boxes_of((9,), (4,), (Shard(0),), (0,))]
    mesh = DeviceMesh(("dp", "tp"), (2, 2), (0, 1, 2, 3))
    layouts = agree(tensors, mesh)
    assert layouts[0] is not None
    assert [str(p) for p in layouts[0].placements] == ["Shard(0)", "Shard(1)"]
    assert layouts[0].provenance == "stated"
    assert layouts[1] is None  # nine rows over 2 x 2 are cut 5, 4 and then 3, 2, 2, 2: not 3, 3, 3
