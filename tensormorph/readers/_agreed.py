"""An array that several files hold whole: read only where they agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.array import Piece, Place, StoredSource
from tensormorph.errors import MissingRegionError
from tensormorph.region import Region
from tensormorph.text import listing


@dataclass(frozen=True, slots=True, eq=False)
class Agreed:
    """Equal arrays of several ranks, of which nothing records that they are copies.

    Every read compares all of them, bit for bit: where they differ there is no value, for nothing says which counts, or
    that they are parts of one tensor.

    Fields
    ------
    own
        The rank, by its position, whose file this one stands for.
    """

    tensor: str
    ranks: tuple[int, ...]
    sources: tuple[StoredSource, ...]
    own: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sources[0].shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.sources[0].dtype

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        """Fill `out` with a region.

        Raises
        ------
        MissingRegionError
            If the ranks disagree there.
        TensormorphError
            As the sources.
        """
        self.sources[0].read_into(region, out)
        again = np.empty(region.shape, self.dtype)
        found = np.ascontiguousarray(out).tobytes() if len(self.sources) > 1 else b""
        differing = [self.ranks[0]]
        for rank, source in zip(self.ranks[1:], self.sources[1:], strict=True):
            source.read_into(region, again)
            if again.tobytes() != found:
                differing.append(rank)
        if len(differing) > 1:
            raise MissingRegionError(self.tensor, region, disagreement(differing))

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        """Partition a region as the rank's own file holds it; each piece is read from all."""
        for piece in self.sources[self.own].pieces(region, max_bytes):
            yield Piece(piece.region, piece.nbytes * len(self.sources), piece.problem)

    def place(self) -> Place:
        """Return where the rank's own elements lie."""
        return self.sources[self.own].place()

    def bit_of(self, index: Sequence[int], /) -> int:
        """Return the position of one element in the rank's own file, in bits."""
        return self.sources[self.own].bit_of(index)


def disagreement(ranks: Sequence[int]) -> str:
    """Return why ranks' plain tensors of one name have no common value."""
    return (
        f"replicas disagree: ranks {listing([str(r) for r in ranks], 8)} hold different values, and nothing records "
        "how they belong together; a join along an axis can be stated"
    )
