"""Byte ranges and strided elements: numpy is the oracle; the operating system's failures are made to happen."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensormorph import dtypes
from tensormorph.errors import (
    CannotOpenError,
    ChangedOnDiskError,
    NotRegularFileError,
    ReadError,
    TruncatedFileError,
    UnsupportedDtypeError,
)
from tensormorph.readers import _bytes, _strided
from tensormorph.readers._bytes import ByteSource, FilePool
from tensormorph.readers._strided import StridedBytes, row_major
from tensormorph.region import Region


def source(path: Path, data: bytes, pool: FilePool | None = None) -> ByteSource:
    path.write_bytes(data)
    pool = pool or FilePool()
    return ByteSource(pool, path, path.name, 0, pool.identity(path).n_bytes)


def strided(folder: Path, array: NDArray[Any]) -> StridedBytes:
    """Return the strided source over the base memory of an array view, strides, order and all."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    first = (array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // array.itemsize
    strides = tuple(s // array.itemsize for s in array.strides)
    encoding = dtypes.encoding(array.dtype.newbyteorder("=").name)
    if array.dtype.byteorder == ">":
        encoding = encoding.big_endian()
    return StridedBytes(source(folder / "data", base.tobytes()), 0, array.shape, strides, encoding, first)


VIEWS: dict[str, NDArray[Any]] = {
    "row major": np.arange(120, dtype=np.float32).reshape(4, 5, 6),
    "transposed": np.arange(120, dtype=np.float32).reshape(4, 5, 6).T,
    "channels last": np.arange(54, dtype=np.int16).reshape(2, 3, 3, 3).transpose(0, 3, 1, 2),
    "every other": np.arange(240, dtype=np.int64).reshape(8, 30)[1::2, 3:20:4],
    "column slice": np.arange(600, dtype=np.uint8).reshape(20, 30)[:, 7:9],
    "big-endian": np.arange(30, dtype=">f8").reshape(5, 6),
    "big-endian transposed": np.arange(30, dtype=">u4").reshape(5, 6).T,
    "scalar": np.array(7.5),
    "empty": np.empty((3, 0, 2), np.float32),
    "bfloat16": np.arange(24).astype(ml_dtypes.bfloat16).reshape(6, 4)[::2],
}


@pytest.mark.parametrize("name", VIEWS)
def test_every_region_of_every_stride_equals_numpy(name: str, tmp_path: Path) -> None:
    array = VIEWS[name]
    found = strided(tmp_path, array)
    assert found.dtype == array.dtype.newbyteorder("=")
    regions = [Region((), ())]
    for extent in array.shape:
        pairs = [(a, b) for a in range(extent + 1) for b in {a, min(a + 1, extent), extent} if b >= a]
        regions = [Region((*r.start, a), (*r.stop, b)) for r in regions for a, b in pairs[:: 1 + len(pairs) // 9]]
    for region in regions:
        out = np.full(region.shape, 99).astype(found.dtype)
        found.read_into(region, out)
        assert out.tobytes() == array[region.slices()].astype(found.dtype).tobytes()
        pieces = list(found.pieces(region, 24))
        seen = np.zeros(array.shape, int)
        for piece in pieces:
            seen[piece.region.slices()] += 1
        assert (seen[region.slices()] == 1).all()
        assert seen.sum() == region.size


@pytest.mark.parametrize("gap", [0, 8, 1 << 30])
@pytest.mark.parametrize("window", [16, 4 << 20])
@pytest.mark.parametrize("name", ["transposed", "every other", "column slice", "row major", "big-endian transposed"])
def test_however_runs_are_merged_into_reads_the_values_are_the_same(
    name: str, gap: int, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_strided, "GAP_BYTES", gap)
    monkeypatch.setattr(_strided, "WINDOW_BYTES", window)
    array = VIEWS[name]
    out = np.empty(array.shape, array.dtype.newbyteorder("="))
    strided(tmp_path, array).read_into(Region.whole(array.shape), out)
    np.testing.assert_array_equal(out, array)


@given(st.data())
def test_any_region_of_nibbles_equals_the_unpacked_array(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 7))
    n = rows * columns
    codes = np.arange(n + n % 2, dtype=np.uint8) * 7 % 16
    packed = (codes[0::2] | codes[1::2] << 4).astype(np.uint8)
    whole = codes[:n].view(ml_dtypes.float4_e2m1fn).reshape(rows, columns)
    start = data.draw(st.tuples(st.integers(0, rows), st.integers(0, columns)))
    stop = (data.draw(st.integers(start[0], rows)), data.draw(st.integers(start[1], columns)))
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"tensormorph-nibbles-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    found = StridedBytes(source(folder / "data", packed.tobytes()), 0, (rows, columns), row_major((rows, columns)),
                         dtypes.encoding("float4_e2m1fn"))  # fmt: skip
    region = Region(start, stop)
    out = np.empty(region.shape, found.dtype)
    found.read_into(region, out)
    assert out.tobytes() == whole[region.slices()].tobytes()


def test_a_column_of_a_wide_matrix_reads_windows_and_little_scratch(tmp_path: Path) -> None:
    array = np.arange(3000 * 1024, dtype=np.float32).reshape(3000, 1024)
    found = strided(tmp_path, array)
    assert isinstance(found.data, ByteSource)
    pool = found.data.pool
    out = np.empty((3000, 1), np.float32)
    before = pool.bytes_read
    found.read_into(Region((0, 9), (3000, 10)), out)
    np.testing.assert_array_equal(out[:, 0], array[:, 9])
    told = sum(p.nbytes for p in found.pieces(Region((0, 9), (3000, 10)), 1 << 40))
    read = pool.bytes_read - before
    assert read <= array.nbytes
    assert abs(told - read) <= array.nbytes // 100


def test_rows_far_apart_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 50 << 30)
    pool = FilePool()
    data = ByteSource(pool, path, "sparse", 0, pool.identity(path).n_bytes)
    found = StridedBytes(data, 0, (50, 1 << 28), row_major((50, 1 << 28)), dtypes.encoding("float32"))
    out = np.full((50, 3), 5, np.float32)
    found.read_into(Region((0, 1000), (50, 1003)), out)
    assert (out == 0).all()
    assert pool.bytes_read == 50 * 12
    assert sum(p.nbytes for p in found.pieces(Region((0, 1000), (50, 1003)), 1 << 20)) == 50 * 12


def test_r117_the_last_element_behind_two_gigabytes_is_right(tmp_path: Path) -> None:
    path = tmp_path / "large"
    n = (1 << 31) + 8
    with path.open("wb") as stream:
        stream.truncate(n)
        stream.seek(n - 1)
        stream.write(b"\x7b")
    pool = FilePool()
    data = ByteSource(pool, path, "large", 0, n)
    found = StridedBytes(data, 0, (n,), (1,), dtypes.encoding("float8_e4m3fn"))
    out = np.empty(3, found.dtype)
    found.read_into(Region((n - 3,), (n,)), out)
    assert out.view(np.uint8).tolist() == [0, 0, 0x7B]
    assert found.bit_of((n - 1,)) == 8 * (n - 1)


def test_elements_outside_the_bytes_are_our_bug_and_raise(tmp_path: Path) -> None:
    data = source(tmp_path / "data", bytes(16))
    with pytest.raises(ValueError, match="end at byte 20 of 16"):
        StridedBytes(data, 0, (5,), (1,), dtypes.encoding("float32"))
    with pytest.raises(ValueError, match="strides"):
        StridedBytes(data, 0, (2,), (-1,), dtypes.encoding("float32"))
    found = StridedBytes(data, 0, (2,), (1,), dtypes.encoding("float6_e2m3fn"))
    with pytest.raises(UnsupportedDtypeError):
        found.read_into(Region((0,), (2,)), np.empty(2))


# ---------------------------------------------------------------- the pool


@pytest.fixture(params=["pread", "seek"])
def _how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of reading: preadv, and the locked seek that systems without it need."""
    if request.param == "seek":
        monkeypatch.setattr(_bytes, "_read_step", _bytes._seek_and_read)


@pytest.mark.usefixtures("_how")
def test_many_threads_read_the_right_bytes_through_few_descriptors(tmp_path: Path) -> None:
    pool = FilePool(limit=3)
    files = [source(tmp_path / f"f{i}", bytes([i]) * 1000 + bytes(range(200)), pool) for i in range(12)]
    wrong: list[int] = []
    most: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            i = int(rng.integers(len(files)))
            at = int(rng.integers(0, 1150))
            if files[i].read(at, 50) != (bytes([i]) * 1000 + bytes(range(200)))[at : at + 50]:
                wrong.append(i)
            most.append(len(pool._open))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert max(most) <= 3 + 6
    assert len(pool._open) <= 3
    pool.close()
    assert not pool._open


@pytest.mark.usefixtures("_how")
def test_a_range_past_the_end_is_refused_before_a_buffer_is_made(tmp_path: Path) -> None:
    data = source(tmp_path / "data", bytes(100))
    for offset, n in ((0, 101), (100, 1), (-1, 5), (50, 1 << 60)):
        with pytest.raises(TruncatedFileError):
            data.read(offset, n)
    assert data.read(100, 0) == b""


@pytest.mark.usefixtures("_how")
def test_a_file_cut_while_open_is_a_changed_file(tmp_path: Path) -> None:
    data = source(tmp_path / "data", bytes(100))
    os.truncate(tmp_path / "data", 50)
    with pytest.raises(ChangedOnDiskError, match="it had 100 bytes and has 50"):
        data.read(40, 20)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EIO, "input/output error"),
        (errno.ESTALE, "stale handle"),
        (errno.ETIMEDOUT, "did not answer in time"),
        (errno.ENOMEM, "cannot allocate memory"),
    ],
)
def test_a_failing_disk_is_a_sentence(number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = source(tmp_path / "data", bytes(100))

    def fail(item: Any, offset: int, buffer: memoryview) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_bytes, "_read_step", fail)
    with pytest.raises(ReadError, match=words):
        data.read(0, 10)


def test_short_reads_are_continued_and_an_early_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = source(tmp_path / "data", bytes(range(100)))
    whole = _bytes._preadv
    monkeypatch.setattr(_bytes, "_read_step", lambda item, at, buffer: whole(item, at, buffer[:7]))
    assert data.read(3, 90) == bytes(range(3, 93))
    monkeypatch.setattr(_bytes, "_read_step", lambda item, at, buffer: whole(item, at, buffer) if at < 50 else 0)
    with pytest.raises(ReadError, match="came, without an error"):
        data.read(60, 10)


def test_only_regular_files_open_and_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pool = FilePool()
    with pytest.raises(NotRegularFileError, match="a pipe"):
        pool.identity(tmp_path / "pipe")
    with pytest.raises(NotRegularFileError, match="a folder"):
        pool.identity(tmp_path)
    with pytest.raises(CannotOpenError, match="nothing at that path"):
        pool.identity(tmp_path / "absent")
