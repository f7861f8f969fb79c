"""Damaged DCP checkpoints of the corpus: what opening says, what only `check` finds, and which rows still read.

Every element that is not named as lost must equal torch's oracle; every one that is must raise.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tensormorph.checks import check
from tensormorph.errors import TensormorphError, UnreadableTensorError
from tensormorph.model import Checkpoint
from tensormorph.readers import open_checkpoint
from tensormorph.region import Region
from tests.readers.dcp_cases import CORPUS, copied, oracle, same_bits

Told = set[tuple[str, str, str | None, str | None]]
PREFIXES = ("bad_bin_", "bad_evil_bin", "bad_evil_pt", "bad_legacy_", "bad_pt_")  # files of torch.save: another module


@dataclass(frozen=True)
class Reading:
    """The right reading of a damaged case.

    Fields
    ------
    opened
        (severity, code, tensor, file) of every problem that opening tells, without mere information.
    checked
        What `check` with hashes tells beyond that.
    lost
        Rows of each tensor that give no value: all others equal the oracle.
    gaps
        What no fragment stores, by the table alone.
    refused
        Part of the sentence where nothing opens.
    unreadable
        Tensors that are named and have no usable shape or file.
    """

    opened: Told = field(default_factory=set)
    checked: Told = field(default_factory=set)
    lost: dict[str, set[int]] = field(default_factory=dict)
    gaps: dict[str, list[Region]] = field(default_factory=dict)
    refused: str = ""
    unreadable: set[str] = field(default_factory=set)


def file_of(rank: int) -> str:
    return f"__{rank}_0.distcp"


def box(first: int, last: int, *extents: int) -> list[Region]:
    return [Region((first, *(0 for _ in extents)), (last, *extents))]


def of_rank(rank: int, code: str, *names: str) -> Told:
    return {("error", code, name, file_of(rank)) for name in names}


def outside(path: str) -> Reading:
    return Reading({("error", "outside-root", "w10", path)}, lost={"w10": {3, 4, 5}})


RANK_1 = {"w10": {3, 4, 5}, "w5": {2, 3}, "w3": {1}, "w2": {1}, "even": {2, 3}}
RANK_2 = {"w10": {6, 7, 8}, "w5": {4}, "w3": {2}, "even": {4, 5}}
OF_RANK_2 = ("w10", "w5", "w3", "even", "w1")  # its part of w1 is empty, and its item is an item all the same
ALL_TEN = set(range(10))
SHARDS = {
    "layers.0.down.weight": (4, 6, 10), "layers.0.norm.bias": (4, 6), "layers.0.norm.weight": (4, 6),
    "layers.0.up.bias": (6, 9), "layers.0.up.weight": (6, 9, 6), "out.weight": (6, 9, 6), "pos": (4, 6),
    "tok.weight": (6, 9, 6),
}  # fmt: skip

READINGS = {
    "bad_compressed_record": Reading(checked={("warning", "compressed-item", "w10", "__9_0.distcp")}),
    "bad_dtype": Reading(
        checked={("error", "fragment-dtype", "w10", file_of(rank)) for rank in range(4)}, lost={"w10": ALL_TEN}
    ),
    "bad_dtype_same_width": Reading(
        checked={("error", "fragment-dtype", "even", file_of(rank)) for rank in range(4)}, lost={"even": set(range(8))}
    ),
    "bad_empty_distcp": Reading(of_rank(2, "short-file", *OF_RANK_2), lost=RANK_2),
    "bad_evil_bytes_item": Reading({("warning", "code-reference", None, "__0_9.distcp")}),
    "bad_evil_metadata": Reading({("warning", "code-reference", None, ".metadata")}),
    "bad_evil_metadata_getattr": Reading(refused="It is no pickle"),
    "bad_evil_metadata_top": Reading(refused="the object in it is not loaded: posix.system"),
    "bad_gap": Reading(
        {("error", "gap", "w10", None)}, lost={"w10": {6, 7, 8}}, gaps={"w10": box(6, 9, 6)}
    ),
    "bad_garbage_metadata": Reading(refused="It is no pickle: it begins with 7b 22"),
    "bad_hf_bytes_item_2r": Reading(
        {("warning", "archive-before-header", None, "shard-00002-model-00001-of-00001.safetensors")}
    ),
    "bad_hf_missing_shard": Reading(
        {("error", "gap", name, None) for name in SHARDS},
        lost={name: set(range(*rows[:2])) for name, rows in SHARDS.items()},
        gaps={name: box(*rows) for name, rows in SHARDS.items()},
    ),
    "bad_hf_rank0_race_2r": Reading(
        {("error", "index-absent-tensor", "tok.weight", "model-00002-of-00002.safetensors"),
         ("error", "index-absent-tensor", "layers.0.down.weight", "model-00001-of-00002.safetensors")},
        unreadable={"tok.weight", "layers.0.down.weight"},
    ),
    "bad_huge_size": Reading({("error", "bad-shape", "w10", ".metadata")}, unreadable={"w10"}),
    "bad_missing_distcp": Reading(of_rank(2, "missing-file", *OF_RANK_2), lost=RANK_2),
    "bad_missing_metadata": Reading({("error", "uncommitted", None, None)}),
    "bad_no_storage_record": Reading(
        {("error", "no-storage-record", "w10", None)}, lost={"w10": {3, 4, 5}}, gaps={"w10": box(3, 6, 6)}
    ),
    "bad_offset_beyond": Reading(of_rank(1, "short-file", "w10"), lost={"w10": {3, 4, 5}}),
    "bad_offset_negative": Reading(
        {("error", "bad-record", "w10", ".metadata"), ("error", "no-storage-record", "w10", None)},
        lost={"w10": {3, 4, 5}}, gaps={"w10": box(3, 6, 6)},
    ),
    "bad_offset_shifted": Reading(checked=of_rank(1, "corrupt-file", "w10"), lost={"w10": {3, 4, 5}}),
    "bad_out_of_bounds": Reading(
        {("error", "chunk-outside", "w10", None),
         *(("error", "chunk-outside", "w10", file_of(rank)) for rank in range(3))},
        lost={"w10": ALL_TEN},
    ),
    "bad_pure_overlap": Reading(
        {("error", "overlap", "w10", None)}, checked=of_rank(1, "read-failed", "w10"), lost={"w10": {4, 5, 6, 7}}
    ),
    "bad_symlink": Reading(
        of_rank(1, "outside-root", *RANK_1, "zero") | {("error", "outside-root", None, file_of(1))}, lost=RANK_1
    ),
    "bad_traversal_abs": outside("/etc/passwd"),
    "bad_traversal_backslash": outside("..\\..\\outside.distcp"),
    "bad_traversal_dotdot": outside("../../outside.distcp"),
    "bad_traversal_nul": outside("__0_0.distcp\0.txt"),
    "bad_truncated_distcp": Reading(
        of_rank(2, "short-file", "w5", "even"), lost={"w5": {4}, "even": {4, 5}}
    ),
    "bad_truncated_metadata": Reading(refused="An index that is cut short is not read"),
    "bad_unknown_transform": Reading(of_rank(1, "unknown-transform", "w10"), lost={"w10": {3, 4, 5}}),
}  # fmt: skip
# What these hold is no row of the oracle, or cannot be told: tests of their own below.
APART = {"bad_flipped_data", "bad_overlap", "bad_swapped_records"}


def folder_of(case: str, folder: Path) -> Path:
    """Return what a person would open; the one case with a link gets its link, which no archive of the corpus keeps."""
    copy = copied(case, folder)
    if case == "bad_symlink":
        elsewhere = folder / "elsewhere.bin"
        elsewhere.write_bytes((CORPUS / case / "elsewhere.bin").read_bytes())
        (copy / file_of(1)).symlink_to(elsewhere)
    return copy


_opened: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(arguments[0], str | bytes | os.PathLike):
        _opened.append(os.path.realpath(os.fsdecode(arguments[0])))


sys.addaudithook(_note)


@contextlib.contextmanager
def opened_files() -> Iterator[list[str]]:
    """Note every path that any thread of this process opens."""
    global _opened
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


def test_every_damaged_case_is_read_here() -> None:
    bad = {p.name for p in CORPUS.iterdir() if p.name.startswith("bad_") and not p.name.startswith(PREFIXES)}
    assert set(READINGS) | APART == bad


@pytest.mark.parametrize("case", READINGS)
def test_a_damaged_case_says_what_is_wrong_and_the_rest_reads(case: str, tmp_path: Path) -> None:
    expected, folder = READINGS[case], folder_of(case, tmp_path)
    if expected.refused:
        with pytest.raises(TensormorphError) as raised:
            open_checkpoint(folder)
        assert expected.refused in str(raised.value)
        return
    with open_checkpoint(folder) as checkpoint:
        told = {(p.severity, p.code, p.tensor, p.file) for p in checkpoint.problems if p.severity != "info"}
        assert told == expected.opened
        found = check(checkpoint, hashes=True)
        again = {(p.severity, p.code, p.tensor, p.file) for p in found.problems if p.severity != "info"}
        assert again == expected.opened | expected.checked
        assert found.complete == (not expected.lost and not expected.unreadable and case != "bad_missing_metadata")
        values = {} if case == "bad_missing_metadata" else {n: v for n, (_, v) in oracle(case).items()}
        assert set(checkpoint.tensors) == set(values) - expected.unreadable
        for name in expected.unreadable:
            with pytest.raises(UnreadableTensorError):
                checkpoint[name]
        for name, tensor in checkpoint.tensors.items():
            lost = expected.lost.get(name, set())
            assert tensor.fragments.gaps(Region.whole(tensor.shape)) == expected.gaps.get(name, []), name
            if not lost:
                assert same_bits(tensor.full()[...], values[name]), name
                continue
            for row in range(tensor.shape[0]):
                if row in lost:
                    with pytest.raises(TensormorphError):
                        tensor.full()[row]
                else:
                    assert same_bits(tensor.full()[row : row + 1], values[name][row : row + 1]), (name, row)


@pytest.mark.parametrize("case", sorted([*READINGS, *APART]))
def test_reading_a_damaged_case_runs_nothing_and_opens_nothing_outside(
    case: str, tmp_path: Path, nothing_done: list[str]
) -> None:
    folder = folder_of(case, tmp_path)
    nothing_done.clear()  # copying the case is the test's own doing
    with opened_files() as paths:
        try:
            checkpoint = open_checkpoint(folder)
        except TensormorphError:
            assert READINGS[case].refused
        else:
            with checkpoint:
                _read_all(checkpoint)
    elsewhere = [p for p in paths if p.endswith((".distcp", ".bin", "passwd", ".safetensors", ".txt", ".metadata"))]
    assert elsewhere or case == "bad_missing_metadata"
    assert [p for p in elsewhere if not p.startswith(os.path.realpath(folder) + os.sep)] == []
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("corpus_PWNED_*"))


def _read_all(checkpoint: Checkpoint) -> None:
    for tensor in checkpoint.tensors.values():
        for source in (tensor, *(piece.source for piece in tensor.locals)):
            with contextlib.suppress(TensormorphError):
                source.read_into(Region.whole(source.shape), np.empty(source.shape, source.dtype))
    for stored in checkpoint.objects.values():
        stored.load()


# ---------------------------------------------------------------- local(), where full() refuses


@pytest.mark.parametrize(
    ("case", "name", "dtype"),
    [("bad_dtype", "w10", np.float32), ("bad_dtype_same_width", "even", np.float16),
     ("bad_out_of_bounds", "w10", np.float32)],
)  # fmt: skip
def test_pieces_are_shown_as_stored_where_the_metadata_contradicts_them(case: str, name: str, dtype: type) -> None:
    values = oracle("dcp_shard0_uneven_4r")[name][1]
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        tensor = checkpoint[name]
        for fragment, piece in zip(tensor.fragments, tensor.locals, strict=True):
            out = np.empty(piece.source.shape, piece.source.dtype)
            piece.source.read_into(Region.whole(out.shape), out)
            assert out.dtype == dtype
            assert same_bits(out, values[fragment.region.slices()])


def test_a_chunk_of_another_shape_than_its_item_reads_as_the_item_locally() -> None:
    values = oracle("bad_pure_overlap")["w10"][1]
    with open_checkpoint(CORPUS / "bad_pure_overlap" / "ckpt") as checkpoint:
        tensor = checkpoint["w10"]
        (at,) = [i for i, f in enumerate(tensor.fragments) if f.region == Region((4, 0), (8, 6))]
        source = tensor.locals[at].source
        out = np.empty(source.shape, source.dtype)
        source.read_into(Region.whole(out.shape), out)
    assert same_bits(out, values[3:6])


def test_where_names_the_holder_of_an_element_whose_file_is_gone_and_no_byte() -> None:
    with open_checkpoint(CORPUS / "bad_missing_distcp" / "ckpt") as checkpoint:
        (holder,) = checkpoint["w10"].where((7, 2))
    assert (holder.file, holder.rank, holder.offset) == (file_of(2), 2, None)
    assert holder.region == Region((7, 2), (8, 3))


# ---------------------------------------------------------------- overlaps, bit rot, and what cannot be seen


def test_overlapping_chunks_count_only_where_they_agree() -> None:
    """Chunk 1 claims rows 2 to 4 and holds rows 3 to 5: row 2 is contested, row 5 is in no chunk."""
    values = oracle("bad_overlap")["w10"][1]
    with open_checkpoint(CORPUS / "bad_overlap" / "ckpt") as checkpoint:
        told = [(p.code, p.region) for p in checkpoint.problems if p.severity == "error"]
        assert told == [("overlap", *box(2, 3, 6)), ("gap", *box(5, 6, 6))]
        tensor = checkpoint["w10"]
        for row in (0, 1, 6, 7, 8, 9):
            assert same_bits(tensor.full()[row], values[row]), row
        with pytest.raises(TensormorphError, match="both hold"):
            tensor.full()[2]
        with pytest.raises(TensormorphError, match=r"are in no chunk, at \[5:6"):
            tensor.full()[5]


def test_chunks_that_overlap_and_agree_are_told_and_read(tmp_path: Path) -> None:
    """The same metadata with the item of chunk 1 replaced: its first row is what chunk 0 holds there."""
    folder = copied("bad_overlap", tmp_path)
    values = oracle("bad_overlap")["w10"][1]
    with open_checkpoint(folder) as checkpoint:
        (at,) = [i for i, f in enumerate(checkpoint["w10"].fragments) if f.region.start[0] == 2]
        offset, length = (int(n[at]) for n in (checkpoint["w10"].fragments.offset, checkpoint["w10"].fragments.length))
    stream = io.BytesIO()
    torch.save(torch.from_numpy(values[2:5].copy()), stream)
    item = stream.getvalue()
    assert len(item) == length
    path = folder / file_of(1)
    raw = path.read_bytes()
    path.write_bytes(raw[:offset] + item + raw[offset + length :])
    with open_checkpoint(folder) as checkpoint:
        assert {p.code for p in checkpoint.problems if p.severity == "error"} == {"overlap", "gap"}
        assert same_bits(checkpoint["w10"].full()[:5], values[:5])


def test_a_flipped_byte_is_shown_as_it_is_and_found_by_its_crc() -> None:
    values = oracle("bad_flipped_data")["w10"][1]
    with open_checkpoint(CORPUS / "bad_flipped_data" / "ckpt") as checkpoint:
        assert [p for p in checkpoint.problems if p.severity != "info"] == []
        found = np.frombuffer(checkpoint["w10"].full()[...].tobytes(), np.uint8)
        assert np.count_nonzero(found != np.frombuffer(values.tobytes(), np.uint8)) == 1
        told = [p for p in check(checkpoint, hashes=True).problems if p.severity != "info"]
    assert [(p.severity, p.code, p.tensor, p.file, p.region) for p in told] == [
        ("warning", "crc", "w10", file_of(1), Region((3, 0), (6, 6)))
    ]


def test_swapped_records_cannot_be_seen_and_nothing_claims_to_see_them() -> None:
    """Both readings are consistent: same shape, same dtype, right sums."""
    values = oracle("bad_swapped_records")["w10"][1]
    with open_checkpoint(CORPUS / "bad_swapped_records" / "ckpt") as checkpoint:
        assert [p for p in check(checkpoint, hashes=True).problems if p.severity != "info"] == []
        found = checkpoint["w10"].full()[...]
    assert same_bits(found, np.concatenate([values[3:6], values[:3], values[6:]]))


def test_a_lost_last_shard_of_slices_cannot_be_seen_but_that_it_cannot_is_said(tmp_path: Path) -> None:
    folder = copied("hf_sharded_4r", tmp_path)
    (folder / "shard-00004-model-00001-of-00001.safetensors").unlink()
    values = oracle("hf_sharded_4r")
    with open_checkpoint(folder) as checkpoint:
        assert [p for p in check(checkpoint, hashes=True).problems if p.severity != "info"] == []
        assert "inferred-size" in {p.code for p in checkpoint.problems}
        shorter = [n for n, t in checkpoint.tensors.items() if t.shape != values[n][1].shape]
        assert shorter
        for name, tensor in checkpoint.tensors.items():
            assert same_bits(tensor.full()[...], values[name][1][: tensor.shape[0]])
