"""The commands about how values are seen: they follow the views and the selection, and the views follow them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from tensormorph.gui.actions import Actions
from tensormorph.gui.selection import Selection
from tensormorph.gui.theme import Tokens
from tensormorph.region import Region

if TYPE_CHECKING:
    from tensormorph.gui.holders_panel import HoldersPanel


class ViewActions(QObject):
    """Shard borders, full() or local(), and who holds a region.

    Parameters
    ----------
    shown
        Returns the view that is on screen.
    """

    internalError = Signal(object)  # noqa: N815

    def __init__(
        self,
        actions: Actions,
        selection: Selection,
        tokens: Tokens,
        shown: Callable[[], QWidget | None],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._actions, self._selection, self._shown, self._window = actions, selection, shown, parent
        self._tokens = tokens
        self.panel: HoldersPanel | None = None
        actions.connect({
            "local": selection.toggle_local,
            "previous_piece": lambda: selection.step_piece(-1),
            "next_piece": lambda: selection.step_piece(1),
            "who_holds": self.who_holds,
        })  # fmt: skip
        selection.tensorChanged.connect(self._update)
        selection.pieceChanged.connect(self._update)
        self._update()

    def connect_view(self, view: QWidget) -> None:
        """Take up a view that was made."""
        from tensormorph.gui.heatmap import HeatmapView  # by now its libraries are loaded

        view.moved.connect(self._follow)  # type: ignore[attr-defined]
        if isinstance(view, HeatmapView):
            borders, button = self._actions["shard_borders"], view.controls.shards
            button.setChecked(borders.isChecked())
            button.toggled.connect(borders.setChecked)
            borders.toggled.connect(button.setChecked)
            view.shards.internalError.connect(self.internalError)
            view.picture.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
            for name in ("who_holds", "shard_borders", "local"):
                view.picture.addAction(self._actions[name])

    def who_holds(self) -> None:
        """Open the panel that says who holds what is in sight, or the chosen element."""
        if self.panel is None:
            from tensormorph.gui.holders_panel import HoldersPanel  # with numpy, which the start page does without

            self.panel = HoldersPanel(self._selection, self._tokens, self._in_sight, self._window)
            self.panel.internalError.connect(self.internalError)
        self.panel.open_now()

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        if self.panel is not None:
            self.panel.set_tokens(tokens)

    def _in_sight(self) -> Region | None:
        region: Region | None = getattr(self._shown(), "sight", None)
        return None if region is None else self._selection.in_full(region)

    def _follow(self) -> None:
        if self.panel is not None:
            self.panel.follow()

    def _update(self) -> None:
        selection = self._selection
        why = "no tensor is chosen" if selection.tensor is None else "the checkpoint names no stored pieces of it"
        self._actions.enable(("who_holds",), selection.tensor is not None, "no tensor is chosen")
        self._actions.enable(("local",), selection.can_be_local, why)
        self._actions["local"].setChecked(selection.piece is not None)
        self._actions.enable(("previous_piece", "next_piece"), selection.piece is not None, "only while local() shows")
