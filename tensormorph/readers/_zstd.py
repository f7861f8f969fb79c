"""A run of bytes that is one zstd frame: read by what comes out of it, in bounded memory.

A frame has no index. A small one is kept as it came out; of a large one the ends are kept, and a read inside goes on
from where the last one stopped, or begins anew.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from tensormorph.errors import CorruptFileError, LimitError, TruncatedFileError
from tensormorph.readers._bytes import Bytes
from tensormorph.text import count

KEPT_BYTES = 32 << 20
"""A frame that gives at most so many bytes is kept whole."""
END_BYTES = 128 << 10
MOST_BYTES = 1 << 40
_CHUNK = 256 << 10


@dataclass(slots=True, eq=False)
class ZstdBytes:
    """What a zstd frame gives, as bytes. Nothing is read before the first use.

    Reading raises CorruptFileError where the frame is damaged, and as the reads of `data`.
    """

    data: Bytes
    most: int = MOST_BYTES
    _n_bytes: int = -1
    _whole: bytes = b""
    _tail: bytes = b""
    _stream: Any = None
    _at: int = 0
    _in_at: int = 0
    _pending: bytes = b""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def start(self) -> int:
        """Where the frame begins in the file: no element has a byte of its own there."""
        return self.data.start

    @property
    def compression(self) -> str:
        return "zstd"

    @property
    def n_bytes(self) -> int:
        """Bytes that come out: known when all have come out once.

        Raises
        ------
        LimitError
            If they are more than `most`.
        CorruptFileError, ReadError, ChangedOnDiskError
        """
        with self._lock:
            if self._n_bytes < 0:
                self._measure()
            return self._n_bytes

    def part(self, start: int, n_bytes: int) -> ZstdPart:
        """Return a run inside what comes out."""
        return ZstdPart(self, start, n_bytes)

    def read(self, offset: int, n_bytes: int) -> bytearray:
        """Return `n_bytes` from `offset` on."""
        if n_bytes < 0 or offset < 0 or offset + n_bytes > self.n_bytes:
            raise TruncatedFileError(self.name, offset + n_bytes, self.n_bytes)
        out = bytearray(n_bytes)
        self.read_into(offset, memoryview(out))
        return out

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from `offset` of what comes out."""
        end = offset + len(buffer)
        with self._lock:
            total = self.n_bytes
            if offset < 0 or end > total:
                raise TruncatedFileError(self.name, end, total)
            if len(self._whole) == total:
                buffer[:] = self._whole[offset:end]
            elif offset >= total - len(self._tail):
                first = total - len(self._tail)
                buffer[:] = self._tail[offset - first : end - first]
            else:
                self._read_on(offset, buffer)

    def _measure(self) -> None:
        self._restart()
        parts: list[bytes] = []
        tail = b""
        total = 0
        while produced := self._next():
            total += len(produced)
            if total > self.most:
                raise LimitError(self.name, "What a zstd frame gives", total, self.most, "zstd_bytes")
            if total <= KEPT_BYTES:
                parts.append(produced)
            else:
                parts.clear()
            tail = (tail + produced)[-END_BYTES:]
        self._whole = b"".join(parts) if total <= KEPT_BYTES else b""
        self._tail = tail
        self._n_bytes = total
        self._restart()

    def _restart(self) -> None:
        import zstandard  # a millisecond, and only one format in a hundred needs it

        self._stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self._at, self._in_at, self._pending = 0, 0, b""

    def _next(self) -> bytes:
        """Return the next bytes that come out; none at the end of the frame."""
        import zstandard

        while True:
            n = min(_CHUNK, self.data.n_bytes - self._in_at)
            if self._stream.eof:
                return b""
            if not n:
                raise CorruptFileError(self.name, "A zstd frame breaks off", self.data.start + self._in_at)
            try:
                produced: bytes = self._stream.decompress(bytes(self.data.read(self._in_at, n)))
            except zstandard.ZstdError as error:
                raise CorruptFileError(
                    self.name, f"A zstd frame is damaged ({error})", self.data.start + self._in_at
                ) from None
            self._in_at += n
            if produced:
                return produced

    def _read_on(self, offset: int, buffer: memoryview) -> None:
        if offset < self._at - len(self._pending):
            self._restart()
        done = 0
        while done < len(buffer):
            first = self._at - len(self._pending)
            low, high = max(offset, first), min(offset + len(buffer), self._at)
            if low < high:
                buffer[low - offset : high - offset] = self._pending[low - first : high - first]
                done = high - offset
            if done < len(buffer):
                self._pending = self._next()
                if not self._pending:
                    raise CorruptFileError(self.name, f"A zstd frame ends after {count(self._at)} bytes this time")
                self._at += len(self._pending)


@dataclass(frozen=True, slots=True, eq=False)
class ZstdPart:
    """A run inside what a frame gives."""

    frame: ZstdBytes
    first: int
    n_bytes: int

    @property
    def name(self) -> str:
        return self.frame.name

    @property
    def start(self) -> int:
        return self.frame.start

    @property
    def compression(self) -> str:
        return "zstd"

    def read(self, offset: int, n_bytes: int) -> bytearray:
        """Return `n_bytes` from `offset` on. Raises as ZstdBytes.read."""
        if n_bytes < 0 or offset < 0 or offset + n_bytes > self.n_bytes:
            raise TruncatedFileError(self.name, offset + n_bytes, self.n_bytes)
        return self.frame.read(self.first + offset, n_bytes)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from `offset` on."""
        if offset < 0 or offset + len(buffer) > self.n_bytes:
            raise TruncatedFileError(self.name, offset + len(buffer), self.n_bytes)
        self.frame.read_into(self.first + offset, buffer)

    def part(self, start: int, n_bytes: int) -> ZstdPart:
        """Return a run inside this one."""
        return ZstdPart(self.frame, self.first + start, n_bytes)
