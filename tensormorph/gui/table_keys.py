"""What keys mean in the table."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent

from tensormorph.gui.table_copy import Form

Cell = tuple[int, int]
_ARROWS = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
}


def copy_form(event: QKeyEvent) -> Form | None:
    """Return the form in which a key copies, or None for any other key."""
    if event.key() != Qt.Key.Key_C:
        return None
    control, shift = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
    if event.modifiers() == control:
        return "TSV"
    return "NumPy" if event.modifiers() == control | shift else None


def target_of(event: QKeyEvent, start: Cell | None, first: Cell, extent: Cell, page: Cell) -> Cell | None:
    """Return the cell to which a key leads, or None if it leads nowhere.

    Parameters
    ----------
    start
        The cell that moves, if one does; else an arrow leads to `first`, and other keys from there.
    first
        The first cell in sight.
    extent, page
        Rows and columns of the plane, and of what is in sight.
    """
    shift, keypad = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.KeypadModifier
    held, key = event.modifiers() & ~(shift | keypad), event.key()
    control = held == Qt.KeyboardModifier.ControlModifier
    if not all(extent) or (held and not (control and key in (Qt.Key.Key_Home, Qt.Key.Key_End))):
        return None
    row, col = start or first
    last_row, last_col = extent[0] - 1, extent[1] - 1
    if key in _ARROWS:
        if start is not None:
            row, col = row + _ARROWS[Qt.Key(key)][0], col + _ARROWS[Qt.Key(key)][1]
    elif key in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
        row += page[0] if key == Qt.Key.Key_PageDown else -page[0]
    elif key == Qt.Key.Key_Home:
        row, col = (0 if control else row), 0
    elif key == Qt.Key.Key_End:
        row, col = (last_row if control else row), last_col
    else:
        return None
    return max(0, min(row, last_row)), max(0, min(col, last_col))
