"""The safetensors reader: the contract for a file and for a set, and the public bug reports R1 to R30."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from tensormorph.checks import check
from tensormorph.errors import (
    BadIndexError,
    CorruptFileError,
    LimitError,
    NoSuchNameError,
    TensormorphError,
    UnknownFormatError,
    UnreadableTensorError,
)
from tensormorph.model import Checkpoint
from tensormorph.readers import open_checkpoint, safetensors
from tests.readers.contract import Arrays, ReaderContract
from tests.readers.oracle import container, entry

FOUR = np.arange(4, dtype="<f4").tobytes()


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def codes(checkpoint: Checkpoint) -> list[str]:
    return sorted(p.code for p in checkpoint.problems)


def sentences(checkpoint: Checkpoint) -> str:
    return " | ".join(p.sentence for p in checkpoint.problems)


def write_index(folder: Path, weight_map: dict[str, str], **metadata: Any) -> None:
    text = json.dumps({"metadata": metadata, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text)


def write_set(folder: Path, arrays: Arrays, n: int = 3) -> dict[str, str]:
    """Write arrays as a set of `n` shards with its index, by the real writer; returns the weight map."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: dict[str, dict[str, Any]] = {f"model-{i + 1:05d}-of-{n:05d}.safetensors": {} for i in range(n)}
    weight_map = {name: list(shards)[i % n] for i, name in enumerate(arrays)}
    for name, file in weight_map.items():
        shards[file][name] = arrays[name].copy()
    for file, tensors in shards.items():
        save_file(tensors, folder / file)
    write_index(folder, weight_map, total_size=sum(a.nbytes for a in arrays.values()))
    return weight_map


class TestOneFile(ReaderContract):
    reader: ClassVar[Any] = safetensors

    def write(self, folder: Path, arrays: Arrays) -> Path:
        path = folder / "model.safetensors"
        save_file({name: a.copy() for name, a in arrays.items()}, path)
        return path

    def write_many(self, folder: Path, n: int) -> Path:
        header = {f"model.layers.{i // 100}.block.{i % 100}.weight": entry(4 * i, 4 * i + 4, (1,)) for i in range(n)}
        return put(folder / "model.safetensors", container(header, bytes(4 * n)))

    def siblings(self, folder: Path) -> list[Path]:
        torch.save({"w": torch.zeros(3)}, folder / "model.pt")
        np.save(folder / "array.npy", np.zeros(3))
        put(folder / "notes.json", b'{"weight_map": {}}')
        put(folder / "model.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
        # Bytes that look like a small header length at first: a JSON text, and a length without a brace behind it.
        put(folder / "odd.bin", struct.pack("<Q", 20) + b"[1, 2, 3, 4, 5, 6, 7]")
        return [p for p in folder.iterdir() if p.is_file()]


class TestSet(TestOneFile):
    def write(self, folder: Path, arrays: Arrays) -> Path:
        write_set(folder, arrays)
        return folder

    def write_many(self, folder: Path, n: int) -> Path:
        many = super().write_many(folder, n)
        write_index(folder, {f"model.layers.{i // 100}.block.{i % 100}.weight": many.name for i in range(n)})
        return folder


# ---------------------------------------------------------------- dtypes


def test_every_dtype_of_the_reference_writer_reads_bit_for_bit(tmp_path: Path) -> None:
    kinds = [
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
        torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
        torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
    ]  # fmt: skip
    raw = torch.arange(256, dtype=torch.uint8)
    tensors = {
        str(kind): (raw % 2).view(torch.bool) if kind == torch.bool else raw.clone().view(kind) for kind in kinds
    }
    save_torch(tensors, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        assert not checkpoint.problems
        for name, tensor in tensors.items():
            found = checkpoint[name]
            assert f"torch.{found.encoding.name}" == name
            assert found.full()[...].tobytes() == tensor.view(torch.uint8).numpy().tobytes()


def test_r10_f4_has_its_logical_shape_and_the_low_half_first(tmp_path: Path) -> None:
    data = bytes([0x21, 0x43, 0x65, 0x87, 0xA9, 0xCB, 0xED, 0x0F])
    put(tmp_path / "model.safetensors", container({"w": entry(0, 8, (2, 8), "F4")}, data))
    with open_checkpoint(tmp_path) as checkpoint:
        tensor = checkpoint["w"]
        assert (tensor.shape, tensor.n_bytes) == ((2, 8), 8)
        nibbles = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0], np.uint8)
        expected = nibbles.view(ml_dtypes.float4_e2m1fn).reshape(2, 8)
        assert tensor.full()[...].tobytes() == expected.tobytes()
        assert tensor.full()[1, 3].tobytes() == expected[1, 3].tobytes()
        first, other = tensor.where((0, 0))[0].offset, tensor.where((1, 3))[0].offset
        assert first is not None
        assert other is not None
        assert (other % 8, tensor.where((1, 3))[0].bit) == ((first + 5) % 8, 4)


@pytest.mark.parametrize("dtype", ["F6_E2M3", "F6_E3M2", "Q4_K", "f32"])
def test_r10_an_undecodable_dtype_is_listed_with_its_bytes_and_the_rest_opens(tmp_path: Path, dtype: str) -> None:
    shape = (4,) if dtype.startswith("F6") else (3,)
    header = {"w": entry(0, 3, shape, dtype), "g": entry(3, 19)}
    put(tmp_path / "model.safetensors", container(header, b"abc" + FOUR))
    with open_checkpoint(tmp_path) as checkpoint:
        tensor = checkpoint["w"]
        assert (tensor.shape, tensor.complete) == (shape, False)
        assert tensor.fragments[0].source.place().n_bytes == 3
        with pytest.raises(TensormorphError, match="cannot be decoded"):
            tensor.full()[...]
        assert checkpoint["g"].full()[...].tolist() == [0, 1, 2, 3]
        assert [p.severity for p in checkpoint.problems] == ["error"]


# ---------------------------------------------------------------- one file: R1 to R12


def test_r1_a_header_above_the_reference_limit_opens_with_a_warning(tmp_path: Path) -> None:
    text = json.dumps({"w": entry(0, 16)}).encode()
    put(tmp_path / "model.safetensors", container(text + b" " * (100_000_001 - len(text)), FOUR))
    with open_checkpoint(tmp_path) as checkpoint:
        assert codes(checkpoint) == ["header-over-reference-limit"]
        assert checkpoint["w"].full()[...].tolist() == [0, 1, 2, 3]


def test_r1_our_own_cap_is_stated_adjustable_and_tested_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "model.safetensors", container(b"{" + b" " * 99, b"", 8 << 30))
    os.truncate(path, (8 << 30) + 64)
    with pytest.raises(LimitError, match="TENSORMORPH_MAX_HEADER_BYTES"):
        open_checkpoint(path)
    small = put(
        tmp_path / "small.safetensors", container(json.dumps({"w": entry(0, 16)}).encode().ljust(2 << 20), FOUR)
    )
    open_checkpoint(small).close()
    monkeypatch.setenv("TENSORMORPH_MAX_HEADER_BYTES", str(1 << 20))
    with pytest.raises(LimitError):
        open_checkpoint(small)


def test_r2_a_zip_under_a_safetensors_name_is_told_and_opened_as_what_it_is(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(3.0)}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path / "model.safetensors") as checkpoint:
        assert checkpoint.format == "torch_save"
        assert codes(checkpoint) == ["wrong-extension"]
        assert checkpoint["w"].full()[...].tolist() == [0, 1, 2]


def test_r2_a_git_lfs_pointer_is_told_with_its_size_and_hash(tmp_path: Path) -> None:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 9876543\n"
    put(tmp_path / "model.safetensors", text.encode())
    with pytest.raises(UnknownFormatError, match=r"Git LFS pointer; the real file has 9,876,543 bytes, sha256 abab"):
        open_checkpoint(tmp_path)


def test_r2_one_pointer_among_good_shards_costs_its_own_tensors_only(tmp_path: Path) -> None:
    arrays = {"a": np.ones(3, np.float32), "b": np.full(4, 2, np.float32), "c": np.full(5, 3, np.float32)}
    weight_map = write_set(tmp_path, arrays)
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'cd' * 32}\nsize 77\n".ljust(130)
    (tmp_path / weight_map["b"]).write_text(text)
    with open_checkpoint(tmp_path) as checkpoint:
        assert sorted(checkpoint) == ["a", "c"]
        assert "Git LFS pointer" in sentences(checkpoint)
        assert list(checkpoint.unreadable) == ["b"]


def test_r3_a_cut_file_names_the_tensor_and_never_reads_zeros(tmp_path: Path) -> None:
    values = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    path = tmp_path / "model.safetensors"
    save_file({"w": values}, path)
    os.truncate(path, path.stat().st_size - 20)
    with open_checkpoint(path) as checkpoint:
        tensor = checkpoint["w"]
        assert "20 bytes before the end of w: 7 of its 12 elements are there" in sentences(checkpoint)
        assert not tensor.complete
        assert tensor.full()[1, :3].tolist() == [5, 6, 7]
        for gone in ((1, 3), (2, 0)):
            with pytest.raises(TensormorphError, match="20 bytes before"):
                tensor.full()[gone]
        bad = [p.region for p in tensor.pieces(_whole(tensor), 1 << 20) if p.problem]
        seen = np.zeros((3, 4), int)
        for region in bad:
            seen[region.slices()] += 1
        assert seen.tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1]]


def _whole(tensor: Any) -> Any:
    from tensormorph.region import Region

    return Region.whole(tensor.shape)


def test_r5_a_name_declared_twice_shows_both_and_names_both_ranges(tmp_path: Path) -> None:
    text = (
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},'
        b'"\\u0061":{"dtype":"I32","shape":[2],"data_offsets":[16,24]}}'
    )
    start = 8 + len(text)
    put(tmp_path / "model.safetensors", container(text, FOUR + struct.pack("<2i", 7, 8)))
    with open_checkpoint(tmp_path) as checkpoint:
        assert codes(checkpoint) == ["duplicate-name"]
        told = sentences(checkpoint)
        assert f"F32 at bytes {start} to {start + 16}" in told
        assert f"I32 at bytes {start + 16} to {start + 24}" in told
        assert checkpoint["a"].full()[...].tolist() == [7, 8]
        assert checkpoint["a [model.safetensors, first declaration]"].full()[...].tolist() == [0, 1, 2, 3]


def test_r6_equal_ranges_are_aliases_whose_bytes_count_once(tmp_path: Path) -> None:
    put(tmp_path / "model.safetensors", container({"k": entry(0, 16), "v": entry(0, 16)}, FOUR))
    with open_checkpoint(tmp_path) as checkpoint:
        assert dict(checkpoint.aliases) == {"v": "k"}
        assert list(checkpoint) == ["k"]
        assert checkpoint["v"].full()[...].tolist() == [0, 1, 2, 3]
        assert codes(checkpoint) == ["same-bytes"]


def test_r6_ranges_that_overlap_otherwise_are_an_error(tmp_path: Path) -> None:
    header = {"k": entry(0, 16), "v": entry(0, 16, (2, 2)), "w": entry(8, 24)}
    put(tmp_path / "model.safetensors", container(header, FOUR + FOUR[:8]))
    with open_checkpoint(tmp_path) as checkpoint:
        assert codes(checkpoint) == ["overlap", "overlap"]
        assert {p.tensor for p in checkpoint.problems} == {"v", "w"}


def test_r7_tensors_without_elements_are_valid(tmp_path: Path) -> None:
    save_torch({"e": torch.zeros(2, 0), "m": torch.empty(0)}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        assert not checkpoint.problems
        assert checkpoint["e"].full()[...].shape == (2, 0)
        assert checkpoint["m"].full()[...].shape == (0,)
        assert checkpoint["e"].complete


def test_r7_one_element_on_no_bytes_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "model.safetensors", container({"m": entry(0, 0, (1,))}))
    with open_checkpoint(tmp_path) as checkpoint:
        assert codes(checkpoint) == ["size-mismatch"]
        with pytest.raises(TensormorphError, match="needs 4 bytes"):
            checkpoint["m"].full()[...]


def test_r8_a_scalar_has_shape_nothing_and_one_value(tmp_path: Path) -> None:
    save_torch({"s": torch.tensor(3.5)}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint["s"].shape == ()
        assert checkpoint["s"].full()[()] == 3.5
        assert checkpoint["s"].n_elements == 1


def test_r9_integers_negatives_steps_and_ellipsis_index(tmp_path: Path) -> None:
    values = np.arange(100, dtype=np.float32).reshape(10, 10)
    save_file({"w": values}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        view = checkpoint["w"].full()
        keys: list[Any] = [(0, slice(None)), -1, (..., 3), (slice(8, 1, -3), slice(None, None, 4)), (slice(2, 2), 0)]
        for key in keys:
            np.testing.assert_array_equal(view[key], values[key])
        with pytest.raises(BadIndexError):
            view[10]


def test_r12_values_are_little_endian_whatever_the_host(tmp_path: Path) -> None:
    put(tmp_path / "model.safetensors", container({"w": entry(0, 8, (2,), "I32")}, b"\x01\0\0\0\0\0\0\x02"))
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint["w"].full()[...].tolist() == [1, 2 << 24]
        assert checkpoint["w"].encoding.stored_dtype.str == "<i4"


# ---------------------------------------------------------------- sets: R20 to R30


THREE = {"a": np.arange(3, dtype=np.float32), "b": np.arange(4, dtype=np.float32), "c": np.arange(5, dtype=np.float32)}


def test_r20_an_index_of_other_file_names_opens_with_what_exists(tmp_path: Path) -> None:
    write_set(tmp_path, THREE)
    write_index(tmp_path, {name: f"model-{i:05d}-of-00030.safetensors" for i, name in enumerate(THREE)})
    with open_checkpoint(tmp_path) as checkpoint:
        assert sorted(checkpoint) == ["a", "b", "c"]
        assert {"index-wrong-file", "stray-file"} == set(codes(checkpoint))
        assert "model-00001-of-00003.safetensors" in sentences(checkpoint)


def test_r21_a_missing_shard_leaves_its_tensors_named_and_the_others_readable(tmp_path: Path) -> None:
    weight_map = write_set(tmp_path, THREE)
    (tmp_path / weight_map["b"]).unlink()
    with open_checkpoint(tmp_path) as checkpoint:
        assert sorted(checkpoint) == ["a", "c"]
        lost = checkpoint.unreadable["b"]
        assert lost.file == weight_map["b"]
        with pytest.raises(UnreadableTensorError, match=r"b needs model-00002-of-00003\.safetensors, which is absent"):
            checkpoint["b"]
        assert checkpoint["c"].full()[...].tolist() == [0, 1, 2, 3, 4]


def test_r21_a_missing_number_is_told_without_an_index_too(tmp_path: Path) -> None:
    weight_map = write_set(tmp_path, THREE)
    (tmp_path / weight_map["b"]).unlink()
    (tmp_path / "model.safetensors.index.json").unlink()
    with open_checkpoint(tmp_path) as checkpoint:
        assert sorted(checkpoint) == ["a", "c"]
        assert "number 2" in sentences(checkpoint)


def test_r22_index_and_headers_are_compared_both_ways(tmp_path: Path) -> None:
    weight_map = write_set(tmp_path, THREE)
    listed = {"a": weight_map["a"], "b": weight_map["c"], "mtp.fc.weight": weight_map["c"]}
    write_index(tmp_path, listed)
    with open_checkpoint(tmp_path) as checkpoint:
        assert codes(checkpoint) == ["index-absent-tensor", "index-wrong-file", "not-in-index", "stray-file"]
        assert "mtp.fc.weight is in the index, absent from model-00003-of-00003.safetensors" in sentences(checkpoint)
        assert sorted(checkpoint) == ["a", "b", "c"]


def test_r23_the_index_is_authoritative_over_a_second_set_beside_it(tmp_path: Path) -> None:
    write_set(tmp_path, THREE)
    save_file({name: a + 100 for name, a in THREE.items()}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint["a"].full()[...].tolist() == [0, 1, 2]
        assert checkpoint["a [model.safetensors]"].full()[...].tolist() == [100, 101, 102]
        stray = next(p for p in checkpoint.problems if p.code == "stray-file")
        assert "of its 3 tensors 3 have names that indexed files hold" in stray.sentence
        assert "open it by its own path" in stray.hint
    with open_checkpoint(tmp_path / "model.safetensors") as other:
        assert other["a"].full()[...].tolist() == [100, 101, 102]
        assert not other.problems


def test_r25_stored_elements_are_counted_and_a_declared_count_that_disagrees_is_told(tmp_path: Path) -> None:
    weight_map = write_set(tmp_path, THREE)
    write_index(tmp_path, weight_map, total_parameters=333_312)
    with open_checkpoint(tmp_path) as checkpoint:
        told = next(p for p in checkpoint.problems if p.code == "total-parameters")
        assert told.severity == "warning"
        assert "declares 333,312 parameters; the headers add up to 12 stored elements" in told.sentence
        assert int(checkpoint.table.n_elements.sum()) == 12


def test_r25_packed_integers_may_hold_more_parameters_than_elements(tmp_path: Path) -> None:
    packed = {"w": np.zeros(10, np.uint32)}
    write_index(tmp_path, write_set(tmp_path, packed, 1), total_parameters=80)
    with open_checkpoint(tmp_path) as checkpoint:
        assert [(p.code, p.severity) for p in checkpoint.problems] == [("total-parameters", "info")]


def test_r26_an_index_above_25_megabytes_is_read_whole(tmp_path: Path) -> None:
    names = {f"{'layer' * 40}.{i}": "model-00001-of-00001.safetensors" for i in range(110_000)}
    save_file({"last": np.ones(2, np.float32)}, tmp_path / "model-00001-of-00001.safetensors")
    write_index(tmp_path, {**names, "last": "model-00001-of-00001.safetensors"})
    assert (tmp_path / "model.safetensors.index.json").stat().st_size > 25_000_000
    with open_checkpoint(tmp_path) as checkpoint:
        assert list(checkpoint) == ["last"]
        assert len(checkpoint.unreadable) == 110_000
        assert len(checkpoint.problems) < 30


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../victim.safetensors", "leaves its folder by '..'"),
        ("sub/../../victim.safetensors", "leaves its folder by '..'"),
        ("/etc/passwd", "is absolute"),
        ("C:\\victim.safetensors", "is an address or holds a drive"),
        ("..\\victim.safetensors", "holds a backslash"),
        ("a\0b.safetensors", "holds a NUL"),
        ("file:///etc/passwd", "is an address"),
        ("", "is empty"),
    ],
)
def test_r27_a_name_that_leaves_the_folder_is_refused_by_name(tmp_path: Path, name: str, why: str) -> None:
    folder = tmp_path / "set"
    weight_map = write_set(folder, THREE)
    save_file({"secret": np.ones(1, np.float32)}, tmp_path / "victim.safetensors")
    write_index(folder, {**weight_map, "secret": name})
    with open_checkpoint(folder) as checkpoint:
        assert sorted(checkpoint) == ["a", "b", "c"]
        told = next(p for p in checkpoint.problems if p.code == "outside-root")
        assert why in told.sentence
        assert list(checkpoint.unreadable) == ["secret"]


def test_r27_a_link_that_leaves_the_folder_is_refused_and_one_that_stays_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    weight_map = write_set(folder, THREE)
    outside, inside = tmp_path / "outside.safetensors", folder / "data" / "kept"
    (folder / weight_map["a"]).rename(outside)
    (folder / weight_map["a"]).symlink_to(outside)
    inside.parent.mkdir()
    (folder / weight_map["b"]).rename(inside)
    (folder / weight_map["b"]).symlink_to("data/kept")
    with open_checkpoint(folder) as checkpoint:
        assert sorted(checkpoint) == ["b", "c"]
        assert checkpoint["b"].full()[...].tolist() == [0, 1, 2, 3]
        assert "link" in next(p.sentence for p in checkpoint.problems if p.code == "outside-root")


def _config(folder: Path, **fields: Any) -> None:
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **fields}))


@pytest.mark.parametrize("nested", [None, "text_config", "decoder"])
def test_r29_a_declared_tie_makes_the_absent_head_an_alias(tmp_path: Path, nested: str | None) -> None:
    save_file({"model.embed_tokens.weight": np.ones((3, 2), np.float32)}, tmp_path / "model.safetensors")
    tie = {"tie_word_embeddings": True}
    _config(tmp_path, **({nested: tie} if nested else tie))
    with open_checkpoint(tmp_path) as checkpoint:
        assert dict(checkpoint.aliases) == {"lm_head.weight": "model.embed_tokens.weight"}
        assert [p.severity for p in checkpoint.problems] == ["info"]
        assert check(checkpoint).complete


def test_r29_without_a_declaration_the_head_is_absent_maybe_tied(tmp_path: Path) -> None:
    save_file({"model.embed_tokens.weight": np.ones((3, 2), np.float32)}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        assert not checkpoint.aliases
        assert "absent, maybe tied to model.embed_tokens.weight" in sentences(checkpoint)
        with pytest.raises(NoSuchNameError):
            checkpoint["lm_head.weight"]


def test_r29_a_head_that_should_be_there_and_is_not_is_a_warning(tmp_path: Path) -> None:
    save_file({"model.embed_tokens.weight": np.ones((3, 2), np.float32)}, tmp_path / "model.safetensors")
    _config(tmp_path, tie_word_embeddings=False)
    with open_checkpoint(tmp_path) as checkpoint:
        assert [(p.code, p.severity) for p in checkpoint.problems] == [("head-absent", "warning")]


def test_an_encoder_has_no_head_to_miss(tmp_path: Path) -> None:
    save_file({"embeddings.word_embeddings.weight": np.ones((3, 2), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertModel"], "tie_word_embeddings": True}))
    with open_checkpoint(tmp_path) as checkpoint:
        assert not checkpoint.aliases
        assert not checkpoint.problems


# ---------------------------------------------------------------- folders


def test_variants_are_parts_and_the_default_comes_first(tmp_path: Path) -> None:
    save_file({"w": np.ones(2, np.float16)}, tmp_path / "model.fp16.safetensors")
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        assert list(checkpoint) == ["model/w", "model.fp16/w"]
        assert [checkpoint[n].key.part for n in checkpoint] == ["model", "model.fp16"]
        assert [checkpoint[n].key.param for n in checkpoint] == ["w", "w"]
        assert checkpoint["model.fp16/w"].dtype == np.float16


def test_the_hugging_face_cache_opens_from_its_top_through_links(tmp_path: Path) -> None:
    repo = tmp_path / "hub" / "models--demo--tiny"
    snapshot = repo / "snapshots" / ("0" * 40)
    write_set(snapshot, THREE)
    (repo / "blobs").mkdir()
    for i, path in enumerate(sorted(snapshot.iterdir())):
        blob = repo / "blobs" / f"{i:064x}"
        path.rename(blob)
        path.symlink_to(f"../../blobs/{blob.name}")
    for start in (tmp_path / "hub", repo, snapshot, snapshot / "model-00001-of-00003.safetensors"):
        with open_checkpoint(start) as checkpoint:
            assert not [p for p in checkpoint.problems if p.severity != "info"]
            assert checkpoint["a"].full()[...].tolist() == [0, 1, 2]
            assert checkpoint.root == snapshot


def test_links_that_a_copy_wrote_as_text_are_followed_and_told(tmp_path: Path) -> None:
    repo = tmp_path / "models--demo--tiny"
    save_file({"w": np.arange(3, dtype=np.float32)}, put(repo / "blobs" / ("a" * 64), b""))
    put(repo / "snapshots" / "r" / "model.safetensors", b"../../blobs/" + b"a" * 64)
    put(repo / "snapshots" / "r" / "evil.safetensors", b"../../../blobs/" + b"a" * 64)
    with open_checkpoint(repo) as checkpoint:
        assert checkpoint["model/w"].full()[...].tolist() == [0, 1, 2]
        assert "link-as-text" in codes(checkpoint)
        assert "corrupt-file" in codes(checkpoint)


def test_several_checkpoints_below_are_offered_and_one_is_opened(tmp_path: Path) -> None:
    from tensormorph.errors import ChooseCheckpointError

    write_set(tmp_path / "run" / "step-200", THREE)
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.root == tmp_path / "run" / "step-200"
    write_set(tmp_path / "run" / "step-1000", THREE)
    with pytest.raises(ChooseCheckpointError) as raised:
        open_checkpoint(tmp_path)
    assert raised.value.children == ("run/step-200", "run/step-1000")


def test_slices_that_dcp_cut_over_ranks_are_not_passed_off_as_whole_tensors(tmp_path: Path) -> None:
    for rank in range(2):
        info = json.dumps({"w": {"saved_offsets": [2 * rank]}})
        save_torch({"w": torch.arange(2.0)}, tmp_path / f"shard-{rank + 1:05d}-model-00001-of-00001.safetensors",
                   {"DCP_SHARDING_INFO": info})  # fmt: skip
    with open_checkpoint(tmp_path, reader="safetensors") as checkpoint:
        assert "dcp-fragments" in codes(checkpoint)
        assert len(checkpoint) == 2
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint["w"].full()[...].tolist() == [0, 1, 0, 1]


def test_the_worst_header_costs_an_error_not_a_hang(tmp_path: Path) -> None:
    """Quadratic traps: a hundred thousand tensors on one range, inside one giant range, and all broken."""
    n = 60_000
    one = {f"t{i}": entry(0, 16) for i in range(n)}
    nested = {"big": entry(0, 4 * n, (n,)), **{f"t{i}": entry(4 * i, 4 * i + 4, (1,)) for i in range(n)}}
    broken = {f"t{i}": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]} for i in range(n)}
    for header in (one, nested, broken):
        put(tmp_path / "model.safetensors", container(header, bytes(4 * n)))
        with open_checkpoint(tmp_path / "model.safetensors") as checkpoint:
            assert checkpoint.problems
            assert len(checkpoint.problems) < 100


@pytest.mark.parametrize("length", [0, 7])
def test_a_file_too_short_for_a_header_length_says_its_size(tmp_path: Path, length: int) -> None:
    path = put(tmp_path / "model.safetensors", b"\1" * length)
    with pytest.raises(CorruptFileError, match=f"{length} bytes"):
        open_checkpoint(path)
