"""Device meshes, placements and layouts: who is said to hold which part of a tensor.

Regions are facts; a layout is a claim, and says where it comes from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tensormorph.errors import UsageError
from tensormorph.text import printable

Provenance = Literal["recorded", "inferred", "stated"]


@dataclass(frozen=True, slots=True)
class DeviceMesh:
    """Ranks arranged in a grid with named axes, as torch's ``DeviceMesh``.

    Fields
    ------
    names
        One name an axis.
    shape
        Extent of each axis in ranks.
    ranks
        Global ranks in row-major order of the grid.

    Raises
    ------
    ValueError
        If the three do not fit together, an axis is empty or a rank stands twice.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shape) or len(set(self.names)) != len(self.names):
            raise ValueError(f"axis names {self.names} for a mesh of shape {self.shape}")
        if any(extent < 1 for extent in self.shape):
            raise ValueError(f"a mesh of shape {self.shape} has no ranks")
        if math.prod(self.shape) != len(self.ranks) or len(set(self.ranks)) != len(self.ranks):
            raise ValueError(f"{len(self.ranks)} ranks (each once) for a mesh of shape {self.shape}")

    def coordinate(self, rank: int) -> tuple[int, ...]:
        """Return the place of a rank on the mesh, one index an axis.

        Raises
        ------
        ValueError
            If the rank is not on the mesh.
        """
        at = self.ranks.index(rank)
        place: list[int] = []
        for extent in reversed(self.shape):
            at, index = divmod(at, extent)
            place.append(index)
        return tuple(reversed(place))

    def __str__(self) -> str:
        return ", ".join(f"{name} {extent}" for name, extent in zip(self.names, self.shape, strict=True))


@dataclass(frozen=True, slots=True)
class Shard:
    """The tensor is cut along `dim` into ceil(n / parts) elements a part (torch.chunk); last parts may be empty."""

    dim: int

    def __str__(self) -> str:
        return f"Shard({self.dim})"


@dataclass(frozen=True, slots=True)
class StridedShard:
    """A cut along `dim` that was applied after a later mesh axis had cut it into `split_factor` parts."""

    dim: int
    split_factor: int

    def __str__(self) -> str:
        return f"StridedShard({self.dim}, {self.split_factor})"


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank of the axis holds the same elements."""

    def __str__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True, slots=True)
class Partial:
    """Each rank of the axis holds a term; the tensor is their reduction by `op` (``sum``, ``avg``, ...)."""

    op: str = "sum"

    def __str__(self) -> str:
        return f"Partial({self.op})"


Placement = Shard | StridedShard | Replicate | Partial


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor is said to be placed on a mesh.

    Fields
    ------
    placements
        One a mesh axis.
    order
        Mesh axes in the order in which their splits were applied.
    provenance
        ``recorded`` in the files, ``inferred`` from the stored regions, or ``stated`` by the user.
    evidence
        One sentence on where it comes from.
    """

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    order: tuple[int, ...]
    provenance: Provenance
    evidence: str = ""

    def __post_init__(self) -> None:
        n = len(self.mesh.shape)
        if len(self.placements) != n or sorted(self.order) != list(range(n)):
            raise ValueError(f"{len(self.placements)} placements in order {self.order} on a mesh of {n} axes")


def parse_mesh(text: str) -> DeviceMesh:
    """Return the mesh that a person states as ``dp=2,tp=4``; ranks count from 0 in row-major order.

    Raises
    ------
    UsageError
        If the text is not such a list.
    """
    pairs: Sequence[str] = [pair.strip() for pair in text.split(",") if pair.strip()]
    found = [re.fullmatch(r"([A-Za-z_][\w-]*)\s*=\s*([1-9]\d{0,6})", pair) for pair in pairs]
    if not found or not all(found):
        raise UsageError(f"A mesh is stated as 'dp=2,tp=4', not as '{printable(text)}'")
    names = tuple(m[1] for m in found if m)
    extents = tuple(int(m[2]) for m in found if m)
    if len(set(names)) != len(names) or math.prod(extents) > 1 << 20:
        raise UsageError(f"Axis names must differ and ranks be at most {1 << 20:,}: '{printable(text)}'")
    return DeviceMesh(names, extents, tuple(range(math.prod(extents))))
