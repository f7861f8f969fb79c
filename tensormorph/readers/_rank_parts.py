"""What ranks' files hold of a tensor, and the tensor that is made of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tensormorph.array import StoredSource
from tensormorph.columns import TensorKey
from tensormorph.dtypes import Encoding
from tensormorph.errors import Problem
from tensormorph.mesh import Layout
from tensormorph.model import LocalTensor
from tensormorph.readers._dcp_items import Refused
from tensormorph.readers._torch_placed import Placed
from tensormorph.readers._torch_table import Row
from tensormorph.region import Region


@dataclass(slots=True)
class Held:
    """What one rank's file holds under a name.

    Fields
    ------
    rows
        The stored arrays: one, or one for each part of a ShardedTensor; none where the rank holds nothing.
    """

    file: str
    rank: int
    key: TensorKey
    rows: list[Row]
    placed: Placed | None


@dataclass(slots=True)
class Stored:
    """One fragment: its box, and how its source is made."""

    box: Region
    file: str
    rank: int
    term: int
    source: StoredSource
    local: int


@dataclass(slots=True)
class Made:
    """One logical tensor ready for the table."""

    name: str
    key: TensorKey
    shape: tuple[int, ...]
    encoding: Encoding
    fragments: list[Stored]
    locals: list[LocalTensor]
    layout: Layout | None = None
    reduction: str | None = None
    complete: bool = True
    problems: list[Problem] = field(default_factory=list)

    def tell(self, problems: list[Problem], problem: Problem) -> None:
        """Add a problem of this tensor."""
        self.problems.append(problem)
        problems.append(problem)


def whole(row: Row, file: str) -> StoredSource:
    """Return the source of all that a row stores; one that raises where the file does not hold all of it."""
    if sum(box.size for box, _ in row.boxes) != math.prod(row.shape):
        return Refused(row.shape, file, "the file does not hold all of what its pickle says: see the problems")
    return row.make(Region.whole(row.shape), 0)


def stored_boxes(row: Row) -> list[tuple[Region, StoredSource]]:
    """Return what a file holds of a row, in the row's coordinates: all of it, or what is there of one cut short."""
    return [(box, row.make(box, first)) for box, first in row.boxes]
