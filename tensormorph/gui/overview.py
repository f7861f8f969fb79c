"""The Inspector while no tensor is chosen: the checkpoint as a whole."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QVBoxLayout, QWidget

from tensormorph.gui.outline import Outline
from tensormorph.gui.rows import quantity
from tensormorph.gui.session import n_tensors
from tensormorph.gui.states import PlainLabel, breakable
from tensormorph.gui.theme import Tokens
from tensormorph.model import Checkpoint
from tensormorph.text import count, listing, plural, printable, size


def facts_of(checkpoint: Checkpoint, outline: Outline) -> dict[str, str]:
    """Return what is known about a checkpoint, in words; what is not recorded is left out."""
    table, facts = checkpoint.table, checkpoint.facts
    used = np.bincount(table.encoding, minlength=len(table.encodings)).tolist()
    dtypes = [f"{encoding.name} ({count(n)})" for encoding, n in zip(table.encodings, used, strict=True) if n]
    told = {
        "format": printable(f"{checkpoint.format}, {checkpoint.format_detail}".rstrip(", "), 200),
        "tensors": count(n_tensors(checkpoint)),
        "parameters": quantity(outline.n_parameters),
        "values": size(outline.n_bytes),
        "dtypes": listing(dtypes, 4),
        "files": f"{plural(len(checkpoint.files), 'file')}, {size(sum(file.n_bytes for file in checkpoint.files))}",
    }
    if facts.step is not None:
        told["step"] = count(facts.step)
    if facts.world_size is not None:
        told["world size"] = count(facts.world_size)
    if facts.software:
        told["written by"] = printable(facts.software, 120)
    if checkpoint.aliases:
        told["aliases"] = count(len(checkpoint.aliases))
    if checkpoint.unreadable:
        told["unreadable"] = plural(len(checkpoint.unreadable), "tensor")
    return told


class Overview(QWidget):
    """Name, path and facts of the checkpoint."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self.path = PlainLabel("", "text2", 11, wrap=True)
        self.name = PlainLabel("", "text", 17, 600, wrap=True)
        self.facts: dict[str, PlainLabel] = {}
        self._grid_box = QWidget()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(16, 10, 16, 12)
        self._column.setSpacing(2)
        for widget in (self.path, self.name, self._grid_box):
            self._column.addWidget(widget)
        self._column.addStretch(1)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        for label in self.findChildren(PlainLabel):
            label.set_tokens(tokens)

    def show_checkpoint(self, checkpoint: Checkpoint | None, outline: Outline | None) -> None:
        """Describe a checkpoint; None leaves the panel empty."""
        self._column.removeWidget(self._grid_box)
        self._grid_box.hide()
        self._grid_box.deleteLater()
        self._grid_box, self.facts = QWidget(), {}
        self._column.insertWidget(2, self._grid_box)
        known = checkpoint is not None and outline is not None
        self.path.setText(breakable(printable(str(checkpoint.path.parent), 400)) if checkpoint is not None else "")
        self.name.setText(breakable(printable(checkpoint.path.name, 160)) if checkpoint is not None else "")
        grid = QGridLayout(self._grid_box)
        grid.setContentsMargins(0, 6, 0, 0)
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(4)
        grid.setColumnMinimumWidth(0, 76)
        grid.setColumnStretch(1, 1)
        told = facts_of(checkpoint, outline) if known else {}  # type: ignore[arg-type]
        for row, (name, text) in enumerate(told.items()):
            self.facts[name] = PlainLabel(breakable(text), "text", 12, wrap=True)
            grid.addWidget(PlainLabel(name, "text2", 12), row, 0, Qt.AlignmentFlag.AlignTop)
            grid.addWidget(self.facts[name], row, 1)
        self.set_tokens(self._tokens)
