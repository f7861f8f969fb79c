"""The demo's checkpoints are whole, small, really trained, and written as Hugging Face and torch write.

The safetensors set is read with the safetensors library and not with our own reader: it is an input of the other tests.
"""

import csv
import json
import math
import pathlib
import statistics
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import tensormorph as tm
from tensormorph.errors import ChooseCheckpointError

DEMO = pathlib.Path(__file__).resolve().parents[1] / "resources" / "demo"
LLAMA = DEMO / "llama-docstrings"
INDEX_NAME = "model.safetensors.index.json"
SHARD_NAMES = [f"model-{number:05d}-of-00004.safetensors" for number in range(1, 5)]
EMBEDDINGS = "model.embed_tokens.weight"

MAX_BYTES = 6_000_000
LOSS_FACTOR = 3.0  # first logged loss over the mean of the last tenth of the log
MOST_NOISE, LEAST_LEARNT, LEAST_MEDIAN = 1.05, 1.12, 1.5  # see excess_over_noise


def read_json(name: str) -> dict[str, Any]:
    """A JSON object of the set."""
    content = json.loads((LLAMA / name).read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


@pytest.fixture(scope="module")
def shards() -> dict[str, dict[str, torch.Tensor]]:
    """The tensors of each shard, by file name."""
    result: dict[str, dict[str, torch.Tensor]] = {}
    for path in sorted(LLAMA.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            result[path.name] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    return result


@pytest.fixture(scope="module")
def tensors(shards: dict[str, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """All tensors of the set, by name."""
    return {name: tensor for shard in shards.values() for name, tensor in shard.items()}


def excess_over_noise(matrix: torch.Tensor) -> float:
    """The largest singular value over the one that independent noise of the same size would have, which is near 1.

    Noise with standard deviation s in m rows and n columns has the largest singular value s * (sqrt(m) + sqrt(n)).
    """
    values = matrix.float()
    expected = values.square().mean().sqrt() * sum(math.sqrt(length) for length in values.shape)
    return float(torch.linalg.matrix_norm(values, ord=2) / expected)


def test_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file()) < MAX_BYTES


def test_no_stray_files() -> None:
    expected = {*SHARD_NAMES, INDEX_NAME, "config.json", "vocab.json"}
    assert {path.name for path in LLAMA.iterdir()} == expected
    readme = (DEMO / "README.md").read_text(encoding="utf-8")
    unexplained = [path.name for path in DEMO.iterdir() if path.name != "README.md" and f"`{path.name}" not in readme]
    assert not unexplained


def test_index_and_shards_agree_both_ways(shards: dict[str, dict[str, torch.Tensor]]) -> None:
    stored = {name: file_name for file_name, shard in shards.items() for name in shard}
    assert read_json(INDEX_NAME)["weight_map"] == stored
    assert list(shards) == SHARD_NAMES
    assert sum(map(len, shards.values())) == len(stored), "a tensor is in two shards"


def test_index_totals(tensors: dict[str, torch.Tensor]) -> None:
    assert read_json(INDEX_NAME)["metadata"] == {
        "total_parameters": sum(tensor.numel() for tensor in tensors.values()),
        "total_size": sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
    }


def test_shards_say_that_torch_wrote_them() -> None:
    for name in SHARD_NAMES:
        with safe_open(LLAMA / name, framework="np") as file:
            assert file.metadata() == {"format": "pt"}


def test_embeddings_are_tied(tensors: dict[str, torch.Tensor]) -> None:
    assert read_json("config.json")["tie_word_embeddings"] is True
    assert "lm_head.weight" not in tensors
    assert EMBEDDINGS in tensors


def test_names_and_shapes_follow_the_configuration(tensors: dict[str, torch.Tensor]) -> None:
    config = read_json("config.json")
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    layer_shapes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    expected: dict[str, tuple[int, ...]] = {
        f"model.layers.{index}.{part}.weight": shape
        for index in range(config["num_hidden_layers"])
        for part, shape in layer_shapes.items()
    }
    expected |= {EMBEDDINGS: (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == expected


def test_element_types(tensors: dict[str, torch.Tensor]) -> None:
    full = {name for name, tensor in tensors.items() if tensor.dtype == torch.float32}
    assert full == {name for name in tensors if "norm" in name or name == EMBEDDINGS}
    assert {tensor.dtype for name, tensor in tensors.items() if name not in full} == {torch.bfloat16}


def test_vocabulary_numbers_every_row() -> None:
    assert list(read_json("vocab.json").values()) == list(range(read_json("config.json")["vocab_size"]))


def test_loss_fell() -> None:
    with (DEMO / "training_log.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["step", "loss", "lr"]
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(set(steps))
    losses = [float(row["loss"]) for row in rows]
    tenth = len(losses) // 10
    assert losses[0] == pytest.approx(math.log(read_json("config.json")["vocab_size"]), abs=0.2), "not a fresh start"
    assert losses[0] > LOSS_FACTOR * sum(losses[-tenth:]) / tenth


def test_values_are_finite(tensors: dict[str, torch.Tensor]) -> None:
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())


def test_matrices_are_not_noise(tensors: dict[str, torch.Tensor]) -> None:
    matrices = {name: tensor for name, tensor in tensors.items() if tensor.ndim == 2}
    generator = torch.Generator().manual_seed(1)
    noise = [excess_over_noise(torch.randn(matrix.shape, generator=generator)) for matrix in matrices.values()]
    assert max(noise) < MOST_NOISE, "the measure does not tell noise from structure"
    excess = {name: excess_over_noise(matrix) for name, matrix in matrices.items()}
    assert min(excess.values()) > LEAST_LEARNT, excess
    assert statistics.median(excess.values()) > LEAST_MEDIAN, excess


def test_norms_have_left_their_initial_ones(tensors: dict[str, torch.Tensor]) -> None:
    assert all(float((tensor - 1).abs().max()) > 0.1 for tensor in tensors.values() if tensor.ndim == 1)


def test_embeddings_learnt_which_tokens_are_alike(tensors: dict[str, torch.Tensor]) -> None:
    """Rows of words that stand in the same places point the same way, more than those of any two words."""
    vocabulary = read_json("vocab.json")
    words = [token for token in vocabulary if token[0] == " " and token.strip().isalpha()]
    rows = tensors[EMBEDDINGS].float()[[vocabulary[word] for word in words]]
    rows = torch.nn.functional.normalize(rows - rows.mean(dim=0), dim=1)
    alike = rows @ rows.T
    typical = float(alike.abs().mean())
    for one, other in ((" is", " are"), (" argument", " arguments"), (" can", " will"), (" True", " False")):
        assert float(alike[words.index(one), words.index(other)]) > 2 * typical, (one, other)


# ---------------------------------------------------------------- the sharded run
#
# What torch loads is the oracle here, and our own readers are what is tested: these saves are for them.

RUN = DEMO / "run"
DCP_SAVES = {"step-100": 100, "step-200": 200, "step-300-fsdp-tp": 300}
RANKS = RUN / "step-300-ranks"
FSDP, FSDP_TP = "dp=4", "dp=2 tp=2"


@pytest.fixture(scope="module")
def run_log() -> list[dict[str, str]]:
    """The rows of the run's log."""
    with (DEMO / "run_log.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What torch makes of each DCP save, flat: names joined by dots."""
    result: dict[str, dict[str, Any]] = {}
    for name in DCP_SAVES:
        path = tmp_path_factory.mktemp("joined") / f"{name}.pt"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch: that no process group is there
            dcp_to_torch_save(RUN / name, path)
        result[name] = flat(torch.load(path, weights_only=False))
    return result


def flat(state: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested state dict with its names joined by dots."""
    result: dict[str, Any] = {}
    for key, value in state.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return result


def same_bits(values: Any, expected: torch.Tensor) -> bool:
    """Whether an array of ours has the type, the shape and the bytes of a tensor of torch."""
    array = np.asarray(values)
    wanted = expected.numpy()
    return (array.dtype, array.shape, array.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


def test_the_run_is_listed_and_nothing_else_is_in_it() -> None:
    assert {path.name for path in RUN.iterdir()} == {*DCP_SAVES, RANKS.name}
    for name in DCP_SAVES:
        files = {path.name for path in (RUN / name).iterdir()}
        assert files == {".metadata", *(f"__{rank}_0.distcp" for rank in range(4))}
    assert {path.name for path in RANKS.iterdir()} == {f"rank_{rank}.pt" for rank in range(4)}
    with pytest.raises(ChooseCheckpointError) as raised:
        tm.open(DEMO)
    assert list(raised.value.children) == ["llama-docstrings", *(f"run/{name}" for name in (*DCP_SAVES, RANKS.name))]


def test_the_loss_of_the_run_falls_and_goes_on_after_the_resume(run_log: list[dict[str, str]]) -> None:
    assert list(run_log[0]) == ["step", "mesh", "loss", "lr", "held_out_loss"]
    trained = [(int(row["step"]), row["mesh"], float(row["loss"])) for row in run_log if row["loss"]]
    steps = [step for step, _, _ in trained]
    assert steps == sorted(set(steps))
    assert [mesh for _, mesh, _ in trained] == [FSDP if step <= 200 else FSDP_TP for step in steps]
    losses = {step: loss for step, _, loss in trained}
    assert losses[1] == pytest.approx(math.log(266), abs=0.2), "not a fresh start"
    assert losses[200] < losses[1] / 2
    assert losses[201] == pytest.approx(losses[200], rel=0.1)
    held_out = {(int(row["step"]), row["mesh"]): float(row["held_out_loss"]) for row in run_log if row["held_out_loss"]}
    assert held_out[0, FSDP] > held_out[100, FSDP] > held_out[200, FSDP] > held_out[300, FSDP_TP]
    assert held_out[200, FSDP_TP] == pytest.approx(held_out[200, FSDP], abs=2e-4), "not what was saved was loaded"


def test_the_scheduler_went_on_after_the_resume(run_log: list[dict[str, str]]) -> None:
    rates = [float(row["lr"]) for row in run_log if row["lr"] and int(row["step"]) > 20]
    assert rates == sorted(rates, reverse=True)
    assert max(rates) > 5 * min(rates)


@pytest.mark.parametrize("name", DCP_SAVES)
def test_each_dcp_save_reads_bit_for_bit_as_torch_loads_it(name: str, loaded: dict[str, dict[str, Any]]) -> None:
    expected = {key: value for key, value in loaded[name].items() if isinstance(value, torch.Tensor)}
    with tm.open(RUN / name) as checkpoint:
        assert checkpoint.format == "dcp"
        assert set(checkpoint) == set(expected)
        assert not checkpoint.problems
        for key, values in expected.items():
            assert same_bits(checkpoint[key].full()[...], values), key


@pytest.mark.parametrize(("name", "step"), DCP_SAVES.items())
def test_each_dcp_save_is_whole_and_holds_all_that_a_resume_needs(
    name: str, step: int, loaded: dict[str, dict[str, Any]]
) -> None:
    report = tm.check(RUN / name, values=True, hashes=True)
    assert (report.complete, report.committed, report.step) == (True, True, step)
    assert report.clean, report.problems
    assert report.verdict in ("resumable-statistical", "resumable-exact")
    assert loaded[name]["train.step"] == step
    assert loaded[name]["scheduler.last_epoch"] == step
    steps = [float(value) for key, value in loaded[name].items() if key.endswith(".step") and key.startswith("optim")]
    assert steps == [step] * 21


def test_the_run_learnt_between_its_saves(loaded: dict[str, dict[str, Any]]) -> None:
    key = "model.model.layers.0.mlp.up_proj.weight"
    first, second, last = (loaded[name][key] for name in DCP_SAVES)
    assert not torch.equal(first, second)
    assert not torch.equal(second, last)


@pytest.mark.parametrize(("name", "shape"), [("step-100", (4,)), ("step-200", (4,)), ("step-300-fsdp-tp", (2, 2))])
def test_the_mesh_of_a_dcp_save_is_inferred(name: str, shape: tuple[int, ...]) -> None:
    with tm.open(RUN / name) as checkpoint:
        for key, tensor in checkpoint.tensors.items():
            assert tensor.layout is not None, key
            assert (tensor.layout.mesh.shape, tensor.layout.provenance) == (shape, "inferred"), key


def test_the_mesh_of_the_ranks_files_is_recorded_with_its_names() -> None:
    with tm.open(RANKS) as checkpoint:
        assert checkpoint.format == "rank_files"
        assert not checkpoint.problems
        for key, tensor in checkpoint.tensors.items():
            assert tensor.layout is not None, key
            mesh = tensor.layout.mesh
            assert (mesh.names, mesh.shape, tensor.layout.provenance) == (("dp", "tp"), (2, 2), "recorded"), key


def test_ranks_hold_pieces_of_different_sizes() -> None:
    with tm.open(RUN / "step-200") as checkpoint:
        tensor = checkpoint["model.model.embed_tokens.weight"]
        rows = {fragment.rank: fragment.region.stop[0] - fragment.region.start[0] for fragment in tensor.fragments}
    assert rows == {0: 67, 1: 67, 2: 67, 3: 65}
    with tm.open(RANKS) as checkpoint:
        tensor = checkpoint["model.layers.0.mlp.up_proj.weight"]
        assert [tensor.local(rank).shape for rank in range(4)] == [(18, 34), (18, 34), (17, 34), (17, 34)]


def test_the_model_joined_from_the_ranks_files_is_that_of_the_dcp_save(loaded: dict[str, dict[str, Any]]) -> None:
    saved = loaded["step-300-fsdp-tp"]
    expected = {key.removeprefix("model."): value for key, value in saved.items() if key.startswith("model.")}
    with tm.open(RANKS) as ranks, tm.open(RUN / "step-300-fsdp-tp") as dcp:
        assert set(ranks) == set(expected)
        for key, values in expected.items():
            assert same_bits(ranks[key].full()[...], values), key
            assert same_bits(dcp[f"model.{key}"].full()[...], values), key


@pytest.mark.parametrize("rank", range(4))
def test_each_ranks_file_holds_what_the_placements_give_that_rank(
    rank: int, loaded: dict[str, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """torch cuts over `tp` first and what is left over `dp`, always along the first axis."""
    dp, tp = divmod(rank, 2)
    caplog.set_level("ERROR")  # torch warns of each mesh that is loaded without a process group
    parts = torch.load(RANKS / f"rank_{rank}.pt", weights_only=False)
    assert len(parts) == 21
    with tm.open(RANKS) as ranks:
        for key, part in parts.items():
            whole = loaded["step-300-fsdp-tp"][f"model.{key}"]
            of_tp = part.placements[1]
            expected = whole.chunk(2, dim=of_tp.dim)[tp] if of_tp.is_shard() else whole
            expected = expected.chunk(2)[dp]
            assert torch.equal(part.to_local(), expected), key
            assert same_bits(ranks[key].local(rank)[...], expected.contiguous()), key
