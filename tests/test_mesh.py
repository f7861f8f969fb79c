"""Meshes: what fits together, where a rank stands, and how a person states one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tensormorph.errors import UsageError
from tensormorph.mesh import DeviceMesh, Layout, Partial, Replicate, Shard, StridedShard, parse_mesh


def mesh(*shape: int) -> DeviceMesh:
    names = tuple("abcdefg"[: len(shape)])
    return DeviceMesh(names, shape, tuple(range(math.prod(shape))))


@pytest.mark.parametrize("shape", [(1,), (4,), (2, 3), (3, 1, 2), (2, 2, 2, 2), ()], ids=str)
def test_a_rank_stands_where_numpy_puts_it(shape: tuple[int, ...]) -> None:
    ranks = np.random.default_rng(1).permutation(math.prod(shape)) + 10
    made = DeviceMesh(tuple("abcd"[: len(shape)]), shape, tuple(ranks.tolist()))
    for index in itertools.product(*map(range, shape)):
        assert made.coordinate(int(ranks.reshape(shape)[index])) == index


def test_a_rank_off_the_mesh_has_no_place() -> None:
    with pytest.raises(ValueError, match="not in"):
        mesh(2, 2).coordinate(4)


@pytest.mark.parametrize(
    ("names", "shape", "ranks"),
    [
        (("dp",), (2, 2), (0, 1, 2, 3)),
        (("dp", "dp"), (1, 2), (0, 1)),
        (("dp",), (2,), (0,)),
        (("dp",), (2,), (1, 1)),
        (("dp",), (0,), ()),
        (("dp", "tp"), (-1, -2), (0, 1)),
    ],
)
def test_what_is_no_mesh_is_refused(names: tuple[str, ...], shape: tuple[int, ...], ranks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"names|ranks"):
        DeviceMesh(names, shape, ranks)


def test_a_layout_has_one_placement_an_axis_and_an_order_of_all_axes() -> None:
    two = mesh(2, 2)
    assert Layout(two, (Shard(0), Replicate()), (1, 0), "recorded").order == (1, 0)
    for placements, order in [((Shard(0),), (0, 1)), ((Shard(0), Shard(1)), (0,)), ((Shard(0), Shard(1)), (0, 0)),
                              ((Shard(0), Shard(1)), (1, 2)), ((), ())]:  # fmt: skip
        with pytest.raises(ValueError, match="placements in order"):
            Layout(two, placements, order, "stated")


def test_the_words_of_the_field() -> None:
    placements = (Shard(0), StridedShard(0, 2), Replicate(), Partial(), Partial("avg"))
    assert [str(p) for p in placements] == [
        "Shard(0)", "StridedShard(0, 2)", "Replicate()", "Partial(sum)", "Partial(avg)",
    ]  # fmt: skip
    assert str(parse_mesh("dp=2,tp=4")) == "dp 2, tp 4"


@pytest.mark.parametrize("stated", ["dp=2,tp=4", " dp = 2 , tp=4 ", "dp=2,tp=4,"])
def test_a_mesh_is_stated_in_words(stated: str) -> None:
    assert parse_mesh(stated) == DeviceMesh(("dp", "tp"), (2, 4), tuple(range(8)))


@pytest.mark.parametrize(
    "stated",
    ["", ",", "dp", "dp=0", "dp=-1", "dp=1.5", "=2", "dp=2;tp=2", "dp=2,dp=2", "2=dp", "dp=10000000", "a=2000,b=2000",
     "dp=2 tp=2", "\x1b[31m=2", "x" * 70_000],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_what_states_no_mesh_is_refused_in_a_harmless_sentence(stated: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_mesh(stated)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600
