"""States the mesh of the open checkpoint: asks for it, opens the checkpoint again with it, tells what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from tensormorph.gui.actions import Actions
from tensormorph.gui.opener import Opener
from tensormorph.gui.opening import Opened
from tensormorph.gui.selection import Selection
from tensormorph.gui.theme import Tokens

if TYPE_CHECKING:
    from tensormorph.gui.mesh_dialog import MeshDialog
    from tensormorph.mesh import DeviceMesh


class MeshStating(QObject):
    """The command and its dialog. Make it when the window itself follows the opener: it acts on what that shows.

    Parameters
    ----------
    tell
        Shows the list of problems, and a line about what came of it.
    """

    internalError = Signal(object)  # noqa: N815

    def __init__(
        self,
        actions: Actions,
        selection: Selection,
        opener: Opener,
        opened: Callable[[], Opened | None],
        tell: Callable[[str], object],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._actions, self._selection, self._opener, self._opened = actions, selection, opener, opened
        self._tell, self._window = tell, parent
        self._tokens: Tokens | None = None
        self._kept: tuple[str, str | None] | None = None
        self.dialog: MeshDialog | None = None
        actions.connect({"state_mesh": self.ask})
        selection.checkpointChanged.connect(self._update)
        opener.opened.connect(self._take)
        opener.failed.connect(self._forget)
        opener.cancelled.connect(self._forget)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        if self.dialog is not None:
            self.dialog.set_tokens(tokens)

    def connect_view(self, view: QWidget) -> None:
        """Take up a view that was made, if a mesh can be asked for in it."""
        from tensormorph.gui.mesh_view import PlacementView  # by now its libraries are loaded

        if isinstance(view, PlacementView):
            view.stateWanted.connect(self.ask)
            view.internalError.connect(self.internalError)

    def ask(self) -> None:
        """Open the dialog, if the checkpoint has ranks to arrange."""
        opened = self._opened()
        if opened is None or self._tokens is None or not self._actions["state_mesh"].isEnabled():
            return
        if self.dialog is None:
            from tensormorph.gui.mesh_dialog import MeshDialog  # with numpy, which the start page does without

            self.dialog = MeshDialog(self._tokens, self._window)
            self.dialog.meshStated.connect(self.state)
        self.dialog.open_for(opened.checkpoint)

    def state(self, mesh: DeviceMesh | None) -> None:
        """Open the checkpoint again with a mesh, or with none; the tensor stays chosen."""
        opened = self._opened()
        if opened is not None:
            name = self._selection.name
            self._opener.begin(opened.path, opened.checkpoint.format, mesh)  # which cancels what runs, and forgets
            self._kept = (opened.path, name)

    def _take(self, opened: Opened) -> None:
        kept, self._kept = self._kept, None
        if kept is None or kept[0] != opened.path:
            return
        from tensormorph.gui.layout_words import stated_result

        self._selection.choose(kept[1])
        if told := stated_result(opened.checkpoint):
            self._tell(told)

    def _forget(self) -> None:
        self._kept = None

    def _update(self) -> None:
        checkpoint = self._selection.checkpoint
        if checkpoint is None:
            self._actions.enable(("state_mesh",), False, "no checkpoint is open")
            return
        from tensormorph.gui.layout_words import named_ranks

        self._actions.enable(("state_mesh",), named_ranks(checkpoint) > 0, "no file of it names a rank")
