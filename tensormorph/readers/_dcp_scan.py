"""Items of a DCP save that has no metadata, found by looking through its data files: whole archives without names.

Items stand back to back, each an archive of torch.save, so each ends with a zip's end record and the next begins behind
it. Names, places in a tensor and ranks' parts are only in the metadata that was never written.
"""

from __future__ import annotations

import re
import struct

from tensormorph import dtypes
from tensormorph.columns import TensorKey
from tensormorph.errors import CancelledError, Problem, TensormorphError
from tensormorph.readers._bytes import ByteSource, FilePool
from tensormorph.readers._dcp_items import ItemPlace, ItemStore
from tensormorph.readers._process import Report
from tensormorph.readers._target import Target
from tensormorph.readers._torch_table import Row
from tensormorph.region import Region
from tensormorph.text import count, plural, printable, size

_STEP = 8 << 20
_END = re.compile(rb"PK\x05\x06\0\0\0\0", re.DOTALL)
MOST_ITEMS = 1_000_000


def scan(
    folder: Target, names: list[str], pool: FilePool, store: ItemStore, problems: list[Problem], report: Report
) -> dict[str, tuple[Row, ItemPlace]]:
    """Return the tensors that whole items of data files hold, called by file and byte; reads every byte of them."""
    out: dict[str, tuple[Row, ItemPlace]] = {}
    sizes = {entry.name: entry.n_bytes for entry in folder.entries}
    total, done, others = sum(sizes[name] for name in names), 0, 0
    for name in names:
        path = folder.resolve(name)
        source = ByteSource(pool, path, name, 0, pool.identity(path).n_bytes)
        end = 0
        for place in _items(source, done, total, report):
            end = place.offset + place.length
            row = _row(store, place)
            if row is None:
                others += 1
            else:
                out[row.name] = (row, place)
            if len(out) >= MOST_ITEMS:
                break
        if end < source.n_bytes:
            problems.append(Problem("item-cut-off", "error",
                f"{printable(name)} ends within an item: {size(source.n_bytes - end)} from byte {count(end)} on belong "
                "to no whole archive", file=name, byte_range=(end, source.n_bytes)))  # fmt: skip
        done += source.n_bytes
    problems.append(Problem("names-unknown", "warning",
        f"{plural(len(out), 'tensor')} and {plural(others, 'other item')} were found by looking through "
        f"{plural(len(names), 'data file')}: their names, and which tensors they are parts of, stand in the metadata "
        "that is not there"))  # fmt: skip
    return out


def _items(source: ByteSource, before: int, total: int, report: Report) -> list[ItemPlace]:
    """Return the whole archives that stand back to back from a file's beginning on."""
    out: list[ItemPlace] = []
    start, at, kept = 0, 0, b""
    while at < source.n_bytes:
        report("Looking for items", before + at, total)
        read = bytes(source.read(at, min(_STEP, source.n_bytes - at)))
        window = kept + read
        first = at - len(kept)
        for found in _END.finditer(window):
            record = window[found.start() : found.start() + 22]
            end = first + found.start() + 22
            if len(record) == 22 and record[20:] == b"\0\0" and end > start and _begins_at(source, start, end, record):
                out.append(ItemPlace(source.name, start, end - start))
                start = end
        # An end record may lie across two reads; one that was whole in this one is not looked at again.
        kept = window[-21:] if first + len(window) - 21 > start else window[max(0, start - first) :][-21:]
        at += len(read)
    return out


def _begins_at(source: ByteSource, start: int, end: int, record: bytes) -> bool:
    """Whether an end record is that of an archive that begins at `start`: its directory lies where it says, from there.

    Bytes of a tensor may look like an end record; they do not point back at the beginning of the item.
    """
    n, n_bytes, offset = struct.unpack_from("<HLL", record, 10)
    directory = start + offset
    if offset == 0xFFFFFFFF or n == 0xFFFF:
        return bytes(source.read(start, 4)) == b"PK\x03\x04" and bytes(source.read(end - 42, 4)) == b"PK\x06\x07"
    if directory + n_bytes > end - 22 or not n:
        return False
    return bytes(source.read(directory, 4)) == b"PK\x01\x02" and bytes(source.read(start, 4)) == b"PK\x03\x04"


def _row(store: ItemStore, place: ItemPlace) -> Row | None:
    """Return the tensor of an item; None where it holds an object, or nothing that can be read."""
    try:
        stored = store.tensor(place)
        encoding = stored.place().encoding
    except CancelledError:
        raise
    except TensormorphError:
        return None
    name = f"{place.file} at {place.offset}"
    whole = Region.whole(stored.shape)
    key = TensorKey("", name, named=False)
    return Row(
        name,
        key,
        stored.shape,
        dtypes.encoding(encoding.name),
        [(whole, 0)],
        encoding.readable,
        None,
        lambda box, at: stored,
    )
