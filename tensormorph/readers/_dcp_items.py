"""The items of a DCP checkpoint: each a small archive of torch.save somewhere in a file, looked into when it is needed.

Source: torch 2.0 to 2.14, torch/distributed/checkpoint/filesystem.py, `_write_item`: an item is what ``torch.save``
writes of one tensor, or of one object, maybe passed through transformations; items stand back to back, unaligned.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tensormorph import dtypes
from tensormorph.array import Piece, Place, StoredSource
from tensormorph.dtypes import Encoding
from tensormorph.errors import (
    CancelledError,
    ChangedOnDiskError,
    CorruptFileError,
    OutsideRootError,
    ReadError,
    TruncatedFileError,
)
from tensormorph.fragments import NO_RANK
from tensormorph.quantised import BitView
from tensormorph.readers._bytes import ByteSource, Extent, FilePool, Window
from tensormorph.readers._pickle import interpret
from tensormorph.readers._process import silent
from tensormorph.readers._strided import StridedBytes
from tensormorph.readers._target import Target, unsafe_name
from tensormorph.readers._torch_tensors import TensorRef, parse_tensor
from tensormorph.readers._torchzip import TorchFile, open_torch
from tensormorph.readers._zip import Record, ZipArchive, read_directory
from tensormorph.readers._zstd import ZstdBytes
from tensormorph.region import Region
from tensormorph.text import count, printable

ZSTD = "stream.zstd/1"
"""The one transformation that torch itself brings. Source: torch/distributed/checkpoint/_extension.py, ZStandard."""
WHOLE_BYTES = 16 << 10
"""Items of at most so many bytes are fetched in one read."""
HEAD_BYTES, TAIL_BYTES = 4 << 10, 4 << 10
"""Of larger ones the ends: the pickle and the header of the storage stand in front, the directory behind."""
_WRITER = re.compile(r"__([0-9]{1,9})_[0-9]{1,9}\.distcp")
_REMEMBERED = 20_000
_MOST_PICKLE = 1 << 20


def unsafe_component(name: str) -> str:
    """Return why a relative path of the metadata must not be followed: it must be one plain name. Empty if it may be.

    Source: torch/distributed/checkpoint/filesystem.py writes ``__{rank}_{n}.distcp`` beside the metadata, nothing else.
    """
    why = unsafe_name(name)
    if not why and ("/" in name or name in (".", "..")):
        why = "leads into another folder"
    return why


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """Where an item lies: file as the metadata names it, bytes in it, and what its bytes went through."""

    file: str
    offset: int
    length: int
    transforms: tuple[str, ...] = ()


class ItemStore:
    """Opens items, and remembers where the elements of those opened lie. Used by several threads at once."""

    def __init__(self, pool: FilePool, target: Target) -> None:
        self._pool = pool
        self._target = target
        self._lock = threading.Lock()
        self._known: OrderedDict[ItemPlace, StoredSource] = OrderedDict()
        self._refs: dict[bytes, TensorRef] = {}
        self._paths: dict[str, Path] = {}

    def bytes_of(self, place: ItemPlace) -> Extent:
        """Return an item's bytes, transformations undone; reads nothing of it.

        Raises
        ------
        OutsideRootError
            If its file's name must not be followed.
        CannotOpenError
            If its file is not there.
        TruncatedFileError
            If its file ends before it.
        ReadError
            If it went through a transformation that is unknown to us.
        """
        path = self._paths.get(place.file)
        if path is None:
            why = unsafe_component(place.file)
            if why:
                raise OutsideRootError(printable(place.file), f"the name {why}; it is not followed")
            path = self._paths[place.file] = self._target.resolve(place.file)
        n_bytes = self._pool.identity(path).n_bytes
        if place.offset + place.length > n_bytes:
            raise TruncatedFileError(place.file, place.offset + place.length, n_bytes, "an item of the checkpoint")
        source: Extent = ByteSource(self._pool, path, place.file, place.offset, place.length)
        for transform in place.transforms:
            if transform != ZSTD:
                told = f"its bytes went through '{printable(transform, 60)}', which is unknown to us"
                raise ReadError(place.file, f"The item at byte {count(place.offset)} cannot be read: {told}")
            source = ZstdBytes(source)
        return source

    def open(self, place: ItemPlace) -> TorchFile:
        """Open an item as what torch.save wrote. Raises as `bytes_of`, and CorruptFileError, LimitError."""
        return open_torch(self._window(place), silent)

    def archive(self, place: ItemPlace) -> ZipArchive:
        """Return the directory of an item. Raises as `open`."""
        return read_directory(self._window(place))

    def _window(self, place: ItemPlace) -> Window:
        return Window.over(self.bytes_of(place), WHOLE_BYTES, HEAD_BYTES, TAIL_BYTES)

    def tensor(self, place: ItemPlace) -> StoredSource:
        """Return the elements of an item as it stores them, whatever the metadata says of them.

        Raises
        ------
        CorruptFileError
            If no archive with a tensor is there.
        OutsideRootError, CannotOpenError, TruncatedFileError, ReadError, ChangedOnDiskError
        """
        with self._lock:
            known = self._known.get(place)
            if known is not None:
                self._known.move_to_end(place)
                return known
        try:
            source = self._look(place)
        except (CancelledError, ChangedOnDiskError, OutsideRootError, TruncatedFileError, ReadError):
            raise
        except CorruptFileError as error:
            span = f"bytes {count(place.offset)} to {count(place.offset + place.length)}"
            raise CorruptFileError(place.file, f"No stored tensor is at {span}: {error.sentence}") from error
        with self._lock:
            self._known[place] = source
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return source

    def _look(self, place: ItemPlace) -> StoredSource:
        archive = self.archive(place)
        row = next((i for i, name in enumerate(archive.names) if name.endswith(b"/data.pkl")), -1)
        if row < 0:
            raise CorruptFileError(place.file, "The zip holds no data.pkl, so it is not torch's")
        stem = archive.names[row][: -len(b"data.pkl")]
        record = Record(archive, row)
        if record.n_bytes > _MOST_PICKLE:
            raise CorruptFileError(place.file, f"The pickle of a tensor has {count(record.n_bytes)} bytes")
        ref = self._ref(place, _kept(archive, row))
        storage = ref.storage
        assert storage is not None
        data_row = archive.first.get(stem + b"data/" + storage.key.encode("utf-8", "surrogatepass"))
        encoding = dtypes.encoding(ref.dtype)
        order_row = archive.first.get(stem + b"byteorder")
        if order_row is not None and _kept(archive, order_row).strip() == b"big" and (encoding.bits or 0) > 8:
            encoding = encoding.big_endian()
        if data_row is None:
            if all(ref.shape):
                raise CorruptFileError(place.file, f"Its storage {printable(storage.key)} is not in it")
            return StridedBytes(archive.source, 0, ref.shape, ref.strides, encoding)
        try:
            # Of a compressed archive or record the bytes are inflated from their beginning; a plain one is as it lies.
            data = archive.open(data_row)
            source: StoredSource = StridedBytes(data, 0, ref.shape, ref.strides, encoding, ref.offset)
        except ValueError as error:
            n = int(archive.size[data_row])
            raise CorruptFileError(
                place.file, f"Its {count(n)} bytes are too few for shape {ref.shape} of {ref.dtype} ({error})"
            ) from None
        for kind in ref.bits:
            source = BitView(source, kind)
        return source

    def _ref(self, place: ItemPlace, pickled: bytes) -> TensorRef:
        """Return what a pickle says of its tensor; items of one shape and dtype have the same pickle."""
        known = self._refs.get(pickled)
        if known is not None:
            return known
        pickle = interpret(pickled, name=place.file)
        found = parse_tensor(pickle.value) if pickle.complete else pickle.problems[-1].sentence
        if isinstance(found, str):
            raise CorruptFileError(place.file, found)
        if found is None or found.form != "strided" or found.storage is None or found.storage.device == "meta":
            what = "an object that is no tensor" if found is None else f"a {found.form} tensor"
            raise CorruptFileError(place.file, f"It holds {what}; nothing of it is loaded")
        if len(self._refs) < 4096:
            self._refs[pickled] = found
        return found


def _kept(archive: ZipArchive, row: int) -> bytes:
    """Return a small record, from the part of the item that was fetched where it lies there.

    Its header is looked at as ZipArchive.open does: a record of another method is opened so.
    """
    data = archive.open(row)
    offset = data.start - archive.source.start
    plain = data.compression is None and archive.source.compression is None
    return bytes(archive.source.read(offset, data.n_bytes) if plain else data.read(0, data.n_bytes))


@dataclass(frozen=True, slots=True, eq=False)
class ItemSource:
    """The elements of one item, found in it on the first use.

    Fields
    ------
    box
        Shape of the chunk that the metadata says the item is, None where it is shown as it is stored.
    """

    store: ItemStore
    item: ItemPlace
    box: tuple[int, ...] | None

    def _found(self) -> StoredSource:
        source = self.store.tensor(self.item)
        if self.box is not None and source.shape != self.box:
            raise ReadError(
                self.item.file,
                f"The item at byte {count(self.item.offset)} is a tensor of shape {source.shape}, the metadata says "
                f"{self.box}",
            )
        return source

    @property
    def shape(self) -> tuple[int, ...]:
        return self.box if self.box is not None else self._found().shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._found().dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out` with a region. Raises as ItemStore.tensor, and ReadError if the shape is another."""
        self._found().read_into(region, out)

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region in storage order. Raises as `read_into`."""
        yield from self._found().pieces(region, max_bytes)

    def place(self) -> Place:
        """Return where the bytes lie in the file. Raises as `read_into`."""
        return self._found().place()

    def bit_of(self, index: Sequence[int], /) -> int:
        """Return the position of one element in the file, in bits. Raises as `read_into`."""
        return self._found().bit_of(index)


@dataclass(frozen=True, slots=True)
class Refused:
    """Elements that are stored, and not to be trusted in their place: each use raises ReadError, which says why."""

    shape: tuple[int, ...]
    file: str
    why: str

    def _raise(self) -> NoReturn:
        raise ReadError(self.file, self.why)

    @property
    def dtype(self) -> np.dtype[Any]:
        self._raise()

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Raise ReadError."""
        self._raise()

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Raise ReadError."""
        self._raise()

    def place(self) -> Place:
        """Raise ReadError."""
        self._raise()

    def bit_of(self, index: Sequence[int], /) -> int:
        """Raise ReadError."""
        self._raise()


@dataclass(frozen=True, slots=True)
class ItemOpener:
    """Opens the items of ``.distcp`` files; each tells itself where its elements lie."""

    store: ItemStore
    in_items: bool = True

    def rank_of(self, file: str) -> int:
        """Return the rank that wrote a file, by its name.

        Source: torch/distributed/checkpoint/filesystem.py: ``__{plan index}_{n}.distcp``; the plan's index is the rank.
        """
        found = _WRITER.fullmatch(file)
        return int(found[1]) if found is not None else NO_RANK

    def source(self, place: ItemPlace, shape: tuple[int, ...], encoding: Encoding) -> StoredSource:
        """Return the elements of an item that the metadata calls a box of this shape."""
        return ItemSource(self.store, place, shape)

    def stored(self, place: ItemPlace, shape: tuple[int, ...], encoding: Encoding) -> StoredSource:
        """Return the elements of an item as it stores them."""
        return ItemSource(self.store, place, None)
