"""Which nodes of an outline have a row now, and where: under the folding of alike layers, or under a filter. No Qt."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tensormorph.gui.outline import ROOT, Flags, Ids, Kind, Outline


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The visible tree, each column by node of the outline.

    Fields
    ------
    order
        Nodes with a row, so that the children of a node lie side by side.
    first, count
        Where a node's children begin in `order`, and how many it has.
    parent
        The visible parent; -1 for a node without a row.
    row
        Place among its siblings.
    """

    order: Ids
    first: Ids
    count: Ids
    parent: Ids
    row: Ids


def folded(outline: Outline, shown: list[int], unfolded: set[int]) -> Rows:
    """Return the rows when of each group one member shows; those of groups in `unfolded` all have a row."""
    n = len(outline.labels)
    hidden = np.zeros(n, np.bool_)
    spliced = np.zeros(n, np.bool_)
    for number, group in enumerate(outline.groups):
        if number in unfolded:
            continue
        members = list(group.members)
        hidden[members] = True
        hidden[members[shown[number]]] = False
        if group.head is not None:
            spliced[members] = True
    for low, high in pairwise(outline.levels[1:]):
        hidden[low:high] |= hidden[outline.parent[low:high]]
    order = np.flatnonzero(~hidden & ~spliced)[1:].astype(np.int32)
    parent = outline.parent[order]
    # A member drawn as part of its head has no row: its children belong to the head.
    parent = np.where(spliced[parent], outline.parent[parent], parent)
    return _arranged(n, order, parent)


def filtered(outline: Outline, matched: Flags) -> Rows:
    """Return the rows of the nodes of matched names and of the modules above them, nothing folded.

    Parameters
    ----------
    matched
        One flag for each of the outline's names.
    """
    n = len(outline.labels)
    keep = np.zeros(n, np.bool_)
    nodes = outline.node_of[matched]
    while len(nodes):
        keep[nodes] = True
        up = np.unique(outline.parent[nodes])
        nodes = up[~keep[up]]
    keep[ROOT] = False
    order = np.flatnonzero(keep).astype(np.int32)
    return _arranged(n, order, outline.parent[order])


def _arranged(n: int, order: Ids, parent: Ids) -> Rows:
    """Return the columns; nodes of one parent must be side by side in `order`."""
    count = np.bincount(parent, minlength=n).astype(np.int32)
    first = np.zeros(n, np.int32)
    starts = np.flatnonzero(np.diff(parent, prepend=-1))
    first[parent[starts]] = starts
    up = np.full(n, -1, np.int32)
    up[order] = parent
    row = np.full(n, -1, np.int32)
    row[order] = np.arange(len(order), dtype=np.int32) - first[parent]
    return Rows(order, first, count, up, row)


def counterpart(outline: Outline, old: int, new: int) -> tuple[Ids, Ids]:
    """Return the nodes at and below `old`, and for each the one in the same place of `new`, which must be alike."""
    olds, news = [np.array([old])], [np.array([new])]
    while len(olds[-1]):
        counts = outline.count[olds[-1]]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        olds.append(np.repeat(outline.first[olds[-1]], counts) + within)
        news.append(np.repeat(outline.first[news[-1]], counts) + within)
    return np.concatenate(olds).astype(np.int32), np.concatenate(news).astype(np.int32)


def enclosing_members(outline: Outline, node: int) -> list[tuple[int, int]]:
    """Return the groups around a node, outermost first, each with the place of the member that the node stands in."""
    found: list[tuple[int, int]] = []
    at = node
    while at != ROOT:
        number = int(outline.group_of[at])
        if number >= 0:
            found.append((number, outline.groups[number].members.index(at)))
        at = int(outline.parent[at])
    return found[::-1]


def enclosing_group(outline: Outline, node: int, unfolded: set[int]) -> int | None:
    """Return the innermost folded group that a node stands in or is the head of."""
    heads = {group.head: number for number, group in enumerate(outline.groups) if group.head is not None}
    at = node
    while at != ROOT:
        for number in (int(outline.group_of[at]), heads.get(at, -1)):
            if number >= 0 and number not in unfolded:
                return number
        at = int(outline.parent[at])
    return None


def quantity(number: float) -> str:
    """Return a count as people say it: ``11.9 M``."""
    if number < 1000:
        return str(int(number))
    for unit in ("k", "M", "B", "T"):
        number /= 1000
        if number < 999.5:
            return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f} {unit}"
    return f"{number:,.0f} T"


def measure(outline: Outline, node: int, open_: bool) -> str:
    """Return what a module's row says at its right: elements on the top level, else tensors while it is closed."""
    if outline.kind[node] != Kind.MODULE:
        return ""
    if outline.parent[node] == ROOT and outline.n_elements[node]:
        return quantity(float(outline.n_elements[node]))
    return "" if open_ else f"{int(outline.n_tensors[node]):,}"
