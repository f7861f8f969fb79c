"""What can be looked at of a tensor beside the whole: a stored piece, or the part that its layout gives a rank.

No Qt here. Both tell what they are called without reading anything, and become a tensor of their own when asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tensormorph.gui import pieces, rank_parts
from tensormorph.model import LogicalTensor
from tensormorph.placement import Part
from tensormorph.region import Region
from tensormorph.text import plural, printable, shape

Key: TypeAlias = tuple[str, int]
Index: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PieceView:
    """A stored piece, as it lies in its file: padding and all."""

    tensor: LogicalTensor
    piece: int

    @property
    def key(self) -> Key:
        """What tells it from all other views of the tensor."""
        return "piece", self.piece

    @property
    def short(self) -> str:
        """What it is called behind the name of the tensor."""
        return pieces.name_of(self.tensor, self.piece).short

    @property
    def place(self) -> str:
        """Whose it is, in words."""
        return pieces.name_of(self.tensor, self.piece).place

    @property
    def rank(self) -> int | None:
        """The rank that it is of."""
        return self.tensor.locals[self.piece].rank

    @property
    def fragment(self) -> int | None:
        """The row of the fragment that lies in it, as far as that is one."""
        return pieces.fragment_of(self.tensor, self.piece)

    def read(self) -> LogicalTensor:
        """Return it as a tensor of its own. May look into its file; raises TensormorphError."""
        return pieces.as_tensor(self.tensor, self.piece)

    def to_full(self, local: LogicalTensor, index: Index) -> Index | None:
        """Return the place in the whole of an element of it."""
        return pieces.shifted(self.tensor, self.piece, local, index)

    def from_full(self, local: LogicalTensor, index: Index) -> Index | None:
        """Return the place in it of an element of the whole."""
        return pieces.within(self.tensor, self.piece, local, index)

    def region_in_full(self, local: LogicalTensor, region: Region) -> Region | None:
        """Return where a region of it lies in the whole."""
        start, stop = self.to_full(local, region.start), self.to_full(local, region.stop)
        return None if start is None or stop is None else Region(start, stop)

    def told(self, local: LogicalTensor) -> str:
        """Return what of the whole tensor it is, as far as that is known."""
        region = pieces.name_of(self.tensor, self.piece).region
        what = _what(local)
        if region is None:
            return f"{what}, stored as {printable(self.tensor.locals[self.piece].stored_name, 200)}"
        told = f"{what}, holds [{region}] of full()"
        beyond = local.n_elements - region.size
        return told if beyond <= 0 else f"{told}, and {plural(beyond, 'element')} that are no part of it"


@dataclass(frozen=True, slots=True, eq=False)
class RankView:
    """The part that the layout gives a rank, whoever stored it, without padding."""

    tensor: LogicalTensor
    rank: int

    @property
    def key(self) -> Key:
        """What tells it from all other views of the tensor."""
        return "rank", self.rank

    @property
    def short(self) -> str:
        """What it is called behind the name of the tensor: as a script asks for it."""
        return f"local(rank={self.rank})"

    @property
    def place(self) -> str:
        """Rank and coordinate, and who wrote it: ``rank 3 (1, 1)  written by rank 0``."""
        words = [f"rank {self.rank}"]
        layout, part = self.tensor.layout, self.part
        if layout is not None and part is not None:
            words[0] += f" ({', '.join(map(str, layout.mesh.coordinate(self.rank)))})"
            words.append(self._stored(part))
        return "  ".join(filter(None, words))

    @property
    def part(self) -> Part | None:
        """What the layout gives the rank."""
        return rank_parts.rank_part(self.tensor, self.rank)

    @property
    def fragment(self) -> int | None:
        """The row of the first fragment that stores something of it: the rank's own, if it has one."""
        part = self.part
        rows = [] if part is None else rank_parts.rows_of(self.tensor, part)
        own = [row for row in rows if int(self.tensor.fragments.rank[row]) == self.rank]
        return next(iter(own or rows), None)

    def read(self) -> LogicalTensor:
        """Return it as a tensor of its own; raises TensormorphError."""
        return rank_parts.part_as_tensor(self.tensor, self.rank)

    def to_full(self, local: LogicalTensor, index: Index) -> Index | None:
        """Return the place in the whole of an element of it."""
        part = self.part
        return None if part is None or part.shape != local.shape else rank_parts.shifted(part, index)

    def from_full(self, local: LogicalTensor, index: Index) -> Index | None:
        """Return the place in it of an element of the whole."""
        part = self.part
        return None if part is None or part.shape != local.shape else rank_parts.within(part, index)

    def region_in_full(self, local: LogicalTensor, region: Region) -> Region | None:
        """Return where a region of it lies in the whole; None where that is no one box."""
        part = self.part
        for here, whole in () if part is None or part.shape != local.shape else part.boxes():
            if here.contains(region):
                return region.within(here).offset_by(whole.start)
        return None

    def told(self, local: LogicalTensor) -> str:
        """Return what of the whole tensor it is, and who stored it."""
        part, layout = self.part, self.tensor.layout
        if part is None or layout is None:
            return _what(local)
        if part.empty:
            return f"{_what(local)}, {rank_parts.EMPTY}: the cut leaves nothing for rank {self.rank}"
        what = "its term of" if rank_parts.sums_up(layout) else "holds"
        told = f"{_what(local)}, {what} {rank_parts.regions_text(part)} of full()"
        return ", ".join(filter(None, [told, self._stored(part)]))

    def _stored(self, part: Part) -> str:
        layout = self.tensor.layout
        own_only = layout is not None and rank_parts.sums_up(layout) and not part.empty
        return "" if own_only else rank_parts.stored_words(self.tensor, part, self.rank)


LocalView: TypeAlias = PieceView | RankView


def _what(local: LogicalTensor) -> str:
    return f"{printable(local.encoding.name, 60)}  {shape(local.shape)}"
