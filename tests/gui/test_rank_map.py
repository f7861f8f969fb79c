"""What each rank holds and what is wrong with it; where the cells of a mesh lie. No widgets here."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tensormorph.errors import Problem
from tensormorph.gui.mesh_grid import grid_of as grid_for
from tensormorph.gui.rank_map import MOST_RANKS, Mark, RankMap, rank_map
from tensormorph.gui.shards import TINTS
from tensormorph.mesh import Partial, Replicate, Shard, StridedShard
from tensormorph.model import LogicalTensor
from tensormorph.region import Region
from tests.gui.planes import checkpoint_of
from tests.gui.sharded import boxes, grid_of, laid_out, numbered, sharded, two_by_two, two_stages

SHAPE = (40, 60)
VALUES = numbered(SHAPE)


def mapped(tensor: LogicalTensor) -> RankMap:
    found = rank_map(checkpoint_of({"w": tensor}), tensor)
    assert found is not None
    return found


def marks(ranks: RankMap) -> list[Mark]:
    return [ranks.mark(at) for at in range(len(ranks.ranks))]


def words(ranks: RankMap) -> list[str]:
    return [ranks.word(at) for at in range(len(ranks.ranks))]


def test_replicas_share_a_tint_and_who_wrote_them_is_told() -> None:
    ranks = mapped(laid_out(sharded(VALUES, boxes(SHAPE, (2, 1)), [0, 3]), "dp=2,tp=2", Replicate(), Shard(0)))
    assert marks(ranks) == [Mark.REPLICA] * 4
    assert ranks.which.tolist() == [0, 1, 0, 1]
    assert [ranks.shares[i].tint for i in range(2)] == [0, 1]
    assert words(ranks) == ["", "written by 3", "written by 0", ""]
    share = ranks.share(1)
    assert share is not None
    assert (share.boxes, share.size, share.writers) == ((Region((20, 0), (40, 60)),), 1200, (3,))
    assert [ranks.coordinate(at) for at in range(4)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_copies_that_several_ranks_wrote_name_the_first() -> None:
    halves = boxes(SHAPE, (2, 1))
    tensor = sharded(VALUES, [*halves, *halves], [0, 1, 2, 3])
    assert words(mapped(laid_out(tensor, "dp=2,tp=2", Replicate(), Shard(0)))) == ["", "", "copy of 0", "copy of 1"]


def test_ranks_that_a_cut_leaves_nothing_for_are_empty() -> None:
    ranks = mapped(laid_out(sharded(VALUES[:2], boxes((2, 60), (2, 1))), "dp=4", Shard(0)))
    assert marks(ranks) == [Mark.HOLDS, Mark.HOLDS, Mark.EMPTY, Mark.EMPTY]
    assert words(ranks) == ["", "", "empty", "empty"]


def test_missing_unreadable_and_never_stored_are_three_things() -> None:
    whole = sharded(VALUES, boxes(SHAPE, (4, 1)))
    lost = dataclasses.replace(
        sharded(VALUES, boxes(SHAPE, (4, 1))[:3]), complete=False,
        problems=(
            Problem("missing-file", "error", "gone", tensor="w", file="__1_0.distcp", region=whole.fragments.region(1)),
            Problem("short-file", "error", "short", tensor="w", file="__2_0.distcp"),
            Problem("note", "info", "nothing", tensor="w", file="__0_0.distcp"),
        ),
    )  # fmt: skip
    ranks = mapped(laid_out(lost, "dp=4", Shard(0)))
    assert marks(ranks) == [Mark.HOLDS, Mark.MISSING, Mark.UNREADABLE, Mark.GAP]
    assert words(ranks) == ["", "no file", "unreadable", "gap"]
    stored = mapped(lost)
    assert marks(stored) == [Mark.HOLDS, Mark.MISSING, Mark.UNREADABLE]


def test_a_replica_whose_file_is_gone_is_marked_alone() -> None:
    halves = boxes(SHAPE, (2, 1))
    tensor = dataclasses.replace(
        sharded(VALUES, [*halves, *halves], [0, 1, 2, 3]),
        problems=(Problem("missing-file", "error", "gone", tensor="w", file="__2_0.distcp"),),
    )
    placed = mapped(laid_out(tensor, "dp=2,tp=2", Replicate(), Shard(0)))
    assert marks(placed) == [Mark.REPLICA, Mark.REPLICA, Mark.MISSING, Mark.REPLICA]


def test_without_a_layout_ranks_hold_what_they_stored() -> None:
    checkpoint = two_by_two()
    tensor = dataclasses.replace(checkpoint["rows"], layout=None)
    ranks = rank_map(checkpoint, tensor)
    assert ranks is not None
    assert not ranks.by_layout
    assert ranks.mesh == checkpoint.mesh
    assert marks(ranks) == [Mark.HOLDS, Mark.NOTHING, Mark.HOLDS, Mark.NOTHING]
    assert words(ranks)[1] == "wrote nothing"


def test_without_a_mesh_the_writers_stand_in_a_row() -> None:
    checkpoint = two_stages()
    ranks = rank_map(checkpoint, checkpoint["layers.1.w"])
    assert ranks is not None
    assert (ranks.mesh, ranks.ranks, ranks.shape) == (None, (2, 3), (2,))
    copies = mapped(sharded(VALUES, [Region.whole(SHAPE)] * 2, [4, 5]))
    assert marks(copies) == [Mark.REPLICA, Mark.REPLICA]


def test_terms_of_a_sum_are_no_replicas() -> None:
    terms = sharded(VALUES, [Region.whole(SHAPE)] * 2, [0, 1])
    terms = dataclasses.replace(terms, fragments=dataclasses.replace(terms.fragments, term=terms.fragments.rank))
    ranks = mapped(laid_out(dataclasses.replace(terms, reduction="sum"), "tp=2", Partial()))
    assert marks(ranks) == [Mark.HOLDS, Mark.HOLDS]
    assert [share.writers for share in ranks.shares] == [(0,), (1,)]


def test_a_strided_share_has_all_its_boxes() -> None:
    ranks = mapped(laid_out(sharded(VALUES, boxes(SHAPE, (4, 1))), "dp=2", StridedShard(0, 2)))
    share = ranks.share(0)
    assert share is not None
    assert [str(box) for box in share.boxes] == ["0:10, 0:60", "20:30, 0:60"]
    assert (share.n_rows, share.writers) == (2, (0, 2))


def test_above_eight_shares_one_tint_serves_all() -> None:
    ranks = mapped(laid_out(grid_of(3, 4), "a=3,b=3", Shard(0), Shard(1)))
    assert {share.tint for share in ranks.shares} == {TINTS - 1}


def test_nothing_is_drawn_where_no_rank_is_named_or_there_are_too_many() -> None:
    unnamed = sharded(VALUES, boxes(SHAPE, (2, 1)), [-1, -1])
    assert rank_map(checkpoint_of({"w": unnamed}), unnamed) is None
    vast = laid_out(sharded(VALUES, boxes(SHAPE, (2, 1))), f"dp={2 * MOST_RANKS}", Shard(0))
    assert rank_map(checkpoint_of({"w": vast}), vast) is None


# ---------------------------------------------------------------- where the cells lie

MESHES = [(1,), (4,), (7,), (1024,), (1000,), (2, 2), (128, 8), (8, 128), (5, 3), (4, 32, 8), (2, 3, 5, 7), (16384,)]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("area", [(950, 560), (400, 300), (160, 120)], ids=str)
def test_every_cell_has_a_place_of_its_own_and_is_found_there(mesh: tuple[int, ...], area: tuple[int, int]) -> None:
    grid = grid_for(mesh, *area)
    left, top = grid.corners()
    n = math.prod(mesh)
    assert len({*zip(left.tolist(), top.tolist(), strict=True)}) == n
    step = max(1, n // 500)
    for at in range(0, n, step):
        assert grid.at(int(left[at]), int(top[at])) == at
        assert grid.at(int(left[at]) + grid.cell[0] - 1, int(top[at]) + grid.cell[1] - 1) == at
    assert grid.at(-1, 0) is None
    assert grid.at(10**6, 10**6) is None
    if area == (950, 560):
        assert grid.size[0] <= area[0]
        assert grid.size[1] <= area[1]


def test_a_thousand_ranks_are_cut_into_bands_and_few_are_not() -> None:
    assert grid_for((2, 4), 950, 560).n_panels == 1
    assert grid_for((128, 8), 950, 560).n_panels > 1
    assert min(grid_for((128, 8), 950, 560).cell) >= 12
    assert grid_for((2, 2, 2), 950, 560).a_row == 2
