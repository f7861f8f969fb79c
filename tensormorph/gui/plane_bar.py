"""The control row of the heatmap: which axes, how blocks are folded, how values become colours."""

from __future__ import annotations

from typing import get_args

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QSpinBox, QToolButton, QVBoxLayout, QWidget

from tensormorph.gui.icons import icon
from tensormorph.gui.theme import Tokens
from tensormorph.picture import REDUCTIONS, Range, Reduction
from tensormorph.pyramid import Plane

_RANGES: dict[Range, str] = {"zero-centred": "zero-centred, 99 %", "min to max": "min to max"}


class PlaneBar(QWidget):
    """Rows, columns, fold and scale; with more than two axes, a second row with the place on each other axis."""

    planeChosen = Signal(object, object, object)  # noqa: N815
    """Axes of rows and columns, and the place on the others."""
    paintChosen = Signal()  # noqa: N815
    """Another reduction or scale."""
    crosshairToggled = Signal(bool)  # noqa: N815
    shardsToggled = Signal(bool)  # noqa: N815
    fitAsked = Signal()  # noqa: N815

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._plane: Plane | None = None
        self.rows, self.cols = _combo("Axis of the rows"), _combo("Axis of the columns")
        self.fold = _combo("How the elements of one pixel become one value (R)")
        for reduction in REDUCTIONS:
            self.fold.addItem(f"Fold  {reduction}", reduction)
        self.scale = _combo("Which values the ends of the scale stand for")
        for span in get_args(Range):
            self.scale.addItem(f"Scale  {_RANGES[span]}", span)
        self.shards, self.crosshair, self.fit = QToolButton(), QToolButton(), QToolButton()
        for button in (self.shards, self.crosshair):
            button.setCheckable(True)
            button.setChecked(True)
        self.shards.setToolTip("Shard borders (S)")
        self.crosshair.setToolTip("Crosshair (X)")
        self.fit.setToolTip("Fit the whole plane (0)")
        self._spins: list[QSpinBox] = []
        self._others = QWidget()
        self._others_row = QHBoxLayout(self._others)
        self._others_row.setContentsMargins(14, 0, 14, 6)
        self._others_row.setSpacing(8)
        self._others_row.setAlignment(Qt.AlignmentFlag.AlignLeft)
        row = QHBoxLayout()
        row.setContentsMargins(14, 0, 14, 0)
        row.setSpacing(8)
        for widget in (self.rows, self.cols, self.fold, self.scale):
            row.addWidget(widget)
        row.addStretch(1)
        buttons = QHBoxLayout()
        buttons.setSpacing(2)
        for button in (self.shards, self.crosshair, self.fit):
            buttons.addWidget(button)
        row.addLayout(buttons)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        first = QWidget()
        first.setFixedHeight(36)
        first.setLayout(row)
        column.addWidget(first)
        column.addWidget(self._others)
        self._others.hide()
        self.rows.activated.connect(lambda: self._choose_axes(self.rows))
        self.cols.activated.connect(lambda: self._choose_axes(self.cols))
        self.fold.currentIndexChanged.connect(self.paintChosen)
        self.scale.currentIndexChanged.connect(self.paintChosen)
        self.shards.toggled.connect(self.shardsToggled)
        self.crosshair.toggled.connect(self.crosshairToggled)
        self.fit.clicked.connect(self.fitAsked)
        self.set_tokens(tokens)

    @property
    def reduction(self) -> Reduction:
        """The rule by which elements are folded."""
        return REDUCTIONS[self.fold.currentIndex()]

    @property
    def span(self) -> Range:
        """What the ends of the scale stand for."""
        chosen: Range = get_args(Range)[self.scale.currentIndex()]
        return chosen

    @property
    def spins(self) -> list[QSpinBox]:
        """The boxes for the place on each axis that is not shown."""
        return self._spins

    def next_reduction(self) -> None:
        """Choose the next rule."""
        self.fold.setCurrentIndex((self.fold.currentIndex() + 1) % self.fold.count())

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self.shards.setIcon(icon("shards", tokens.text2))
        self.crosshair.setIcon(icon("crosshair", tokens.text2))
        self.fit.setIcon(icon("maximize", tokens.text2))

    def shows(self, plane: Plane) -> bool:
        """Whether the controls stand as a plane has it, so that a box in use need not be made anew."""
        own = self._plane
        if own is None or own.source is not plane.source or (own.rows, own.cols) != (plane.rows, plane.cols):
            return False
        self._plane = plane
        return tuple(spin.value() for spin in self._spins) == plane.at

    def show_plane(self, plane: Plane | None) -> None:
        """Show the axes of a plane; nothing is announced."""
        self._plane = plane
        ndim = 0 if plane is None else len(plane.source.shape)
        for box, word, axes in (
            (self.rows, "Rows", () if plane is None else plane.rows),
            (self.cols, "Columns", () if plane is None else plane.cols),
        ):
            box.clear()
            for axis in range(ndim):
                box.addItem(f"{word}  axis {axis}", axis)
            box.setCurrentIndex(axes[0] if axes else -1)
            box.setVisible(ndim > 1)
        for spin in self._spins:
            self._others_row.removeWidget(spin)
            spin.hide()
            spin.deleteLater()
        self._spins = []
        for axis, at in zip(plane.fixed, plane.at, strict=True) if plane is not None else ():
            extent = plane.source.shape[axis] if plane is not None else 0
            spin = QSpinBox()
            spin.setRange(0, max(0, extent - 1))
            spin.setValue(at)
            spin.setPrefix(f"Axis {axis}  at ")
            spin.setSuffix(f" of {extent:,}")
            spin.setToolTip(f"Place on axis {axis}")
            spin.lineEdit().setTextMargins(8, 0, 0, 0)
            spin.valueChanged.connect(self._choose_place)
            self._others_row.addWidget(spin)
            self._spins.append(spin)
        self._others.setVisible(bool(self._spins))

    def _choose_axes(self, changed: QComboBox) -> None:
        plane = self._plane
        if plane is None or not plane.rows or not plane.cols:
            return
        rows, cols = self.rows.currentIndex(), self.cols.currentIndex()
        if rows == cols:  # the two change places
            if changed is self.rows:
                cols = plane.rows[0]
            else:
                rows = plane.cols[0]
        places = dict(zip(plane.fixed, plane.at, strict=True))
        others = [axis for axis in range(len(plane.source.shape)) if axis not in (rows, cols)]
        self.planeChosen.emit((rows,), (cols,), tuple(places.get(axis, 0) for axis in others))

    def _choose_place(self) -> None:
        if self._plane is not None:
            at = tuple(spin.value() for spin in self._spins)
            self.planeChosen.emit(self._plane.rows, self._plane.cols, at)


def _combo(hint: str) -> QComboBox:
    box = QComboBox()
    box.setToolTip(hint)
    box.setAccessibleName(hint)
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
    return box
