"""Exports are what numpy, safetensors and csv say they are, and leave the old file or the new one, whole.

The bytes under test are written by the safetensors library, and what is exported is read back by other readers than
ours: numpy, safetensors, csv.
"""

from __future__ import annotations

import csv
import errno
import os
import signal
import stat
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import tensormorph as tm
from tensormorph import atomic, export
from tensormorph.atomic import WriteError, write_atomically
from tensormorph.dtypes import encoding
from tensormorph.errors import BadIndexError, CancelledError, MissingRegionError, UnsupportedDtypeError, UsageError
from tensormorph.export import write_region
from tensormorph.model import Checkpoint
from tensormorph.region import Region
from tests.memory_source import MemoryFile, Part, store, tensor

TORCH = {
    "bool": torch.bool, "uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32,
    "int64": torch.int64, "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32,
    "float64": torch.float64, "complex64": torch.complex64, "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}  # fmt: skip
NO_NPY = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.fixture(scope="module")
def stored() -> dict[str, torch.Tensor]:
    """One matrix of each dtype, with a layout that shows any misplaced element, and odd shapes."""
    values = torch.arange(6 * 5).reshape(6, 5) % 23 - 11
    tensors = {name: values.abs().to(kind) if name == "uint8" else values.to(kind) for name, kind in TORCH.items()}
    tensors |= {
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "cube": torch.arange(2 * 3 * 4, dtype=torch.float32).reshape(2, 3, 4),
        "line": torch.linspace(-1, 1, 11),
        "odd": torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.1, 1e-42, 3.4028235e38]),
        "=cmd|'/C calc'!A0": torch.tensor([1.0]),
        "a,=1+1\n\"q": torch.tensor([-1.5]),
    }  # fmt: skip
    return tensors


@pytest.fixture(scope="module")
def source(stored: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "model.safetensors"
    safetensors.torch.save_file(stored, path)
    return path


@pytest.fixture
def opened(source: Path) -> Iterator[Checkpoint]:
    with tm.open(source) as checkpoint:
        yield checkpoint


def bits(values: Any) -> bytes:
    """The bytes of a torch tensor, whatever its dtype."""
    flat = values.contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


KEYS: list[Any] = [
    ..., (), 2, -1, slice(1, 4), (slice(None), 3), (slice(None, None, -1), slice(None, None, 2)), (slice(-2, None), -1),
    (slice(4, 1, -2), slice(3, None, -3)), (slice(2, 2), slice(None)), (5, 4),
]  # fmt: skip


# ---------------------------------------------------------------- npy


@pytest.mark.parametrize("block", [1, 24, 4 << 20])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_npy_holds_what_numpy_selects(
    opened: Checkpoint, stored: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    key: Any, block: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(export, "BLOCK_BYTES", block)
    for name in ("float32", "int16", "complex64", "bool", "uint8"):
        write_region(opened[name], key, tmp_path / "w.npy", forbidden=[])
        found = np.load(tmp_path / "w.npy")
        expected = stored[name].numpy()[key]
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["scalar", "empty", "cube", "line", "odd"])
def test_npy_of_any_shape(opened: Checkpoint, stored: dict[str, torch.Tensor], tmp_path: Path, name: str) -> None:
    """R8: a 0-d tensor is one value of shape ()."""
    write_region(opened[name].full(), ..., tmp_path / "w.npy", forbidden=[])
    found = np.load(tmp_path / "w.npy")
    assert found.shape == tuple(stored[name].shape)
    assert found.tobytes() == stored[name].numpy().tobytes()


def test_npy_has_no_small_floats(opened: Checkpoint, tmp_path: Path) -> None:
    for name in NO_NPY:
        with pytest.raises(UsageError, match=f"npy has no {name}.*safetensors"):
            write_region(opened[name], ..., tmp_path / "w.npy", forbidden=[])
    codes = store(MemoryFile("f4.bin"), np.arange(4, dtype=ml_dtypes.float4_e2m1fn), encoding("float4_e2m1fn"))
    packed = tensor((4,), [Part(Region((0,), (4,)), codes)], encoding("float4_e2m1fn"))
    with pytest.raises(UsageError, match=r"npy has no float4_e2m1fn.*safetensors"):
        write_region(packed, ..., tmp_path / "w.npy", forbidden=[])
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- safetensors


@pytest.mark.parametrize("name", sorted(TORCH))
@pytest.mark.parametrize("block", [7, 4 << 20])
def test_safetensors_holds_the_same_bits(
    opened: Checkpoint, stored: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    name: str, block: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(export, "BLOCK_BYTES", block)
    path = tmp_path / "w.safetensors"
    write_region(opened[name], (slice(1, None), slice(None)), path, forbidden=[])
    found = safetensors.torch.load_file(path)
    assert list(found) == [name]
    assert found[name].dtype == TORCH[name]
    assert found[name].shape == (5, 5)
    assert bits(found[name]) == bits(stored[name][1:])
    header = struct.unpack("<Q", path.read_bytes()[:8])[0]
    assert (8 + header) % 8 == 0


@pytest.mark.parametrize("name", ["scalar", "empty", "cube", "odd", "=cmd|'/C calc'!A0"])
def test_safetensors_of_any_shape_and_name(
    opened: Checkpoint, stored: dict[str, torch.Tensor], tmp_path: Path, name: str
) -> None:
    write_region(opened[name], ..., tmp_path / "w.safetensors", forbidden=[])
    found = safetensors.torch.load_file(tmp_path / "w.safetensors")
    assert list(found) == [name]
    assert found[name].shape == stored[name].shape
    assert bits(found[name]) == bits(stored[name])


@pytest.mark.parametrize("block", [1, 3, 64])
def test_safetensors_packs_two_fp4_values_a_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """R10: the logical shape stands in the header, the element of even index in the low half of its byte."""
    monkeypatch.setattr(export, "BLOCK_BYTES", block)
    codes = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [15, 14, 13]], np.uint8)
    kind = encoding("float4_e2m1fn")
    values = codes.view(ml_dtypes.float4_e2m1fn)
    nibbles = tensor((4, 3), [Part(Region((0, 0), (4, 3)), store(MemoryFile("n.bin"), values, kind))], kind)
    write_region(nibbles, ..., tmp_path / "w.safetensors", forbidden=[])
    raw = (tmp_path / "w.safetensors").read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    assert b'"dtype": "F4", "shape": [4, 3], "data_offsets": [0, 6]' in raw[8 : 8 + length]
    assert raw[8 + length :] == bytes([0x10, 0x32, 0x54, 0x76, 0xF8, 0xDE])
    with pytest.raises(UsageError, match="9 is odd"):
        write_region(nibbles, slice(1, None), tmp_path / "w.safetensors", forbidden=[])


def test_safetensors_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    kind = encoding("complex128")
    wide = tensor((1,), [Part(Region((0,), (1,)), store(MemoryFile("c.bin"), np.ones(1, complex), kind))], kind)
    with pytest.raises(UsageError, match="safetensors has no complex128"):
        write_region(wide, ..., tmp_path / "w.safetensors", forbidden=[])
    for name, why in (("__metadata__", "keeps the name"), ("\ud800", "lone surrogate")):
        with pytest.raises(UsageError, match=why):
            write_region(line(), ..., tmp_path / "w.safetensors", forbidden=[], name=name)
    unknown = tensor((1,), [], encoding("float6_e2m3fn"))
    for suffix in ("npy", "safetensors", "csv"):
        with pytest.raises(UnsupportedDtypeError):
            write_region(unknown, ..., tmp_path / f"w.{suffix}", forbidden=[])
    assert list(tmp_path.iterdir()) == []


def line(n: int = 4) -> Any:
    kind = encoding("float32")
    values = np.arange(n, dtype=np.float32)
    return tensor((n,), [Part(Region((0,), (n,)), store(MemoryFile("l.bin"), values, kind))], kind)


# ---------------------------------------------------------------- csv


def rows_of(path: Path) -> tuple[list[list[str]], list[list[str]]]:
    """The rows that begin with # and the others, as Python's csv reads them."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    return [row for row in rows if row[0].startswith("#")], [row for row in rows if not row[0].startswith("#")]


@pytest.mark.parametrize("cells", [1, 4, 1 << 17])
def test_csv_reads_back(
    opened: Checkpoint, stored: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    monkeypatch.setattr(export, "CSV_BLOCK_CELLS", cells)
    for name in ("float32", "int16", "float16", "odd", "cube", "line", "scalar"):
        expected = stored[name].numpy()
        write_region(opened[name], ..., tmp_path / "w.csv", forbidden=[])
        found = np.loadtxt(tmp_path / "w.csv", delimiter=",", dtype=expected.dtype, ndmin=0)
        assert found.reshape(expected.shape).tobytes() == expected.tobytes(), name
    write_region(opened["cube"], ..., tmp_path / "w.csv", forbidden=[])
    assert [len(row) for row in rows_of(tmp_path / "w.csv")[1]] == [4] * 6
    write_region(opened["bfloat16"], (slice(None, 2), slice(3)), tmp_path / "w.csv", forbidden=[])
    assert rows_of(tmp_path / "w.csv")[1] == [["-11.0", "-10.0", "-9.0"], ["-6.0", "-5.0", "-4.0"]]


def test_csv_numbers_are_the_shortest_text(opened: Checkpoint, tmp_path: Path) -> None:
    write_region(opened["odd"], ..., tmp_path / "w.csv", forbidden=[])
    assert [row[0] for row in rows_of(tmp_path / "w.csv")[1]] == [
        "NaN", "Inf", "-Inf", "-0.0", "0.1", "1e-42", "3.4028235e+38",
    ]  # fmt: skip
    write_region(opened["complex64"], (0, slice(2)), tmp_path / "w.csv", forbidden=[])
    assert [complex(row[0]) for row in rows_of(tmp_path / "w.csv")[1]] == [-11, -10]


@pytest.mark.parametrize("name", ["=cmd|'/C calc'!A0", 'a,=1+1\n"q'])
def test_no_cell_of_a_csv_is_a_formula(opened: Checkpoint, tmp_path: Path, name: str) -> None:
    write_region(opened[name], ..., tmp_path / "w.csv", forbidden=[])
    head, values = rows_of(tmp_path / "w.csv")
    assert head[0][0] == "# tensor"
    assert len(head[0]) == 2
    assert any("begin like a formula" in cell for row in head for cell in row)
    for cell in (cell for row in [*head, *values] for cell in row):
        starts_one = cell[:1] in ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
        assert not starts_one or np.isfinite(float(cell))
    assert np.loadtxt(tmp_path / "w.csv", delimiter=",").shape == ()


def test_csv_says_what_it_holds(opened: Checkpoint, tmp_path: Path) -> None:
    write_region(opened["float32"], (2, slice(None, None, -2)), tmp_path / "w.csv", forbidden=[])
    head, values = rows_of(tmp_path / "w.csv")
    assert head[:4] == [["# tensor", "float32"], ["# dtype", "float32"], ["# shape", "3"], ["# region", "2", "4::-2"]]
    assert len(values) == 3


# ---------------------------------------------------------------- memory, progress, errors


def test_memory_is_bounded(tmp_path: Path) -> None:
    """64 MiB of values are never held at once."""
    values = np.arange(16 << 20, dtype=np.float32).reshape(1 << 14, 1 << 10)
    path = tmp_path / "big.safetensors"
    safetensors.numpy.save_file({"w": values}, path)
    with tm.open(path) as checkpoint:
        for target, key in (("w.npy", ...), ("t.npy", (slice(None), slice(None, None, -2))), ("w.safetensors", ...)):
            tracemalloc.start()
            write_region(checkpoint["w"], key, tmp_path / target, forbidden=[path])
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 32 << 20, target
    assert np.array_equal(np.load(tmp_path / "w.npy", mmap_mode="r"), values)
    assert np.array_equal(np.load(tmp_path / "t.npy", mmap_mode="r"), values[:, ::-2])


def test_progress_is_told_and_a_cancel_is_heard(
    opened: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "BLOCK_BYTES", 20)
    told: list[tuple[int, int]] = []
    write_region(opened["float32"], ..., tmp_path / "w.npy", forbidden=[], report=lambda _, d, t: told.append((d, t)))
    assert told == [(20 * i, 120) for i in range(7)]
    before = (tmp_path / "w.npy").read_bytes()

    def stop(what: str, done: int, total: int) -> None:
        if done >= 40:
            raise CancelledError

    with pytest.raises(CancelledError):
        write_region(opened["int64"], ..., tmp_path / "w.npy", forbidden=[], report=stop)
    assert (tmp_path / "w.npy").read_bytes() == before
    assert os.listdir(tmp_path) == ["w.npy"]


def test_values_that_are_stored_nowhere_are_not_written(tmp_path: Path) -> None:
    kind = encoding("float32")
    upper = store(MemoryFile("u.bin"), np.ones((2, 3), np.float32), kind)
    gap = tensor((4, 3), [Part(Region((0, 0), (2, 3)), upper)], kind)
    (tmp_path / "w.npy").write_bytes(b"old")
    with pytest.raises(MissingRegionError):
        write_region(gap, ..., tmp_path / "w.npy", forbidden=[])
    assert (tmp_path / "w.npy").read_bytes() == b"old"
    write_region(gap, slice(0, 2), tmp_path / "w.npy", forbidden=[])
    assert np.load(tmp_path / "w.npy").shape == (2, 3)
    assert os.listdir(tmp_path) == ["w.npy"]


def test_bad_requests_are_told(opened: Checkpoint, tmp_path: Path) -> None:
    for target, why in (("w.bin", r"end in \.npy"), ("no/w.npy", "does not exist"), ("d.npy", "is a folder")):
        (tmp_path / "d.npy").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match=why):
            write_region(opened["line"], ..., tmp_path / target, forbidden=[])
    with pytest.raises(BadIndexError):
        write_region(opened["line"], 11, tmp_path / "w.npy", forbidden=[])
    assert os.listdir(tmp_path) == ["d.npy"]


# ---------------------------------------------------------------- never onto a source


def refused(source: Path, target: Path, forbidden: list[Path]) -> None:
    with tm.open(source) as checkpoint, pytest.raises(UsageError, match=r"part of what is open|another name of"):
        write_region(checkpoint["w"], ..., target, forbidden=forbidden)


def test_a_source_is_never_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    source = folder / "model.safetensors"
    safetensors.numpy.save_file({"w": np.arange(4, dtype=np.float32)}, source)
    before = source.read_bytes(), source.stat().st_ino, source.stat().st_mtime_ns
    missing = folder / "model-00002.safetensors"
    (tmp_path / "soft.safetensors").symlink_to(source)
    (tmp_path / "chain.safetensors").symlink_to("soft.safetensors")
    (tmp_path / "dir").symlink_to(folder)
    (tmp_path / "dangling.safetensors").symlink_to(missing)
    os.link(source, tmp_path / "hard.safetensors")
    for name in (
        "ckpt/model.safetensors", "ckpt/../ckpt/model.safetensors", "soft.safetensors", "chain.safetensors",
        "dir/model.safetensors", "hard.safetensors", "ckpt/model-00002.safetensors", "dangling.safetensors",
    ):  # fmt: skip
        refused(source, tmp_path / name, [source, missing])
    refused(source, folder / "new.npy", [folder])  # a folder that is forbidden, is so with what lies in it
    assert (source.read_bytes(), source.stat().st_ino, source.stat().st_mtime_ns) == before
    assert sorted(os.listdir(folder)) == ["model.safetensors"]


def test_a_source_that_is_itself_a_link_is_never_written_to(tmp_path: Path) -> None:
    """In the Hugging Face cache the checkpoint's file is a link to a blob: both names are taken."""
    blob, link = tmp_path / "blob", tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"w": np.arange(4, dtype=np.float32)}, blob)
    link.symlink_to(blob)
    alias = tmp_path / "b.safetensors"
    alias.symlink_to(blob)
    for target in (link, alias):
        refused(link, target, [link])
    assert link.is_symlink()
    assert alias.is_symlink()


def test_a_link_to_another_file_is_followed(opened: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "real.npy").write_bytes(b"old")
    (tmp_path / "link.npy").symlink_to("real.npy")
    write_region(opened["line"], ..., tmp_path / "link.npy", forbidden=[])
    assert (tmp_path / "link.npy").is_symlink()
    assert np.load(tmp_path / "real.npy").shape == (11,)


# ---------------------------------------------------------------- faults


class Faults:
    """The os module, with the i-th call that touches the disk failing, before or after it took effect."""

    CALLS = ("open", "write", "fsync", "fstat", "close", "replace")

    def __init__(self, at: int, failure: BaseException, after: bool) -> None:
        self.at = at
        self.failure = failure
        self.after = after
        self.n = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)
        if name not in self.CALLS:
            return call

        def counted(*arguments: Any, **named: Any) -> Any:
            self.n += 1
            if self.n != self.at:
                # Short writes, so that one write of ours is several of the system's.
                if name == "write":
                    arguments = (arguments[0], arguments[1][:100])
                return call(*arguments, **named)
            if self.after:
                call(*arguments, **named)
            raise self.failure

        return counted


OLD, NEW = b"the old file", bytes(range(256)) * 2


def new_body(write: atomic.Write) -> None:
    write(NEW[:200])
    write(memoryview(NEW)[200:])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("exists", [False, True], ids=["new", "over"])
@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EIO, errno.EACCES, "interrupt"])
def test_every_failure_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Any, exists: bool, after: bool
) -> None:
    target = tmp_path / "w.npy"
    n_failed = 0
    while True:
        target.unlink(missing_ok=True)
        if exists:
            target.write_bytes(OLD)
        fault = KeyboardInterrupt() if failure == "interrupt" else OSError(failure, os.strerror(failure))
        faults = Faults(n_failed + 1, fault, after)
        monkeypatch.setattr(atomic, "os", faults)
        raised: BaseException | None = None
        try:
            write_atomically(target, new_body)
        except (WriteError, KeyboardInterrupt) as error:
            raised = error
        finally:
            monkeypatch.undo()
        if raised is None:
            assert faults.n < faults.at  # nothing was left to fail
            break
        assert isinstance(raised, KeyboardInterrupt) == (failure == "interrupt")
        if isinstance(raised, WriteError):
            assert os.strerror(failure) in str(raised)
            assert raised.replaced == (target.exists() and target.read_bytes() == NEW)
        found = target.read_bytes() if target.exists() else None
        assert found in ((OLD, NEW) if exists else (None, NEW)), f"call {faults.at}"
        assert set(os.listdir(tmp_path)) <= {"w.npy"}, f"call {faults.at} left a stray file"
        n_failed += 1
    assert target.read_bytes() == NEW
    assert n_failed >= 10  # open, 6 writes, fsync, fstat, close, replace, the folder's three


def test_the_new_file_is_on_disk_before_it_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's rule: file synced, then renamed, then the folder synced."""
    order: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            call = getattr(os, name)
            if name not in ("fsync", "replace"):
                return call

            def told(*arguments: Any) -> Any:
                folder = name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
                order.append(f"{name} folder" if folder else name)
                return call(*arguments)

            return told

    monkeypatch.setattr(atomic, "os", Watched())
    write_atomically(tmp_path / "w.npy", new_body)
    assert order == ["fsync", "replace", "fsync folder"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """A process that dies at the i-th call cannot clean up; the target is whole all the same."""
    script = textwrap.dedent("""
        import os, sys
        from pathlib import Path
        from tensormorph import atomic
        target = Path(sys.argv[1])

        class Killer:
            def __init__(self, at):
                self.left = at
            def __getattr__(self, name):
                if name in ("open", "write", "fsync", "fstat", "close", "replace"):
                    self.left -= 1
                    if not self.left:
                        os._exit(9)
                return getattr(os, name)

        def body(write):
            write(b"new" * 100)
            write(b"er" * 100)

        for at in range(1, 40):
            target.write_bytes(b"old")
            child = os.fork()
            if not child:
                atomic.os = Killer(at)
                atomic.write_atomically(target, body)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            found = target.read_bytes()
            print({b"old": "old", b"new" * 100 + b"er" * 100: "new"}.get(found, "mixed"))
            if not status:
                break
    """)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script, tmp_path / "w.npy"], capture_output=True,
                          text=True, check=True)  # fmt: skip
    outcomes = done.stdout.split()
    assert len(outcomes) > 8
    assert set(outcomes) == {"old", "new"}
    assert outcomes == sorted(outcomes, reverse=True)  # once the new file is there, it stays


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is POSIX")
def test_a_real_limit_of_the_system(source: Path, tmp_path: Path) -> None:
    """The kernel itself refuses to let the file grow: no part of it stays, and the sentence says why."""
    script = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        import tensormorph as tm
        from tensormorph.export import write_region
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        with tm.open(sys.argv[1]) as checkpoint:
            try:
                write_region(checkpoint["float64"], ..., Path(sys.argv[2]), forbidden=[])
            except tm.errors.TensormorphError as error:
                print(error)
    """)
    (tmp_path / "w.npy").write_bytes(OLD)
    done = subprocess.run([sys.executable, "-c", script, source, tmp_path / "w.npy"], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert "Nothing was written" in done.stdout, done.stderr
    assert os.strerror(errno.EFBIG) in done.stdout
    assert (tmp_path / "w.npy").read_bytes() == OLD
    assert os.listdir(tmp_path) == ["w.npy"]


def test_a_full_disk_is_told_beforehand(opened: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(f_bavail=1, f_frsize=16, f_blocks=100)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(WriteError, match="44 B are needed and 16 B are free"):
        write_region(opened["line"], ..., tmp_path / "w.npy", forbidden=[])
    full.f_blocks = 0  # some file systems tell nothing
    write_region(opened["line"], ..., tmp_path / "w.npy", forbidden=[])
    assert np.load(tmp_path / "w.npy").shape == (11,)


def test_a_second_interrupt_is_not_swallowed(tmp_path: Path) -> None:
    """Ctrl-C while the body writes ends the export; the signal is a real one."""

    def body(write: atomic.Write) -> None:
        write(b"begun")
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "w.npy", body)
    assert os.listdir(tmp_path) == []
