"""What every reader promises, as tests to inherit.

A reader's test module subclasses `ReaderContract` and gives samples, which it writes with the format's real writer or
with struct and numpy, never with code of ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tensormorph.errors import CancelledError, TensormorphError
from tensormorph.model import Checkpoint
from tensormorph.readers import READERS, _bytes, open_checkpoint
from tensormorph.readers._target import look
from tensormorph.region import Region

Arrays = Mapping[str, NDArray[Any]]

_OPEN_MANY = """
import json, resource, sys
def peak():
    # The process's own peak by the kernel's count of its memory map: rusage begins with what its parent had.
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
from tensormorph.readers import open_checkpoint, _bytes
pools = []
make = _bytes.FilePool.__init__
def watched(self, *arguments):
    make(self, *arguments)
    pools.append(self)
_bytes.FilePool.__init__ = watched
before = peak()
checkpoint = open_checkpoint(sys.argv[1])
print(json.dumps({
    "tensors": len(checkpoint), "read": sum(p.bytes_read for p in pools), "opened": sum(p.opened for p in pools),
    "rss": peak() - before,
    "child": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    "errors": [p.code for p in checkpoint.problems if p.severity == "error"],
}))
"""


class ReaderContract:
    """Inherit this, name the class Test..., and fill in the three methods."""

    reader: ClassVar[ModuleType]
    most_bytes_a_tensor: ClassVar[int] = 220
    """Bytes of metadata that one tensor of the large sample may cost to read."""
    most_memory: ClassVar[int] = 120 << 20
    """Bytes by which opening the large sample may raise this process's peak."""
    most_child_memory: ClassVar[int] = 250 << 20
    """Bytes of the helper's own peak, which counts what this process had when it started it."""

    def write(self, folder: Path, arrays: Arrays) -> Path:
        """Write a checkpoint of these arrays and return what a person would open."""
        raise NotImplementedError

    def write_many(self, folder: Path, n: int) -> Path:
        """Write a checkpoint of `n` small tensors cheaply and return its path."""
        raise NotImplementedError

    def siblings(self, folder: Path) -> list[Path]:
        """Write small samples of other formats and return them."""
        raise NotImplementedError

    def arrays(self) -> Arrays:
        """Return values in which every element differs, so that a misplaced one shows."""
        return {
            "layers.0.weight": np.arange(35, dtype=np.float32).reshape(5, 7),
            "layers.0.bias": np.arange(7, dtype=np.float64) + 0.5,
            "layers.10.weight": np.arange(24, dtype=np.int16).reshape(2, 3, 4) - 9,
            "layers.2.weight": np.arange(6, dtype=np.uint8).reshape(3, 2),
            "scale": np.array(3.5, np.float32),
            "empty": np.empty((0, 4), np.float32),
        }

    @pytest.fixture
    def sample(self, tmp_path: Path) -> Path:
        folder = tmp_path / "sample"
        folder.mkdir()
        return self.write(folder, self.arrays())

    # ------------------------------------------------------------ whose is it

    def test_it_claims_its_own_sample_with_evidence(self, sample: Path) -> None:
        claim = self.reader.sniff(look(sample))
        assert not isinstance(claim, str), claim
        assert claim.evidence

    def test_it_claims_no_sibling_and_says_why(self, tmp_path: Path) -> None:
        for path in self.siblings(tmp_path):
            answer = self.reader.sniff(look(path))
            assert isinstance(answer, str), f"{path.name} was claimed: {answer}"
            assert answer

    def test_no_other_reader_claims_its_sample(self, sample: Path) -> None:
        claimed = [m.NAME for m in READERS if not isinstance(m.sniff(look(sample)), str)]
        assert claimed == [self.reader.NAME]

    # ------------------------------------------------------------ values

    def test_every_tensor_has_its_name_shape_dtype_and_values(self, sample: Path) -> None:
        with open_checkpoint(sample) as checkpoint:
            assert set(checkpoint.tensors) == set(self.arrays())
            for name, array in self.arrays().items():
                tensor = checkpoint[name]
                assert (tensor.shape, tensor.dtype, tensor.complete) == (array.shape, array.dtype, True)
                np.testing.assert_array_equal(tensor.full()[...], array)

    def test_names_come_in_natural_order(self, sample: Path) -> None:
        with open_checkpoint(sample) as checkpoint:
            order = [name for name in checkpoint if name.endswith(".weight")]
        assert order == ["layers.0.weight", "layers.2.weight", "layers.10.weight"]

    def test_any_region_equals_numpy(self, sample: Path) -> None:
        with open_checkpoint(sample) as checkpoint:
            for name, array in self.arrays().items():
                for region in _regions(array.shape):
                    out = np.full(region.shape, 77, array.dtype)
                    checkpoint[name].read_into(region, out)
                    np.testing.assert_array_equal(out, array[region.slices()])

    def test_a_strided_target_is_filled_in_place(self, sample: Path) -> None:
        with open_checkpoint(sample) as checkpoint:
            array = self.arrays()["layers.0.weight"]
            wide = np.full((10, 14), -1, np.float32)
            checkpoint["layers.0.weight"].read_into(Region.whole(array.shape), wide[::2, ::2])
            np.testing.assert_array_equal(wide[::2, ::2], array)
            assert (wide[1::2] == -1).all()

    def test_pieces_partition_every_tensor_and_each_reads(self, sample: Path) -> None:
        with open_checkpoint(sample) as checkpoint:
            for name, array in self.arrays().items():
                seen = np.zeros(array.shape, int)
                for piece in checkpoint[name].pieces(Region.whole(array.shape), 16):
                    assert piece.problem is None
                    seen[piece.region.slices()] += 1
                    out = np.empty(piece.region.shape, array.dtype)
                    checkpoint[name].read_into(piece.region, out)
                    np.testing.assert_array_equal(out, array[piece.region.slices()])
                assert (seen == 1).all()

    def test_where_names_the_byte_of_each_element(self, sample: Path) -> None:
        with open_checkpoint(sample) as checkpoint:
            for name, array in self.arrays().items():
                for index in np.ndindex(array.shape):
                    for holder in checkpoint[name].where(index):
                        raw = (checkpoint.root / holder.file).read_bytes()
                        assert holder.offset is not None
                        value = np.frombuffer(raw, array.dtype, 1, holder.offset)[0]
                        assert value == array[index]
                        assert (holder.bit, holder.n_bytes) == (0, array.dtype.itemsize)

    def test_many_threads_read_the_right_values_at_once(self, sample: Path) -> None:
        wrong: list[str] = []
        with open_checkpoint(sample) as checkpoint:

            def work() -> None:
                for _ in range(20):
                    for name, array in self.arrays().items():
                        if not np.array_equal(checkpoint[name].full()[...], array):
                            wrong.append(name)

            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not wrong

    # ------------------------------------------------------------ behaviour

    def test_the_source_is_never_changed(self, sample: Path) -> None:
        before = _states(sample)
        with open_checkpoint(sample) as checkpoint:
            for tensor in checkpoint.tensors.values():
                tensor.full()[...]
        assert _states(sample) == before

    def test_closing_releases_every_file(self, sample: Path) -> None:
        before = _descriptors()
        checkpoint = open_checkpoint(sample)
        for tensor in checkpoint.tensors.values():
            tensor.full()[...]
        checkpoint.close()
        assert _descriptors() == before

    def test_a_failed_opening_releases_every_file(self, sample: Path) -> None:
        before = _descriptors()

        def stop(what: str, done: int, total: int) -> None:
            raise CancelledError

        with pytest.raises(CancelledError):
            open_checkpoint(sample, report=stop)
        assert _descriptors() == before

    def test_every_truncation_of_every_file_is_told_and_the_rest_reads(self, sample: Path) -> None:
        """A cut file either opens with a problem, or is refused in a sentence; what reads is right."""
        folder = sample if sample.is_dir() else sample.parent
        arrays = self.arrays()
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            whole = path.read_bytes()
            for length in _lengths(len(whole)):
                path.write_bytes(whole[:length])
                try:
                    checkpoint = open_checkpoint(sample)
                except TensormorphError:
                    continue
                with checkpoint:
                    _assert_nothing_wrong(checkpoint, arrays)
                    assert checkpoint.problems, f"{path.name} cut to {length} bytes opened without a word"
            path.write_bytes(whole)

    def test_no_flipped_byte_of_metadata_raises_anything_but_our_errors(self, sample: Path) -> None:
        folder = sample if sample.is_dir() else sample.parent
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            whole = path.read_bytes()
            for at in range(0, min(len(whole), 600), 3):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :])
                try:
                    checkpoint = open_checkpoint(sample)
                except TensormorphError:
                    continue
                with checkpoint:
                    for tensor in checkpoint.tensors.values():
                        if tensor.n_elements < 1000:
                            _read_or_our_error(tensor.full)
            path.write_bytes(whole)

    def test_a_hundred_thousand_tensors_cost_little(self, tmp_path: Path) -> None:
        n = 100_000
        path = self.write_many(tmp_path, n)
        done = subprocess.run(
            [sys.executable, "-c", _OPEN_MANY, str(path)], capture_output=True, text=True, check=True, timeout=100
        )
        told: dict[str, Any] = json.loads(done.stdout)
        assert (told["tensors"], told["errors"]) == (n, [])
        assert told["read"] <= n * self.most_bytes_a_tensor
        assert told["opened"] <= 4
        assert 0 < told["rss"] < self.most_memory
        assert told["child"] < self.most_child_memory

    def test_at_most_128_files_are_open_at_once(self) -> None:
        assert _bytes.MAX_OPEN == 128


def _regions(shape: tuple[int, ...]) -> list[Region]:
    """Return every box of a small shape, of a larger one those at its edges."""
    out = [Region((), ())]
    for extent in shape:
        ends = sorted({0, 1, extent // 2, extent - 1, extent} & set(range(extent + 1)))
        pairs = [(a, b) for a in ends for b in ends if a <= b]
        out = [Region((*r.start, a), (*r.stop, b)) for r in out for a, b in pairs]
    return out


def _lengths(n: int) -> list[int]:
    """Return every length below `n` that matters: all near the ends, a sample between."""
    return sorted({*range(min(n, 40)), *range(40, n, max(1, n // 60)), *range(max(0, n - 40), n)} - {n})


def _assert_nothing_wrong(checkpoint: Checkpoint, arrays: Arrays) -> None:
    for name, tensor in checkpoint.tensors.items():
        try:
            found = tensor.full()[...]
        except TensormorphError:
            continue
        if name in arrays:
            np.testing.assert_array_equal(found, arrays[name], err_msg=name)


def _read_or_our_error(full: Callable[[], Any]) -> None:
    with contextlib.suppress(TensormorphError):
        full()[...]


def _states(path: Path) -> dict[str, tuple[int, int, int, bytes]]:
    folder = path if path.is_dir() else path.parent
    return {
        str(p): (p.stat().st_ino, p.stat().st_mtime_ns, p.stat().st_mode, p.read_bytes())
        for p in folder.rglob("*") if p.is_file()
    }  # fmt: skip


def _descriptors() -> list[str]:
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        pytest.skip("needs /proc/self/fd to count open files")
    return sorted(os.path.realpath(f"{folder}/{fd}") for fd in os.listdir(folder) if os.path.exists(f"{folder}/{fd}"))
