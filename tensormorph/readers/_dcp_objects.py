"""What a DCP checkpoint holds that is no tensor: each object an item of its own, read when it is asked for.

Source: torch/distributed/checkpoint/planner_helpers.py: what is no tensor becomes a ``BYTE_IO`` item, ``torch.save`` of
the object; it may hold tensors itself (a tuple, or a whole dict that the planner did not flatten).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tensormorph.errors import CancelledError, Problem, TensormorphError
from tensormorph.model import StoredObject
from tensormorph.readers._dcp_items import ItemPlace, ItemStore
from tensormorph.readers._dcp_metadata import Columns
from tensormorph.readers._pickle_nodes import describe
from tensormorph.readers._pickle_show import to_plain
from tensormorph.readers._process import Report
from tensormorph.readers._target import natural
from tensormorph.readers._torch_code import code_references
from tensormorph.readers._torch_table import Row, file_tensors
from tensormorph.readers._torch_tree import read_tree
from tensormorph.text import count, plural, printable, size

LOOKED_AT_FEW = 256
"""So few objects are all looked into when a checkpoint is opened."""
LONGER_BY = 200
"""Of many only those that are longer than the shortest by so many bytes: a tensor in an object takes more than that."""
MOST_LOOKED_AT = 256
PICKLE_BYTES = 1 << 20
"""An object whose pickle is larger than this is not looked into unasked."""
ALL_BYTES = 64 << 20


@dataclass(slots=True)
class Objects:
    """The objects of a checkpoint.

    Fields
    ------
    places
        Name -> where its item lies.
    inner
        Tensors inside objects that were looked into, by name, each with the place of its item.
    """

    store: ItemStore
    places: dict[str, ItemPlace] = field(default_factory=dict)
    summaries: dict[str, tuple[str, str]] = field(default_factory=dict)
    inner: dict[str, tuple[Row, ItemPlace]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def stored(self) -> dict[str, StoredObject]:
        """Return what the checkpoint lists; an object that was not looked into is told as that."""
        out: dict[str, StoredObject] = {}
        for name in sorted(self.places, key=natural):
            place = self.places[name]
            kind, summary = self.summaries.get(name, ("object", f"{size(place.length)}, read when shown"))
            out[name] = StoredObject(
                name, kind, summary, place.length, place.file, place.offset, partial(self.load, name)
            )  # fmt: skip
        return out

    def load(self, name: str) -> Any:
        """Return an object as plain data. Raises as ItemStore.open."""
        return to_plain(self.store.open(self.places[name]).root)

    def look_into(self, names: Sequence[str], report: Report) -> list[Problem]:
        """Read the pickles of objects, add the tensors in them, and return what is wrong with them."""
        out: list[Problem] = []
        for done, name in enumerate(names):
            report("Reading stored objects", done, len(names))
            out += self._look_into(name)
        return out

    def _look_into(self, name: str) -> list[Problem]:
        place = self.places[name]
        try:
            file = self.store.open(place)
        except CancelledError:
            raise
        except TensormorphError as error:
            told = f"The object {printable(name)} in {printable(place.file)} cannot be read: {error.sentence}"
            self.summaries[name] = ("object", "cannot be read")
            return [Problem(error.code, "error", told, tensor=None, file=place.file,
                            byte_range=(place.offset, place.offset + place.length))]  # fmt: skip
        self.summaries[name] = (type(file.root).__name__.lower(), describe(file.root))
        tree = read_tree(file.root, place.file, name, indices="[{}]")
        # An array whose bytes stand in the pickle is a part of the object, as a number is; a storage is a tensor's.
        tree.tensors = [t for t in tree.tensors if isinstance(t.found, str) or t.found.form != "inline"]
        rows = file_tensors(file, tree)
        for row in rows.rows:
            label = row.name if row.name == name else f"{name}{'' if row.name[:1] == '[' else '.'}{row.name}"
            row.name = label
            self.inner[label] = (row, place)
        code = [p for p in code_references(file) if p.severity != "info"]
        found = [*code, *(p for p in (*file.problems, *tree.problems, *rows.problems) if p.severity != "info")]
        return [
            Problem(p.code, p.severity, f"In the object {printable(name)}: {p.sentence}", file=place.file,
                    byte_range=p.byte_range) for p in found
        ]  # fmt: skip


def objects_of(
    found: Sequence[tuple[str, Columns]], sizes: Mapping[str, int], store: ItemStore, problems: list[Problem]
) -> Objects:
    """Return the objects that metadata files list; nothing of them is read."""
    out = Objects(store)
    for _, one in found:
        numbers = one.numbers
        for i, name in enumerate(one.objects):
            at = int(numbers["object_file"][i])
            if at < 0:
                problems.append(Problem("no-storage-record", "error",
                    f"The object {printable(name)} is listed, and no place where it is stored"))  # fmt: skip
                continue
            chain = tuple(one.transforms[int(numbers["object_transform"][i])])
            place = ItemPlace(
                one.files[at], int(numbers["object_offset"][i]), int(numbers["object_length"][i]), chain
            )  # fmt: skip
            out.places.setdefault(name, place)
            end = place.offset + place.length
            if place.file in sizes and end > sizes[place.file]:
                problems.append(Problem("short-file", "error",
                    f"{printable(place.file)} ends at byte {count(sizes[place.file])}; the object {printable(name)} is "
                    f"at bytes {count(place.offset)} to {count(end)}", file=place.file))  # fmt: skip
            elif place.file not in sizes:
                problems.append(Problem("missing-file", "error",
                    f"The file {printable(place.file)} of the object {printable(name)} is not there",
                    file=place.file))  # fmt: skip
    return out


def worth_a_look(objects: Objects) -> list[str]:
    """Return the objects that may hold tensors: they are looked into when the checkpoint is opened."""
    places = objects.places
    if len(places) <= LOOKED_AT_FEW:
        names = list(places)
    else:
        shortest = min(place.length for place in places.values())
        names = [name for name, place in places.items() if place.length >= shortest + LONGER_BY]
    return within_budget(objects, names[:MOST_LOOKED_AT])


def within_budget(objects: Objects, names: Sequence[str]) -> list[str]:
    """Return those whose pickles stay within PICKLE_BYTES each and ALL_BYTES together; their directories are read."""
    kept: list[str] = []
    total = 0
    for name in names:
        n_bytes = objects.places[name].length
        if n_bytes > PICKLE_BYTES:
            n_bytes = _pickle_bytes(objects, name)
            if n_bytes > PICKLE_BYTES:
                objects.summaries[name] = ("object", f"not looked into, {size(objects.places[name].length)}")
                continue
        total += n_bytes
        if total > ALL_BYTES:
            break
        kept.append(name)
    return kept


def _pickle_bytes(objects: Objects, name: str) -> int:
    """Return the bytes of an object's pickle; 0 where its directory cannot be read, so that reading it tells why."""
    try:
        archive = objects.store.archive(objects.places[name])
    except CancelledError:
        raise
    except TensormorphError:
        return 0
    return next((int(archive.size[i]) for i, n in enumerate(archive.names) if n.endswith(b"data.pkl")), 0)


def not_looked_into(objects: Objects) -> Problem | None:
    """Return a note on objects that are not looked into because they are large."""
    left = [name for name in objects.places if name not in objects.summaries]
    if not left:
        return None
    total = sum(objects.places[name].length for name in left)
    told = f"{plural(len(left), 'object')} ({size(total)}) are not looked into: show reads them by name"
    return Problem("objects-not-read", "info", told)
