"""A run of bytes whose ends are kept, and archives looked into through it: the whole run is the oracle."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensormorph.errors import CorruptFileError, TruncatedFileError
from tensormorph.readers._bytes import ByteSource, FilePool, Window
from tensormorph.readers._zip import read_directory

DATA = bytes(i * 7 % 251 for i in range(1000))


class CountingPool(FilePool):
    """Notes each read, by its place in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def read_into(self, path: Path, offset: int, buffer: memoryview) -> None:
        self.seen.append((offset, len(buffer)))
        super().read_into(path, offset, buffer)


def run_of(folder: Path, data: bytes, before: int = 0, behind: int = 0) -> tuple[ByteSource, CountingPool]:
    path = folder / "file"
    path.write_bytes(b"\xff" * before + data + b"\xee" * behind)
    pool = CountingPool()
    return ByteSource(pool, path, "file", before, len(data)), pool


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("window")


@given(st.integers(0, 1000), st.integers(0, 400), st.integers(0, 400), st.integers(0, 1200), st.integers(0, 1200))
def test_any_run_reads_as_from_the_source(
    folder: Path, whole: int, head: int, tail: int, offset: int, n_bytes: int
) -> None:
    source, _ = run_of(folder, DATA, before=13, behind=5)
    window = Window.over(source, whole, head, tail)
    assert (window.name, window.start, window.n_bytes, window.compression) == ("file", 13, 1000, None)
    if offset + n_bytes > len(DATA):
        with pytest.raises(TruncatedFileError):
            window.read(offset, n_bytes)
        return
    assert bytes(window.read(offset, n_bytes)) == DATA[offset : offset + n_bytes]
    buffer = bytearray(n_bytes)
    window.read_into(offset, memoryview(buffer))
    assert bytes(buffer) == DATA[offset : offset + n_bytes]
    part = window.part(offset, n_bytes)
    assert (part.start, bytes(part.read(0, n_bytes))) == (13 + offset, DATA[offset : offset + n_bytes])


@pytest.mark.parametrize(("offset", "n_bytes"), [(-1, 3), (0, -1), (990, -4), (1000, 1), (-5, 5)])
def test_what_is_no_run_in_it_is_refused(tmp_path: Path, offset: int, n_bytes: int) -> None:
    for whole, head, tail in ((2000, 0, 0), (0, 10, 10), (0, 0, 0)):
        source, _ = run_of(tmp_path, DATA)
        with pytest.raises(TruncatedFileError):
            Window.over(source, whole, head, tail).read(offset, n_bytes)


def test_the_ends_are_read_once_and_data_never_from_what_is_kept(tmp_path: Path) -> None:
    source, pool = run_of(tmp_path, DATA)
    window = Window.over(source, 100, 64, 32)
    assert pool.seen == [(0, 64), (968, 32)]
    for offset, n_bytes in ((0, 64), (3, 5), (968, 32), (999, 1), (1000, 0)):
        window.read(offset, n_bytes)
    assert len(pool.seen) == 2
    window.read(60, 5)  # half in the head
    window.read(960, 20)  # half in the tail
    window.part(0, 8).read(0, 8)
    assert pool.seen[2:] == [(60, 5), (960, 20), (0, 8)]


def test_a_small_run_is_read_in_one_go(tmp_path: Path) -> None:
    source, pool = run_of(tmp_path, DATA)
    window = Window.over(source, 1000, 64, 32)
    assert bytes(window.read(100, 800)) == DATA[100:900]
    assert pool.seen == [(0, 1000)]


# ---------------------------------------------------------------- an item's directory


def item(values: torch.Tensor) -> bytes:
    stream = io.BytesIO()
    torch.save(values, stream)
    return stream.getvalue()


SMALL, LARGE = item(torch.arange(6)), item(torch.arange(9000))


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_the_directory_of_an_item_costs_its_end_alone(tmp_path: Path, data: bytes) -> None:
    source, pool = run_of(tmp_path, data, before=77, behind=1)
    archive = read_directory(source)
    assert b"archive/data.pkl" in archive.names
    assert archive.problems == []
    assert all(n_bytes < 1000 for _, n_bytes in pool.seen)
    pool.seen.clear()
    same = read_directory(Window.over(source, 16 << 10, 4 << 10, 4 << 10))
    assert same.names == archive.names
    assert len(pool.seen) == (1 if len(data) <= 16 << 10 else 2)


@pytest.mark.parametrize("behind", [b"\0", b"\0\0", b"PK", bytes(22), b"x" * 300, b"PK\x05\x06", b"y" * 60_000])
def test_bytes_behind_an_archive_are_told_and_its_records_are_found(tmp_path: Path, behind: bytes) -> None:
    source, _ = run_of(tmp_path, SMALL + behind)
    if behind == b"PK\x05\x06":
        with pytest.raises(CorruptFileError):  # the last end record decides, as it does for torch
            read_directory(source)
        return
    archive = read_directory(source)
    (problem,) = archive.problems
    assert (problem.code, problem.byte_range) == ("bytes-behind-archive", (len(SMALL), len(SMALL + behind)))
    assert {n for n in archive.names if n.endswith(b"/0")} == {b"archive/data/0"}


@pytest.mark.parametrize("cut", [1, 2, 21, 22, 23, 60, 98, 99, 200, 700])
def test_an_item_cut_short_has_no_directory(tmp_path: Path, cut: int) -> None:
    source, _ = run_of(tmp_path, SMALL[:-cut])
    with pytest.raises(CorruptFileError):
        read_directory(source)


@pytest.mark.parametrize("length", range(1, 30))
def test_a_run_shorter_than_an_end_record_is_no_archive(tmp_path: Path, length: int) -> None:
    for data in (SMALL[-length:], bytes(length), (b"PK\x05\x06" + bytes(30))[: min(length, 21)]):
        source, _ = run_of(tmp_path, data)
        with pytest.raises(CorruptFileError):
            read_directory(source)


def test_an_end_record_alone_is_an_archive_of_no_records(tmp_path: Path) -> None:
    source, _ = run_of(tmp_path, b"PK\x05\x06" + bytes(18))
    assert read_directory(source).names == []
