"""The small window in which a person states how the ranks are arranged; what is typed is answered while it is typed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLineEdit, QPushButton, QVBoxLayout, QWidget

from tensormorph.errors import UsageError
from tensormorph.gui.layout_words import mesh_text, named_ranks, sentence
from tensormorph.gui.states import PlainLabel, breakable
from tensormorph.gui.theme import Tokens, mono_font
from tensormorph.mesh import DeviceMesh, parse_mesh
from tensormorph.model import Checkpoint
from tensormorph.text import count, plural

MOST_RANKS = 1 << 16
_MOST_OFFERED = 3
_HINT = "One name=extent an axis, the outermost first, such as dp=2,tp=4; ranks count from 0 in that order"


def written(mesh: DeviceMesh) -> str:
    """Return a mesh as a person states it."""
    return ",".join(f"{name}={extent}" for name, extent in zip(mesh.names, mesh.shape, strict=True))


def read_mesh(text: str, n_named: int) -> tuple[DeviceMesh | None, str, str]:
    """Return the mesh of a text, if it is one; what is to be said of it; and the token of the words' colour."""
    if not text.strip():
        return None, _HINT, "text2"
    extents = [int(n) for n in re.findall(r"=\s*(\d{1,7})", text)]
    if math.prod(extents) > MOST_RANKS:
        return None, f"{count(math.prod(extents))} ranks; at most {count(MOST_RANKS)} can be stated here", "err"
    try:
        mesh = parse_mesh(text)
    except UsageError as error:
        return None, error.sentence, "err"
    told = plural(len(mesh.ranks), "rank")
    if len(mesh.ranks) == n_named:
        return mesh, f"{told}, as many as the checkpoint names", "text2"
    fewer = len(mesh.ranks) < n_named
    why = "a mesh with too few ranks is not used" if fewer else "those beyond wrote nothing"
    return mesh, f"{told}, but the checkpoint names {count(n_named)}: {why}", "warn"


class MeshDialog(QDialog):
    """A line, what it means, and the meshes that come into question as buttons that fill it."""

    meshStated = Signal(object)  # noqa: N815
    """A DeviceMesh; None where it is to be looked for again."""

    def __init__(self, tokens: Tokens, parent: QWidget) -> None:
        super().__init__(parent)
        self._tokens = tokens
        self._n_named = 0
        self._mesh: DeviceMesh | None = None
        self.setWindowTitle("State the mesh")
        self.setMinimumWidth(440)
        self.evidence = PlainLabel("", "text2", 12, wrap=True)
        self.line = QLineEdit()
        self.line.setFont(mono_font(12))
        self.line.setPlaceholderText("dp=2,tp=4")
        self.line.setAccessibleName("Mesh")
        self.line.setMaxLength(400)
        self.words = PlainLabel("", "text2", 12, wrap=True)
        self.words.setMinimumHeight(34)
        self.offered: list[QPushButton] = []
        self._offers = QHBoxLayout()
        self.use, self.leave = QPushButton("Use this mesh"), QPushButton("Cancel")
        self.again = QPushButton("Look for it again")
        self.again.setToolTip("Open the checkpoint without a stated mesh")
        self.use.setDefault(True)
        for button in (self.leave, self.again):
            button.setAutoDefault(False)
        foot = QHBoxLayout()
        foot.addWidget(self.again)
        foot.addStretch(1)
        foot.addWidget(self.leave)
        foot.addWidget(self.use)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 16, 12)
        column.setSpacing(8)
        for widget in (self.evidence, self.line, self.words):
            column.addWidget(widget)
        column.addLayout(self._offers)
        column.addStretch(1)
        column.addLayout(foot)
        self.line.textChanged.connect(self._read)
        self.use.clicked.connect(self._state)
        self.leave.clicked.connect(self.reject)
        self.again.clicked.connect(self._look_again)
        self.set_tokens(tokens)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        for label in (self.evidence, self.words):
            label.set_tokens(tokens)

    def open_for(self, checkpoint: Checkpoint) -> None:
        """Show what is known of the mesh of a checkpoint, and take another."""
        self._n_named = named_ranks(checkpoint)
        stated = checkpoint.mesh_evidence.startswith(("stated", "the stated mesh"))
        mesh = checkpoint.mesh
        now = "" if mesh is None else f"{mesh_text(mesh)}: " if not stated else f"{mesh_text(mesh)}, "
        evidence = checkpoint.mesh_evidence if now else sentence(checkpoint.mesh_evidence)
        self.evidence.setText(breakable(now + evidence))
        self.again.setVisible(stated)
        self._offer([one for one in checkpoint.mesh_candidates if one.ranks == tuple(range(len(one.ranks)))])
        self.line.setText("" if mesh is None else written(mesh))
        self._read(self.line.text())
        self.show()
        self.activateWindow()
        self.line.setFocus()
        self.line.selectAll()

    def _offer(self, meshes: Sequence[DeviceMesh]) -> None:
        while self._offers.count():
            item = self._offers.takeAt(0)
            widget = item.widget() if item is not None else None
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        self.offered = []
        for mesh in meshes[:_MOST_OFFERED]:
            button = QPushButton(written(mesh), self)
            button.setAutoDefault(False)
            button.clicked.connect(lambda _=False, text=written(mesh): self.line.setText(text))
            self._offers.addWidget(button)
            self.offered.append(button)
        self._offers.addStretch(1)

    def _read(self, text: str) -> None:
        self._mesh, words, colour = read_mesh(text, self._n_named)
        self.words.setText(breakable(words))
        self.words.set_colour(colour, self._tokens)
        self.use.setEnabled(self._mesh is not None)

    def _state(self) -> None:
        if self._mesh is not None:
            self.accept()
            self.meshStated.emit(self._mesh)

    def _look_again(self) -> None:
        self.accept()
        self.meshStated.emit(None)
