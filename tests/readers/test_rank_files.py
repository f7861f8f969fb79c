"""Ranks' files: each part where its file records it, the whole as the oracle, and nothing joined on a guess."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from tensormorph.checks import check
from tensormorph.errors import LayoutError, MissingRegionError
from tensormorph.model import Checkpoint
from tensormorph.readers import open_checkpoint, rank_files
from tensormorph.readers._target import look
from tensormorph.region import Region
from tests.readers.oracle import read_stored

CORPUS = Path(__file__).parent.parent / "data" / "ranks"
RECORDED = [
    "perrank_dtensor_4r", "perrank_dtensor_tp_2x2", "perrank_partial_2r", "perrank_shardedtensor_2r",
    "perrank_strided_noncontig_2x2",
]  # fmt: skip


def codes(checkpoint: Checkpoint, *severities: str) -> set[str]:
    return {p.code for p in checkpoint.problems if not severities or p.severity in severities}


@pytest.mark.parametrize("case", RECORDED)
def test_a_recorded_case_reads_bit_for_bit_as_its_oracle(case: str) -> None:
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        assert checkpoint.format == "rank_files"
        assert codes(checkpoint, "error", "warning") == set()
        oracle = read_stored(CORPUS / case / "oracle.safetensors")
        inline = {name for name in checkpoint.tensors if name.startswith("rng.numpy")}  # an array in the pickle itself
        assert set(checkpoint.tensors) - inline == set(oracle)
        for name, (_, shape, data) in oracle.items():
            tensor = checkpoint[name]
            assert tensor.complete, name
            assert (tensor.shape, tensor.full()[...].tobytes()) == (shape, data), name
        assert {p.code for p in check(checkpoint, values=True).problems if p.severity != "info"} == set()


@pytest.mark.parametrize("case", ["perrank_dtensor_4r", "perrank_dtensor_tp_2x2", "perrank_strided_noncontig_2x2"])
def test_the_mesh_is_recorded_and_local_parts_rebuild_the_whole(case: str) -> None:
    facts = json.loads((CORPUS / case / "case.json").read_text())
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        assert checkpoint.mesh is not None
        assert checkpoint.mesh.shape == tuple(facts["mesh"])
        assert checkpoint.facts.world_size == len(checkpoint.mesh.ranks)
        placed = [tensor for tensor in checkpoint.tensors.values() if tensor.layout is not None]
        assert placed
        for tensor in placed:
            assert tensor.layout is not None
            assert tensor.layout.provenance == "recorded"
            whole = tensor.full()[...]
            seen = np.zeros(tensor.shape, int)
            for local in tensor.locals:
                assert local.rank is not None
                part = tensor.local(local.rank)[...]
                raw = np.empty(local.source.shape, tensor.dtype)
                local.source.read_into(Region.whole(local.source.shape), raw)
                assert part.tobytes() == raw.tobytes(), (tensor.name, local.rank)
                for row in local.rows or ():
                    region = tensor.fragments.region(row)
                    seen[region.slices()] += 1
            assert (seen > 0).all()
            assert whole.shape == tensor.shape


def test_plain_tensors_are_compared_never_joined_on_a_guess() -> None:
    """R47: what all ranks hold alike is one tensor; what differs has no value until a join is stated."""
    path = CORPUS / "perrank_plain_2r" / "ckpt"
    oracle = read_stored(CORPUS / "perrank_plain_2r" / "oracle.safetensors")
    with open_checkpoint(path) as checkpoint:
        assert codes(checkpoint) == {"nothing-records-a-place"}
        assert checkpoint["b"].full()[...].tobytes() == oracle["b"][2]
        assert [holder.rank for holder in checkpoint["b"].where((3,))] == [0, 1]
        assert checkpoint["b"].layout is None
        with pytest.raises(MissingRegionError, match="replicas disagree: ranks 0, 1"):
            checkpoint["w"].full()[...]
        pieces = [local.source for local in checkpoint["w"].locals]
        assert [source.shape for source in pieces] == [(8, 3), (8, 3)]
        found = {p.code for p in check(checkpoint, values=True).problems if p.severity == "error"}
        assert found == {"unreadable-values"}
    with open_checkpoint(path, joins={"w": 1}) as checkpoint:
        assert (checkpoint["w"].shape, checkpoint["w"].full()[...].tobytes()) == (oracle["w"][1], oracle["w"][2])
        assert [holder.rank for holder in checkpoint["w"].where((0, 4))] == [1]
    with open_checkpoint(path, joins={"w": 5}) as checkpoint:
        assert "stated-join" in codes(checkpoint)


def test_local_flat_parameters_are_shown_flat() -> None:
    """FSDP1's LOCAL_STATE_DICT records no shapes: the flat parameter is whole, its padding of 42 in it as stored."""
    with open_checkpoint(CORPUS / "perrank_fsdp1_local_2r" / "ckpt") as checkpoint:
        flat = checkpoint["model._flat_param"]
        assert (flat.shape, flat.complete) == ((94,), True)
        assert [str(f.region) for f in flat.fragments] == ["0:47", "47:94"]
        halves = [flat.fragments[i].source for i in range(2)]
        for low, source in zip((0, 47), halves, strict=True):
            out = np.empty(47, np.float32)
            source.read_into(Region((0,), (47,)), out)
            assert out.tobytes() == flat.full()[low : low + 47].tobytes()
        assert {"rank 0/model.tok.weight", "rank 1/model.tok.weight"} <= set(checkpoint.tensors)
        assert "not-joined" in codes(checkpoint, "warning")
        assert codes(checkpoint, "error") == set()


def test_an_absent_rank_is_named_and_the_rest_reads() -> None:
    case = CORPUS / "bad_perrank_missing"
    whole = read_stored(CORPUS / "perrank_dtensor_4r" / "oracle.safetensors")
    with open_checkpoint(case / "ckpt") as checkpoint:
        told = [p for p in checkpoint.problems if p.code == "missing-rank"]
        assert len(told) == 1
        assert "1 rank of 4" in told[0].sentence
        assert "(2)" in told[0].sentence
        gaps = {p.tensor: str(p.region) for p in checkpoint.problems if p.code == "gap"}
        assert gaps["model.tok.weight"] == "6:9, 0:6"
        assert gaps["model.layers.0.norm.bias"] == "4:6"
        tensor = checkpoint["model.tok.weight"]
        expected = np.frombuffer(whole["model.tok.weight"][2], np.float32).reshape(10, 6)
        assert np.array_equal(tensor.full()[:6], expected[:6])
        assert np.array_equal(tensor.full()[9:], expected[9:])
        with pytest.raises(MissingRegionError, match="6:9"):
            tensor.full()[5:8]
        assert checkpoint["optim.state.tok.weight.step"].complete
        assert check(checkpoint).verdict == "incomplete"


# ---------------------------------------------------------------- written here, by torch


Make = Callable[[Any, int], dict[str, Any]]


def write_ranks(folder: Path, shape: Sequence[int], make: Make, name: str = "rank_{}.pt") -> Path:
    """Write one file a rank with what `make(mesh, rank)` gives, through torch's own mesh over a fake process group."""
    folder.mkdir(exist_ok=True)
    world = int(np.prod(shape))
    for rank in range(world):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        try:
            names = ("dp", "tp", "pp")[: len(shape)]
            mesh = init_device_mesh("cpu", tuple(shape), mesh_dim_names=names)
            torch.save(make(mesh, rank), folder / name.format(rank))
        finally:
            dist.destroy_process_group()
    return folder


def dtensor(local: torch.Tensor, mesh: Any, placements: Sequence[Any], shape: Sequence[int]) -> DTensor:
    strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=tuple(strides))


def test_padding_is_no_part_of_the_tensor(tmp_path: Path) -> None:
    """R46: 24 ranks store 150 elements each, the tensor has 3,584: the last 16 are padding."""
    values = torch.arange(3600, dtype=torch.float32)

    def make(mesh: Any, rank: int) -> dict[str, Any]:
        return {"w": dtensor(values[150 * rank : 150 * rank + 150].clone(), mesh, [Shard(0)], (3584,))}

    with open_checkpoint(write_ranks(tmp_path / "run", (24,), make)) as checkpoint:
        tensor = checkpoint["w"]
        assert (tensor.shape, tensor.complete) == ((3584,), True)
        assert np.array_equal(tensor.full()[...], values[:3584].numpy())
        assert [p.sentence for p in checkpoint.problems if p.code == "padding"] == [
            "w: rank 23 stores (150,), its part is (134,): 16 elements of padding, which local() shows and full() "
            "leaves out"
        ]
        assert tensor.local(23).shape == (134,)
        assert tensor.locals[23].source.shape == (150,)


def test_a_placement_that_contradicts_the_stored_shape_is_told_with_both(tmp_path: Path) -> None:
    """R42: nothing is guessed where a local tensor is smaller than its recorded placement gives it."""

    def make(mesh: Any, rank: int) -> dict[str, Any]:
        local = torch.arange(3.0 if rank == 0 else 2.0)
        return {"w": dtensor(local, mesh, [Shard(0)], (8,)), "v": dtensor(torch.ones(2) + rank, mesh, [Shard(0)], (4,))}

    with open_checkpoint(write_ranks(tmp_path / "run", (2,), make)) as checkpoint:
        told = [p for p in checkpoint.problems if p.code == "placement-contradicts"]
        assert [p.tensor for p in told] == ["w", "w"]
        assert "stores shape (3,)" in told[0].sentence
        assert "gives it shape (4,)" in told[0].sentence
        with pytest.raises(MissingRegionError):
            checkpoint["w"].full()[...]
        assert [local.source.shape for local in checkpoint["w"].locals] == [(3,), (2,)]
        assert checkpoint["v"].full()[...].tolist() == [1, 1, 2, 2]


def test_a_scalar_that_every_rank_holds(tmp_path: Path) -> None:
    """R49: a 0-d tensor in each rank's file is one scalar."""
    path = write_ranks(tmp_path / "run", (3,), lambda mesh, rank: {"scale": torch.tensor(2.5), "rank": rank})
    with open_checkpoint(path) as checkpoint:
        assert checkpoint["scale"].full()[()] == 2.5
        assert len(checkpoint["scale"].where(())) == 3
        assert checkpoint.objects["rank"].load() == 0


def test_a_world_of_one_is_whole(tmp_path: Path) -> None:
    """R50: one rank's plain tensors are the tensors."""
    torch.save({"w": torch.arange(6.0).reshape(2, 3)}, tmp_path / "model_world_size_1_rank_0.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.facts.world_size == 1
        assert codes(checkpoint) == set()
        assert checkpoint["w"].full()[1].tolist() == [3, 4, 5]


@pytest.mark.parametrize(("op", "expected"), [("sum", 10.0), ("avg", 2.5)])
def test_terms_are_added_in_rank_order(tmp_path: Path, op: str, expected: float) -> None:
    def make(mesh: Any, rank: int) -> dict[str, Any]:
        local = torch.full((2, 2), float(rank + 1), dtype=torch.bfloat16)
        return {"w": dtensor(local, mesh, [Partial(op)], (2, 2))}

    path = write_ranks(tmp_path / "run", (4,), make)
    with open_checkpoint(path) as checkpoint:
        tensor = checkpoint["w"]
        assert tensor.full()[...].astype(float).tolist() == [[expected] * 2] * 2
        assert float(tensor.local(2)[0, 0]) == 3.0
        assert sorted(holder.term for holder in tensor.where((0, 0))) == [0, 1, 2, 3]
    (path / "rank_1.pt").unlink()
    with open_checkpoint(path) as checkpoint:
        assert not checkpoint["w"].complete
        with pytest.raises(MissingRegionError):
            checkpoint["w"].full()[...]
        assert float(checkpoint["w"].local(2)[0, 0]) == 3.0


def test_a_reduction_that_cannot_be_computed_is_unreadable_and_its_terms_are_not(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "run", (2,), lambda mesh, rank: {
        "w": dtensor(torch.ones(2) * rank, mesh, [Partial("product")], (2,))})  # fmt: skip
    with open_checkpoint(path) as checkpoint:
        with pytest.raises(MissingRegionError, match="product"):
            checkpoint["w"].full()[...]
        assert checkpoint["w"].local(1)[...].tolist() == [1, 1]


def test_hybrid_sharding_serves_an_absent_rank_by_its_replica(tmp_path: Path) -> None:
    values = torch.arange(12.0).reshape(6, 2)

    def make(mesh: Any, rank: int) -> dict[str, Any]:
        half = values[3 * (rank % 2) : 3 * (rank % 2) + 3].clone()
        return {"w": dtensor(half, mesh, [Replicate(), Shard(0)], (6, 2)),
                "v": dtensor(values[[rank]].clone(), mesh, [Shard(0), Shard(0)], (4, 2))}  # fmt: skip

    path = write_ranks(tmp_path / "run", (2, 2), make)
    (path / "rank_1.pt").unlink()
    with open_checkpoint(path) as checkpoint:
        assert np.array_equal(checkpoint["w"].full()[...], values.numpy())
        assert np.array_equal(checkpoint["w"].local(1)[...], values[3:].numpy())
        assert [p.tensor for p in checkpoint.problems if p.code == "served-by-replica"] == ["w"]
        assert {(p.code, str(p.region)) for p in checkpoint["v"].problems} == {("gap", "1:2, 0:2")}
        with pytest.raises(LayoutError, match="not on the mesh"):
            checkpoint["w"].local(9)


@pytest.mark.parametrize("mesh", [(3,), (2, 2), (2, 3)], ids=str)
def test_every_placement_rebuilds_the_whole(tmp_path: Path, mesh: tuple[int, ...]) -> None:
    """torch cuts a tensor by every pair of placements; the files give it back, uneven and empty parts included."""
    values = torch.arange(35.0).reshape(7, 5)
    choices = list(itertools.product([Shard(0), Shard(1), Replicate()], repeat=len(mesh)))

    def make(device_mesh: Any, rank: int) -> dict[str, Any]:
        at = np.unravel_index(rank, mesh)
        out: dict[str, Any] = {}
        for number, placements in enumerate(choices):
            local = values
            for size, index, placement in zip(mesh, at, placements, strict=True):
                if isinstance(placement, Shard):
                    parts, _ = placement._split_tensor(local, size, with_padding=False, contiguous=True)
                    local = parts[int(index)]
            out[f"w{number}"] = dtensor(local.clone(), device_mesh, placements, (7, 5))
        return out

    with open_checkpoint(write_ranks(tmp_path / "run", mesh, make)) as checkpoint:
        assert codes(checkpoint, "error", "warning") == set()
        assert len(checkpoint) == len(choices)
        for tensor in checkpoint.tensors.values():
            assert np.array_equal(tensor.full()[...], values.numpy()), tensor.layout


def test_names_of_files_yield_to_what_tensors_record(tmp_path: Path) -> None:
    values = torch.arange(4.0)
    path = write_ranks(
        tmp_path / "run",
        (2,),
        lambda mesh, rank: {"w": dtensor(values[2 * rank : 2 * rank + 2].clone(), mesh, [Shard(0)], (4,))},
    )
    (path / "rank_0.pt").rename(path / "x")
    (path / "rank_1.pt").rename(path / "rank_0.pt")
    (path / "x").rename(path / "rank_1.pt")
    with open_checkpoint(path) as checkpoint:
        assert checkpoint["w"].full()[...].tolist() == [0, 1, 2, 3]
        assert codes(checkpoint, "warning") == {"rank-name"}


def test_a_file_cut_short_costs_its_own_part(tmp_path: Path) -> None:
    values = torch.arange(4000.0).reshape(4, 1000)
    path = write_ranks(
        tmp_path / "run", (2,),
        lambda mesh, rank: {"w": dtensor(values[2 * rank : 2 * rank + 2].clone(), mesh, [Shard(0)], (4, 1000))},
    )  # fmt: skip
    raw = (path / "rank_1.pt").read_bytes()
    (path / "rank_1.pt").write_bytes(raw[: len(raw) // 2])
    with open_checkpoint(path) as checkpoint:
        assert "corrupt-file" in codes(checkpoint, "error")
        assert np.array_equal(checkpoint["w"].full()[:2], values[:2].numpy())
        with pytest.raises(MissingRegionError):
            checkpoint["w"].full()[2:]


def test_model_and_optimizer_files_are_two_sets(tmp_path: Path) -> None:
    for rank in range(2):
        torch.save({"w": torch.ones(2)}, tmp_path / f"model_world_size_2_rank_{rank}.pt")
        torch.save({"w": torch.zeros(3)}, tmp_path / f"optim_world_size_2_rank_{rank}.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        assert list(checkpoint.tensors) == ["model/w", "optim/w"]
        assert checkpoint["optim/w"].shape == (3,)


def test_one_file_by_itself_says_that_it_is_a_part() -> None:
    with open_checkpoint(CORPUS / "perrank_dtensor_4r" / "ckpt" / "rank_1.pt") as checkpoint:
        assert checkpoint.format == "torch_save"
        [told] = [p for p in checkpoint.problems if p.code == "rank-part"]
        assert "rank 1 of 4" in told.sentence
        assert checkpoint["model.tok.weight"].shape == (3, 6)


def test_what_is_no_ranks_folder_is_not_claimed(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "model.pt")
    assert isinstance(rank_files.sniff(look(tmp_path)), str)
    (tmp_path / "rank_0.txt").write_text("no torch file")
    assert isinstance(rank_files.sniff(look(tmp_path)), str)
    assert isinstance(rank_files.sniff(look(tmp_path / "model.pt")), str)
