"""Checkpoints of the real writers, and damaged ones: what each must say, and what must still read.

Copied from the project's corpus: `ckpt` is what a person opens, `oracle.safetensors` holds the full logical tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tensormorph.errors import TensormorphError
from tensormorph.model import Checkpoint
from tensormorph.readers import open_checkpoint
from tests.readers.oracle import Stored, read_stored

CORPUS = Path(__file__).parent.parent / "data" / "hf"
GOOD = sorted(p.name for p in CORPUS.iterdir() if not p.name.startswith("bad_"))
BAD = sorted(p.name for p in CORPUS.iterdir() if p.name.startswith("bad_"))


def found_by_param(checkpoint: Checkpoint) -> Stored:
    """Return the bytes of each readable tensor under its stored name; of several parts the first counts."""
    out: Stored = {}
    for tensor in checkpoint.tensors.values():
        try:
            values = tensor.full()[...]
        except TensormorphError:
            continue
        out.setdefault(tensor.key.param, (tensor.encoding.name, tensor.shape, np.ascontiguousarray(values).tobytes()))
    return out


@pytest.mark.parametrize("case", GOOD)
def test_a_good_case_reads_bit_for_bit_as_its_oracle(case: str) -> None:
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        assert [p for p in checkpoint.problems if p.severity == "error"] == []
        assert not checkpoint.unreadable
        assert all(t.complete for t in checkpoint.tensors.values())
        found = found_by_param(checkpoint)
        path = CORPUS / case / "oracle.safetensors"
        oracle = read_stored(path) if path.exists() else _single(case)
        for name, (_, shape, data) in oracle.items():
            tensor = found[checkpoint.aliases.get(name, name)]
            assert (tensor[1], tensor[2]) == (shape, data), name
        assert set(found) | set(checkpoint.aliases) == set(oracle) | set(checkpoint.aliases)


def _single(case: str) -> Stored:
    """Read a case that is one well-formed file and has no oracle beside it."""
    return read_stored(CORPUS / case / "ckpt" / "model.safetensors")


@dataclass(frozen=True)
class Reading:
    """The right reading of a damaged case.

    Fields
    ------
    problems
        (severity, code, tensor, file) of every problem told.
    refused
        Part of the sentence where the whole is refused, which only the corpus's own notes allow.
    reads
        Tensors whose every byte must equal the oracle, or the bytes that stand here.
    unreadable
        Tensors that are listed and give no value.
    """

    problems: set[tuple[str, str, str | None, str | None]] = field(default_factory=set)
    refused: str = ""
    reads: dict[str, bytes | None] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)


ONE = "model.safetensors"
FIRST, SECOND = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"
LAYER = {i: [f"layers.{i}.{part}" for part in ("w", "b", "idx")] for i in range(3)}
ALL = dict.fromkeys(LAYER[0] + LAYER[1] + LAYER[2])
EVIL = {
    "evil.rel": "../../etc/passwd", "evil.abs": "/etc/passwd", "evil.sub": "sub/../../outside.safetensors",
    "evil.win": "..\\..\\x.safetensors", "evil.nul": "a\0.safetensors", "evil.url": "file:///etc/passwd",
}  # fmt: skip
F32 = np.array([0, 1], "<f4").tobytes()

READINGS = {
    "bad_index_lists_absent_tensor": Reading(
        {("error", "index-absent-tensor", "layers.9.w", FIRST)}, reads=ALL, unreadable={"layers.9.w"}
    ),
    "bad_index_missing_shard": Reading(
        {("error", "missing-file", None, SECOND)},
        reads=dict.fromkeys(LAYER[0] + LAYER[2]),
        unreadable=set(LAYER[1]),
    ),
    "bad_index_path_traversal": Reading(
        {("error", "outside-root", None, name) for name in EVIL.values()}, reads=ALL, unreadable=set(EVIL)
    ),
    "bad_shard_truncated": Reading(
        {("error", "truncated", "layers.1.w", SECOND), ("error", "truncated", "layers.1.b", SECOND)},
        reads=dict.fromkeys([*LAYER[0], "layers.1.idx", *LAYER[2]]),
        unreadable={"layers.1.w", "layers.1.b"},
    ),
    "bad_st_dtype_unknown": Reading({("error", "unknown-dtype", "a", ONE)}, unreadable={"a"}),
    "bad_st_dup_keys": Reading(
        {("error", "duplicate-name", "a", ONE)}, reads={"a": None, "a [model.safetensors, first declaration]": None}
    ),
    "bad_st_dup_metadata": Reading({("warning", "duplicate-metadata", None, ONE)}, reads={"a": None}),
    "bad_st_header_longer_than_file": Reading(refused="header length 10,000 is larger than the file"),
    "bad_st_header_over_100MB": Reading(refused="header length 100,000,001 is larger than the file"),
    "bad_st_hole": Reading({("warning", "hole", None, ONE)}, reads={"a": None, "b": None}),
    "bad_st_negative_dim": Reading(
        {("error", "bad-shape", "a", ONE), ("warning", "trailing-bytes", None, ONE)}, unreadable={"a"}
    ),
    "bad_st_non_utf8": Reading(refused="not UTF-8: byte 0xff"),
    "bad_st_not_json": Reading(refused="The header is not JSON"),
    "bad_st_overlap": Reading({("error", "overlap", "b", ONE)}, reads={"a": None, "b": None}),
    "bad_st_pickle_inside": Reading(refused="it is a pickle, as old torch.save writes; it is never run here"),
    "bad_st_seven_bytes": Reading(refused="The file has 7 bytes"),
    "bad_st_size_mismatch": Reading({("error", "size-mismatch", "a", ONE)}, unreadable={"a"}),
    "bad_tensor_in_two_shards": Reading({("warning", "duplicate-tensor", None, SECOND)}, reads=ALL),
    "bad_total_size": Reading({("warning", "total-size", None, "model.safetensors.index.json")}, reads=ALL),
}


def test_the_table_has_every_damaged_case() -> None:
    assert sorted(READINGS) == BAD


@pytest.mark.parametrize("case", BAD)
def test_a_damaged_case_says_what_is_wrong_and_the_rest_reads(case: str) -> None:
    expected = READINGS[case]
    if expected.refused:
        with pytest.raises(TensormorphError) as raised:
            open_checkpoint(CORPUS / case / "ckpt")
        assert expected.refused in str(raised.value)
        return
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        told = {(p.severity, p.code, p.tensor, p.file) for p in checkpoint.problems if p.severity != "info"}
        assert told == expected.problems
        oracle_path = CORPUS / case / "oracle.safetensors"
        oracle = read_stored(oracle_path) if oracle_path.exists() else _shards(case)
        for name in expected.reads:
            values = checkpoint[name].full()[...]
            if name in oracle:
                assert (values.shape, values.tobytes()) == oracle[name][1:], name
        for name in expected.unreadable:
            with pytest.raises(TensormorphError):
                checkpoint[name].full()[...]


def _shards(case: str) -> Stored:
    """Read what the well-formed shards of a case hold: the oracle of a case whose damage lies elsewhere."""
    out: Stored = {}
    for path in sorted((CORPUS / case / "ckpt").glob("*.safetensors")):
        try:
            out.update({k: v for k, v in read_stored(path).items() if len(v[2]) == _bytes(v)})
        except (ValueError, KeyError, IndexError):
            continue
    return out


def _bytes(stored: tuple[str, tuple[int, ...], bytes]) -> int:
    width = {"F64": 8, "F32": 4, "I32": 4, "I64": 8, "BF16": 2, "F16": 2, "U8": 1, "I8": 1}[stored[0]]
    return width * int(np.prod(stored[1], dtype=np.int64))


def test_a_cut_shard_still_gives_the_elements_before_the_cut() -> None:
    whole = read_stored(CORPUS / "bad_total_size" / "oracle.safetensors")["layers.1.w"]
    expected = np.frombuffer(whole[2], "<f4").reshape(whole[1])
    with open_checkpoint(CORPUS / "bad_shard_truncated" / "ckpt") as checkpoint:
        tensor = checkpoint["layers.1.w"]
        rows, columns = tensor.shape
        there = 111
        np.testing.assert_array_equal(tensor.full()[: there // columns], expected[: there // columns])
        last = tensor.full()[there // columns, : there % columns]
        np.testing.assert_array_equal(last, expected[there // columns, : there % columns])
        with pytest.raises(TensormorphError, match="111 of its 128"):
            tensor.full()[rows - 1]


def test_the_other_copy_in_a_second_shard_is_shown_under_its_file() -> None:
    with open_checkpoint(CORPUS / "bad_tensor_in_two_shards" / "ckpt") as checkpoint:
        first = checkpoint["layers.0.w"].full()[...]
        other = checkpoint[f"layers.0.w [{SECOND}]"].full()[...]
        np.testing.assert_array_equal(other, first + 1)
