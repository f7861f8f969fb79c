"""Who holds a region: computed from boxes alone, nothing is read. No Qt here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensormorph.fragments import NO_RANK
from tensormorph.gui.shards import MOST_SEARCHED
from tensormorph.model import LogicalTensor
from tensormorph.region import Region
from tensormorph.text import printable

MOST_HOLDERS = 2000
"""Holders that are listed; of more, the number is told."""


@dataclass(frozen=True, slots=True)
class Held:
    """Part of a region that one fragment stores; `file` is None of a part that no one does.

    Fields
    ------
    rank
        None where nothing tells.
    row
        Of the fragment.
    copy
        Whether another one that is listed before it stores the same box.
    """

    rank: int | None
    file: str | None
    region: Region
    row: int | None
    copy: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """Who holds a region of a tensor.

    Fields
    ------
    parts
        What is held, in the order of the tensor, then what no one holds.
    n_holders
        Fragments that store a part of it; `parts` may name fewer.
    n_gone
        Elements that no one stores; None where so many fragments are not searched for gaps.
    """

    name: str
    region: Region
    parts: tuple[Held, ...]
    n_holders: int
    n_gone: int | None


def who_holds(tensor: LogicalTensor, region: Region) -> Holding:
    """Return who holds a region, and what of it no one does."""
    fragments = tensor.fragments
    rows = fragments.overlapping(region)
    order = np.lexsort((fragments.rank[rows], *fragments.start[rows].T[::-1]))
    seen: set[Region] = set()
    parts: list[Held] = []
    for row in rows[order][:MOST_HOLDERS].tolist():
        shared = region.intersect(fragments.region(row))
        if shared is not None:
            rank = int(fragments.rank[row])
            file = fragments.files[int(fragments.file[row])]
            parts.append(Held(None if rank == NO_RANK else rank, file, shared, row, shared in seen))
            seen.add(shared)
    n_gone: int | None = 0
    if not tensor.complete:
        gaps = fragments.gaps(region) if len(rows) <= MOST_SEARCHED else None
        n_gone = None if gaps is None else sum(gap.size for gap in gaps)
        parts += [Held(None, None, gap, None) for gap in (gaps or ())[:MOST_HOLDERS]]
    return Holding(tensor.name, region, tuple(parts), len(rows), n_gone)


def holding_text(holding: Holding) -> str:
    """Return it for the clipboard: plain ASCII, a line a part, tabs between rank, file, region and elements."""
    lines = [f"{printable(holding.name, 2000)} [{holding.region}]", "rank\tfile\tregion\telements"]
    for part in holding.parts:
        who = "no one" if part.file is None else "" if part.rank is None else str(part.rank)
        lines.append(f"{who}\t{printable(part.file or '', 2000)}\t{part.region}\t{part.region.size}")
    listed = sum(part.file is not None for part in holding.parts)
    if listed < holding.n_holders:
        lines.append(f"and {holding.n_holders - listed} more holders")
    return "\n".join(lines)
