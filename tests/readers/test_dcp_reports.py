"""Bug reports that concern DCP, R40 to R59, as checkpoints made of torch's own classes and of items of torch.save."""

from __future__ import annotations

import io
import os
import pathlib
import pickle
import shutil
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed._shard.sharded_tensor.metadata import TensorProperties as OldTensorProperties
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from tensormorph.checks import check
from tensormorph.errors import MissingRegionError, TensormorphError
from tensormorph.model import Checkpoint
from tensormorph.readers import open_checkpoint
from tensormorph.region import Region
from tests.readers.dcp_cases import CORPUS, copied, oracle, same_bits

Chunk = tuple[int, Sequence[int], torch.Tensor]
"""Rank, first coordinates, values."""
Tensors = Mapping[str, tuple[Sequence[int], Sequence[Chunk]]]


def saved(
    folder: Path, tensors: Tensors, *, world: int = 0,
    properties: Callable[..., Any] = TensorProperties, info: Callable[..., Any] = _StorageInfo, kind: Any = Metadata,
    fields: Mapping[str, Any] | None = None, protocol: int = 4,
) -> Path:  # fmt: skip
    """Write a checkpoint as FileSystemWriter does, whatever the ranks: items back to back, the metadata one pickle."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {rank: io.BytesIO() for rank in range(world)}
    described: dict[str, Any] = {}
    places: dict[Any, Any] = {}
    for name, (size, chunks) in tensors.items():
        boxes = []
        for i, (rank, low, values) in enumerate(chunks):
            stream = files.setdefault(rank, io.BytesIO())
            at = stream.tell()
            torch.save(values, item := io.BytesIO())
            stream.write(item.getvalue())
            boxes.append(ChunkStorageMetadata(torch.Size(low), values.size()))
            where = MetadataIndex(name, torch.Size(low), i)
            places[where] = info(f"__{rank}_0.distcp", at, len(item.getvalue()))
        made = properties(dtype=chunks[0][2].dtype)
        described[name] = TensorStorageMetadata(made, torch.Size(size), boxes)
    for rank, stream in files.items():
        (folder / f"__{rank}_0.distcp").write_bytes(stream.getvalue())
    told = object.__new__(kind)
    told.__dict__.update({"state_dict_metadata": described, "planner_data": None, "storage_data": places})
    told.__dict__.update({"storage_meta": None, "version": "1.0.0"} if fields is None else fields)
    (folder / ".metadata").write_bytes(pickle.dumps(told, protocol))
    return folder


def plain(folder: Path) -> Path:
    return saved(folder, {"w": ((4, 3), [(0, (0, 0), WHOLE[:2].clone()), (1, (2, 0), WHOLE[2:].clone())])})


WHOLE = torch.arange(12.0).reshape(4, 3)


def told(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    return [(p.severity, p.code) for p in checkpoint.problems if p.severity != "info"]


# ---------------------------------------------------------------- where the pieces belong


def test_r40_fsdp_over_tensor_parallel_is_joined_by_offsets_and_not_in_rank_order(tmp_path: Path) -> None:
    """R40: TP first, then FSDP: ranks 0 to 3 hold rows [0,1] [4,5] [2,3] [6,7]; their order is 0,1,4,5,2,3,6,7."""
    rows = {0: (0, 1), 1: (4, 5), 2: (2, 3), 3: (6, 7)}
    chunks = [(rank, held[:1], torch.tensor(held)) for rank, held in rows.items()]
    with open_checkpoint(saved(tmp_path / "a", {"w": ((8,), chunks)})) as checkpoint:
        tensor = checkpoint["w"]
        assert tensor.full()[...].tolist() == list(range(8))
        assert {h.rank: i // 2 for i in range(0, 8, 2) for h in tensor.where((i,))} == {0: 0, 2: 1, 1: 2, 3: 3}
        assert told(checkpoint) == []


def test_r40_the_same_as_fsdp2_and_tensor_parallel_wrote_it() -> None:
    """R40: files 0 to 3 of [_StridedShard(0, 2), Shard(0)] hold rows 0, 4, 2 and 6 on."""
    with open_checkpoint(CORPUS / "dcp_2d_strided_dp2tp2" / "ckpt") as checkpoint:
        first = {f.rank: f.region.start[0] for f in checkpoint["w"].fragments}
        assert first == {0: 0, 1: 4, 2: 2, 3: 6}
        assert same_bits(checkpoint["w"].full()[...], oracle("dcp_2d_strided_dp2tp2")["w"][1])


def test_r41_uneven_pieces_of_fsdp_over_tensor_parallel(tmp_path: Path) -> None:
    """R41: arange(6), FSDP 2 over TP 2: ranks 0 to 3 hold [0,1] [3,4] [2] [5]: sizes 2, 2, 1, 1."""
    rows = {0: (0, 1), 1: (3, 4), 2: (2,), 3: (5,)}
    chunks = [(rank, held[:1], torch.tensor(held)) for rank, held in rows.items()]
    with open_checkpoint(saved(tmp_path / "a", {"w": ((6,), chunks)})) as checkpoint:
        assert checkpoint["w"].full()[...].tolist() == list(range(6))
        assert {f.rank: f.region.size for f in checkpoint["w"].fragments} == {0: 2, 1: 2, 2: 1, 3: 1}
        assert told(checkpoint) == []


def test_r41_odd_extents_as_torch_wrote_them() -> None:
    """R41: 10 and 7 rows over 2 x 2 ranks: chunk offsets decide."""
    with open_checkpoint(CORPUS / "dcp_2d_strided_dp2tp2" / "ckpt") as checkpoint:
        for name in ("odd", "odd7"):
            values = oracle("dcp_2d_strided_dp2tp2")[name][1]
            assert same_bits(checkpoint[name].full()[...], values)
            held = [f.region.stop[0] - f.region.start[0] for f in checkpoint[name].fragments]
            assert len(set(held)) > 1
            assert sum(held) == values.shape[0]


def test_r44_a_rank_without_a_part_is_no_missing_rank(tmp_path: Path) -> None:
    """R44: 6 rows on 4 ranks are chunks of 2, 2, 2: rank 3 holds nothing, and its file is empty."""
    chunks = [(rank, (2 * rank,), torch.tensor([2 * rank, 2 * rank + 1])) for rank in range(3)]
    with open_checkpoint(saved(tmp_path / "a", {"w": ((6,), chunks)}, world=4)) as checkpoint:
        assert checkpoint["w"].complete
        assert checkpoint["w"].full()[...].tolist() == list(range(6))
        assert told(checkpoint) == []
        assert checkpoint.facts.world_size == 4
        assert {f.name: f.role for f in checkpoint.files}["__3_0.distcp"] == "empty"
        assert check(checkpoint).complete


# ---------------------------------------------------------------- what is missing


def test_r51_half_a_tensor_is_a_hole_with_its_rows_and_never_zeros(tmp_path: Path) -> None:
    """R51: size (256, 256) and one chunk of 128 rows: 32,768 of 65,536 elements are in no chunk, at rows 128 to 255."""
    half = torch.arange(128 * 256, dtype=torch.float32).reshape(128, 256)
    with open_checkpoint(saved(tmp_path / "a", {"w": ((256, 256), [(0, (0, 0), half)])})) as checkpoint:
        (problem,) = checkpoint.problems
        assert (problem.code, problem.tensor, problem.region) == ("gap", "w", Region((128, 0), (256, 256)))
        assert "32,768 of 65,536 elements" in problem.sentence
        tensor = checkpoint["w"]
        assert not tensor.complete
        with pytest.raises(MissingRegionError):
            tensor.full()[...]
        np.testing.assert_array_equal(tensor.full()[:128], half.numpy())
        holes = [p.region for p in tensor.pieces(Region.whole((256, 256)), 1 << 20) if p.problem is not None]
        assert holes == [Region((128, 0), (256, 256))]


def test_r53_a_save_without_metadata_opens_and_the_one_before_it_is_named(tmp_path: Path) -> None:
    """R53: the job was killed while saving: no .metadata, and a resume picks it."""
    for step in (900, 1000, 1100):
        plain(tmp_path / f"step-{step}")
    for step in (1000, 1100):
        (tmp_path / f"step-{step}" / ".metadata").unlink()
    with open_checkpoint(tmp_path / "step-1100") as checkpoint:
        (problem,) = [p for p in checkpoint.problems if p.severity == "error"]
        assert problem.code == "uncommitted"
        assert "2 data files" in problem.sentence
        assert "no .metadata" in problem.sentence
        assert "step-900" in problem.hint
        assert checkpoint.facts.committed is False
        sizes = {p.name: p.stat().st_size for p in (tmp_path / "step-1100").iterdir()}
        assert {f.name: f.n_bytes for f in checkpoint.files} == sizes
        assert check(checkpoint).verdict == "incomplete"


def test_r53_where_no_earlier_save_is_whole_none_is_named(tmp_path: Path) -> None:
    """R53: a later save that is whole, or an earlier one that is none, is no way back."""
    for step in (800, 1000, 1200):
        plain(tmp_path / f"step-{step}")
    for step in (800, 1000):
        (tmp_path / f"step-{step}" / ".metadata").unlink()
    with open_checkpoint(tmp_path / "step-1000") as checkpoint:
        (problem,) = [p for p in checkpoint.problems if p.code == "uncommitted"]
        assert problem.hint == ""


def test_r53_a_save_that_broke_off_while_it_was_finished(tmp_path: Path) -> None:
    """R53: .metadata.tmp is written, then renamed; beside .metadata it is of a later save."""
    folder = plain(tmp_path / "a")
    shutil.copy(folder / ".metadata", folder / ".metadata.tmp")
    with open_checkpoint(folder) as checkpoint:
        assert told(checkpoint) == [("warning", "unfinished-overwrite")]
    (folder / ".metadata").unlink()
    with open_checkpoint(folder) as checkpoint:
        assert ("error", "uncommitted") in told(checkpoint)
        assert ".metadata.tmp is there" in next(p.sentence for p in checkpoint.problems if p.code == "uncommitted")


def test_r54_files_of_an_older_larger_save_are_orphans(tmp_path: Path) -> None:
    """R54: 4 ranks saved over 8: the files of ranks 4 to 7 stay."""
    folder = copied("dcp_shard0_uneven_4r", tmp_path)
    for rank in range(4, 8):
        shutil.copy(CORPUS / "dcp_3d_2x2x2" / "ckpt" / f"__{rank}_0.distcp", folder)
    with open_checkpoint(folder) as checkpoint:
        (problem,) = [p for p in checkpoint.problems if p.severity != "info"]
        assert (problem.severity, problem.code) == ("warning", "orphan-file")
        assert all(f"__{rank}_0.distcp" in problem.sentence for rank in range(4, 8))
        assert {f.name for f in checkpoint.files if f.role == "orphan"} == {f"__{r}_0.distcp" for r in range(4, 8)}
        assert all(t.complete for t in checkpoint.tensors.values())


def test_r54_a_data_file_of_another_save_is_found_by_what_stands_in_it(tmp_path: Path) -> None:
    """R54: the old .metadata is still there while data files are replaced: places end or hold other items."""
    folder = copied("dcp_shard0_uneven_4r", tmp_path)
    shutil.copy(CORPUS / "dcp_2d_dp2tp2" / "ckpt" / "__1_0.distcp", folder / "__1_0.distcp")
    with open_checkpoint(folder) as checkpoint:
        found = [p for p in check(checkpoint).problems if p.severity == "error"]
        assert {p.code for p in found} <= {"short-file", "corrupt-file", "read-failed", "fragment-dtype"}
        assert {p.tensor for p in found} >= {"w10", "w5", "w3", "even"}
        for name, (_, values) in oracle("dcp_shard0_uneven_4r").items():
            if values.shape[0] == 0:
                continue
            for fragment in checkpoint[name].fragments:
                part = checkpoint[name].full()[fragment.region.slices()] if fragment.rank != 1 else None
                assert part is None or same_bits(part, values[fragment.region.slices()])


def test_r54_data_written_after_the_metadata_is_told(tmp_path: Path) -> None:
    """R54: one file of four is an hour younger than the metadata."""
    folder = copied("dcp_shard0_uneven_4r", tmp_path)
    now = (folder / ".metadata").stat().st_mtime
    for path in folder.iterdir():
        os.utime(path, (now, now))
    os.utime(folder / "__2_0.distcp", (now + 3600, now + 3600))
    with open_checkpoint(folder) as checkpoint:
        assert [(p.code, p.file) for p in checkpoint.problems if p.severity != "info"] == [
            ("newer-than-metadata", "__2_0.distcp")
        ]


def test_r55_a_chunk_of_another_rank_than_its_tensor_is_named(tmp_path: Path) -> None:
    """R55: a chunk of sizes [1571] in a tensor of shape [1571, 3072]."""
    folder = saved(
        tmp_path / "a", {"w": ((15, 4), [(0, (0,), torch.zeros(15))]), "b": ((2,), [(0, (0,), WHOLE[0, :2])])}
    )
    with open_checkpoint(folder) as checkpoint:
        (problem,) = [p for p in checkpoint.problems if p.code == "chunk-form"]
        assert (problem.severity, problem.tensor) == ("error", "w")
        assert "shape (15, 4)" in problem.sentence
        assert "sizes (15,)" in problem.sentence
        with pytest.raises(TensormorphError):
            checkpoint["w"].full()[...]
        assert checkpoint["b"].full()[...].tolist() == [0, 1]


def test_r57_the_stored_dtype_is_shown_and_nothing_is_cast(tmp_path: Path) -> None:
    """R57: dcp.load casts float32 into a bfloat16 template in silence; here each is what it was saved as."""
    values = torch.tensor([1.0, 1.00390625, 3.14159274])
    for name, kind in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        with open_checkpoint(saved(tmp_path / name, {"w": ((3,), [(0, (0,), values.to(kind))])})) as checkpoint:
            tensor = checkpoint["w"]
            assert (tensor.encoding.name, tensor.dtype.name) == (name, name)
            assert tensor.full()[...].tobytes() == values.to(kind).view(torch.uint8).numpy().tobytes()
            assert {local.source.dtype.name for local in tensor.locals} == {name}


# ---------------------------------------------------------------- R59: the same by any version


META = {"storage_meta": StorageMeta(checkpoint_id=pathlib.PurePosixPath("/scratch/run/step-1"), save_id="x")}
VERSIONS: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "2.0": (OldTensorProperties, {}, "torch DCP, before 2.4"),
    "2.3": (TensorProperties, {}, "torch DCP, before 2.4"),
    "2.6": (TensorProperties, META, "torch DCP, 2.4 or later"),
    "2.9": (TensorProperties, {**META, "version": "1.0.0"}, "torch DCP, 2.9 or later"),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("version", VERSIONS)
def test_r59_metadata_of_any_version_and_protocol_says_the_same(tmp_path: Path, version: str, protocol: int) -> None:
    """R59: fields that older versions lack are not asked for, and classes that moved are known by their names."""
    properties, fields, software = VERSIONS[version]
    chunks = [(0, (0, 0), WHOLE[:2].clone()), (1, (2, 0), WHOLE[2:].clone())]
    folder = saved(tmp_path / "a", {"w": ((4, 3), chunks)}, properties=properties, fields=fields, protocol=protocol)
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.problems == ()
        assert checkpoint.facts.software == software
        np.testing.assert_array_equal(checkpoint["w"].full()[...], WHOLE.numpy())


def module(monkeypatch: pytest.MonkeyPatch, name: str, base: type) -> Any:
    """Return a subclass that pickles under a foreign module, as other frameworks have them."""
    made = types.ModuleType(name)
    kind = type(base.__name__, (base,), {"__module__": name})
    setattr(made, base.__name__, kind)
    for i in range(1, name.count(".") + 1):
        parent = ".".join(name.split(".")[:i])
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, made)
    return kind


def test_r59_classes_of_other_frameworks_are_known_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_done: list[str]
) -> None:
    """R59: OLMo-core's records and a Metadata with fields of its own; none of it is imported."""
    info = module(monkeypatch, "olmo_core.distributed.checkpoint.filesystem", _StorageInfo)
    kind = module(monkeypatch, "vescale.checkpoint.meta", Metadata)
    chunks = [(0, (0, 0), WHOLE[:2].clone()), (1, (2, 0), WHOLE[2:].clone())]
    fields = {"storage_meta": None, "run": "seven", "layout_of_ours": {"tp": 2}}
    folder = saved(tmp_path / "a", {"w": ((4, 3), chunks)}, info=info, kind=kind, fields=fields)
    monkeypatch.undo()
    nothing_done.clear()  # writing it is the test's own doing
    with open_checkpoint(folder) as checkpoint:
        np.testing.assert_array_equal(checkpoint["w"].full()[...], WHOLE.numpy())
        (problem,) = checkpoint.problems
    assert (problem.severity, problem.code) == ("info", "foreign-classes")
    assert "olmo_core.distributed.checkpoint.filesystem._StorageInfo" in problem.sentence
    assert "vescale.checkpoint.meta.Metadata" in problem.sentence


def test_r59_what_is_not_understood_costs_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R59: an element type, a planner's record and an entry of kinds that nobody knows."""

    class Odd:
        def __init__(self) -> None:
            self.inside = [1, 2]

    kind = module(monkeypatch, "acme.sharding", Odd)
    chunks: list[Chunk] = [(0, (0, 0), WHOLE.clone())]
    tensors: Tensors = {"w": ((4, 3), chunks), "v": ((3,), [(0, (0,), WHOLE[0].clone())])}
    folder = saved(tmp_path / "a", tensors, fields={"storage_meta": kind(), "version": 7})
    changed = pickle.loads((folder / ".metadata").read_bytes())
    changed.planner_data = kind()
    changed.state_dict_metadata["v"].properties = kind()
    changed.state_dict_metadata["strange"] = kind()
    (folder / ".metadata").write_bytes(pickle.dumps(changed))
    monkeypatch.undo()
    with open_checkpoint(folder) as checkpoint:
        np.testing.assert_array_equal(checkpoint["w"].full()[...], WHOLE.numpy())
        found = {(p.severity, p.code, p.tensor) for p in checkpoint.problems if p.severity != "info"}
        assert ("warning", "unknown-entry", "strange") in found
        assert "strange" not in checkpoint.tensors
        assert not checkpoint["v"].complete
        with pytest.raises(TensormorphError):
            checkpoint["v"].full()[...]
        assert ("error", "v") in {(p.severity, p.tensor) for p in check(checkpoint).problems}
