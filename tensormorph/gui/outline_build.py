"""Builds the outline of a checkpoint in a worker: a trie of names, sorted, alike layers found, laid out flat. No Qt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tensormorph.errors import Severity
from tensormorph.gui.outline import ROOT, Group, Ids, Kind, Outline
from tensormorph.model import Checkpoint

# A stranger's name may have 20,000 dots or a million characters: what is beyond these stays one label.
_MOST_LEVELS = 64
_MOST_SPLIT = 1000
# One sort of a long list holds the interpreter for its whole length; shorter ones let the window in between.
_SORTED_AT_ONCE = 5000
_RANK: dict[Severity, int] = {"info": 1, "warning": 2, "error": 3}
_DIGITS = re.compile(r"[0-9]+")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)
_MODULE, _TENSOR, _SLOT = int(Kind.MODULE), int(Kind.TENSOR), int(Kind.SLOT)


def natural_key(label: str) -> str:
    """Return a text whose order is the natural one: numbers by value, letters without regard to case."""
    folded = label[:_MOST_SPLIT].casefold()
    if not _DIGITS.search(folded):
        return folded
    # A run of digits becomes its length, then itself: longer numbers are greater. A zero keeps its place among texts.
    return _DIGITS.sub(lambda m: f"0{chr(len(m[0].lstrip('0')) + 1)}{m[0].lstrip('0')}", folded)


def build(checkpoint: Checkpoint, report: Callable[[str, int, int], None]) -> Outline:
    """Return the outline of a checkpoint.

    Parameters
    ----------
    report
        Called now and then with what is done, how many names of how many; whatever it raises ends the build.
    """
    trie = _Trie(checkpoint, report)
    trie.add_tensors()
    trie.add_objects()
    trie.add_files()
    trie.sort()
    groups = trie.find_groups()
    return trie.flatten(groups)


class _Trie:
    """The tree while it grows: nodes in order of creation (parents before children) with lists of children.

    A hundred thousand names pass through the loops here: they use local names and plain integers on purpose.
    """

    def __init__(self, checkpoint: Checkpoint, report: Callable[[str, int, int], None]) -> None:
        self.checkpoint = checkpoint
        self.report = report
        self.names = [*checkpoint.table.names, *checkpoint.aliases, *checkpoint.unreadable]
        self.labels: list[str] = [""]
        self.kind: list[int] = [_MODULE]
        self.item: list[int] = [-1]
        self.children: dict[int, list[int]] = {ROOT: []}
        self.slot_rows: list[int] = []
        self._parts: dict[str, tuple[int, dict[str, int]]] = {}

    def add(self, parent: int, label: str, kind: Kind, item: int = -1) -> int:
        node = len(self.labels)
        self.labels.append(label)
        self.kind.append(int(kind))
        self.item.append(item)
        if kind in (Kind.MODULE, Kind.HEADING, Kind.FILES):
            self.children[node] = []
        self.children.setdefault(parent, []).append(node)
        return node

    def add_tensors(self) -> None:
        checkpoint, table = self.checkpoint, self.checkpoint.table
        n, total = len(table), len(self.names)
        slots: list[tuple[str, str, str, int]] = []
        owners: dict[tuple[str, str], int] = {}
        labels, kind, item, children, keys = self.labels, self.kind, self.item, self.children, table.keys
        part, (top, known) = "", self._part("")
        for row in range(n):
            key = keys(row)
            param = key.param
            if key.slot:
                slots.append((key.part, param, key.slot, row))
                continue
            if key.part != part:
                part = key.part
                top, known = self._part(part)
            if len(param) < _MOST_LEVELS:
                head, dot, label = param.rpartition(".")
                parent = known.get(head, -1) if dot else top
                if parent < 0:
                    parent = self._module(part, head)
            else:
                parent, label = self._place(part, param)
            children[parent].append(len(labels))
            labels.append(label)
            kind.append(_TENSOR)
            item.append(row)
            if row % 2000 == 0:
                self.report("Listing tensors", row, total)
        self.slot_rows = [row for *_, row in slots]
        if slots:
            for node in range(1, len(labels)):
                if kind[node] == _TENSOR:
                    key = keys(item[node])
                    owners[key.part, key.param] = node
        for part, param, slot, row in slots:
            owner = owners.get((part, param))
            self.add(self._module(part, param) if owner is None else owner, slot, Kind.SLOT, row)
        for place, name in enumerate(checkpoint.aliases, n):
            target = checkpoint.tensors.row(checkpoint.aliases[name])
            part = "" if target is None else keys(target).part
            self.add(*self._place(part, name.removeprefix(f"{part}/") if part else name), Kind.ALIAS, place)
        for place, lost in enumerate(checkpoint.unreadable.values(), n + len(checkpoint.aliases)):
            part, param, slot = lost.key.part, lost.key.param, lost.key.slot
            if slot:
                owner = owners.get((part, param))
                self.add(self._module(part, param) if owner is None else owner, slot, Kind.UNREADABLE, place)
            else:
                self.add(*self._place(part, param), Kind.UNREADABLE, place)

    def _place(self, part: str, param: str) -> tuple[int, str]:
        """Return the module that a parameter stands in, made if need be, and its name there."""
        top, known = self._part(part)
        if len(param) > _MOST_SPLIT or param.count(".") >= _MOST_LEVELS:
            pieces = param[:_MOST_SPLIT].split(".", _MOST_LEVELS - 1)
            head, dot = ".".join(pieces[:-1]), len(pieces) > 1
            label = param[len(head) + 1 :] if dot else param
        else:
            head, dot, label = param.rpartition(".")  # type: ignore[assignment]
        if not dot:
            return top, label
        node = known.get(head)
        return (self._module(part, head) if node is None else node), label

    def _part(self, part: str) -> tuple[int, dict[str, int]]:
        """Return the node of a part and the modules known in it by their paths."""
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = (self.add(ROOT, part, Kind.MODULE) if part else ROOT, {})
        return found

    def _module(self, part: str, path: str) -> int:
        """Return the module of a dotted path, made with all above it if need be."""
        node, known = self._part(part)
        missing: list[str] = []
        at: str | None = path
        while at is not None:
            seen = known.get(at)
            if seen is not None:
                node = seen
                break
            missing.append(at)
            head, dot, _ = at.rpartition(".")
            at = head if dot else None
        for at in reversed(missing):
            node = known[at] = self.add(node, at.rpartition(".")[2], Kind.MODULE)
        return node

    def add_objects(self) -> None:
        if self.checkpoint.objects:
            heading = self.add(ROOT, "Objects", Kind.HEADING)
            for item, name in enumerate(self.checkpoint.objects):
                self.add(heading, name, Kind.OBJECT, item)

    def add_files(self) -> None:
        files = self.checkpoint.files
        if not files:
            return
        heading = self.add(ROOT, "Files", Kind.HEADING)
        alike: dict[tuple[str, str], list[int]] = {}
        for item, file in enumerate(files):
            alike.setdefault((file.role, _DIGITS.sub("0", file.name)), []).append(item)
        for items in alike.values():
            at = heading
            if len(items) > 2:
                items.sort(key=lambda i: natural_key(files[i].name))
                at = self.add(heading, f"{files[items[0]].name} … {files[items[-1]].name}", Kind.FILES)
            for item in items:
                self.add(at, files[item].name, Kind.FILE, item)

    def sort(self) -> None:
        """Bring siblings into natural order; headings stay last, in their own order."""
        known: dict[str, str] = {label: natural_key(label) for label in set(self.labels)}
        key = [known[label] for label in self.labels].__getitem__
        for node, below in self.children.items():
            if len(below) < 2:
                continue
            headings = [i for i in below if self.kind[i] == Kind.HEADING] if node == ROOT else []
            if len(below) <= _SORTED_AT_ONCE and not headings:
                below.sort(key=key)
                continue
            rest = below[: len(below) - len(headings)]
            chunks = [sorted(rest[at : at + _SORTED_AT_ONCE], key=key) for at in range(0, len(rest), _SORTED_AT_ONCE)]
            below[:] = [*merge(*chunks, key=key), *headings]

    def find_groups(self) -> list[tuple[list[int], list[str], str, int | None]]:
        """Return members, numbers, prefix and head of every group of numbered siblings that are alike inside."""
        signature = self._signatures()
        groups: list[tuple[list[int], list[str], str, int | None]] = []
        spliced: set[int] = set()
        labels, kind = self.labels, self.kind
        numbered: dict[str, tuple[str, str] | None] = {}  # a label occurs under many parents: looked at once
        for node in sorted(self.children):
            below = self.children[node]
            if len(below) < 2:
                continue
            alike: dict[tuple[str, int], tuple[list[int], list[str]]] = {}
            for kid in below:
                if kind[kid] != _MODULE:
                    continue
                label = labels[kid]
                if label not in numbered:
                    found = _NUMBERED.fullmatch(label)
                    numbered[label] = None if found is None else (found[1], found[2])
                parts = numbered[label]
                if parts is not None:
                    members, numbers = alike.setdefault((parts[0], signature[kid]), ([], []))
                    members.append(kid)
                    numbers.append(parts[1])
            for (prefix, _), (members, numbers) in alike.items():
                if len(members) > 1:
                    # A member that is drawn as part of its head has no row where a second stepper could stand.
                    whole = len(members) == len(below) and not prefix and node != ROOT and node not in spliced
                    groups.append((members, numbers, prefix, node if whole else None))
                    if whole:
                        spliced.update(members)
        return groups

    def _signatures(self) -> list[int]:
        """Return a number for each node that is equal where names, dtypes and shapes below are equal."""
        table = self.checkpoint.table
        dims, first = table.dims.tolist(), table.first_dim.tolist()
        encoding = table.encoding.tolist()
        labels, kinds, items, children = self.labels, self.kind, self.item, self.children
        stored = {_TENSOR, _SLOT}
        words: dict[str, int] = {}
        named = [words.setdefault(label, len(words)) << 32 for label in labels]
        ids: dict[tuple[int, ...], int] = {}
        signature = [0] * len(labels)
        for node in range(len(labels) - 1, ROOT, -1):
            kind = kinds[node]
            own: tuple[int, ...]
            if kind in stored:
                row = items[node]
                own = (kind, encoding[row], *dims[first[row] : first[row + 1]])
            else:
                own = (kind,)
            below = children.get(node)
            if below is not None:
                own = (*own, -1, *[named[kid] | signature[kid] for kid in below])
            signature[node] = ids.setdefault(own, len(ids))
        return signature

    def flatten(self, groups: list[tuple[list[int], list[str], str, int | None]]) -> Outline:
        """Return the arrays: chains of only children joined in one node, nodes renumbered breadth first."""
        member = {kid for members, *_ in groups for kid in members}
        old: list[int] = [ROOT]
        labels: list[str] = [""]
        parent: list[int] = [0]
        first: list[int] = []
        count: list[int] = []
        levels = [0, 1]
        children, kinds, named = self.children, self.kind, self.labels
        while levels[-1] > levels[-2]:
            for at in range(levels[-2], levels[-1]):
                below = children.get(old[at], ())
                first.append(len(old))
                count.append(len(below))
                for kid in below:
                    label = named[kid]
                    if kinds[kid] == _MODULE and len(children[kid]) == 1:
                        while kinds[kid] == _MODULE and len(children[kid]) == 1 and kid not in member:
                            kid = children[kid][0]
                            label = f"{label}.{named[kid]}"
                    old.append(kid)
                    labels.append(label)
                    parent.append(at)
            levels.append(len(old))
            self.report("Arranging the tree", len(old), len(self.labels))
        levels.pop()
        return self._arrays(old, labels, parent, first, count, levels, groups)

    def _arrays(
        self,
        old: list[int],
        labels: list[str],
        parent: list[int],
        first: list[int],
        count: list[int],
        levels: list[int],
        groups: list[tuple[list[int], list[str], str, int | None]],
    ) -> Outline:
        was = np.array(old, np.int32)
        kind = np.array(self.kind, np.int8)[was]
        item = np.array(self.item, np.int32)[was]
        up = np.array(parent, np.int32)
        new = np.full(len(self.labels), -1, np.int32)
        new[was] = np.arange(len(was), dtype=np.int32)
        made = tuple(
            Group(tuple(new[members].tolist()), tuple(numbers), prefix, None if head is None else int(new[head]))
            for members, numbers, prefix, head in groups
        )
        group_of = np.full(len(was), -1, np.int32)
        for number, group in enumerate(made):
            group_of[list(group.members)] = number
        leaf = (kind >= Kind.TENSOR) & (kind <= Kind.UNREADABLE)
        stored = (kind == Kind.TENSOR) | (kind == Kind.SLOT)
        n_tensors = leaf.astype(np.int64)
        n_elements = np.zeros(len(was))
        n_elements[stored] = self.checkpoint.table.n_elements[item[stored]]
        node_of = np.full(len(self.names), -1, np.int32)
        node_of[item[leaf]] = np.flatnonzero(leaf)
        place_of = dict(zip(self.names, range(len(self.names)), strict=True))
        badge = self._badges(place_of, node_of, len(was))
        below = badge.copy()
        for low, high in reversed(list(pairwise(levels[1:]))):
            np.add.at(n_tensors, up[low:high], n_tensors[low:high])
            np.add.at(n_elements, up[low:high], n_elements[low:high])
            np.maximum.at(below, up[low:high], below[low:high])
        table = self.checkpoint.table
        weights = np.delete(table.n_elements, self.slot_rows)
        return Outline(
            labels, kind, up, np.array(first, np.int32), np.array(count, np.int32), item, tuple(levels),
            n_tensors, n_elements, badge, below, made, group_of, self.names, node_of, place_of,
            sum(weights.tolist()), sum(_byte_counts(self.checkpoint)),
        )  # fmt: skip

    def _badges(self, place_of: dict[str, int], node_of: Ids, n_nodes: int) -> NDArray[np.int8]:
        badge = np.zeros(n_nodes, np.int8)
        n = len(self.checkpoint.table)
        badge[node_of[:n][~self.checkpoint.table.complete]] = _RANK["error"]
        badge[node_of[n + len(self.checkpoint.aliases) :]] = _RANK["error"]
        for problem in self.checkpoint.problems:
            place = None if problem.tensor is None else place_of.get(problem.tensor)
            if place is not None:
                node = node_of[place]
                badge[node] = max(badge[node], _RANK[problem.severity])
        return badge


def _byte_counts(checkpoint: Checkpoint) -> Iterator[int]:
    """Return the bytes of the logical values, one number an encoding; kinds of unknown size count nothing."""
    table = checkpoint.table
    for number, encoding in enumerate(table.encodings):
        if encoding.bits is not None:
            rows = table.n_elements[table.encoding == number]
            yield sum(encoding.n_bytes(n) for n in rows.tolist())
