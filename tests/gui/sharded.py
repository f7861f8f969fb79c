"""Tensors that are cut over the files of ranks, in memory; and tables of many fragments."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import Piece, Place
from tensormorph.columns import TensorKey
from tensormorph.dtypes import encoding
from tensormorph.fragments import FragmentTable
from tensormorph.mesh import DeviceMesh, Layout, Placement, Provenance, parse_mesh
from tensormorph.model import Checkpoint, Facts, LazyTensors, LocalTensor, LogicalTensor
from tensormorph.readers._layouts import lay_out
from tensormorph.region import Region
from tests.gui.planes import checkpoint_of
from tests.memory_source import MemoryFile, MemorySource, Part, store, table

F32 = encoding("float32")


def numbered(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return values that are their own row-major numbers, from 1."""
    return np.arange(1, np.prod(shape, dtype=np.int64) + 1, dtype=np.float32).reshape(shape)


def boxes(shape: Sequence[int], cuts: Sequence[int]) -> list[Region]:
    """Return the boxes of a grid of so many even cuts along each axis, row-major."""
    made: list[Region] = []
    for place in np.ndindex(*cuts):
        edges = [(n * i // cut, n * (i + 1) // cut) for n, i, cut in zip(shape, place, cuts, strict=True)]
        made.append(Region(tuple(low for low, _ in edges), tuple(high for _, high in edges)))
    return made


def sharded(
    values: NDArray[Any],
    regions: Sequence[Region],
    ranks: Sequence[int] | None = None,
    failures: Mapping[int, Exception] | None = None,
    name: str = "w",
) -> LogicalTensor:
    """Return a tensor whose regions lie in one file a rank, each after a header of its own length.

    A file of `failures` (by rank) cannot be read.
    """
    parts: list[Part] = []
    for i, region in enumerate(regions):
        rank = i if ranks is None else ranks[i]
        file = MemoryFile(f"__{rank}_0.distcp", bytearray(100 + 10 * i))
        source: MemorySource = store(file, values[region.slices()], F32)
        file.failure = (failures or {}).get(rank)
        parts.append(Part(region, source, rank))
    fragments = table(values.ndim, parts)
    complete = not failures and not fragments.gaps(Region.whole(values.shape))
    return LogicalTensor(
        name, TensorKey("", name), values.shape, F32, fragments, complete, rank_evidence="the names of the files"
    )


def grid_of(side: int, extent: int, missing: int = 0) -> LogicalTensor:
    """Return a square tensor of ``side * side`` fragments of `extent` elements each way, the last ones missing."""
    shape = (side * extent, side * extent)
    down, right = np.divmod(np.arange(side * side - missing, dtype=np.int64), side)
    start = np.stack([down, right], axis=1) * extent
    n = len(start)
    small = np.zeros(n, np.int32)
    source = store(MemoryFile("all.distcp"), np.ones((extent, extent), np.float32), F32)
    fragments = FragmentTable(
        start, start + extent, small, np.arange(n, dtype=np.int64), np.full(n, 4 * extent * extent, np.int64),
        np.arange(n, dtype=np.int32), small, ("all.distcp",), lambda row: source,
    )  # fmt: skip
    return LogicalTensor("w", TensorKey("", "w"), shape, F32, fragments, not missing)


@dataclass(eq=False)
class ItemSource:
    """A source that must look into its file to know anything, as an item of an archive does: never in the GUI thread.

    `box` is the shape that a table claims; without it the shape too is known only from the file.
    """

    found: MemorySource
    box: tuple[int, ...] | None = None
    failure: Exception | None = None

    def look(self) -> MemorySource:
        assert threading.current_thread() is not threading.main_thread(), "it reads from disk"
        if self.failure is not None:
            raise self.failure
        return self.found

    @property
    def shape(self) -> tuple[int, ...]:
        return self.box if self.box is not None else self.look().shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.look().dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        self.look().read_into(region, out)

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        yield from self.look().pieces(region, max_bytes)

    def place(self) -> Place:
        return self.look().place()

    def bit_of(self, index: Sequence[int], /) -> int:
        return self.look().bit_of(index)


def in_items(tensor: LogicalTensor, failures: Mapping[int, Exception] | None = None) -> LogicalTensor:
    """Return the tensor with each fragment in an item of its own, and the items as its stored pieces."""
    fragments = tensor.fragments
    sources: list[ItemSource] = []
    locals_: list[LocalTensor] = []
    for row in range(len(fragments)):
        found = fragments.open_source(row)
        assert isinstance(found, MemorySource)
        rank = int(fragments.rank[row])
        failure = (failures or {}).get(rank)
        sources.append(ItemSource(found, found.shape, failure))
        locals_.append(LocalTensor("", rank, None, tensor.name, ItemSource(found, None, failure), (row,)))
    rows = dataclasses.replace(fragments, open_source=lambda row: sources[row])
    return dataclasses.replace(tensor, fragments=rows, locals=tuple(locals_))


def padded(tensor: LogicalTensor, row: int, more: int) -> LogicalTensor:
    """Return the tensor with a stored piece that has `more` rows of padding at its end."""
    item = tensor.fragments.open_source(row)
    assert isinstance(item, ItemSource)
    values = np.concatenate([item.found.stored, np.zeros((more, *item.found.shape[1:]), np.float32)])
    source = store(MemoryFile(f"__{row}_0.distcp", bytearray(64)), values, F32)
    pieces = list(tensor.locals)
    pieces[row] = LocalTensor("", row, "cuda:1", tensor.name, ItemSource(source), (row,))
    return dataclasses.replace(tensor, locals=tuple(pieces))


def laid_out(
    tensor: LogicalTensor,
    mesh: str,
    *placements: Placement,
    order: Sequence[int] | None = None,
    provenance: Provenance = "inferred",
    evidence: str = "it explains all boxes",
) -> LogicalTensor:
    """Return the tensor with a layout."""
    found = parse_mesh(mesh)
    layout = Layout(found, placements, tuple(order or range(len(placements))), provenance, evidence)
    return dataclasses.replace(tensor, layout=layout)


def rank_checkpoint(
    tensors: Mapping[str, LogicalTensor], world: int, stated: DeviceMesh | None = None, **more: Any
) -> Checkpoint:
    """Return a checkpoint of tensors that ranks wrote, with the meshes and layouts that a reader finds for them."""
    whole = list(tensors.values())
    made = checkpoint_of(tensors, **more)
    ndim = np.array([len(tensor.shape) for tensor in whole], np.int64)
    n = np.array([len(tensor.fragments) for tensor in whole], np.int64)
    files = tuple(dict.fromkeys(file for tensor in whole for file in tensor.fragments.files))
    column = np.concatenate
    rows = [tensor.fragments for tensor in whole]
    named = dataclasses.replace(
        made.table,
        complete=np.array([tensor.complete for tensor in whole], np.bool_),
        first_fragment=np.concatenate([[0], np.cumsum(n)]).astype(np.int64),
        start=column([part.start.reshape(-1) for part in rows]),
        stop=column([part.stop.reshape(-1) for part in rows]),
        first_coordinate=np.concatenate([[0], np.cumsum(n * ndim)]).astype(np.int64),
        file=column([np.array([files.index(part.files[i]) for i in part.file], np.int32) for part in rows]),
        offset=column([part.offset for part in rows]),
        length=column([part.length for part in rows]),
        rank=column([part.rank for part in rows]),
        term=column([part.term for part in rows]),
        files=files,
    )
    problems = list(made.problems)
    laid = lay_out(named, world, stated, problems)
    placed = [dataclasses.replace(tensor, layout=laid.layouts.get(row)) for row, tensor in enumerate(whole)]
    return dataclasses.replace(
        made, table=named, tensors=LazyTensors(named, lambda row: placed[row]), problems=tuple(problems),
        facts=Facts(world_size=world), mesh=laid.mesh, meshes=laid.meshes, mesh_candidates=laid.candidates,
        mesh_evidence=laid.words,
    )  # fmt: skip


def two_by_two(stated: DeviceMesh | None = None, **more: Any) -> Checkpoint:
    """Return a checkpoint on a mesh of 2 x 2 that only its boxes tell: one tensor in a grid, one cut and replicated."""
    values = numbered((40, 60))
    return rank_checkpoint(
        {
            "grid": in_items(sharded(values, boxes((40, 60), (2, 2)), name="grid")),
            "rows": in_items(sharded(values, boxes((40, 60), (2, 1)), [0, 2], name="rows")),
        },
        4, stated, **more,
    )  # fmt: skip


def two_stages(stated: DeviceMesh | None = None) -> Checkpoint:
    """Return a checkpoint in which ranks 0, 1 and ranks 2, 3 share no tensor: pipeline stages, or not."""
    values = numbered((40, 60))
    halves = boxes((40, 60), (2, 1))
    return rank_checkpoint(
        {
            "layers.0.w": in_items(sharded(values, halves, [0, 1], name="layers.0.w")),
            "layers.1.w": in_items(sharded(values, halves, [2, 3], name="layers.1.w")),
        },
        4, stated,
    )  # fmt: skip
