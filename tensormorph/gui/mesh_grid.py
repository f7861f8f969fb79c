"""Where the ranks of a mesh are drawn: rows and columns, long axes in bands, further axes as blocks. No Qt here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
STRIP_LEFT, STRIP_TOP, LABEL, SPACE = 56, 20, 20, 16
"""Logical pixels: beside the rows, above the columns, for the name of a block, between panels."""
LARGEST = (192, 184)
"""Logical pixels that a cell takes at most, wide and high."""
_A_ROW = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64)
_WORTH = 1.15
"""Bands are harder to read than an axis in one: cells must be so many times as large for it."""
_WIDER = 1.5
"""A cell is best so many times as wide as high: a number lies in it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A rectangle of cells: of one block, some of its rows and some of its columns."""

    block: int
    rows: tuple[int, int]
    cols: tuple[int, int]
    left: int
    top: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The places of all cells, in logical pixels.

    Fields
    ------
    n_blocks, n_rows, n_cols
        What the mesh folds into: the last two axes are rows and columns, all before are blocks.
    band
        Rows and columns of a panel.
    cell
        Width and height from one cell to the next.
    strips
        Room beside the rows and above the columns of a panel.
    a_row
        Panels that stand side by side.
    """

    n_blocks: int
    n_rows: int
    n_cols: int
    band: tuple[int, int]
    cell: tuple[int, int]
    strips: tuple[int, int]
    a_row: int

    @property
    def gap(self) -> int:
        """Pixels between two cells."""
        small = min(self.cell)
        return 8 if small >= 64 else 2 if small >= 12 else 1 if small >= 4 else 0

    @property
    def n_bands(self) -> tuple[int, int]:
        """Panels of a block, down and right."""
        return -(-self.n_rows // self.band[0]), -(-self.n_cols // self.band[1])

    @property
    def pitch(self) -> tuple[int, int]:
        """Width and height from one panel to the next."""
        return (
            self.strips[0] + self.band[1] * self.cell[0] + SPACE,
            self.strips[1] + self.band[0] * self.cell[1] + SPACE,
        )

    @property
    def n_panels(self) -> int:
        """How many panels there are."""
        return self.n_blocks * self.n_bands[0] * self.n_bands[1]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of all."""
        wide, high = self.pitch
        return min(self.a_row, self.n_panels) * wide - SPACE, -(-self.n_panels // self.a_row) * high - SPACE

    def panels(self) -> Iterator[Panel]:
        """Yield the panels."""
        down, right = self.n_bands
        for i in range(self.n_panels):
            block, rest = divmod(i, down * right)
            r, c = divmod(rest, right)
            rows = (r * self.band[0], min(self.n_rows, (r + 1) * self.band[0]))
            cols = (c * self.band[1], min(self.n_cols, (c + 1) * self.band[1]))
            yield Panel(block, rows, cols, i % self.a_row * self.pitch[0], i // self.a_row * self.pitch[1])

    def corners(self) -> tuple[Ints, Ints]:
        """Return the left and the top of all cells, in row-major order of the mesh."""
        n = self.n_blocks * self.n_rows * self.n_cols
        block, rest = np.divmod(np.arange(n, dtype=np.int64), self.n_rows * self.n_cols)
        row, col = np.divmod(rest, self.n_cols)
        down, right = self.n_bands
        panel = block * down * right + row // self.band[0] * right + col // self.band[1]
        left = panel % self.a_row * self.pitch[0] + self.strips[0] + col % self.band[1] * self.cell[0]
        top = panel // self.a_row * self.pitch[1] + self.strips[1] + row % self.band[0] * self.cell[1]
        return left, top

    def at(self, x: int, y: int) -> int | None:
        """Return which cell is at a point; None between panels."""
        across, dx = divmod(x, self.pitch[0])
        along, dy = divmod(y, self.pitch[1])
        col, row = (dx - self.strips[0]) // self.cell[0], (dy - self.strips[1]) // self.cell[1]
        panel = along * self.a_row + across
        if x < 0 or y < 0 or across >= self.a_row or panel >= self.n_panels:
            return None
        down, right = self.n_bands
        block, rest = divmod(panel, down * right)
        if not (0 <= row < self.band[0] and 0 <= col < self.band[1]):
            return None
        row, col = row + rest // right * self.band[0], col + rest % right * self.band[1]
        if row >= self.n_rows or col >= self.n_cols:
            return None
        return (block * self.n_rows + row) * self.n_cols + col


def grid_of(mesh: Sequence[int], width: int, height: int) -> Grid:
    """Return the places of a mesh's cells in an area: as large and as well shaped as they can be."""
    n_cols = mesh[-1] if mesh else 1
    n_rows = mesh[-2] if len(mesh) > 1 else 1
    n_blocks = math.prod(mesh[:-2])
    best, most = None, 0.0
    for rows, cols in _bands(n_rows, n_cols):
        in_bands = cols < n_cols
        strips = (
            STRIP_LEFT if len(mesh) > 1 or in_bands else 0,
            (STRIP_TOP if n_rows > 1 or not in_bands else 0) + (LABEL if n_blocks > 1 else 0),
        )
        n = n_blocks * -(-n_rows // rows) * -(-n_cols // cols)
        here, fits = None, -1.0
        for a_row in _A_ROW:
            if a_row > n:
                break
            wide = ((width + SPACE) // a_row - SPACE - strips[0]) // cols
            high = ((height + SPACE) // -(-n // a_row) - SPACE - strips[1]) // rows
            cell = (max(1, min(LARGEST[0], wide)), max(1, min(LARGEST[1], high)))
            score = min(cell[0] / _WIDER, cell[1]) if min(wide, high) > 0 else 0.0
            if score > fits:
                here, fits = Grid(n_blocks, n_rows, n_cols, (rows, cols), cell, strips, a_row), score
        if best is None or fits > most * _WORTH:
            best, most = here, fits
    assert best is not None
    return best


def _bands(n_rows: int, n_cols: int) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of a panel: all, or one of the two axes in bands of a power of two."""
    yield n_rows, n_cols
    for n, rows in ((n_rows, True), (n_cols, False)):
        band = 1 << max(0, (n - 1).bit_length() - 1)
        while band >= 4 and band < n:
            yield (band, n_cols) if rows else (n_rows, band)
            band //= 2
