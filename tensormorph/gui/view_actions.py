"""The commands about how values are seen: they follow the views and the selection, and the views follow them."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from tensormorph.gui.actions import Actions
from tensormorph.gui.selection import Selection


class ViewActions(QObject):
    """Shard borders, and full() or local()."""

    internalError = Signal(object)  # noqa: N815

    def __init__(self, actions: Actions, selection: Selection, parent: QObject) -> None:
        super().__init__(parent)
        self._actions, self._selection = actions, selection
        actions.connect({
            "local": selection.toggle_local,
            "previous_piece": lambda: selection.step_piece(-1),
            "next_piece": lambda: selection.step_piece(1),
        })  # fmt: skip
        selection.tensorChanged.connect(self._update)
        selection.pieceChanged.connect(self._update)
        self._update()

    def connect_view(self, view: QWidget) -> None:
        """Take up a view that was made."""
        from tensormorph.gui.heatmap import HeatmapView  # by now its libraries are loaded

        if isinstance(view, HeatmapView):
            borders, button = self._actions["shard_borders"], view.controls.shards
            button.setChecked(borders.isChecked())
            button.toggled.connect(borders.setChecked)
            borders.toggled.connect(button.setChecked)
            view.shards.internalError.connect(self.internalError)

    def _update(self) -> None:
        selection = self._selection
        why = "no tensor is chosen" if selection.tensor is None else "the checkpoint names no stored pieces of it"
        self._actions.enable(("local",), selection.can_be_local, why)
        self._actions["local"].setChecked(selection.piece is not None)
        self._actions.enable(("previous_piece", "next_piece"), selection.piece is not None, "only while local() shows")
