"""What a checkpoint is to us: logical tensors over columns, other objects, and the facts that a reader found."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import ArrayView, Piece, StoredSource, select
from tensormorph.columns import TensorKey, TensorTable
from tensormorph.dtypes import Encoding
from tensormorph.errors import (
    BadIndexError,
    CancelledError,
    LayoutError,
    MissingRegionError,
    NoSuchNameError,
    Problem,
    TensormorphError,
    UnreadableTensorError,
    UnsupportedDtypeError,
)
from tensormorph.fragments import FragmentTable
from tensormorph.mesh import DeviceMesh, Layout, Partial
from tensormorph.placement import Part, part_of
from tensormorph.region import Region

State = Literal[
    "weights", "master", "moments", "hyperparameters", "scheduler", "scaler", "step", "data_position", "rng", "config"
]  # fmt: skip
STATES: tuple[State, ...] = (
    "weights", "master", "moments", "hyperparameters", "scheduler", "scaler", "step", "data_position", "rng", "config",
)  # fmt: skip
Presence = Literal["yes", "no", "by_design", "unknown"]


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """Exactly what one file holds for one rank, padding included.

    Fields
    ------
    device
        As recorded, such as cuda:3: text only.
    rows
        The tensor's fragments that lie in it, as rows of its table; None where only their bytes tell.
    """

    part: str
    rank: int | None
    device: str | None
    stored_name: str
    source: StoredSource
    rows: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """One place where an element, or the first element of a region, lies.

    Fields
    ------
    offset
        Byte in `file`; of the region's first element that this fragment holds. None if the file cannot be looked into.
    bit
        Bit within that byte, counted from the lowest; 0 but for elements smaller than a byte.
    n_bytes
        Bytes that the elements of `region` take.
    """

    file: str
    offset: int | None
    bit: int
    n_bytes: int | None
    rank: int | None
    region: Region
    term: int


@dataclass(frozen=True, slots=True)
class LogicalTensor:
    """A tensor as the model means it, whatever the files that hold it. Is itself an ArraySource.

    Fields
    ------
    name
        Unique in the checkpoint: the stored name, with ``part/`` before it where there are several parts.
    shape
        Elements along each axis, without padding.
    encoding
        How elements are stored; `dtype` is the numpy type of the values handed out.
    complete
        Whether every element is stored and can be decoded.
    problems
        What is wrong with this tensor.
    locals
        The stored pieces themselves, padding and all; made when asked for.
    rank_evidence
        What tells the ranks of its fragments where neither a record nor a layout does, such as ``the file's name``.
    """

    name: str
    key: TensorKey
    shape: tuple[int, ...]
    encoding: Encoding
    fragments: FragmentTable
    complete: bool
    locals: Sequence[LocalTensor] = ()
    layout: Layout | None = None
    reduction: str | None = None
    problems: tuple[Problem, ...] = ()
    rank_evidence: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.encoding.dtype

    def __post_init__(self) -> None:
        if self.fragments.ndim != len(self.shape):
            raise ValueError(f"fragments of {self.fragments.ndim} axes in a tensor of shape {self.shape}")

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int | None:
        """Bytes of the logical values as encoded; None for an element type of unknown size."""
        return None if self.encoding.bits is None else self.encoding.n_bytes(self.n_elements)

    @property
    def files(self) -> tuple[str, ...]:
        """Files that store a part of it, in order of first use."""
        return tuple(dict.fromkeys(self.fragments.files[i] for i in self.fragments.file.tolist()))

    def full(self) -> ArrayView:
        """Return the logical whole as a lazy array; reading a part that is stored nowhere raises."""
        return ArrayView(self)

    def local(self, rank: int) -> ArrayView:
        """Return the part that the layout gives a rank, as a lazy array.

        It is read from whoever stored it; of a Partial tensor it is the rank's own term.

        Raises
        ------
        LayoutError
            If no layout is known, or the rank is not on its mesh.
        """
        if self.layout is None:
            raise LayoutError(
                f"Which part rank {rank} holds is not known: no layout is recorded, inferred or stated for this tensor"
            )
        if rank not in self.layout.mesh.ranks:
            raise LayoutError(f"Rank {rank} is not on the mesh ({self.layout.mesh}) of this tensor")
        if any(isinstance(placement, Partial) for placement in self.layout.placements):
            return ArrayView(self._addend(rank))
        return ArrayView(PartSource(self, part_of(self.layout, self.shape, rank)))

    def _addend(self, rank: int) -> StoredSource:
        """Return the term that a rank's own file holds: nobody else's stands in for it."""
        for local in self.locals:
            if local.rank == rank:
                return local.source
        raise LayoutError(f"The term of rank {rank} is stored nowhere")

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out` with a region.

        Raises
        ------
        MissingRegionError
            If an element is stored nowhere or cannot be read; its cause is what failed.
        ChangedOnDiskError
        UnsupportedDtypeError
        """
        if not self.encoding.readable:
            raise UnsupportedDtypeError(self.encoding.name)
        try:
            self.fragments.read_into(self.name, region, out, self.reduction)
        except MissingRegionError as error:
            # Of what is known to be wrong, what is wrong at that place.
            at = error.region
            here = [p for p in self.problems if p.region is None or at is None or p.region.intersect(at) is not None]
            told = next((p.sentence for p in here if p.severity == "error"), None)
            if told is None or error.__cause__ is not None:
                raise
            raise MissingRegionError(self.name, error.region, told) from error

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region in storage order; parts that cannot be read carry their Problem."""
        if self.encoding.readable:
            yield from self.fragments.pieces(self.name, region, max_bytes, self.reduction, self.dtype)
        elif not region.empty:
            error = UnsupportedDtypeError(self.encoding.name)
            problem = Problem(error.code, "error", error.sentence, tensor=self.name, region=region)
            yield Piece(region, 0, problem)

    def where(self, index: Any) -> list[Holder]:
        """Return who holds an element or region: several holders are replicas, or terms of a Partial.

        Parameters
        ----------
        index
            A numpy basic index with steps of one.

        Raises
        ------
        BadIndexError
            If it does not fit the shape, or has another step.
        """
        axes = select(index, self.shape)
        if any(axis.step != 1 and axis.count > 1 for axis in axes):
            raise BadIndexError(str(index), "the elements must be neighbours: leave out the steps")
        bounds = [axis.bounds for axis in axes]
        region = Region(tuple(low for low, _ in bounds), tuple(high for _, high in bounds))
        holders: list[Holder] = []
        for row in self.fragments.overlapping(region):
            fragment = self.fragments[int(row)]
            shared = region.intersect(fragment.region)
            if shared is None:
                continue
            byte, bit, n_bytes = None, 0, None
            try:
                byte, bit = divmod(fragment.source.bit_of(shared.within(fragment.region).start), 8)
                n_bytes = fragment.source.place().encoding.n_bytes(shared.size)
            except CancelledError:
                raise
            except TensormorphError:
                byte = None  # who should hold it is known all the same; the tensor's problems say what is wrong
            holders.append(Holder(fragment.file, byte, bit, n_bytes, fragment.rank, shared, fragment.term))
        return holders


@dataclass(frozen=True, slots=True, eq=False)
class PartSource:
    """The part of a tensor that a layout gives one rank, as an array of its own: without padding."""

    tensor: LogicalTensor
    part: Part

    @property
    def shape(self) -> tuple[int, ...]:
        return self.part.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor.dtype

    def _shares(self, region: Region) -> Iterator[tuple[Region, Region]]:
        """Yield the boxes of a region of the part, in its coordinates and in the tensor's."""
        for local, whole in self.part.boxes():
            shared = local.intersect(region)
            if shared is not None:
                yield shared, shared.within(local).offset_by(whole.start)

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out` with a region of the part. Raises as LogicalTensor.read_into."""
        for shared, whole in self._shares(region):
            self.tensor.read_into(whole, out[shared.within(region).slices()] if region.ndim else out)

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region of the part, box by box in the order of storage."""
        for shared, whole in self._shares(region):
            back = [a - b for a, b in zip(shared.start, whole.start, strict=True)]
            for piece in self.tensor.pieces(whole, max_bytes):
                yield replace(piece, region=piece.region.offset_by(back))


@dataclass(frozen=True, slots=True)
class UnreadableTensor:
    """A tensor that the checkpoint names, but whose shape or file is missing or broken: it has no values.

    `dtype` and `shape` are what was declared, None where nothing usable was.
    """

    name: str
    key: TensorKey
    dtype: str | None
    shape: tuple[int, ...] | None
    file: str | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Something in a checkpoint that is no tensor. `load` reads it as JSON-like data, lazily.

    `n_bytes` is None where it is part of something larger, such as a pickle, and has no bytes of its own.
    """

    name: str
    type: str
    summary: str
    n_bytes: int | None
    file: str
    offset: int
    load: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of the checkpoint: path relative to the root, bytes, and what it is to the reader."""

    name: str
    n_bytes: int
    role: str


@dataclass(frozen=True, slots=True)
class StateFact:
    """Whether a kind of training state is there, and what tells so."""

    present: Presence
    evidence: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What a reader found out beside tensors, each with its evidence; `check` reads this and knows no format.

    `committed` is None where the format has no commit marker.
    """

    committed: bool | None = None
    commit_evidence: str = ""
    step: int | None = None
    step_evidence: str = ""
    world_size: int | None = None
    software: str | None = None
    states: Mapping[State, StateFact] = field(default_factory=dict)


class LazyTensors(Mapping[str, LogicalTensor]):
    """Name -> LogicalTensor over a table; a tensor is made when it is asked for."""

    def __init__(self, table: TensorTable, make: Callable[[int], LogicalTensor]) -> None:
        self._table = table
        self._make = make
        self._rows: dict[str, int] | None = None

    def row(self, name: str) -> int | None:
        """Return a name's row in the table."""
        if self._rows is None:
            self._rows = {name: row for row, name in enumerate(self._table.names)}
        return self._rows.get(name)

    def at(self, row: int) -> LogicalTensor:
        """Return the tensor of a row of the table."""
        return self._make(row)

    def __getitem__(self, name: str) -> LogicalTensor:
        row = self.row(name)
        if row is None:
            raise KeyError(name)
        return self._make(row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.names)

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.row(name) is not None


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """An opened checkpoint. Opening reads no tensor data; closing releases its files. A context manager.

    Fields
    ------
    root
        The folder (or the folder of the single file) that all file names are relative to.
    path
        What was opened, as given.
    format, format_detail
        Name of the reader, and one phrase on what was found.
    table
        All tensors as columns, for lists of any length.
    mesh, meshes, mesh_candidates, mesh_evidence
        The mesh of all ranks, where there is one; every mesh in use; all that explain what is stored, where that is not
        decided; and how it was found, or why not.
    tensors
        Name -> LogicalTensor.
    unreadable
        Name -> UnreadableTensor: named, but without usable shape or file.
    aliases
        Other name -> the name in `tensors` whose bytes it shares; a tie that only a config declares counts too.
    objects
        Name -> what is no tensor.
    changed_files
        Looks at the disk and names the files that are no longer what was opened.
    verify
        ``verify(budget, report)`` compares data with the checksums that the format itself stores, at most `budget`
        bytes of it (None: all), and returns what disagrees; None where the format stores none.
    read_facts
        Returns `facts` with what only stored items tell (a step that is an item of its own): reads a few of them.
    """

    root: Path
    path: Path
    format: str
    format_detail: str
    table: TensorTable
    tensors: LazyTensors
    unreadable: Mapping[str, UnreadableTensor]
    aliases: Mapping[str, str]
    objects: Mapping[str, StoredObject]
    files: tuple[FileInfo, ...]
    facts: Facts
    problems: tuple[Problem, ...]
    close: Callable[[], None]
    changed_files: Callable[[], tuple[str, ...]]
    verify: Callable[[int | None, Callable[[str, int, int], None]], list[Problem]] | None = None
    read_facts: Callable[[], Facts] | None = None
    meshes: tuple[DeviceMesh, ...] = ()
    mesh: DeviceMesh | None = None
    mesh_candidates: tuple[DeviceMesh, ...] = ()
    mesh_evidence: str = ""

    def full_facts(self) -> Facts:
        """Return the facts, with those that only stored items tell: a few of them are read."""
        return self.facts if self.read_facts is None else self.read_facts()

    def __getitem__(self, name: str) -> LogicalTensor:
        """Return a tensor by its name or by an alias.

        Raises
        ------
        UnreadableTensorError
            If the checkpoint names it, but holds no usable shape or file.
        NoSuchNameError
            If nothing has this name; carries the nearest names.
        """
        target = self.aliases.get(name, name)
        found = self.tensors.get(target)
        if found is not None:
            return found
        lost = self.unreadable.get(target)
        if lost is not None:
            why = lost.problems[0].sentence if lost.problems else "nothing usable is stored"
            raise UnreadableTensorError(name, why, lost.problems)
        raise NoSuchNameError(name, _similar(name, self.table.names[:20_000]), str(self.path))

    def __contains__(self, name: object) -> bool:
        return name in self.tensors or name in self.aliases

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _similar(name: str, names: Sequence[str], most: int = 3) -> list[str]:
    """Return the names nearest to one that is not there, nearest first; bounded in time for names of any length."""
    best: list[tuple[float, int]] = []
    matcher = difflib.SequenceMatcher(b=name[:200])
    for row, candidate in enumerate(names):
        floor = best[-1][0] if len(best) == most else 0.5
        matcher.set_seq1(candidate[:200])
        # Cheap upper bounds first: with three good names found, few others need the full comparison.
        if matcher.real_quick_ratio() > floor and matcher.quick_ratio() > floor:
            ratio = matcher.ratio()
            if ratio > floor:
                best = sorted([*best, (ratio, row)], key=lambda found: -found[0])[:most]
    return [names[row] for _, row in best]
