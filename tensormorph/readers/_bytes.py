"""Bounds-checked reading of byte ranges.

Files are read by pread into our own buffers. They are never mapped: a file that a job truncates under a mapping kills
the process with SIGBUS, which nothing can catch, while pread returns short.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tensormorph.errors import ChangedOnDiskError, ReadError, TruncatedFileError
from tensormorph.readers._target import open_regular, os_words

MAX_OPEN = 128


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells whether a file is still the one that was opened."""

    device: int
    inode: int
    n_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, state: os.stat_result) -> FileIdentity:
        return cls(state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)

    def difference(self, now: FileIdentity) -> str:
        """Return in words what changed, or an empty text."""
        if (self.device, self.inode) != (now.device, now.inode):
            return "it was replaced by another file"
        if self.n_bytes != now.n_bytes:
            return f"it had {self.n_bytes:,} bytes and has {now.n_bytes:,}"
        if (self.mtime_ns, self.ctime_ns) != (now.mtime_ns, now.ctime_ns):
            return "it was written to, renamed or removed"
        return ""


@dataclass(slots=True)
class _Open:
    fd: int
    users: int
    lock: threading.Lock = field(default_factory=threading.Lock)


class FilePool:
    """Descriptors of a checkpoint's files: at most MAX_OPEN at once, opened again when needed.

    A file opened again, and every file after every read, must still have the identity of its first opening.
    """

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, _Open] = OrderedDict()
        self._identities: dict[Path, FileIdentity] = {}
        self.bytes_read = 0
        self.opened = 0

    def identity(self, path: Path) -> FileIdentity:
        """Return the identity of a file at its first opening, opening it if need be."""
        known = self._identities.get(path)
        if known is None:
            with self._borrow(path):
                known = self._identities[path]
        return known

    def read_into(self, path: Path, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset` on.

        Raises
        ------
        TruncatedFileError
            If the file, as it was opened, ends before.
        ChangedOnDiskError
            If the file is no longer the one that was opened; what was read of it is void.
        ReadError
            If the operating system refuses or breaks off.
        """
        known = self.identity(path)
        if offset < 0 or offset + len(buffer) > known.n_bytes:
            raise TruncatedFileError(str(path), offset + len(buffer), known.n_bytes)
        with self._borrow(path) as item:
            try:
                n = _read_at(item, offset, buffer)
                now = FileIdentity.of(os.fstat(item.fd))
            except OSError as error:
                raise ReadError(str(path), os_words(error)) from error
        with self._lock:
            self.bytes_read += n
        changed = known.difference(now)
        if changed:
            raise ChangedOnDiskError(str(path), changed)
        if n < len(buffer):
            raise ReadError(str(path), f"{n:,} of {len(buffer):,} bytes came, without an error")

    def changed(self) -> list[Path]:
        """Return the files whose path no longer leads to what was opened."""
        out: list[Path] = []
        for path, known in list(self._identities.items()):
            try:
                same = FileIdentity.of(os.stat(path)) == known
            except (OSError, ValueError):
                same = False
            if not same:
                out.append(path)
        return out

    def close(self) -> None:
        """Close every descriptor that no read is using; the others close when their read ends."""
        with self._lock:
            for path in [p for p, item in self._open.items() if not item.users]:
                os.close(self._open.pop(path).fd)
            self._limit = 0

    @contextmanager
    def _borrow(self, path: Path) -> Iterator[_Open]:
        with self._lock:
            item = self._open.get(path)
            if item is not None:
                item.users += 1
                self._open.move_to_end(path)
        if item is None:
            item = self._add(path)
        try:
            yield item
        finally:
            with self._lock:
                item.users -= 1
                self._evict()

    def _add(self, path: Path) -> _Open:
        fd = open_regular(path)  # outside the lock: on a slow disk this may take long
        now = FileIdentity.of(os.fstat(fd))
        with self._lock:
            self.opened += 1
            known = self._identities.setdefault(path, now)
            other = self._open.get(path)
            if other is None and known == now:
                self._open[path] = other = _Open(fd, 1)
                return other
            os.close(fd)
            if other is not None:
                other.users += 1
                return other
        raise ChangedOnDiskError(str(path), known.difference(now))

    def _evict(self) -> None:
        while len(self._open) > self._limit:
            idle = next((p for p, item in self._open.items() if not item.users), None)
            if idle is None:
                return
            os.close(self._open.pop(idle).fd)


@contextmanager
def pool_of_a_checkpoint() -> Iterator[FilePool]:
    """Give the pool that a checkpoint keeps for as long as it is open; closed here only if opening fails."""
    pool = FilePool()
    try:
        yield pool
    except BaseException:
        pool.close()
        raise


# One read moves at most 2,147,479,552 bytes on Linux; smaller steps also let a changed file be noticed early.
_STEP = 1 << 30


def _read_at(item: _Open, offset: int, buffer: memoryview) -> int:
    done = 0
    while done < len(buffer):
        n = _read_step(item, offset + done, buffer[done : done + _STEP])
        if n == 0:
            break
        done += n
    return done


def _preadv(item: _Open, offset: int, buffer: memoryview) -> int:
    return os.preadv(item.fd, [buffer], offset)


def _seek_and_read(item: _Open, offset: int, buffer: memoryview) -> int:
    """The way for systems without preadv (Windows): the file position is shared, so one read at a time."""
    with item.lock:
        os.lseek(item.fd, offset, os.SEEK_SET)
        data = os.read(item.fd, len(buffer))
    buffer[: len(data)] = data
    return len(data)


_read_step = _preadv if hasattr(os, "preadv") else _seek_and_read


class Bytes(Protocol):
    """A run of bytes that some file holds, plain or packed: what arrays of elements lie in.

    `start` is its first byte in the file `name`, `compression` the packing, or None where each byte has a place of
    its own there. Reading raises as FilePool.read_into.
    """

    @property
    def name(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def compression(self) -> str | None: ...
    def read_into(self, offset: int, buffer: memoryview) -> None: ...
    def read(self, offset: int, n_bytes: int) -> bytearray: ...


class Extent(Bytes, Protocol):
    """Bytes of which a part is bytes again: what an archive lies in."""

    def part(self, start: int, n_bytes: int) -> Bytes: ...


@dataclass(frozen=True, slots=True, eq=False)
class ByteSource:
    """A run of bytes in a file: the file itself, or an uncompressed member of an archive.

    Fields
    ------
    path, name
        Where it is on disk, and its name relative to the checkpoint's root.
    start, n_bytes
        Where the run lies in the file.
    """

    pool: FilePool
    path: Path
    name: str
    start: int
    n_bytes: int

    @property
    def compression(self) -> None:
        return None

    def part(self, start: int, n_bytes: int) -> ByteSource:
        """Return a run inside this one, by its place in this one."""
        return ByteSource(self.pool, self.path, self.name, self.start + start, n_bytes)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from `offset` of this run on. Raises as FilePool.read_into."""
        if offset < 0 or offset + len(buffer) > self.n_bytes:
            raise TruncatedFileError(self.name, offset + len(buffer), self.n_bytes, "the bytes asked for")
        self.pool.read_into(self.path, self.start + offset, buffer)

    def read(self, offset: int, n_bytes: int) -> bytearray:
        """Return `n_bytes` from `offset` on. The length is checked before anything of that size is made."""
        if n_bytes < 0 or offset < 0 or offset + n_bytes > self.n_bytes:
            raise TruncatedFileError(self.name, offset + n_bytes, self.n_bytes)
        out = bytearray(n_bytes)
        self.pool.read_into(self.path, self.start + offset, memoryview(out))
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A run of bytes whose beginning and end are kept once read: an archive is looked into there many times.

    A part of it is read from where the run itself lies, so nothing that was kept is ever shown as data.

    Fields
    ------
    head, tail
        Its first and last bytes; if `head` is as long as the run, `tail` is empty.
    """

    source: Extent
    head: bytes
    tail: bytes

    @classmethod
    def over(cls, source: Extent, whole: int, head: int, tail: int) -> Window:
        """Read the ends of `source`, or all of it in one go if it has at most `whole` bytes. Raises as its reads."""
        n = source.n_bytes
        if n <= max(whole, head + tail):
            return cls(source, bytes(source.read(0, n)), b"")
        return cls(source, bytes(source.read(0, head)), bytes(source.read(n - tail, tail)))

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def start(self) -> int:
        return self.source.start

    @property
    def n_bytes(self) -> int:
        return self.source.n_bytes

    @property
    def compression(self) -> str | None:
        return self.source.compression

    def part(self, start: int, n_bytes: int) -> Bytes:
        """Return a run inside this one, by its place in this one."""
        return self.source.part(start, n_bytes)

    def read(self, offset: int, n_bytes: int) -> bytearray:
        """Return `n_bytes` from `offset` on. Raises as the source's `read`."""
        if offset >= 0 and n_bytes >= 0 and offset + n_bytes <= len(self.head):
            return bytearray(self.head[offset : offset + n_bytes])
        first = self.n_bytes - len(self.tail)
        if first <= offset and n_bytes >= 0 and offset + n_bytes <= self.n_bytes:
            return bytearray(self.tail[offset - first : offset - first + n_bytes])
        return self.source.read(offset, n_bytes)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from `offset` on. Raises as the source's `read`."""
        buffer[:] = self.read(offset, len(buffer))
