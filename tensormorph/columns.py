"""All tensors of a checkpoint as columns, so that a million of them cost arrays and not objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import StoredSource
from tensormorph.dtypes import Encoding
from tensormorph.fragments import FragmentTable, Ints


@dataclass(frozen=True, slots=True)
class TensorKey:
    """What a tensor is: `param` of model or file `part`, in the role `slot` (empty for the weight itself).

    `named` is False where the file does not say which parameter it belongs to.
    """

    part: str
    param: str
    slot: str = ""
    named: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class TensorTable:
    """All tensors of a checkpoint as columns: the shape a reader fills, whatever their number.

    The flat coordinate columns `start` and `stop` hold, for tensor t of d axes with f fragments, f rows of d numbers
    from ``first_coordinate[t]`` on; `dims` holds its d extents from ``first_dim[t]`` on.

    Fields
    ------
    names
        Unique names in display order.
    keys
        ``keys(row)`` gives a tensor's key.
    encodings, encoding
        The encodings in use, and each tensor's position among them.
    n_elements
        Elements of each tensor, int64.
    complete
        Whether every element is stored and decodable.
    first_fragment
        Row of each tensor's first fragment; one more entry at the end.
    file, offset, length, rank, term
        As in FragmentTable, one row a fragment.
    in_items
        Whether `offset` and `length` are those of an item that tells itself where its elements lie in it.
    """

    names: Sequence[str]
    keys: Callable[[int], TensorKey]
    encodings: tuple[Encoding, ...]
    encoding: NDArray[np.int16]
    n_elements: Ints
    complete: NDArray[np.bool_]
    dims: Ints
    first_dim: Ints
    first_fragment: Ints
    start: Ints
    stop: Ints
    first_coordinate: Ints
    file: NDArray[np.int32]
    offset: Ints
    length: Ints
    rank: NDArray[np.int32]
    term: NDArray[np.int32]
    files: tuple[str, ...]
    in_items: bool = False

    def __post_init__(self) -> None:
        n, fragments = len(self.names), len(self.file)
        for name in ("encoding", "n_elements", "complete"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"column {name} does not have {n} rows")
        for name in ("first_dim", "first_fragment", "first_coordinate"):
            if len(getattr(self, name)) != n + 1:
                raise ValueError(f"column {name} does not have {n + 1} rows")
        for name in ("offset", "length", "rank", "term"):
            if len(getattr(self, name)) != fragments:
                raise ValueError(f"column {name} does not have {fragments} rows")
        if len(self.start) != len(self.stop):
            raise ValueError("start and stop differ in length")
        for name, last in (("first_dim", self.dims), ("first_fragment", self.file), ("first_coordinate", self.start)):
            column = getattr(self, name)
            if int(column[0]) != 0 or int(column[-1]) != len(last) or bool(np.any(np.diff(column) < 0)):
                raise ValueError(f"column {name} does not rise from 0 to {len(last)}")
        if not np.array_equal(np.diff(self.first_coordinate), np.diff(self.first_fragment) * np.diff(self.first_dim)):
            raise ValueError("a tensor does not have one coordinate a fragment and axis")

    def __len__(self) -> int:
        return len(self.names)

    def shape(self, row: int) -> tuple[int, ...]:
        """Return a tensor's shape."""
        return tuple(self.dims[int(self.first_dim[row]) : int(self.first_dim[row + 1])].tolist())

    def n_bytes(self, row: int) -> int | None:
        """Return the bytes of a tensor's logical values; None for an element type of unknown size."""
        encoding = self.encodings[int(self.encoding[row])]
        return None if encoding.bits is None else encoding.n_bytes(int(self.n_elements[row]))

    def n_fragments(self, row: int) -> int:
        """Return how many fragments a tensor has."""
        return int(self.first_fragment[row + 1] - self.first_fragment[row])

    def fragments(self, row: int, open_source: Callable[[int], StoredSource]) -> FragmentTable:
        """Return a tensor's fragments as views into the columns; `open_source` takes the row in these columns."""
        first, last = int(self.first_fragment[row]), int(self.first_fragment[row + 1])
        ndim = int(self.first_dim[row + 1] - self.first_dim[row])
        at = int(self.first_coordinate[row])
        end = at + (last - first) * ndim
        return FragmentTable(
            self.start[at:end].reshape(last - first, ndim),
            self.stop[at:end].reshape(last - first, ndim),
            self.file[first:last],
            self.offset[first:last],
            self.length[first:last],
            self.rank[first:last],
            self.term[first:last],
            self.files,
            lambda i: open_source(first + i),
        )


class NameColumn(Sequence[str]):
    """Many names as one run of UTF-8 bytes: a name becomes a string when it is asked for.

    Parameters
    ----------
    blob
        All names, one behind the other; lone surrogates as Python's ``surrogatepass`` writes them.
    ends
        Byte at which each name ends, int64.
    """

    def __init__(self, blob: bytes, ends: Ints) -> None:
        self._blob = blob
        self._ends = ends

    @classmethod
    def of(cls, names: Sequence[str]) -> NameColumn:
        """Return a column of these names."""
        encoded = [name.encode("utf-8", "surrogatepass") for name in names]
        return cls(b"".join(encoded), np.cumsum([len(e) for e in encoded], dtype=np.int64))

    @property
    def parts(self) -> tuple[bytes, Ints]:
        """The bytes and the ends that make up the column."""
        return self._blob, self._ends

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        at = index % len(self)
        begin = int(self._ends[at - 1]) if at else 0
        return self._blob[begin : int(self._ends[at])].decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        begin = 0
        for end in self._ends.tolist():
            yield self._blob[begin:end].decode("utf-8", "surrogatepass")
            begin = end


def ends(lengths: Sequence[int] | Ints) -> Ints:
    """Return where each of these runs begins when they stand one behind the other, and where the last ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)
