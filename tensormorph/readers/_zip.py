"""The directory of a zip archive, parsed by us, as torch reads it and where it lies in a larger file.

Of two records of one name torch takes the first (Python's zipfile the last); it ignores encryption bits and local
sizes; its archives may be items inside another file. Source: PKZIP APPNOTE 6.3.10, 4.3 and 4.4; miniz in
caffe2/serialize/inline_container.cc.
"""

from __future__ import annotations

import struct
import threading
import zlib
from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensormorph.errors import CorruptFileError, LimitError, Problem, TruncatedFileError
from tensormorph.readers._bytes import Bytes, Extent
from tensormorph.text import count, listing, plural, printable

_END = b"PK\x05\x06"
_END64 = b"PK\x06\x06"
_LOCATOR64 = b"PK\x06\x07"
_CENTRAL = struct.Struct("<4s6xH4x3L3H8xL")
_LOCAL = struct.Struct("<4s5H3L2H")
_COMMENT_BYTES = 0xFFFF
DIRECTORY_BYTES = 1 << 30
"""Largest directory that is read: room for some ten million records."""
INFLATE_RATIO = 1032
"""DEFLATE cannot expand by more than this: a record that claims more lies."""
STORED, DEFLATED = 0, 8
Longs = NDArray[np.int64]


@dataclass(slots=True)
class ZipArchive:
    """The records of an archive as columns, in the order of the directory.

    Fields
    ------
    source
        The run of bytes that holds the archive.
    names
        As stored, undecoded.
    header
        Position of each record's local header in `source`.
    packed, size
        Bytes as stored and as they come out.
    first
        Name -> row; of two equal names the first, as torch takes it.
    """

    source: Extent
    names: list[bytes]
    header: Longs
    packed: Longs
    size: Longs
    crc: Longs
    method: Longs
    first: dict[bytes, int]
    problems: list[Problem] = field(default_factory=list)

    def text(self, row: int) -> str:
        """Return a record's name as text; bytes that are no UTF-8 stay visible."""
        return self.names[row].decode("utf-8", "backslashreplace")

    def open(self, row: int) -> Bytes:
        """Return the bytes of a record; the local header is looked at now, the data is not.

        Raises
        ------
        CorruptFileError
            If there is no record at that place, or its method is unknown.
        TruncatedFileError
            If its data would end behind the archive.
        """
        at, packed = int(self.header[row]), int(self.packed[row])
        name = self.text(row)
        if at < 0 or at + _LOCAL.size > self.source.n_bytes:
            raise TruncatedFileError(
                self.source.name, at + _LOCAL.size, self.source.n_bytes, f"record {printable(name)}"
            )
        signature, *_, n_name, n_extra = _LOCAL.unpack(self.source.read(at, _LOCAL.size))
        if signature != b"PK\x03\x04":
            raise CorruptFileError(self.source.name, f"No record {printable(name)} begins", self.source.start + at)
        start = at + _LOCAL.size + n_name + n_extra
        if start + packed > self.source.n_bytes:
            raise TruncatedFileError(
                self.source.name, start + packed, self.source.n_bytes, f"the data of record {printable(name)}"
            )
        data = self.source.part(start, packed)
        method, size = int(self.method[row]), int(self.size[row])
        if method == STORED:
            if packed != size:
                raise CorruptFileError(
                    self.source.name,
                    f"Record {printable(name)} is stored plain, {count(packed)} bytes for {count(size)}",
                )
            return data
        if method != DEFLATED:
            raise CorruptFileError(
                self.source.name, f"Record {printable(name)} uses zip method {method}, unknown to us"
            )
        if size > INFLATE_RATIO * packed + 64:
            raise CorruptFileError(
                self.source.name,
                f"Record {printable(name)} claims {count(size)} bytes from {count(packed)}, more than DEFLATE can hold",
            )
        return InflatedBytes(data, size)

    def local_name(self, row: int) -> bytes:
        """Return the name that a record's own header bears: it should be the directory's."""
        at = int(self.header[row])
        n = struct.unpack("<H", self.source.read(at + 26, 2))[0]
        return bytes(self.source.read(at + _LOCAL.size, min(n, self.source.n_bytes - at - _LOCAL.size)))


def read_directory(source: Extent) -> ZipArchive:
    """Read the directory of the archive that fills `source`.

    Raises
    ------
    CorruptFileError
        If there is none: the archive was cut short or is still being written.
    LimitError
        If it is larger than DIRECTORY_BYTES.
    """
    n, size, offset, end, behind = _end_of_directory(source)
    problems: list[Problem] = []
    shift = end - size - offset
    if shift < 0 or size > end or n > size // _CENTRAL.size:
        raise CorruptFileError(
            source.name,
            f"The zip directory claims {plural(n, 'record')} in {count(size)} bytes at {count(offset)}; "
            f"{count(end)} bytes are there",
        )
    if size > DIRECTORY_BYTES:
        raise LimitError(source.name, "The zip directory", size, DIRECTORY_BYTES, "DIRECTORY_BYTES")
    if behind > 0:
        problems.append(Problem("bytes-behind-archive", "warning",
            f"{plural(behind, 'byte')} stand behind the archive", file=source.name,
            byte_range=(source.n_bytes - behind, source.n_bytes)))  # fmt: skip
    if shift:
        problems.append(Problem("bytes-before-archive", "warning",
            f"{plural(shift, 'byte')} stand before the archive", file=source.name, byte_range=(0, shift)))  # fmt: skip
    archive = _records(source, bytes(source.read(end - size, size)), n, shift)
    archive.problems[:0] = problems
    return archive


def _end_of_directory(source: Extent) -> tuple[int, int, int, int, int]:
    """Return records, directory bytes and offset, where the directory ends, and the bytes behind the archive."""
    # Nearly every archive ends with its end record; only one with a comment, or bytes behind it, needs the long look.
    tail_bytes = min(source.n_bytes, 22 + 20 + 56)
    tail_at = source.n_bytes - tail_bytes
    tail = bytes(source.read(tail_at, tail_bytes))
    at = len(tail) - 22 if tail[-22:-18] == _END and tail[-2:] == b"\0\0" else -1
    if at < 0:
        tail_bytes = min(source.n_bytes, tail_bytes + _COMMENT_BYTES)
        tail_at = source.n_bytes - tail_bytes
        tail = bytes(source.read(tail_at, tail_bytes))
        at = tail.rfind(_END)
    if at < 0 or at + 22 > len(tail):
        raise CorruptFileError(
            source.name, "The zip directory is missing: the file was cut short, or is still being written"
        )
    _, _, _, n, size, offset, n_comment = struct.unpack_from("<4H2LH", tail, at + 4)
    end = tail_at + at
    # torch writes the 64-bit record whether or not it is needed; the directory ends before it.
    if at >= 20 and tail[at - 20 : at - 16] == _LOCATOR64:
        place = tail.rfind(_END64, 0, at - 20)
        if place >= 0 and place + 56 <= len(tail):
            n, size, offset = struct.unpack_from("<3Q", tail, place + 32)
            end = tail_at + place
    return n, size, offset, end, tail_bytes - at - 22 - n_comment


def _records(source: Extent, directory: bytes, n: int, shift: int) -> ZipArchive:
    names: list[bytes] = []
    columns = array("q")
    first: dict[bytes, int] = {}
    twice: list[str] = []
    at = 0
    unpack, fixed, most = _CENTRAL.unpack_from, _CENTRAL.size, len(directory) - _CENTRAL.size
    problems: list[Problem] = []
    for row in range(n):
        if at > most or directory[at : at + 4] != b"PK\x01\x02":
            problems.append(_short(source, row, n))
            break
        _, method, crc, packed, size, n_name, n_extra, n_comment, header = unpack(directory, at)
        extra_at = at + fixed + n_name
        name = directory[at + fixed : extra_at]
        at = extra_at + n_extra + n_comment
        if 0xFFFFFFFF in (packed, size, header):
            size, packed, header = _zip64(directory[extra_at : extra_at + n_extra], size, packed, header)
        if first.setdefault(name, row) != row:
            twice.append(name.decode("utf-8", "backslashreplace"))
        names.append(name)
        columns.extend((header + shift, packed, size, crc, method))
    if twice:
        problems.append(Problem("record-twice", "warning",
            f"{plural(len(twice), 'record')} of the archive stand twice ({listing(twice)}): torch reads the first, "
            "other programs the last; the first is shown", file=source.name))  # fmt: skip
    table = np.array(columns, np.int64).reshape(len(names), 5)
    return ZipArchive(source, names, table[:, 0], table[:, 1], table[:, 2], table[:, 3], table[:, 4], first, problems)


def _zip64(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
    """Return the 64-bit values that replace those of all ones. Source: APPNOTE 4.5.3."""
    at = 0
    while at + 4 <= len(extra):
        kind, n = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            values = [v & (1 << 62) - 1 for v in struct.unpack_from(f"<{n // 8}Q", extra[: at + 4 + n], at + 4)]
            size = values.pop(0) if size == 0xFFFFFFFF and values else size
            packed = values.pop(0) if packed == 0xFFFFFFFF and values else packed
            header = values.pop(0) if header == 0xFFFFFFFF and values else header
            break
        at += 4 + n
    return size, packed, header


def _short(source: Extent, row: int, n: int) -> Problem:
    return Problem("directory-damaged", "error",
        f"The zip directory breaks off after {plural(row, 'record')} of {count(n)}", file=source.name)  # fmt: skip


@dataclass(slots=True, eq=False)
class InflatedBytes:
    """A DEFLATEd record as bytes: read in any order, in bounded memory, without writing it anywhere.

    The decompressor's state is kept every STEP bytes, so that a read far inside begins near it.
    """

    data: Bytes
    n_bytes: int
    _marks: list[tuple[int, int, zlib._Decompress]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    STEP = 8 << 20
    CHUNK = 256 << 10

    @property
    def compression(self) -> str:
        return "deflate"

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def start(self) -> int:
        """Where the compressed bytes begin in the file: no element has a byte of its own there."""
        return self.data.start

    def read(self, offset: int, n_bytes: int) -> bytearray:
        """Return `n_bytes` from `offset` on. Raises as `read_into`."""
        if n_bytes < 0 or offset < 0 or offset + n_bytes > self.n_bytes:
            raise TruncatedFileError(self.name, offset + n_bytes, self.n_bytes)
        out = bytearray(n_bytes)
        self.read_into(offset, memoryview(out))
        return out

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from `offset` of the inflated bytes on.

        Raises
        ------
        CorruptFileError
            If the stream is damaged or ends before.
        TruncatedFileError, ReadError, ChangedOnDiskError
        """
        if offset < 0 or offset + len(buffer) > self.n_bytes:
            raise TruncatedFileError(self.name, offset + len(buffer), self.n_bytes)
        with self._lock:
            self._inflate(offset, buffer)

    def _inflate(self, offset: int, buffer: memoryview) -> None:
        if not self._marks:
            self._marks.append((0, 0, zlib.decompressobj(-15)))
        before = [mark for mark in self._marks if mark[0] <= offset]
        out_at, in_at, kept = before[-1]
        stream = kept.copy()
        done = 0
        while done < len(buffer):
            chunk = bytes(self.data.read(in_at, min(self.CHUNK, self.data.n_bytes - in_at)))
            try:
                # One chunk may inflate a thousandfold: what comes out at once is bounded, the rest waits inside.
                pending = chunk
                while pending or not chunk:
                    produced = stream.decompress(pending, 1 << 20)
                    pending = stream.unconsumed_tail
                    if not produced and not pending:
                        break
                    low, high = max(offset, out_at), min(offset + len(buffer), out_at + len(produced))
                    if low < high:
                        buffer[low - offset : high - offset] = produced[low - out_at : high - out_at]
                        done = high - offset
                    out_at += len(produced)
                    if done == len(buffer):
                        return
            except zlib.error as error:
                raise CorruptFileError(
                    self.name, f"A DEFLATEd record is damaged ({error})", self.start + in_at
                ) from None
            in_at += len(chunk)
            if not chunk or stream.eof:
                raise CorruptFileError(
                    self.name, f"A DEFLATEd record ends after {count(out_at)} of {count(self.n_bytes)} bytes"
                )
            if out_at >= self._marks[-1][0] + self.STEP:
                self._marks.append((out_at, in_at, stream.copy()))


@dataclass(slots=True, eq=False)
class Record:
    """A record of an archive as bytes, looked up when it is first needed: its local header is not read before.

    Reading raises as ZipArchive.open and FilePool.read_into.
    """

    archive: ZipArchive
    row: int
    _bytes: Bytes | None = None

    @property
    def name(self) -> str:
        return self.archive.source.name

    @property
    def n_bytes(self) -> int:
        return int(self.archive.size[self.row])

    @property
    def start(self) -> int:
        return self._found().start

    @property
    def compression(self) -> str | None:
        outer = self.archive.source.compression
        return "deflate" if int(self.archive.method[self.row]) == DEFLATED else outer

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from `offset` of the record on."""
        self._found().read_into(offset, buffer)

    def read(self, offset: int, n_bytes: int) -> bytearray:
        """Return `n_bytes` from `offset` on."""
        return self._found().read(offset, n_bytes)

    def _found(self) -> Bytes:
        if self._bytes is None:
            self._bytes = self.archive.open(self.row)  # two threads may both look: they find the same
        return self._bytes
