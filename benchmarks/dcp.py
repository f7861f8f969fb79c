"""A DCP checkpoint of a gigabyte, and metadata of 320,000 chunks, beside what torch does with the same files."""

from __future__ import annotations

import io
import json
import pickle
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch.distributed.checkpoint import metadata
from torch.distributed.checkpoint.filesystem import _StorageInfo

from benchmarks.measure import ROUNDS, Result, python
from tensormorph.readers import open_checkpoint

RANKS = 4
CHUNKED, CHUNKS = 5000, 64

# What a process of torch does, and what it takes: the kernel's count of its peak.
_CHILD = """
import json, sys, time
def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
{before}
began = time.perf_counter()
{work}
print(json.dumps([time.perf_counter() - began, peak()]), file=sys.stderr)
"""
_HELPED = """
import json, resource, time
from tensormorph.readers import open_checkpoint
began = time.perf_counter()
{work}
took = time.perf_counter() - began
print(json.dumps([took, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024]))
"""


def write_sharded(folder: Path) -> None:
    """Write 8 tensors of 128 MB and 192 small ones, rows over 4 ranks: items and metadata by torch's own classes."""
    folder.mkdir()
    shapes = {f"layers.{i}.mlp.weight": (8192, 4096) for i in range(8)}
    shapes |= {f"layers.{i // 24}.norm.{i % 24}": (64, 64) for i in range(192)}
    described: dict[str, metadata.STORAGE_TYPES] = {}
    stored: dict[metadata.MetadataIndex, _StorageInfo] = {}
    files = [(folder / f"__{rank}_0.distcp").open("wb") for rank in range(RANKS)]
    for number, (name, (rows, cols)) in enumerate(shapes.items()):
        chunks: list[metadata.ChunkStorageMetadata] = []
        for rank, file in enumerate(files):
            low, high = rank * rows // RANKS, (rank + 1) * rows // RANKS
            values = torch.arange(low * cols, high * cols, dtype=torch.float32).reshape(-1, cols) + number
            buffer = io.BytesIO()
            torch.save(values, buffer)
            offset = torch.Size((low, 0))
            chunks.append(metadata.ChunkStorageMetadata(offsets=offset, sizes=values.size()))
            at = file.tell()
            file.write(buffer.getbuffer())
            stored[metadata.MetadataIndex(name, offset)] = _StorageInfo(f"__{rank}_0.distcp", at, file.tell() - at)
        described[name] = metadata.TensorStorageMetadata(
            metadata.TensorProperties(dtype=torch.float32), torch.Size((rows, cols)), chunks
        )
    for file in files:
        file.close()
    _write_metadata(folder, described, stored)


def write_chunked(folder: Path) -> None:
    """Write 5,000 tensors of 64 chunks of 2 x 16, one file a rank."""
    folder.mkdir()
    buffer = io.BytesIO()
    torch.save(torch.arange(32.0).reshape(2, 16), buffer)
    item = buffer.getvalue()
    described: dict[str, metadata.STORAGE_TYPES] = {}
    stored: dict[metadata.MetadataIndex, _StorageInfo] = {}
    paths = [f"__{rank}_0.distcp" for rank in range(CHUNKS)]
    for number in range(CHUNKED):
        name = f"model.layers.{number // 10}.block.{number % 10}.weight"
        chunks = []
        for rank, path in enumerate(paths):
            offset = torch.Size((2 * rank, 0))
            chunks.append(metadata.ChunkStorageMetadata(offsets=offset, sizes=torch.Size((2, 16))))
            stored[metadata.MetadataIndex(name, offset)] = _StorageInfo(path, number * len(item), len(item))
        described[name] = metadata.TensorStorageMetadata(
            metadata.TensorProperties(dtype=torch.float32), torch.Size((2 * CHUNKS, 16)), chunks
        )
    for path in paths:
        with (folder / path).open("wb") as file:
            for _ in range(CHUNKED // 100):
                file.write(item * 100)
    _write_metadata(folder, described, stored)


def _write_metadata(
    folder: Path, described: dict[str, metadata.STORAGE_TYPES], stored: Mapping[metadata.MetadataIndex, _StorageInfo]
) -> None:
    plan = {name: tuple(name.split(".")) for name in described}
    whole = metadata.Metadata(
        state_dict_metadata=described, planner_data=plan, storage_data=stored,
        storage_meta=metadata.StorageMeta(checkpoint_id=str(folder), save_id="0"),
    )  # fmt: skip
    with (folder / ".metadata").open("wb") as file:
        pickle.dump(whole, file)


def _child(folder: Path, before: str, work: str) -> tuple[float, float]:
    """Return the seconds of `work` in a process of its own, and that process's peak in MB."""
    done = python(folder, "-c", _CHILD.format(before=before, work=work))
    took, peak = json.loads(done.stderr.splitlines()[-1])
    return took, peak / 1e6


def sharded(folder: Path) -> Iterator[Result]:
    """The tree, a region and a whole listing of a gigabyte on 4 ranks; torch's ways to a value beside it."""
    path = folder / "sharded"
    write_sharded(path)
    opening: list[float] = []
    region: list[float] = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        checkpoint = open_checkpoint(path)
        opening.append(time.perf_counter() - began)
        with checkpoint:
            tensor = checkpoint["layers.3.mlp.weight"]
            box = (slice(2040, 2060), slice(100, 116))  # over the border of two ranks
            tensor.full()[box]
            began = time.perf_counter()
            values = tensor.full()[box]
            region.append(1000 * (time.perf_counter() - began))
            assert values[0, 0] == 2040 * 4096 + 100 + 3
    yield Result("DCP of 1.07 GB, 200 tensors on 4 ranks: tree", tuple(opening[1:]), "s", 0.3)
    yield Result("a 20 x 16 region over two ranks' files, warm", tuple(region[1:]), "ms", 10)
    if sys.platform != "linux":
        return
    whole = folder / "whole.pt"
    ls = [_child(folder, "from tensormorph.cli import run", f"run(['ls', {str(path)!r}])") for _ in range(ROUNDS)]
    note = f"{1000 * statistics.median(took for took, _ in ls):.3g} ms after the import"
    yield Result("ls of it: peak memory", tuple(peak for _, peak in ls), "MB", 120, note)
    of_torch = {
        "torch: dcp.load of one tensor of it": (
            "import torch, torch.distributed.checkpoint as dcp",
            "state = {'layers.3.mlp.weight': torch.empty(8192, 4096)}\n"
            f"dcp.load(state, checkpoint_id={str(path)!r}, no_dist=True)",
        ),
        "torch: dcp_to_torch_save of it": (
            "from torch.distributed.checkpoint.format_utils import dcp_to_torch_save",
            f"dcp_to_torch_save({str(path)!r}, {str(whole)!r})",
        ),
    }
    for name, (before, work) in of_torch.items():
        runs = [_child(folder, before, work) for _ in range(3)]
        note = f"peak {statistics.median(peak for _, peak in runs):.0f} MB, without importing torch (1.6 s)"
        yield Result(name, tuple(took for took, _ in runs), "s", None, note)


def chunked(folder: Path) -> Iterator[Result]:
    """Metadata of 320,000 chunks: opening it against torch's own reader of it, a quick check, and a whole one."""
    path = folder / "chunked"
    write_chunked(path)
    before = "from torch.distributed.checkpoint import FileSystemReader"
    ratios: list[float] = []
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    for _ in range(5):
        theirs.append(_child(folder, before, f"FileSystemReader({str(path)!r}).read_metadata()"))
        ours.append(_open_helped(path))
        ratios.append(ours[-1][0] / theirs[-1][0])
    note = f"{statistics.median(t for t, _ in ours):.3g} s to {statistics.median(t for t, _ in theirs):.3g} s (torch)"
    yield Result("opening metadata of 5,000 tensors x 64 chunks", tuple(ratios), "x", 2, note)
    limit = statistics.median(peak for _, peak in theirs)
    yield Result("its helper: peak memory", tuple(peak for _, peak in ours), "MB", limit, f"{limit:.0f} MB (torch)")
    for name, options, bound, rounds in (("check --quick", ["--quick"], 5, 5), ("check", [], 60, 3)):
        took = []
        for _ in range(rounds):
            began = time.perf_counter()
            python(folder, "-m", "tensormorph", "check", *options, str(path))
            took.append(time.perf_counter() - began)
        yield Result(f"{name} of it, 320,000 items, warm", tuple(took), "s", bound)


def _open_helped(path: Path) -> tuple[float, float]:
    """Return the seconds of opening, and the peak of the helper process in MB."""
    work = f"open_checkpoint({str(path)!r})"
    done = python(path.parent, "-c", _HELPED.format(work=work))
    took, peak = json.loads(done.stdout)
    return took, peak / 1e6
