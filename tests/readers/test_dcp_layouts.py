"""Meshes of DCP checkpoints: inferred from real ones as their writers had them, stated ones checked, parts right."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensormorph.errors import LayoutError, UsageError
from tensormorph.mesh import Placement, Replicate, Shard, StridedShard
from tensormorph.placement import part_at
from tensormorph.readers import open_checkpoint
from tests.readers.oracle import read_stored

CORPUS = Path(__file__).parent.parent / "data" / "torch"


def facts_of(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CORPUS / case / "case.json").read_text())
    return found


def shards_of_ranks(case: str) -> bool:
    """Whether a case has ranks' own files: what was consolidated or saved by one rank records no cut."""
    names = [path.name for path in (CORPUS / case / "ckpt").iterdir()]
    return any(re.match(r"__|\.metadata|shard-|sharded$", name) for name in names) and not any(
        name.startswith("model-") for name in names
    )


CASES = sorted(
    path.parent.name for path in CORPUS.glob("*/case.json")
    if not path.parent.name.startswith("bad_") and json.loads(path.read_text()).get("mesh")
    and shards_of_ranks(path.parent.name)
)  # fmt: skip


def placement(text: str) -> Placement:
    found = re.fullmatch(
        r"R|S(\d+)|T(\d+)\.(\d+)|Replicate\(\)|Shard\(dim=(\d+)\)|_StridedShard\(dim=(\d+), sf=(\d+)\)", text
    )
    assert found is not None, text
    strided = (found[2], found[3]) if found[2] else (found[5], found[6])
    if strided[0]:
        return StridedShard(int(strided[0]), int(strided[1]))
    dim = found[1] or found[4]
    return Shard(int(dim)) if dim else Replicate()


def stated_placements(facts: dict[str, Any]) -> dict[str, list[Placement]]:
    """Return what the writer of a case was told of each tensor, by the end of its name."""
    out: dict[str, list[Placement]] = {}
    for name, entry in (facts.get("tensors") or facts.get("param_placements") or {}).items():
        raw = entry.get("placements")
        texts = re.findall(r"_?\w+\([^)]*\)", raw) if isinstance(raw, str) else raw
        if texts and len(texts) == len(facts["mesh"]):
            out[name] = [placement(str(text)) for text in texts]
    return out


def test_there_are_many_cases() -> None:
    assert len(CASES) > 20


@pytest.mark.parametrize("case", CASES)
def test_the_mesh_is_the_writers_and_every_rank_has_its_part(case: str) -> None:
    """R40: parts are where torch cut them, strided cuts of FSDP on tensor parallel included."""
    facts = facts_of(case)
    mesh = tuple(facts["mesh"])
    oracle = read_stored(CORPUS / case / "oracle.safetensors")
    checked = 0
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        assert checkpoint.mesh is not None
        assert checkpoint.mesh.shape == mesh
        assert {t.layout.provenance for t in checkpoint.tensors.values() if t.layout is not None} == {"inferred"}
        for name, placements in stated_placements(facts).items():
            tensor = checkpoint[name if name in oracle else f"model.{name}"]
            whole = tensor.full()[...]
            for rank, at in enumerate(np.ndindex(mesh)):
                part = part_at(mesh, placements, range(len(mesh)), tensor.shape, at)
                expected = np.empty(part.shape, tensor.dtype)
                for local, region in part.boxes():
                    expected[local.slices()] = whole[region.slices()]
                found = tensor.local(rank)[...]
                assert (found.shape, found.tobytes()) == (expected.shape, expected.tobytes()), (name, rank)
                checked += 1
    assert checked or not stated_placements(facts)


def test_stages_apart_and_replicas_are_both_told() -> None:
    """Ranks 0-1 and 2-3 share no tensor: pipeline stages, or a mesh that replicates; no file tells them apart."""
    with open_checkpoint(CORPUS / "dcp_pp2_tp2" / "ckpt") as checkpoint:
        assert checkpoint.mesh is None
        assert [m.ranks for m in checkpoint.meshes] == [(0, 1), (2, 3)]
        assert [m.shape for m in checkpoint.mesh_candidates] == [(2, 2), (2,), (2,)]
        assert "two readings fit" in checkpoint.mesh_evidence
        tensor = next(iter(checkpoint.tensors.values()))
        with pytest.raises(LayoutError, match="no layout is recorded"):
            tensor.local(0)


def test_a_stated_mesh_names_its_axes_and_is_told_whether_it_fits() -> None:
    path = CORPUS / "fsdp2_tp_2x2" / "ckpt"
    with open_checkpoint(path, mesh="dp=2,tp=2") as checkpoint:
        assert checkpoint.mesh is not None
        assert checkpoint.mesh.names == ("dp", "tp")
        assert [p.code for p in checkpoint.problems if p.code == "stated-mesh"] == []
        layout = checkpoint["model.layers.0.up.weight"].layout
        assert layout is not None
        assert (layout.provenance, layout.order) == ("stated", (1, 0))
    with open_checkpoint(path, mesh="dp=4") as checkpoint:
        [told] = [p for p in checkpoint.problems if p.code == "stated-mesh"]
        assert "does not explain" in told.sentence
    with open_checkpoint(path, mesh="dp=2") as checkpoint:
        [told] = [p for p in checkpoint.problems if p.code == "stated-mesh"]
        assert "beyond" in told.sentence
        assert checkpoint.mesh is None
    with pytest.raises(UsageError):
        open_checkpoint(path, mesh="two by two")


def test_a_gap_takes_no_part_in_the_search_and_has_no_layout() -> None:
    with open_checkpoint(CORPUS / "bad_gap" / "ckpt") as checkpoint:
        assert checkpoint.mesh is not None
        assert checkpoint.mesh.shape == (4,)
        assert checkpoint["w10"].layout is None
        with pytest.raises(LayoutError, match="not on the mesh"):
            checkpoint["w5"].local(4)
        assert checkpoint["w5"].local(3).shape == (0, 2)
