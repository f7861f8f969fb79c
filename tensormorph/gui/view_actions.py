"""The commands about how values are seen: they follow the views and the selection, and the views follow them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QWidget

from tensormorph.gui.actions import Actions
from tensormorph.gui.selection import Selection
from tensormorph.gui.settings import Values
from tensormorph.gui.theme import Tokens
from tensormorph.region import Region
from tensormorph.text import size

if TYPE_CHECKING:
    from tensormorph.gui.holders_panel import HoldersPanel
    from tensormorph.gui.statistics_section import StatisticsSection

_LIMITS = (250_000_000, 1_000_000_000, 2_000_000_000, 8_000_000_000, 32_000_000_000)


class ViewActions(QObject):
    """Shard borders, full() or local(), who holds a region, and what is too costly to read unasked.

    Parameters
    ----------
    values
        The settings, in which choices are kept.
    shown
        Returns the view that is on screen.
    """

    internalError = Signal(object)  # noqa: N815
    costlyChanged = Signal(object)  # noqa: N815  # an int: Qt would cut it at 2 GB

    def __init__(
        self,
        actions: Actions,
        selection: Selection,
        values: Values,
        tokens: Tokens,
        shown: Callable[[], QWidget | None],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._actions, self._selection, self._shown, self._window = actions, selection, shown, parent
        self._values, self._tokens = values, tokens
        self.panel: HoldersPanel | None = None
        actions.connect({
            "local": selection.toggle_local,
            "previous_piece": lambda: selection.step_piece(-1),
            "next_piece": lambda: selection.step_piece(1),
            "who_holds": self.who_holds,
        })  # fmt: skip
        actions["shard_borders"].setChecked(values.shard_borders)
        actions["shard_borders"].toggled.connect(self._keep_borders)
        self._add_limits()
        selection.tensorChanged.connect(self._update)
        selection.pieceChanged.connect(self._update)
        self._update()

    def connect_view(self, view: QWidget) -> None:
        """Take up a view that was made."""
        from tensormorph.gui.heatmap import HeatmapView  # by now its libraries are loaded

        view.moved.connect(self._follow)  # type: ignore[attr-defined]
        if isinstance(view, HeatmapView):
            view.viewer.set_costly_bytes(self._values.costly_bytes)
            self.costlyChanged.connect(view.viewer.set_costly_bytes)
            borders, button = self._actions["shard_borders"], view.controls.shards
            button.setChecked(borders.isChecked())
            button.toggled.connect(borders.setChecked)
            borders.toggled.connect(button.setChecked)
            view.shards.internalError.connect(self.internalError)
            view.picture.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
            for name in ("who_holds", "shard_borders", "local"):
                view.picture.addAction(self._actions[name])

    def connect_statistics(self, section: StatisticsSection) -> None:
        """Take up the statistics of the Inspector."""
        section.set_costly_bytes(self._values.costly_bytes)
        self.costlyChanged.connect(section.set_costly_bytes)

    def _keep_borders(self, shown: bool) -> None:
        self._values.shard_borders = shown

    def _add_limits(self) -> None:
        """Offer limits, and the one that the settings file has if it is another."""
        group = QActionGroup(self)
        for n_bytes in sorted({*_LIMITS, self._values.costly_bytes}):
            action = self._actions.limits.addAction(size(n_bytes))
            action.setCheckable(True)
            action.setChecked(n_bytes == self._values.costly_bytes)
            action.setData(n_bytes)
            group.addAction(action)
        group.triggered.connect(self._take_limit)

    def _take_limit(self, action: QAction) -> None:
        self._values.costly_bytes = action.data()
        self.costlyChanged.emit(self._values.costly_bytes)

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
        why = "no tensor is chosen" if selection.tensor is None else "neither layout nor stored pieces of it are known"
        self._actions.enable(("who_holds",), selection.tensor is not None, "no tensor is chosen")
        self._actions.enable(("local",), selection.can_be_local, why)
        self._actions["local"].setChecked(selection.view is not None)
        self._actions.enable(("previous_piece", "next_piece"), selection.view is not None, "only while local() shows")
