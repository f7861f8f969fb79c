"""The demo checkpoint is whole, small, really trained, and written as Hugging Face writes.

Everything is read with the safetensors library and not with our own reader: the demo is an input of the other tests.
"""

import csv
import json
import math
import pathlib
import statistics
from typing import Any

import pytest
import torch
from safetensors import safe_open

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
