"""The commands of the window: names, keys, menus. What they do is the window's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the words in its menu, its keys, the words of its button and of its tooltip."""

    menu: str
    words: str
    keys: tuple[str, ...] = ()
    short: str = ""
    tip: str = ""
    checkable: bool = False


COMMANDS: dict[str, Command] = {
    "open_folder": Command("File", "Open folder…", ("Ctrl+Shift+O",), "Open"),
    "open_file": Command("File", "Open file…", ("Ctrl+O",)),
    "open_demo": Command("File", "Open the demo"),
    "open_again": Command("File", "Open again", ("F5",), tip="Read what is on disk now"),
    "close": Command("File", "Close checkpoint", ("Ctrl+W",)),
    "quit": Command("File", "Quit", ("Ctrl+Q",)),
    "copy_name": Command("Edit", "Copy tensor name", ("Ctrl+Alt+C",)),
    "filter": Command("Edit", "Filter tensors", ("Ctrl+F",)),
    "cancel": Command("Edit", "Cancel", ("Esc",), tip="Cancel what runs, then clear the selection"),
    "outliner": Command("View", "Outliner", ("Ctrl+B",), checkable=True),
    "bottom": Command("View", "Problems, tasks and log", ("Ctrl+J",), checkable=True),
    "inspector": Command("View", "Inspector", ("Ctrl+I",), checkable=True),
    "heatmap": Command("View", "Heatmap", ("Alt+1",)),
    "table": Command("View", "Table", ("Alt+2",), tip="The exact values"),
    "placement": Command("View", "Placement", ("Alt+3",), tip="The device mesh, and what each rank holds"),
    "shard_borders": Command("View", "Shard borders", tip="Shard borders over the heatmap (S)", checkable=True),
    "local": Command("View", "local()", tip="What one rank holds, or one file stores (L)", checkable=True),
    "back": Command("Go", "Back", ("Alt+Left",), tip="The tensor that was chosen before"),
    "forward": Command("Go", "Forward", ("Alt+Right",)),
    "go_tensor": Command("Go", "Go to tensor…", ("Ctrl+P",)),
    "go_element": Command("Go", "Go to element…", ("Ctrl+G",)),
    "previous_layer": Command("Go", "Previous layer"),
    "next_layer": Command("Go", "Next layer"),
    "previous_piece": Command("Go", "Previous rank or piece", tip="local() of the rank, or stored piece, before ([)"),
    "next_piece": Command("Go", "Next rank or piece", tip="local() of the next rank, or stored piece (])"),
    "next_problem": Command("Go", "Next problem", ("F8",)),
    "next_panel": Command("Go", "Next panel", ("F6",)),
    "check": Command("Checkpoint", "Check", ("Ctrl+K",), "Check", "What is wrong with this checkpoint"),
    "who_holds": Command(
        "Checkpoint", "Who holds this region", ("Ctrl+Shift+W",), tip="Ranks and files of what is in sight"
    ),
    "state_mesh": Command("Checkpoint", "State the mesh…", tip="Say how the ranks are arranged"),
    "compare": Command("Checkpoint", "Compare with…", ("Ctrl+D",), "Compare"),
    "log": Command("Help", "Show the log"),
    "copy_version": Command("Help", "Copy version and system"),
}
_RULE_BEFORE = (
    "open_again",
    "quit",
    "cancel",
    "heatmap",
    "shard_borders",
    "go_tensor",
    "previous_layer",
    "next_problem",
)
_NOT_YET = {"compare": "Comparing two checkpoints is not part of this version"}


class Actions:
    """The actions by name, and the menus that hold them."""

    def __init__(self, window: QWidget) -> None:
        self._by_name: dict[str, QAction] = {}
        for name, command in COMMANDS.items():
            action = QAction(command.words, window)
            action.setShortcuts([QKeySequence(key) for key in command.keys])
            action.setCheckable(command.checkable)
            if command.short:
                action.setIconText(f" {command.short}")  # room between icon and words
            tip = command.tip or command.words.rstrip("…")
            keys = ", ".join(QKeySequence(key).toString(QKeySequence.SequenceFormat.NativeText) for key in command.keys)
            action.setToolTip(_NOT_YET.get(name, f"{tip} ({keys})" if keys else tip))
            if name in _NOT_YET:
                action.setEnabled(False)
            window.addAction(action)
            self._by_name[name] = action
        # With a parent, as all widgets: without, a collection in any thread would delete them.
        self.recent = QMenu("Open recent", window)
        self.limits = QMenu("Ask before reading more than", window)
        self.themes = QActionGroup(window)

    def __getitem__(self, name: str) -> QAction:
        return self._by_name[name]

    def connect(self, calls: dict[str, Callable[[], object]]) -> None:
        """Connect actions that are not checkable."""
        for name, call in calls.items():
            self._by_name[name].triggered.connect(lambda _=False, call=call: call())

    def enable(self, names: tuple[str, ...], enabled: bool, why: str) -> None:
        """Enable or grey actions; a grey one says why in its tooltip."""
        for name in names:
            action, command = self._by_name[name], COMMANDS[name]
            action.setEnabled(enabled)
            tip = command.tip or command.words.rstrip("…")
            keys = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
            action.setToolTip(f"{tip}: {why}" if not enabled else f"{tip} ({keys})" if keys else tip)

    def fill(self, bar: QMenuBar, set_theme: Callable[[str], None], theme: str) -> None:
        """Make the menus."""
        menus: dict[str, QMenu] = {}
        for name, command in COMMANDS.items():
            menu = menus.get(command.menu)
            if menu is None:
                menu = menus[command.menu] = bar.addMenu(command.menu)  # Alt alone reaches the menus
                menu.setToolTipsVisible(True)
            if name in _RULE_BEFORE:
                menu.addSeparator()
            menu.addAction(self._by_name[name])
            if name == "open_file":
                menu.addMenu(self.recent)
            if name == "local":
                menu.addMenu(self.limits)
        themes = menus["View"].addMenu("Theme")
        for mode in ("system", "light", "dark"):
            action = self.themes.addAction(mode.capitalize())
            action.setCheckable(True)
            action.setChecked(mode == theme)
            action.setData(mode)
            action.triggered.connect(lambda _=False, mode=mode: set_theme(mode))
            themes.addAction(action)
