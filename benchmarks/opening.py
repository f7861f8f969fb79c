"""How long it takes until a checkpoint is open, and what that reads and holds."""

from __future__ import annotations

import gc
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

from benchmarks.measure import ROUNDS, Result, python, ratio, seconds
from benchmarks.sets import expert_names, terabyte, torch_file, write_file, write_set
from tensormorph.checks import check
from tensormorph.errors import CancelledError
from tensormorph.model import Checkpoint
from tensormorph.readers import open_checkpoint
from tensormorph.readers._bytes import FilePool

# The process's own peak by the kernel's count; what the parent measures of a child begins with the parent's own.
_PEAK = """
import sys
from tensormorph.cli import run
run(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
"""


def listing(folder: Path) -> Iterator[Result]:
    """`ls` on a hundred shards, against a bare import of numpy."""
    path = folder / "hundred"
    write_set(path, expert_names(1200), (64, 64), 100)
    ls = partial(python, folder, "-m", "tensormorph", "ls", str(path))
    bare = partial(python, folder, "-c", "import numpy")
    yield ratio("ls of 100 shards, 1,200 tensors", ls, bare, "python -c 'import numpy'", bound=3)
    if sys.platform == "linux":
        runs = [python(folder, "-c", _PEAK, "ls", str(path)) for _ in range(ROUNDS)]
        peaks = tuple(int(done.stderr.split()[-1]) * 1024 / 1e6 for done in runs)
        yield Result("ls of 100 shards: peak memory", peaks, "MB", 80)


def sparse(folder: Path) -> Iterator[Result]:
    """A terabyte of which only the headers exist."""
    path = folder / "terabyte"
    metadata = terabyte(path)
    times: list[float] = []
    for i in range(ROUNDS + 1):
        gc.collect()
        began = time.perf_counter()
        checkpoint = open_checkpoint(path)
        took = time.perf_counter() - began
        with checkpoint:
            pool = _pool(checkpoint)
            assert len(checkpoint) == 30_000
            assert not checkpoint.problems or all(p.severity == "info" for p in checkpoint.problems)
            assert pool.bytes_read == metadata, f"{pool.bytes_read} bytes were read of {metadata} of metadata"
        if i:
            times.append(took)
    note = f"read {metadata / 1e6:.2f} MB: headers and index, nothing else"
    yield Result("opening 1 TB, 250 files, 30,000 tensors, warm", tuple(times), "s", 1.5, note)


def _pool(checkpoint: Checkpoint) -> FilePool:
    return cast(FilePool, checkpoint.close.__self__)  # type: ignore[attr-defined]


def headers(folder: Path) -> Iterator[Result]:
    """Files of very many tensors: opening them, helper and all, against json.loads of the same text."""
    for n, rounds in ((100_000, ROUNDS), (1_000_000, 5)):
        path = folder / f"header-{n}.safetensors"
        write_file(path, dict.fromkeys(expert_names(n), (4,)))
        with path.open("rb") as stream:
            text = stream.read(int.from_bytes(stream.read(8), "little"))

        def ours(path: Path = path) -> None:
            open_checkpoint(path).close()

        name = f"opening a file of {n:,} tensors ({len(text) / 1e6:.0f} MB of header)"
        yield ratio(name, ours, lambda text=text: json.loads(text), "json.loads of the header", rounds=rounds)  # type: ignore[misc]
        del text


def torch_save(folder: Path) -> Iterator[Result]:
    """A file of torch.save of which only the directory and the pickle exist, beside torch that maps it."""
    import torch  # takes long, and no other benchmark needs it

    path = folder / "large.pt"
    torch_file(path)
    mapped = partial(torch.load, path, mmap=True, weights_only=True)
    size = path.stat().st_size
    assert size > 10e9

    def ours() -> None:
        open_checkpoint(path).close()

    with open_checkpoint(path) as checkpoint:
        n_bytes = _pool(checkpoint).bytes_read
        assert not checkpoint.problems
        assert n_bytes < 100_000, f"{n_bytes} bytes were read of {size}"
        assert {name: checkpoint[name].shape for name in checkpoint} == {k: tuple(t.shape) for k, t in mapped().items()}
    pairs = [(1000 * seconds(ours), 1000 * seconds(mapped)) for _ in range(ROUNDS)]
    times, theirs = zip(*pairs, strict=True)
    note = f"read {n_bytes / 1000:.1f} kB; torch.load(mmap=True): {statistics.median(theirs):.3g} ms"
    yield Result("opening a torch.save file of 10 GB, warm", times, "ms", 100, note)


class _Stop:
    """A report that goes on until it is told to stop."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __call__(self, what: str, done: int, total: int) -> None:
        if self.asked.is_set():
            raise CancelledError


def cancel(folder: Path) -> Iterator[Result]:
    """From the wish to stop until the work has ended."""
    many = folder / "cancel.safetensors"
    write_file(many, dict.fromkeys(expert_names(1_000_000), (4,)))
    parsed = tuple(_cancelled(lambda stop: open_checkpoint(many, report=stop)) for _ in range(ROUNDS))
    yield Result("cancel while a header of 1,000,000 tensors is parsed", parsed, "ms", 200)
    large = folder / "large.safetensors"
    write_file(large, {"w": (200_000, 40_000)}, "F32")
    with open_checkpoint(large) as checkpoint:
        checked = tuple(_cancelled(lambda stop: check(checkpoint, values=True, report=stop)) for _ in range(ROUNDS))
        yield Result("cancel while every value of 32 GB is checked", checked, "ms", 200)


def _cancelled(work: Callable[[_Stop], object]) -> float:
    """Run work in a thread, ask it to stop after half a second, and return the milliseconds until it has ended."""
    stop = _Stop()
    ended: list[float] = []

    def run() -> None:
        try:
            work(stop)
        except CancelledError:
            ended.append(time.perf_counter())

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.5)
    asked = time.perf_counter()
    stop.asked.set()
    thread.join()
    assert ended, "it ended before it was asked to: make it longer"
    return 1000 * (ended[0] - asked)
