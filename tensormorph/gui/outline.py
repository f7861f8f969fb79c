"""The module tree of a checkpoint as flat arrays: built once by the opening worker, then only read. No Qt here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Flags = NDArray[np.bool_]
ROOT = 0


class Kind(IntEnum):
    """What a row of the tree is."""

    MODULE = 0
    TENSOR = 1
    SLOT = 2
    ALIAS = 3
    UNREADABLE = 4
    HEADING = 5
    OBJECT = 6
    FILE = 7
    FILES = 8


@dataclass(frozen=True, slots=True)
class Group:
    """Numbered siblings whose insides are alike, of which one is shown.

    Fields
    ------
    members
        Their nodes, in order of their numbers.
    numbers
        The number of each, as it stands in its name.
    prefix
        What stands before the number.
    head
        The node that stands for the group where these are all children that it has; None where the shown member
        itself is the row.
    """

    members: tuple[int, ...]
    numbers: tuple[str, ...]
    prefix: str
    head: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """Nodes in breadth-first order, so that the children of a node lie side by side; node 0 is the invisible root.

    Fields
    ------
    item
        Of a tensor's node, the place of its name in `names`; of an object or file, its place in the checkpoint's
        list; -1 for the rest. `names` holds the table's, then aliases, then unreadable tensors.
    levels
        Where each level begins; one more entry at the end.
    n_tensors, n_elements
        Of a node and all below it; aliases count as tensors, not as elements.
    badge, badge_below
        Rank of the worst problem (0 none, 1 info, 2 warning, 3 error) of the node itself, and of all below it too.
    group_of
        The group that a node is a member of, or -1.
    node_of
        The node of each name.
    place_of
        The place of a name in `names`.
    """

    labels: list[str]
    kind: NDArray[np.int8]
    parent: Ids
    first: Ids
    count: Ids
    item: Ids
    levels: tuple[int, ...]
    n_tensors: NDArray[np.int64]
    n_elements: NDArray[np.float64]
    badge: NDArray[np.int8]
    badge_below: NDArray[np.int8]
    groups: tuple[Group, ...]
    group_of: Ids
    names: list[str]
    node_of: Ids
    place_of: dict[str, int]
    n_parameters: int
    n_bytes: int
