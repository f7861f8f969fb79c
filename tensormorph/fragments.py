"""The stored parts of one tensor: as columns, found by bisection, assembled into any region."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import Piece, StoredSource
from tensormorph.dtypes import round_once
from tensormorph.errors import (
    CancelledError,
    ChangedOnDiskError,
    MissingRegionError,
    Problem,
    ReadError,
    TensormorphError,
)
from tensormorph.region import Region
from tensormorph.text import printable

Ints = NDArray[np.int64]
NO_RANK = -1


@dataclass(frozen=True, slots=True)
class Fragment:
    """A box of a logical tensor that some file stores.

    Fields
    ------
    region
        In the tensor's coordinates.
    source
        The values; its shape is the region's. The reader has narrowed it: no padding, no neighbour is in it.
    file
        Path relative to the checkpoint's root.
    rank
        Rank whose part it is, or None where nothing tells.
    term
        Fragments of equal term and equal box are copies; several terms are summands (Partial).
    """

    region: Region
    source: StoredSource
    file: str
    rank: int | None
    term: int


@dataclass(frozen=True, slots=True, eq=False)
class FragmentTable(Sequence[Fragment]):
    """The fragments of one tensor as columns, one row a fragment, sorted by their first coordinate.

    Fields
    ------
    start, stop
        Boxes in elements, int64 of shape (fragments, axes).
    file
        Position in `files`.
    offset, length
        Where the stored item begins in the file, and its bytes: the elements themselves, or an archive with them in
        it (a DCP item), which only a source looks into. -1 where nothing tells before.
    rank
        Rank, or NO_RANK.
    term
        Summand of a Partial; 0 otherwise.
    files
        Names relative to the root.
    open_source
        Gives the source of a row. It may look into the file on first read, never before.
    n_terms
        Summands that there must be, counted from 0; 0: those that `term` has.

    Raises
    ------
    ValueError
        If the columns differ in length, a box is no box, or the first coordinates do not rise.
    """

    start: Ints
    stop: Ints
    file: NDArray[np.int32]
    offset: Ints
    length: Ints
    rank: NDArray[np.int32]
    term: NDArray[np.int32]
    files: Sequence[str]
    open_source: Callable[[int], StoredSource]
    n_terms: int = 0

    def __post_init__(self) -> None:
        n = len(self.start)
        if any(len(column) != n for column in (self.stop, self.file, self.offset, self.length, self.rank, self.term)):
            raise ValueError("columns differ in length")
        if self.start.shape != self.stop.shape or self.start.ndim != 2:
            raise ValueError(f"boxes of shapes {self.start.shape} and {self.stop.shape}")
        if n > 1 and self.start.shape[1] and not bool(np.all(self.start[:-1, 0] <= self.start[1:, 0])):
            raise ValueError("fragments are not sorted by their first coordinate")
        if not bool(np.all((self.start >= 0) & (self.start <= self.stop))):
            raise ValueError("a fragment is no half-open box")

    @classmethod
    def empty(cls, ndim: int) -> FragmentTable:
        """Return the table of a tensor that no file stores."""
        none = np.empty(0, np.int64)
        boxes, small = np.empty((0, ndim), np.int64), np.empty(0, np.int32)
        return cls(boxes, boxes, small, none, none, small, small, (), _no_source)

    @property
    def ndim(self) -> int:
        return int(self.start.shape[1])

    def __len__(self) -> int:
        return len(self.start)

    @overload
    def __getitem__(self, index: int) -> Fragment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Fragment]: ...
    def __getitem__(self, index: int | slice) -> Fragment | Sequence[Fragment]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        row = index % len(self)
        rank = int(self.rank[row])
        return Fragment(
            self.region(row),
            self.open_source(row),
            self.files[int(self.file[row])],
            None if rank == NO_RANK else rank,
            int(self.term[row]),
        )

    def region(self, row: int) -> Region:
        """Return the box of a row without opening its source."""
        return Region(tuple(self.start[row].tolist()), tuple(self.stop[row].tolist()))

    def overlapping(self, region: Region) -> Ints:
        """Return the rows that share at least one element with `region`, in storage order (file, then offset)."""
        if region.empty or not len(self):
            return np.empty(0, np.int64)
        low = np.array(region.start, np.int64)
        high = np.array(region.stop, np.int64)
        # Rows from `end` on begin behind the region; of those before, the test below finds the ones that reach it.
        end = int(np.searchsorted(self.start[:, 0], high[0], "left")) if region.ndim else len(self)
        hit = np.all((self.start[:end] < high) & (self.stop[:end] > low) & (self.start[:end] < self.stop[:end]), axis=1)
        rows = np.flatnonzero(hit)
        return rows[np.lexsort((self.offset[rows], self.file[rows]))] if len(rows) > 1 else rows

    def gaps(self, region: Region) -> list[Region]:
        """Return disjoint boxes that hold the elements of `region` that no fragment stores."""
        return self._share_out([region], self.overlapping(region))[1]

    def _share_out(self, parts: Sequence[Region], rows: Ints) -> tuple[list[tuple[int, Region]], list[Region]]:
        """Give each element of disjoint parts to one of the rows that store it.

        Returns the shares in the order of `rows`, and disjoint boxes of what no row stores. Rows are taken by their
        place in the tensor: what is left stays a box or few, in whatever order the files hold them.
        """
        left = [part for part in parts if not part.empty]
        passed: list[Region] = []
        shares: list[tuple[int, Region]] = []
        for position in np.lexsort(self.start[rows].T[::-1]).tolist() if self.ndim else range(len(rows)):
            if not left:
                break
            box = self.region(int(rows[position]))
            rest: list[Region] = []
            for part in left:
                shared = part.intersect(box)
                if shared is not None:
                    shares.append((position, shared))
                    rest.extend(part.minus(shared))
                elif part.stop[0] <= box.start[0]:
                    passed.append(part)  # later rows begin no earlier
                else:
                    rest.append(part)
            left = rest
        shares.sort(key=lambda share: share[0])
        return [(int(rows[position]), shared) for position, shared in shares], passed + left

    def _terms(self, rows: Ints, reduction: str | None) -> list[Ints] | str:
        """Return the rows of each summand, in rank order, or why they cannot be put together.

        Without a reduction all rows are one summand.
        """
        if reduction is None:
            several = len(rows) > 0 and int(self.term[rows].min()) != int(self.term[rows].max())
            return "it is stored as several terms, and nothing says how they add up" if several else [rows]
        if reduction not in ("sum", "avg"):
            return f"the reduction '{printable(reduction)}' of its terms is unknown"
        # Terms of the whole table: one that has no row here is missing, not zero.
        terms = np.arange(self.n_terms) if self.n_terms else np.unique(self.term)
        return [rows[self.term[rows] == term] for term in terms] or [rows]

    def read_into(self, tensor: str, region: Region, out: NDArray[Any], reduction: str | None) -> None:
        """Fill `out` with a region of the tensor, assembled from its fragments.

        Copies serve for one another: the first that can be read is taken. Where boxes overlap without being equal,
        the shared elements count only if all their bytes agree. With a `reduction` every term is read, summed in
        rank order in float64 (integers in 64 bits) and rounded once to the tensor's dtype.

        Raises
        ------
        MissingRegionError
            If an element is stored nowhere, cannot be read, or is stored twice with different bytes.
        ChangedOnDiskError
            If a file is no longer the one that was opened, whatever its copies hold.
        """
        terms = self._terms(self.overlapping(region), reduction)
        if isinstance(terms, str):
            raise MissingRegionError(tensor, region, terms)
        if reduction is None:
            self._assemble(tensor, region, out, terms[0])
            return
        wide: Any = {"c": np.complex128, "i": np.int64, "u": np.uint64}.get(out.dtype.kind, np.float64)
        total: NDArray[Any] = np.zeros(region.shape, wide)
        part = np.empty(region.shape, out.dtype)
        for rows in terms:
            self._assemble(tensor, region, part, rows)
            with np.errstate(all="ignore"):
                total += part.astype(wide)
        if reduction == "avg":
            mean = total / len(terms)
            total = np.rint(mean) if out.dtype.kind in "iu" else mean
        out[...] = round_once(total, out.dtype)

    def _assemble(self, tensor: str, region: Region, out: NDArray[Any], rows: Ints) -> None:
        shares, gaps = self._share_out([region], rows)
        if gaps:
            raise MissingRegionError(tensor, gaps[0], "no file stores it")
        failed: dict[int, TensormorphError] = {}
        left: list[tuple[Region, TensormorphError]] = []
        for row, share in shares:
            error = failed.get(row) or self._try_row(row, share, region, out)
            if error is not None:
                failed[row] = error
                left.append((share, error))
        for row in rows.tolist():
            if not left:
                break
            if row in failed:
                continue
            box = self.region(row)
            rest: list[tuple[Region, TensormorphError]] = []
            for part, before in left:
                shared = part.intersect(box)
                if shared is not None and self._try_row(row, shared, region, out) is None:
                    rest.extend((other, before) for other in part.minus(box))
                else:
                    rest.append((part, before))
            left = rest
        if left:
            raise MissingRegionError(tensor, left[0][0], str(left[0][1])) from left[0][1]
        self._compare_overlaps(tensor, region, out, rows)

    def _try_row(self, row: int, shared: Region, region: Region, out: NDArray[Any]) -> TensormorphError | None:
        """Read a box of `region` into its place in `out`; return what went wrong if a copy may still serve it."""
        try:
            self._read_row(row, shared.within(self.region(row)), _view(out, shared.within(region)))
        except (CancelledError, ChangedOnDiskError):
            raise
        except TensormorphError as error:
            return error
        return None

    def _read_row(self, row: int, part: Region, out: NDArray[Any]) -> None:
        """Read part of a fragment, in its own coordinates; a fragment of another dtype is never cast."""
        source = self.open_source(row)
        if source.dtype != out.dtype:
            raise ReadError(self._file(row), f"the fragment holds {source.dtype}, the tensor is {out.dtype}")
        source.read_into(part, out)

    def _file(self, row: int) -> str:
        return self.files[int(self.file[row])]

    def _compare_overlaps(self, tensor: str, region: Region, out: NDArray[Any], rows: Ints) -> None:
        """Refuse elements that boxes hold in common without being equal, unless all their bytes agree with `out`."""
        if len(rows) < 2 or not region.ndim:
            return
        ndim = region.ndim
        edges = np.concatenate([self.start[rows], self.stop[rows]], axis=1)
        boxes, which = np.unique(edges, axis=0, return_inverse=True)
        low = np.maximum(boxes[:, :ndim], np.array(region.start, np.int64))
        high = np.minimum(boxes[:, ndim:], np.array(region.stop, np.int64))
        if sum(math.prod(edge) for edge in (high - low).tolist()) <= region.size:
            return  # they cover the region, so they are disjoint: nothing is stored by two of them
        for box, copies in enumerate(_groups(which.reshape(-1))):
            near = np.all((low < high[box]) & (high > low[box]), axis=1)
            near[box] = False
            for other in np.flatnonzero(near):
                shared = Region(
                    tuple(np.maximum(low[box], low[other]).tolist()), tuple(np.minimum(high[box], high[other]).tolist())
                )
                self._compare(tensor, shared, out[shared.within(region).slices()], rows[copies])

    def _compare(self, tensor: str, shared: Region, found: NDArray[Any], copies: Ints) -> None:
        """Refuse a box unless all of the copies that can be read, and one at least, hold what was found."""
        again = np.empty(shared.shape, found.dtype)
        failures: list[TensormorphError] = []
        for row in copies.tolist():
            error = self._try_row(row, shared, shared, again)
            if error is not None:
                failures.append(error)
            elif again.tobytes() != found.tobytes():
                raise MissingRegionError(tensor, shared, "fragments that overlap there hold different bytes")
        if len(failures) == len(copies):
            why = f"of the fragments that overlap there one cannot be read and so not be compared: {failures[0]}"
            raise MissingRegionError(tensor, shared, why) from failures[0]

    def pieces(
        self,
        tensor: str,
        region: Region,
        max_bytes: int,
        reduction: str | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> Iterator[Piece]:
        """Partition a region in storage order; what cannot be read comes last, each box with its Problem.

        A copy stands in for a part that its own source reports as unreadable; with a `reduction`, elements that any
        term lacks cannot be read.
        """
        if region.empty:
            return
        terms = self._terms(self.overlapping(region), reduction)
        if isinstance(terms, str):
            yield Piece(region, 0, _missing(tensor, region, terms))
            return
        absent: list[Region] = []
        for rows in terms[1:]:
            absent += self._share_out(_outside([region], absent), rows)[1]
        shares, gaps = self._share_out(_outside([region], absent), terms[0])
        failed: set[int] = set()
        left: list[tuple[Region, Problem]] = []
        for row, share in shares:
            for piece in self._row_pieces(tensor, row, share, max_bytes, dtype):
                if piece.problem is None:
                    yield replace(piece, nbytes=piece.nbytes * len(terms))
                else:
                    failed.add(row)
                    left.append((piece.region, piece.problem))
        for row in terms[0].tolist():
            if not left:
                break
            if row in failed:
                continue
            box = self.region(row)
            rest: list[tuple[Region, Problem]] = []
            for part, before in left:
                rest.extend((other, before) for other in part.minus(box))
                shared = part.intersect(box)
                for piece in self._row_pieces(tensor, row, shared, max_bytes, dtype) if shared is not None else ():
                    if piece.problem is None:
                        yield replace(piece, nbytes=piece.nbytes * len(terms))
                    else:
                        rest.append((piece.region, before))
            left = rest
        for part, before in left:
            yield Piece(part, 0, replace(before, region=part))
        for part in gaps:
            yield Piece(part, 0, _missing(tensor, part, "no file stores it"))
        for part in absent:
            yield Piece(part, 0, _missing(tensor, part, "no file stores one of the terms that add up to it"))

    def _row_pieces(
        self, tensor: str, row: int, shared: Region, max_bytes: int, dtype: np.dtype[Any] | None
    ) -> Iterator[Piece]:
        """Partition part of a fragment, in the tensor's coordinates; a source that fails gives one unreadable piece."""
        origin = self.start[row].tolist()
        try:
            source = self.open_source(row)
            if dtype is not None and source.dtype != dtype:
                raise ReadError(self._file(row), f"the fragment holds {source.dtype}, the tensor is {dtype}")
            pieces = iter(source.pieces(shared.offset_by([-low for low in origin]), max_bytes))
            first = next(pieces, None)  # a source that must look into its file does so here
        except CancelledError:
            raise
        except TensormorphError as error:
            sentence = f"{printable(tensor)}: {error}"
            problem = Problem(error.code, "error", sentence, tensor=tensor, file=self._file(row), region=shared)
            yield Piece(shared, 0, problem)
            return
        for piece in chain([] if first is None else [first], pieces):
            where = piece.region.offset_by(origin)
            told = piece.problem
            yield Piece(where, piece.nbytes, replace(told, tensor=tensor, region=where) if told else None)


def _view(array: NDArray[Any], region: Region) -> NDArray[Any]:
    return array[region.slices()] if region.ndim else array  # a 0-d array indexed by () gives a scalar


def _groups(which: Ints) -> list[Ints]:
    """Return, for each value from 0 up, the positions that hold it, in rising order."""
    order = np.argsort(which, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(which[order])) + 1)


def _outside(left: list[Region], boxes: Sequence[Region]) -> list[Region]:
    """Return disjoint boxes that hold the elements of disjoint regions that are in none of `boxes`."""
    for box in boxes:
        left = [rest for part in left for rest in part.minus(box)]
    return left


def _missing(tensor: str, region: Region, why: str) -> Problem:
    error = MissingRegionError(tensor, region, why)
    return Problem(error.code, "error", error.sentence, tensor=tensor, region=region)


def _no_source(row: int) -> StoredSource:
    raise IndexError(row)
