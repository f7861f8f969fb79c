"""Checkpoints that torch's own DCP wrote: every case bit for bit, its pieces, its objects, and whose state is whose."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensormorph.checks import check
from tensormorph.readers import open_checkpoint
from tensormorph.region import Region
from tests.readers.dcp_cases import CORPUS, copied, facts, oracle, same_bits

DCP = sorted(p.name for p in CORPUS.iterdir() if p.name.startswith(("dcp_", "fsdp")))
# Folder below the case's own, and the reader that must claim it.
SLICES = {
    "hf_sharded_4r": "ckpt", "hf_sharded_2d_2x2": "ckpt", "hf_sharded_dtypes_4r": "ckpt",
    "hf_consolidation_failed_4r": "ckpt/sharded", "hf_consolidated_4r": "ckpt/sharded",
    "hf_consolidated_floats_4r": "ckpt/sharded",
}  # fmt: skip
WHOLE = ["hf_consolidated_4r", "hf_consolidated_floats_4r", "hf_rank0_full_1r"]
OPENED = [(case, "ckpt", "dcp") for case in DCP]
OPENED += [(case, folder, "dcp_safetensors") for case, folder in SLICES.items()]
OPENED += [(case, "ckpt", "safetensors") for case in WHOLE]
COPIES = {"dcp_nocoll_2r"}  # each rank's own metadata lists what that rank stored, replicas too
RANK = {"dcp": re.compile(r"__([0-9]+)_"), "dcp_safetensors": re.compile(r"shard-([0-9]+)-")}
FIRST_RANK = {"dcp": 0, "dcp_safetensors": 1}


def test_every_case_of_the_corpus_is_read_here() -> None:
    good = {p.name for p in CORPUS.iterdir() if p.name.startswith(("dcp_", "fsdp", "hf_"))}
    assert {case for case, _, _ in OPENED} == good
    assert len(DCP) == 30


@pytest.mark.parametrize(("case", "folder", "reader"), OPENED)
def test_a_good_case_reads_bit_for_bit_as_its_oracle(case: str, folder: str, reader: str) -> None:
    expected = oracle(case)
    with open_checkpoint(CORPUS / case / folder) as checkpoint:
        assert checkpoint.format == reader
        assert [p for p in checkpoint.problems if p.severity != "info"] == []
        assert set(checkpoint) == set(expected)
        assert not checkpoint.unreadable
        assert not checkpoint.aliases
        for name, (kind, values) in expected.items():
            tensor = checkpoint[name]
            assert (tensor.encoding.name, tensor.shape, tensor.complete) == (kind, values.shape, True), name
            assert same_bits(tensor.full()[...], values), name
        assert [p for p in check(checkpoint, hashes=True).problems if p.severity != "info"] == []


@pytest.mark.parametrize(("case", "folder", "reader"), [row for row in OPENED if row[2] in RANK])
def test_fragments_lie_in_the_whole_once_and_pieces_are_slices_of_the_oracle(
    case: str, folder: str, reader: str
) -> None:
    expected = oracle(case)
    with open_checkpoint(CORPUS / case / folder) as checkpoint:
        for name, tensor in checkpoint.tensors.items():
            values = expected[name][1]
            held = np.zeros(values.shape, int)
            assert len(tensor.locals) == len(tensor.fragments)
            for fragment, piece in zip(tensor.fragments, tensor.locals, strict=True):
                held[fragment.region.slices()] += 1
                for source in (fragment.source, piece.source):
                    out = np.empty(source.shape, source.dtype)
                    source.read_into(Region.whole(source.shape), out)
                    assert same_bits(out, values[fragment.region.slices()]), (name, fragment.region)
                told = RANK[reader].match(fragment.file)
                assert told is not None
                assert fragment.rank == piece.rank == int(told[1]) - FIRST_RANK[reader]
            assert (held >= 1).all() if case in COPIES else (held == 1).all(), name


@pytest.mark.parametrize(("case", "folder", "reader"), [row for row in OPENED if row[2] == "dcp"])
def test_the_number_of_ranks_is_that_of_the_job(case: str, folder: str, reader: str) -> None:
    with open_checkpoint(CORPUS / case / folder) as checkpoint:
        assert checkpoint.facts.world_size == facts(case)["world_size"]
        assert checkpoint.facts.committed is True


# ---------------------------------------------------------------- the pieces are where the placements put them


@pytest.mark.parametrize("case", ["dcp_shard0_uneven_4r", "dcp_shard1_4r", "dcp_dtypes_shard0_4r"])
def test_rank_r_wrote_what_torch_chunk_gives_rank_r(case: str) -> None:
    """torch.chunk cuts into pieces of the ceiling of extent / ranks; whoever comes last may get nothing."""
    told = facts(case)
    for name, (_, values) in oracle(case).items():
        (placement,) = told["tensors"][name]["placements"]
        axis, n_ranks = int(placement[1:]), told["mesh"][0]
        step = max(1, math.ceil(values.shape[axis] / n_ranks))
        wanted = {
            rank: (rank * step, min((rank + 1) * step, values.shape[axis]))
            for rank in range(n_ranks) if rank * step < values.shape[axis]
        }  # fmt: skip
        with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
            found = {
                f.rank: (f.region.start[axis], f.region.stop[axis])
                for f in checkpoint[name].fragments if not f.region.empty
            }  # fmt: skip
        assert found == wanted, name


def test_of_replicas_one_copy_is_stored_and_the_other_ranks_have_empty_files() -> None:
    with open_checkpoint(CORPUS / "dcp_replicate_lowest_4r" / "ckpt") as checkpoint:
        assert {f.rank for t in checkpoint.tensors.values() for f in t.fragments} == {0}
        roles = {f.name: f.role for f in checkpoint.files}
    assert roles == {
        ".metadata": "metadata", "__0_0.distcp": "data", "__1_0.distcp": "empty", "__2_0.distcp": "empty",
        "__3_0.distcp": "empty",
    }  # fmt: skip


def test_without_global_metadata_replicas_are_copies_and_any_of_them_serves(tmp_path: Path) -> None:
    folder = copied("dcp_nocoll_2r", tmp_path)
    values = oracle("dcp_nocoll_2r")["r"][1]
    with open_checkpoint(folder) as checkpoint:
        assert [h.rank for h in checkpoint["r"].where((0, 0))] == [0, 1]
    (folder / "__0_0.distcp").unlink()
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint["r"].complete
        assert same_bits(checkpoint["r"].full()[...], values)
        assert not checkpoint["w"].complete


def test_a_chunk_with_holes_in_its_storage_is_read_by_its_strides() -> None:
    """Columns of a wider tensor: the bytes of the piece in the file are not the piece's elements in a row."""
    with open_checkpoint(CORPUS / "dcp_noncontig_2r" / "ckpt") as checkpoint:
        spaced = [
            (name, i) for name, tensor in checkpoint.tensors.items() for i, f in enumerate(tensor.fragments)
            if f.source.place().strides != np.empty(f.region.shape, tensor.dtype).strides and f.region.size > 1
        ]  # fmt: skip
    assert spaced


def test_zstd_items_say_so_and_no_element_has_a_byte_of_its_own() -> None:
    with open_checkpoint(CORPUS / "dcp_zstd_1r" / "ckpt") as checkpoint:
        for tensor in checkpoint.tensors.values():
            assert [f.source.place().compression for f in tensor.fragments] == ["zstd"] * len(tensor.fragments)


def test_names_with_any_sign_are_names_and_never_paths() -> None:
    with open_checkpoint(CORPUS / "dcp_odd_names_2r" / "ckpt") as checkpoint:
        assert {"../up", "C:\\win", "sp ace\tand\nnewline", "with/slash", "ünï.重み 🙂"} <= set(checkpoint)
        assert set(checkpoint["../up"].files) <= {"__0_0.distcp", "__1_0.distcp"}


# ---------------------------------------------------------------- objects and the step

# What JSON cannot say, as load() gives it: a name that is not called, with its arguments.
SHOWN: dict[tuple[str, str], Any] = {
    ("dcp_nested_2r", "big"): 2**70,
    ("dcp_nested_2r", "bytes"): {"object": "not loaded: _codecs.encode", "args": ["\x00ÿraw", "latin1"]},
    ("dcp_nested_2r", "cplx"): {"object": "not loaded: __builtin__.complex", "args": [1.0, 2.0]},
    ("dcp_nested_2r", "dtype"): "reference to torch.bfloat16",
    ("dcp_nested_2r", "optim.param_groups.0.betas"): [0.9, 0.999],
    ("dcp_nested_2r", "set"): {"object": "not loaded: __builtin__.set", "args": [[1, 3]]},
    ("dcp_nested_2r", "size"): {"object": "not loaded: torch.Size", "args": [[2, 3]]},
}
WITH_OBJECTS = [case for case in DCP if facts(case).get("objects")]


@pytest.mark.parametrize("case", WITH_OBJECTS)
def test_objects_are_what_was_saved(case: str) -> None:
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        for name, value in facts(case)["objects"].items():
            found = checkpoint.objects[name].load()
            wanted = SHOWN.get((case, name), "Infinity" if value == "inf" else value)
            if case == "dcp_unflattened_2r":
                found = {key: found[key] for key in value}  # its tensor "a" is listed as a tensor
            assert (type(found), found) == (type(wanted), wanted), name


def test_tensors_inside_objects_are_listed_under_the_objects_name() -> None:
    for case in ("dcp_nested_2r", "dcp_unflattened_2r"):
        for name in facts(case)["inside_bytes_items"]:
            with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
                tensor = checkpoint[name]
                assert same_bits(tensor.full()[...], oracle(case)[name][1])
                (holder,) = tensor.where((0,) * len(tensor.shape))
                raw = (CORPUS / case / "ckpt" / holder.file).read_bytes()
                assert holder.offset is not None
                assert np.frombuffer(raw, tensor.dtype, 1, holder.offset)[0] == oracle(case)[name][1].flat[0]


def test_the_step_is_read_when_asked_for_and_not_before() -> None:
    with open_checkpoint(CORPUS / "fsdp2_adamw_4r" / "ckpt") as checkpoint:
        assert checkpoint.facts.step is None
        told = checkpoint.full_facts()
    assert (told.step, told.step_evidence) == (1234, "train.step in __1_0.distcp")


@pytest.mark.parametrize(("case", "step"), [("fsdp1_sharded_4r", 1234), ("dcp_pp2_tp2", 5), ("dcp_nested_2r", 3)])
def test_the_step_may_be_an_object_or_the_optimizers_own_count(case: str, step: int) -> None:
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        assert checkpoint.full_facts().step == step


def test_where_nothing_records_a_step_none_is_made_up() -> None:
    with open_checkpoint(CORPUS / "dcp_plain_1rank" / "ckpt") as checkpoint:
        assert checkpoint.full_facts().step is None


# ---------------------------------------------------------------- whose state it is

TRAINED = [case for case in DCP if case.startswith("fsdp")]


@pytest.mark.parametrize("case", TRAINED)
def test_optimizer_state_belongs_to_the_parameter_that_its_name_says(case: str) -> None:
    """Nested, flattened and FSDP1's: the writer's own name ends with the parameter and the slot."""
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        keys = {name: checkpoint[name].key for name in checkpoint}
        state = [name for name in keys if name.startswith("optim.state.")]
        assert state
        for name in state:
            owner, _, slot = name.removeprefix("optim.state.").rpartition(".")
            assert (keys[name].param, keys[name].slot, keys[name].named) == (owner, slot, True)
            assert keys[f"model.{owner}"].param == owner
            assert keys[f"model.{owner}"].slot == ""


@pytest.mark.parametrize("case", TRAINED)
def test_a_parameter_and_its_state_stand_together_the_weight_first(case: str) -> None:
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        keys = [checkpoint[name].key for name in checkpoint]
    params = [key.param for key in keys]
    runs = [param for i, param in enumerate(params) if i == 0 or params[i - 1] != param]
    assert len(runs) == len(set(runs))
    for param in runs:
        assert next(key.slot for key in keys if key.param == param) == ""


def test_state_by_number_stays_unnamed_and_is_not_matched_by_shape() -> None:
    with open_checkpoint(CORPUS / "dcp_nested_2r" / "ckpt") as checkpoint:
        key = checkpoint["optim.state.0.exp_avg"].key
        assert checkpoint["optim.state.0.exp_avg"].shape == checkpoint["model.layers.0.weight"].shape
    assert (key.param, key.slot, key.named) == ("optim.state.0", "exp_avg", False)


def test_the_inventory_of_a_whole_training_state() -> None:
    with open_checkpoint(CORPUS / "fsdp2_adamw_4r" / "ckpt") as checkpoint:
        present = {state: fact.present for state, fact in checkpoint.facts.states.items()}
        verdict = check(checkpoint).verdict
    yes = {"weights", "moments", "hyperparameters", "scheduler", "step", "data_position", "rng"}
    assert {state for state, told in present.items() if told == "yes"} == yes
    assert (present["master"], present["config"]) == ("by_design", "no")
    assert verdict in ("resumable-statistical", "resumable-exact")


# ---------------------------------------------------------------- one file of it


@pytest.mark.parametrize("name", [".metadata", "__2_0.distcp"])
def test_a_file_of_the_folder_opens_the_folder(name: str) -> None:
    with open_checkpoint(CORPUS / "dcp_shard0_uneven_4r" / "ckpt" / name) as checkpoint:
        assert checkpoint.format == "dcp"
        assert same_bits(checkpoint["w10"].full()[...], oracle("dcp_shard0_uneven_4r")["w10"][1])


def test_a_single_shard_is_plain_safetensors_that_says_it_holds_slices() -> None:
    folder = CORPUS / "hf_sharded_4r" / "ckpt"
    with open_checkpoint(folder / "shard-00002-model-00001-of-00001.safetensors") as checkpoint:
        assert checkpoint.format == "safetensors"
        assert [p.code for p in checkpoint.problems] == ["dcp-fragments"]
