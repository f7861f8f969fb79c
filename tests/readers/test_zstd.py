"""A zstd frame as bytes: any run of it, in bounded memory, and damage by name."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zstandard

from tensormorph.errors import CorruptFileError, LimitError, TruncatedFileError
from tensormorph.readers import _zstd
from tensormorph.readers._bytes import ByteSource, FilePool
from tensormorph.readers._zstd import ZstdBytes

DATA = np.random.default_rng(7).integers(0, 50, 3_000_000).astype(np.uint8).tobytes()


@pytest.fixture(params=["kept whole", "streamed"])
def frame(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ZstdBytes:
    if request.param == "streamed":
        monkeypatch.setattr(_zstd, "KEPT_BYTES", 100_000)
    return opened(tmp_path, b"before" + zstandard.compress(DATA) + b"behind", 6, 6)


def opened(folder: Path, raw: bytes, before: int = 0, behind: int = 0, most: int = 1 << 40) -> ZstdBytes:
    path = folder / "item"
    path.write_bytes(raw)
    source = ByteSource(FilePool(), path, "item", before, len(raw) - before - behind)
    return ZstdBytes(source, most)


def test_any_run_equals_what_was_compressed(frame: ZstdBytes) -> None:
    rng = np.random.default_rng(1)
    assert frame.n_bytes == len(DATA)
    assert (frame.compression, frame.start) == ("zstd", 6)
    for _ in range(60):
        at = int(rng.integers(0, len(DATA)))
        n = int(rng.integers(0, min(400_000, len(DATA) - at) + 1))
        assert bytes(frame.read(at, n)) == DATA[at : at + n]
    part = frame.part(1000, 50_000).part(10, 100)
    assert bytes(part.read(5, 20)) == DATA[1015:1035]
    buffer = bytearray(30)
    part.read_into(1, memoryview(buffer))
    assert bytes(buffer) == DATA[1011:1041]


def test_reads_beyond_the_end_are_refused(frame: ZstdBytes) -> None:
    for offset, n in ((len(DATA), 1), (0, len(DATA) + 1), (-1, 2), (5, -1)):
        with pytest.raises(TruncatedFileError):
            frame.read(offset, n)
    with pytest.raises(TruncatedFileError):
        frame.part(0, 10).read(5, 6)
    with pytest.raises(TruncatedFileError):
        frame.part(0, 10).read_into(8, memoryview(bytearray(3)))


def test_several_threads_read_the_same_frame(frame: ZstdBytes) -> None:
    rng = np.random.default_rng(3)
    spans = [(int(a), int(n)) for a, n in zip(rng.integers(0, 2_900_000, 40), rng.integers(1, 90_000, 40), strict=True)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda span: bytes(frame.read(*span)), spans))
    assert found == [DATA[at : at + n] for at, n in spans]


def test_a_frame_cut_short_or_damaged_is_told_with_its_byte(tmp_path: Path) -> None:
    raw = zstandard.ZstdCompressor(write_checksum=True).compress(DATA)
    with pytest.raises(CorruptFileError, match="breaks off"):
        opened(tmp_path, raw[: len(raw) // 2]).read(0, 1)
    damaged = bytearray(raw)
    damaged[len(raw) // 2] ^= 0xFF
    with pytest.raises(CorruptFileError, match="damaged"):
        opened(tmp_path, bytes(damaged)).read(0, 1)
    with pytest.raises(CorruptFileError, match="damaged"):
        opened(tmp_path, os.urandom(500)).read(0, 1)


def test_a_bomb_ends_at_the_limit(tmp_path: Path) -> None:
    with pytest.raises(LimitError):
        opened(tmp_path, zstandard.compress(bytes(50_000_000)), most=1_000_000).read(0, 1)
