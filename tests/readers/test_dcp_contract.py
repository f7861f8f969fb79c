"""What both readers of DCP promise: the contract on what torch writes, and how little is read."""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import struct
import subprocess
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as torch_dcp
from safetensors.numpy import save_file
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from tensormorph.errors import CancelledError, HelperError
from tensormorph.readers import READERS, dcp, dcp_safetensors, open_checkpoint
from tensormorph.readers._bytes import FilePool
from tensormorph.readers._process import THRESHOLD_BYTES
from tensormorph.readers._target import look
from tests.readers.contract import Arrays, ReaderContract
from tests.readers.dcp_cases import CORPUS, oracle, same_bits

MANY = 30_000
"""So many tensors take more metadata than this process parses itself."""


def save(state: dict[str, Any], writer: Any) -> None:
    """Write a checkpoint as torch does, by the one process there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that it takes this for what is wanted
        torch_dcp.save(state, storage_writer=writer, no_dist=True)


def as_tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(a.copy()) for name, a in arrays.items()}


@functools.cache
def many_metadata(n: int) -> tuple[bytes, bytes]:
    """Return the metadata of `n` tensors, pickled from torch's own classes, and the one item that all records name."""
    stream = io.BytesIO()
    torch.save(torch.arange(6.0).reshape(2, 3), stream)
    item = stream.getvalue()
    size, zero = torch.Size([2, 3]), torch.Size([0, 0])
    properties = TensorProperties(dtype=torch.float32)
    tensors: dict[str, Any] = {}
    places: dict[Any, Any] = {}
    for i in range(n):
        name = f"model.layers.{i // 100}.block.{i % 100}.weight"
        tensors[name] = TensorStorageMetadata(properties, size, [ChunkStorageMetadata(zero, size)])
        places[MetadataIndex(name, zero, 0)] = _StorageInfo("__0_0.distcp", 0, len(item))
    told = Metadata(state_dict_metadata=tensors, planner_data=None, storage_data=places)
    return pickle.dumps(told), item


def write_many_dcp(folder: Path, n: int) -> Path:
    path = folder / "many"
    path.mkdir()
    metadata, item = many_metadata(n)
    (path / ".metadata").write_bytes(metadata)
    (path / "__0_0.distcp").write_bytes(item)
    return path


def write_siblings(folder: Path) -> list[Path]:
    """Write what lies near: plain safetensors, a file of torch.save, a folder of each, an archive, a text."""
    for name in ("plain", "pt"):
        (folder / name).mkdir()
    save_file({"w": np.zeros(3, np.float32)}, folder / "plain" / "model.safetensors")
    torch.save({"w": torch.zeros(3)}, folder / "pt" / "model.pt")
    np.savez(folder / "arrays.npz", w=np.zeros(3))
    (folder / "notes.metadata").write_text("nothing here")
    return [folder / "plain", folder / "pt", folder / "arrays.npz", folder / "notes.metadata",
            folder / "plain" / "model.safetensors", folder / "pt" / "model.pt"]  # fmt: skip


class TestDcp(ReaderContract):
    reader: ClassVar[Any] = dcp
    most_bytes_a_tensor: ClassVar[int] = 1  # metadata of that size is read by the helper
    most_memory: ClassVar[int] = 230 << 20  # names, keys and problems by name, beside the columns
    most_child_memory: ClassVar[int] = 330 << 20

    def write(self, folder: Path, arrays: Arrays) -> Path:
        save(as_tensors(arrays), FileSystemWriter(folder))
        return folder

    def write_many(self, folder: Path, n: int) -> Path:
        return write_many_dcp(folder, n)

    def siblings(self, folder: Path) -> list[Path]:
        (folder / "slices").mkdir()
        save({"w": torch.zeros(3)}, HuggingFaceStorageWriter(str(folder / "slices"), save_distributed=True))
        return [*write_siblings(folder), folder / "slices"]


class TestDcpSafetensors(ReaderContract):
    reader: ClassVar[Any] = dcp_safetensors
    most_bytes_a_tensor: ClassVar[int] = 220
    most_memory: ClassVar[int] = 180 << 20

    def write(self, folder: Path, arrays: Arrays) -> Path:
        save(as_tensors(arrays), HuggingFaceStorageWriter(str(folder), save_distributed=True))
        return folder

    def write_many(self, folder: Path, n: int) -> Path:
        """A header by json and struct: torch would take minutes to write the same."""
        path = folder / "many"
        path.mkdir()
        names = [f"model.layers.{i // 100}.block.{i % 100}.weight" for i in range(n)]
        info = json.dumps({name: {"saved_offsets": [0]} for name in names})
        header: dict[str, Any] = {"__metadata__": {"DCP_SHARDING_INFO": info, "DCP_VERSION": "1.0", "format": "pt"}}
        for i, name in enumerate(names):
            header[name] = {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
        text = json.dumps(header).encode()
        shard = path / "shard-00001-model-00001-of-00001.safetensors"
        shard.write_bytes(struct.pack("<Q", len(text)) + text + bytes(n))
        return path

    def siblings(self, folder: Path) -> list[Path]:
        (folder / "dcp").mkdir()
        save({"w": torch.zeros(3)}, FileSystemWriter(folder / "dcp"))
        (folder / "rank0").mkdir()
        save({"w": torch.zeros(3)}, HuggingFaceStorageWriter(str(folder / "rank0")))
        return [*write_siblings(folder), folder / "dcp", folder / "rank0"]

    def test_no_other_reader_claims_its_sample(self, sample: Path) -> None:
        """Its files are safetensors, so that reader can show them one by one: it says so, and yields."""
        claimed = {m.NAME for m in READERS if not isinstance(m.sniff(look(sample)), str)}
        assert claimed == {"safetensors", "dcp_safetensors"}
        with open_checkpoint(sample) as checkpoint:
            assert checkpoint.format == "dcp_safetensors"


# ---------------------------------------------------------------- what opening reads


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Note (file, first byte, byte behind) of every read of this process's pools."""
    seen: list[tuple[str, int, int]] = []
    real = FilePool.read_into

    def noted(self: FilePool, path: Path, offset: int, buffer: memoryview) -> None:
        seen.append((path.name, offset, offset + len(buffer)))
        real(self, path, offset, buffer)

    monkeypatch.setattr(FilePool, "read_into", noted)
    return seen


def test_opening_and_listing_read_nothing_of_data_files(tmp_path: Path, reads: list[tuple[str, int, int]]) -> None:
    save(as_tensors(TestDcp().arrays()), FileSystemWriter(tmp_path))
    with open_checkpoint(tmp_path) as checkpoint:
        for tensor in checkpoint.tensors.values():
            assert tensor.complete
            assert [tensor.fragments.region(i) for i in range(len(tensor.fragments))]
            assert tensor.problems == ()
            assert len(tensor.locals) == 1
        assert {name for name, _, _ in reads} == {".metadata"}
        checkpoint["scale"].full()[...]
        assert {name for name, _, _ in reads} == {".metadata", "__0_0.distcp"}


@pytest.mark.parametrize("case", ["fsdp2_adamw_4r", "dcp_nested_2r", "dcp_unflattened_2r"])
def test_opening_looks_into_objects_alone(case: str, reads: list[tuple[str, int, int]]) -> None:
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        spans = [(o.file, o.offset, o.offset + (o.n_bytes or 0)) for o in checkpoint.objects.values()]
        data = [read for read in reads if read[0].endswith(".distcp")]
        for name, first, last in data:
            assert any(name == file and low <= first and last <= high for file, low, high in spans), (name, first)


def test_the_pickle_of_an_item_is_read_once_and_a_small_item_in_one_read(reads: list[tuple[str, int, int]]) -> None:
    with open_checkpoint(CORPUS / "dcp_shard0_uneven_4r" / "ckpt") as checkpoint:
        tensor = checkpoint["w10"]
        before = len(reads)
        tensor.where((0, 0))
        assert len(reads) == before + 1
        tensor.where((2, 5))
        assert len(reads) == before + 1


def test_reading_a_row_reads_that_row(tmp_path: Path, reads: list[tuple[str, int, int]]) -> None:
    values = torch.arange(1 << 20, dtype=torch.float32).reshape(1024, 1024)
    save({"w": values}, FileSystemWriter(tmp_path))
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint["w"].full()[700].tolist() == values[700].tolist()
    data = sum(last - first for name, first, last in reads if name.endswith(".distcp"))
    assert 4096 <= data <= 4096 + (32 << 10)


def test_at_most_128_data_files_are_open_and_all_close(tmp_path: Path) -> None:
    writer = FileSystemWriter(tmp_path, single_file_per_rank=False)
    save({f"w{i}": torch.full((2,), float(i)) for i in range(200)}, writer)
    assert len(list(tmp_path.glob("*.distcp"))) == 200
    here = f"{os.path.realpath(tmp_path)}/"

    def open_here() -> int:
        links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        return sum(link.startswith(here) for link in links)

    with open_checkpoint(tmp_path) as checkpoint:
        for i in range(200):
            assert checkpoint[f"w{i}"].full()[...].tolist() == [i, i]
            assert open_here() <= 128
    assert open_here() == 0


# ---------------------------------------------------------------- metadata that goes through the helper


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Keep every process that is started."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def kept(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", kept)
    return started


def test_large_metadata_is_parsed_elsewhere_with_progress(
    tmp_path: Path, reads: list[tuple[str, int, int]], helpers: list[subprocess.Popen[bytes]]
) -> None:
    path = write_many_dcp(tmp_path, MANY)
    assert (path / ".metadata").stat().st_size > THRESHOLD_BYTES
    told: list[tuple[str, int, int]] = []
    with open_checkpoint(path, report=lambda what, done, total: told.append((what, done, total))) as checkpoint:
        assert len(checkpoint) == MANY
        assert [p for p in checkpoint.problems if p.severity != "info"] == []
        assert sum(last - first for _, first, last in reads) <= 1  # this process looks only that it is the same file
        last = checkpoint[f"model.layers.{MANY // 100 - 1}.block.99.weight"]
        assert last.full()[...].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert [child.poll() is not None for child in helpers] == [True]
    kinds = Counter(what for what, _, _ in told)
    assert {"Reading pickle", "Reading tensors of the metadata"} <= set(kinds)
    for kind in kinds:
        steps = [(done, total) for what, done, total in told if what == kind and total]
        assert steps == sorted(steps)
        assert all(0 <= done <= total for done, total in steps)


@pytest.mark.parametrize("calls", [1, 3, 10, 30])
def test_cancelling_at_any_report_leaves_no_process_and_no_file(
    tmp_path: Path, calls: int, helpers: list[subprocess.Popen[bytes]]
) -> None:
    path = write_many_dcp(tmp_path, MANY)
    before = sorted(os.listdir("/proc/self/fd"))
    left = calls

    def report(what: str, done: int, total: int) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise CancelledError

    with pytest.raises(CancelledError):
        open_checkpoint(path, report=report)
    assert [child.poll() is not None for child in helpers] == [True]
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_helper_that_is_killed_is_a_message(tmp_path: Path, helpers: list[subprocess.Popen[bytes]]) -> None:
    path = write_many_dcp(tmp_path, MANY)

    def report(what: str, done: int, total: int) -> None:
        helpers[0].kill()

    with pytest.raises(HelperError, match="SIGKILL"):
        open_checkpoint(path, report=report)


def test_large_and_small_metadata_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same folders through the helper: columns cross the border unchanged."""
    monkeypatch.setattr("tensormorph.readers._dcp_open.THRESHOLD_BYTES", 0)
    for case in ("fsdp2_tp_2x2", "dcp_nested_2r", "dcp_nocoll_2r", "bad_overlap"):
        with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
            found = {name: checkpoint[name] for name in checkpoint}
            told = [p.code for p in checkpoint.problems if p.severity != "info"]
            assert told == (["overlap", "gap"] if case == "bad_overlap" else [])
            for name, (kind, values) in oracle(case).items():
                assert found[name].encoding.name == kind
                if found[name].complete:
                    assert same_bits(found[name].full()[...], values), name
