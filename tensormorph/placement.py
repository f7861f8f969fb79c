"""What a layout gives each rank: runs of indices along each axis, by torch's rules for even and uneven cuts.

Source: torch 2.13, torch/distributed/tensor/placement_types.py: `Shard` cuts as ``torch.chunk`` does, into parts of
ceil(n / parts); `_StridedShard` cuts each of `split_factor` parts so and joins what a rank gets of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensormorph.mesh import Layout, Partial, Placement, Replicate, Shard, StridedShard
from tensormorph.region import Region

Runs = tuple[tuple[int, int], ...]
"""Half-open runs of indices along one axis, in the order in which a local tensor holds them; none is empty."""


def chunk(runs: Runs, parts: int, index: int) -> Runs:
    """Return part `index` of runs cut as torch.chunk cuts: ceil(n / parts) each, the last ones short or empty."""
    n = sum(stop - start for start, stop in runs)
    step = -(-n // parts)
    return _slice(runs, min(n, index * step), min(n, (index + 1) * step))


def strided(runs: Runs, split_factor: int, parts: int, index: int) -> Runs:
    """Return what a rank gets of a strided cut: part `index` of each of `split_factor` chunks, one behind the other."""
    pieces = (chunk(chunk(runs, split_factor, k), parts, index) for k in range(split_factor))
    return tuple(itertools.chain.from_iterable(pieces))


def _slice(runs: Runs, first: int, last: int) -> Runs:
    """Return elements `first` to `last` of runs, counted from their beginning."""
    out: list[tuple[int, int]] = []
    at = 0
    for start, stop in runs:
        low, high = max(first, at), min(last, at + stop - start)
        if low < high:
            piece = (start + low - at, start + high - at)
            if out and out[-1][1] == piece[0]:
                out[-1] = (out[-1][0], piece[1])
            else:
                out.append(piece)
        at += stop - start
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a tensor that a layout gives one rank.

    Fields
    ------
    axes
        Runs of indices, one tuple an axis of the tensor.
    """

    axes: tuple[Runs, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the local tensor, without padding."""
        return tuple(sum(stop - start for start, stop in runs) for runs in self.axes)

    @property
    def empty(self) -> bool:
        """Whether the rank holds nothing: as it should be, where a cut leaves nothing for it."""
        return not all(self.shape)

    def boxes(self) -> Iterator[tuple[Region, Region]]:
        """Yield (box in the local tensor, the same elements in the logical tensor); none for an empty part."""
        if self.empty:
            return
        placed = [list(_placed(runs)) for runs in self.axes]
        for combination in itertools.product(*placed):
            yield (
                Region(tuple(at for at, _, _ in combination), tuple(at + b - a for at, a, b in combination)),
                Region(tuple(a for _, a, _ in combination), tuple(b for _, _, b in combination)),
            )

    def box(self) -> Region | None:
        """Return the part as one region of the tensor; None if it is empty or is not one box."""
        if self.empty or any(len(runs) != 1 for runs in self.axes):
            return None
        return Region(tuple(runs[0][0] for runs in self.axes), tuple(runs[0][1] for runs in self.axes))


def _placed(runs: Runs) -> Iterator[tuple[int, int, int]]:
    at = 0
    for start, stop in runs:
        yield at, start, stop
        at += stop - start


def part_of(layout: Layout, shape: Sequence[int], rank: int) -> Part:
    """Return what a layout gives a rank of a tensor of this shape.

    Raises
    ------
    ValueError
        If the rank is not on the mesh, or a placement cuts an axis that the tensor does not have.
    """
    return part_at(layout.mesh.shape, layout.placements, layout.order, shape, layout.mesh.coordinate(rank))


def part_at(
    mesh: Sequence[int], placements: Sequence[Placement], order: Sequence[int], shape: Sequence[int],
    coordinate: Sequence[int],
) -> Part:  # fmt: skip
    """Return what placements give the rank at a coordinate; splits are applied in `order`. Raises as `part_of`."""
    axes: list[Runs] = [((0, extent),) if extent else () for extent in shape]
    for axis in order:
        match placements[axis]:
            case Shard(dim):
                _check(dim, shape)
                axes[dim] = chunk(axes[dim], mesh[axis], coordinate[axis])
            case StridedShard(dim, split_factor):
                _check(dim, shape)
                axes[dim] = strided(axes[dim], split_factor, mesh[axis], coordinate[axis])
            case Replicate() | Partial():
                pass
    return Part(tuple(axes))


def _check(dim: int, shape: Sequence[int]) -> None:
    if not 0 <= dim < len(shape):
        raise ValueError(f"a cut along axis {dim} of a tensor of {len(shape)} axes")


def in_order(layout: Layout, shape: Sequence[int]) -> Layout:
    """Return the layout with its strided cuts as an order of plain ones, if that gives every rank the same part.

    FSDP on top of tensor parallel is recorded as ``[StridedShard(0, tp), Shard(0)]``: the later axis was cut first.
    """
    if not any(isinstance(placement, StridedShard) for placement in layout.placements):
        return layout
    plain = tuple(Shard(p.dim) if isinstance(p, StridedShard) else p for p in layout.placements)
    coordinates = list(itertools.product(*(range(extent) for extent in layout.mesh.shape)))
    wanted = [part_at(layout.mesh.shape, layout.placements, layout.order, shape, c) for c in coordinates]
    for order in itertools.permutations(range(len(plain))):
        if all(
            part_at(layout.mesh.shape, plain, order, shape, c) == part
            for c, part in zip(coordinates, wanted, strict=True)
        ):
            return Layout(layout.mesh, plain, order, layout.provenance, layout.evidence)
    return layout
