"""The zip directory and inflated records: Python's zipfile writes, and is the oracle where it agrees with torch."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensormorph.errors import CorruptFileError, TensormorphError, TruncatedFileError
from tensormorph.readers._bytes import ByteSource, FilePool
from tensormorph.readers._zip import InflatedBytes, ZipArchive, read_directory
from tests import hostile_inputs


def opened(path: Path, data: bytes, start: int = 0, n_bytes: int | None = None) -> ZipArchive:
    path.write_bytes(data)
    pool = FilePool()
    size = pool.identity(path).n_bytes
    return read_directory(ByteSource(pool, path, path.name, start, size - start if n_bytes is None else n_bytes))


def archive(records: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # equal names are meant
        with zipfile.ZipFile(out, "w", method) as stream:
            for name, data in records:
                stream.writestr(name, data)
            stream.comment = comment
    return out.getvalue()


def content(found: ZipArchive, row: int) -> bytes:
    record = found.open(row)
    return bytes(record.read(0, record.n_bytes))


RECORDS = [("a/data.pkl", b"one"), ("a/data/0", bytes(range(256))), ("a/é", b""), ("a/version", b"3\n")]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("comment", [b"", b"a comment", b"PK\x05\x06 inside"])
def test_records_read_as_zipfile_wrote_them(tmp_path: Path, method: int, comment: bytes) -> None:
    if comment.startswith(b"PK"):
        comment = comment[2:]
    found = opened(tmp_path / "a.zip", archive(RECORDS, method, comment))
    assert [found.text(i) for i in range(4)] == [name for name, _ in RECORDS]
    assert [content(found, i) for i in range(4)] == [data for _, data in RECORDS]
    assert not found.problems


def test_an_archive_inside_a_larger_file_reads_within_its_run(tmp_path: Path) -> None:
    data = archive(RECORDS)
    found = opened(tmp_path / "items.distcp", b"before" + data + archive([("other", b"x")]), 6, len(data))
    assert [content(found, i) for i in range(4)] == [d for _, d in RECORDS]
    assert not found.problems


def test_bytes_before_and_behind_are_told_and_do_not_move_records(tmp_path: Path) -> None:
    found = opened(tmp_path / "a.zip", b"#!/bin/sh\n" + archive(RECORDS) + b"tail")
    assert {p.code for p in found.problems} == {"bytes-before-archive", "bytes-behind-archive"}
    assert [content(found, i) for i in range(4)] == [d for _, d in RECORDS]


def test_of_two_equal_names_the_first_counts_as_in_torch(tmp_path: Path) -> None:
    found = opened(tmp_path / "a.zip", archive([("a/x", b"first"), ("a/x", b"last")]))
    assert content(found, found.first[b"a/x"]) == b"first"
    assert [p.code for p in found.problems] == ["record-twice"]


def test_zip64_sizes_offsets_and_counts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "large.zip"
    with path.open("wb") as stream:
        stream.truncate(5 << 30)  # sparse: a first record of 5 GB
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as many:
        for i in range(70_000):
            many.writestr(f"data/{i}", b"")
    pool = FilePool()
    found = read_directory(
        ByteSource(pool, tmp_path / "many.zip", "many.zip", 0, pool.identity(tmp_path / "many.zip").n_bytes)
    )
    assert len(found.names) == 70_000
    assert found.text(69_999) == "data/69999"
    big = tmp_path / "big.zip"
    with zipfile.ZipFile(big, "w", allowZip64=True) as stream2, stream2.open("hole", "w", force_zip64=True) as record:
        record.write(b"x")
    found = read_directory(ByteSource(pool, big, "big.zip", 0, pool.identity(big).n_bytes))
    assert content(found, 0) == b"x"


def test_a_record_behind_four_gigabytes_is_found(tmp_path: Path) -> None:
    """The directory by struct: zip64 offset and size in the extra field, as torch writes them."""
    path = tmp_path / "far.zip"
    at = (4 << 30) + 64
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 45, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"n"
    extra = struct.pack("<2H3Q", 1, 24, 5, 5, at)
    ones = 0xFFFFFFFF
    fields = (45, 45, 0, 0, 0, 0, 0, ones, ones, 1, len(extra), 0, 0, 0, 0, ones)
    central = struct.pack("<4s6H3L5H2L", b"PK\1\2", *fields) + b"n" + extra
    body = local + b"hello"
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(central), at + len(body))
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, at + len(body) + len(central), 1)
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    with path.open("wb") as stream:
        stream.truncate(at)
        stream.seek(at)
        stream.write(body + central + end64 + locator + tail)
    pool = FilePool()
    found = read_directory(ByteSource(pool, path, "far.zip", 0, pool.identity(path).n_bytes))
    assert content(found, 0) == b"hello"
    assert pool.bytes_read < 100_000
    assert not found.problems


# ---------------------------------------------------------------- inflating


@pytest.fixture
def inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[InflatedBytes, bytes]:
    monkeypatch.setattr(InflatedBytes, "STEP", 50_000)
    monkeypatch.setattr(InflatedBytes, "CHUNK", 1000)
    rng = np.random.default_rng(1)
    data = rng.integers(0, 40, 700_000, dtype=np.uint8).tobytes() + bytes(200_000)
    found = opened(tmp_path / "a.zip", archive([("x", data)], zipfile.ZIP_DEFLATED)).open(0)
    assert isinstance(found, InflatedBytes)
    return found, data


def test_any_range_of_a_deflated_record_reads_in_any_order(inflated: tuple[InflatedBytes, bytes]) -> None:
    found, data = inflated
    rng = np.random.default_rng(2)
    for _ in range(60):
        at = int(rng.integers(0, len(data)))
        n = int(rng.integers(0, min(30_000, len(data) - at) + 1))
        assert bytes(found.read(at, n)) == data[at : at + n]
    assert bytes(found.read(0, len(data))) == data
    with pytest.raises(TruncatedFileError):
        found.read(len(data), 1)


def test_a_read_far_inside_begins_near_it(inflated: tuple[InflatedBytes, bytes]) -> None:
    found, data = inflated
    found.read(650_000, 10)
    data_source = found.data
    assert isinstance(data_source, ByteSource)
    pool = data_source.pool
    before = pool.bytes_read
    assert bytes(found.read(640_000, 10)) == data[640_000:640_010]
    assert pool.bytes_read - before < 60_000


def test_a_bomb_is_streamed_not_expanded(tmp_path: Path) -> None:
    n = 1 << 28
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as stream, stream.open("x", "w") as record:
        for _ in range(n >> 20):
            record.write(bytes(1 << 20))
    found = opened(tmp_path / "a.zip", out.getvalue()).open(0)
    assert found.n_bytes == n
    assert bytes(found.read(n - 5, 5)) == bytes(5)


def test_a_claim_that_deflate_cannot_hold_is_refused(tmp_path: Path) -> None:
    data = bytearray(archive([("x", b"abc" * 100)], zipfile.ZIP_DEFLATED))
    at = data.find(b"PK\1\2")
    struct.pack_into("<L", data, at + 24, 0x7FFFFFFF)
    with pytest.raises(CorruptFileError, match="more than DEFLATE can hold"):
        opened(tmp_path / "a.zip", bytes(data)).open(0)


def test_a_damaged_stream_is_an_error_with_its_byte(tmp_path: Path) -> None:
    data = bytearray(archive([("x", os.urandom(2000) + bytes(2000))], zipfile.ZIP_DEFLATED))
    start = 30 + 1
    for at in range(start, start + 1500, 7):
        data[at] ^= 0x5A
    record = opened(tmp_path / "a.zip", bytes(data)).open(0)
    try:
        read = bytes(record.read(0, 4000))
    except CorruptFileError:
        return
    assert len(read) == 4000  # a flip may hit literal bytes only: DEFLATE itself has no checksum


# ---------------------------------------------------------------- damage


def test_every_truncation_is_our_error_or_a_problem(tmp_path: Path) -> None:
    data = archive(RECORDS)
    for n in range(len(data)):
        with pytest.raises(TensormorphError):
            opened(tmp_path / "a.zip", data[:n])


def test_flipped_bytes_raise_nothing_but_our_errors(tmp_path: Path) -> None:
    data = archive(RECORDS, zipfile.ZIP_DEFLATED)
    for at in range(len(data)):
        for flip in (0x01, 0xFF):
            changed = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
            try:
                found = opened(tmp_path / "a.zip", changed)
                for row in range(len(found.names)):
                    content(found, row)
                    found.local_name(row)
            except TensormorphError:
                continue


@pytest.mark.parametrize("case", ["pt_zip64_lie", "pt_overlap_bomb", "pt_million_entries", "pt_local_offset_lie"])
def test_hostile_directories_end_in_time_and_bounds(case: str, tmp_path: Path) -> None:
    made: Any = hostile_inputs.CASES[case][1]
    path = made(tmp_path)[0]
    pool = FilePool()
    try:
        found = read_directory(ByteSource(pool, path, path.name, 0, pool.identity(path).n_bytes))
        for row in range(min(len(found.names), 100)):
            found.open(row)
    except TensormorphError:
        return
    assert len(found.names) >= 2000
