"""What reading what is looked at costs, in words."""

from __future__ import annotations

import numpy as np

from tensormorph.gui.selection import Selection
from tensormorph.model import LogicalTensor
from tensormorph.region import Region
from tensormorph.text import plural, size


def cost_text(selection: Selection, n_bytes: int, region: Region | None = None) -> str:
    """Return what reading costs: ``full() reads 4.21 GB from 8 files``; by default of all that is looked at."""
    name = "full()" if selection.view is None else selection.view.short
    return f"{name} reads {size(n_bytes)} from {plural(_n_files(selection.source, region), 'file')}"


def _n_files(tensor: LogicalTensor | None, region: Region | None) -> int:
    """Return how many files store a part of a region."""
    if tensor is None:
        return 0
    fragments = tensor.fragments
    rows = fragments.overlapping(Region.whole(tensor.shape) if region is None else region)
    return len(np.unique(fragments.file[rows]))
