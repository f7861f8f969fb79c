"""The section of the Inspector on how a tensor is placed: its mesh and cuts, how that is known, or why it is not."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from tensormorph.gui.badge import ProvenancePill
from tensormorph.gui.layout_words import (
    axis_name,
    mesh_provenance,
    mesh_text,
    named_ranks,
    order_text,
    ranks_text,
    sentence,
    stated_problems,
    stated_result,
    why_no_layout,
)
from tensormorph.gui.sections import Section
from tensormorph.gui.selection import Selection
from tensormorph.gui.states import PlainLabel, breakable
from tensormorph.gui.theme import Tokens
from tensormorph.text import count, printable

_MOST_CANDIDATES = 8


class LayoutSection(Section):
    """Mesh, a placement an axis, order, provenance and evidence; or the meshes that come into question."""

    stateWanted = Signal()  # noqa: N815
    """A person wants to state the mesh."""

    def __init__(self, selection: Selection, tokens: Tokens) -> None:
        super().__init__("Layout")
        self._selection = selection
        self.pill = ProvenancePill(tokens)
        self.top.addWidget(self.pill)
        self.mesh = PlainLabel("", "text", 12, 500, wrap=True)
        self.axes, self.placements = PlainLabel("", "text2", 12), PlainLabel("", "text", 12)
        self.order = PlainLabel("", "text2", 12, wrap=True)
        self.candidates = PlainLabel("", "text2", 12, wrap=True)
        self.evidence, self.result = PlainLabel("", "text3", 11, wrap=True), PlainLabel("", "text3", 11, wrap=True)
        self.state = QPushButton("State the mesh…")
        self.state.setToolTip("Say how the ranks are arranged; it is told whether what is stored agrees")
        self.state.setAutoDefault(False)
        self.state.clicked.connect(self.stateWanted)
        self._placed = QWidget(self)
        line = QHBoxLayout(self._placed)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(12)
        line.addWidget(self.axes, 0, Qt.AlignmentFlag.AlignTop)
        line.addWidget(self.placements, 1, Qt.AlignmentFlag.AlignTop)
        self.body.setSpacing(4)
        for widget in (self.mesh, self._placed, self.order, self.evidence, self.result, self.candidates):
            self.body.addWidget(widget)
        foot = QVBoxLayout()
        foot.setContentsMargins(0, 4, 0, 0)
        foot.addWidget(self.state, 0, Qt.AlignmentFlag.AlignLeft)
        self.body.addLayout(foot)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        super().set_tokens(tokens)
        self.pill.set_tokens(tokens)

    def show_tensor(self) -> None:
        """Show how the selected tensor is placed."""
        checkpoint, tensor = self._selection.checkpoint, self._selection.tensor
        if checkpoint is None or tensor is None:
            return
        layout = tensor.layout
        mesh = checkpoint.mesh if layout is None else layout.mesh
        self.pill.say(mesh_provenance(checkpoint, tensor))
        self.mesh.setText("" if mesh is None else f"mesh {mesh_text(mesh)}")
        self._placed.setVisible(layout is not None)
        self.axes.setText("" if mesh is None else "\n".join(axis_name(mesh, k) for k in range(len(mesh.names))))
        self.placements.setText("" if layout is None else "\n".join(str(placed) for placed in layout.placements))
        self.order.setText("" if layout is None else order_text(layout))
        told = why_no_layout(checkpoint, tensor) if layout is None else sentence(layout.evidence)
        result = printable(stated_result(checkpoint), 600)
        agrees = layout is not None and layout.provenance == "stated" and bool(stated_problems(checkpoint))
        self.evidence.setText("" if agrees else breakable(told))  # the result says more
        self.result.setText(breakable(result))
        found = () if layout is not None or checkpoint.mesh is not None else checkpoint.mesh_candidates
        lines = [f"{mesh_text(one)}, {ranks_text(one)}" for one in found[:_MOST_CANDIDATES]]
        lines += [f"and {count(len(found) - _MOST_CANDIDATES)} more"] if len(found) > _MOST_CANDIDATES else []
        self.candidates.setText("\n".join(lines))
        for label in (self.mesh, self.order, self.evidence, self.result, self.candidates):
            label.setVisible(bool(label.text()))
        recorded = layout is not None and layout.provenance == "recorded"
        self.state.setVisible(not recorded and named_ranks(checkpoint) > 0)
