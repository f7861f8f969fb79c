"""The settings of the running window: saved beside the GUI thread; and the list of what was open, as menus show it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QMenu

from tensormorph.gui.background import Lane, start
from tensormorph.gui.painting import mnemonic_free
from tensormorph.gui.problem_model import Counts
from tensormorph.gui.settings import Recent, Settings
from tensormorph.gui.start import home_folded
from tensormorph.text import plural, size

if TYPE_CHECKING:
    from tensormorph.gui.opening import Opened

_IN_MENU = 12


class Remembered(QObject):
    """What is remembered between runs."""

    changed = Signal()
    trouble = Signal(str)
    failed = Signal(object)

    def __init__(self, settings: Settings, parent: QObject) -> None:
        super().__init__(parent)
        self.settings = settings
        self._lane = Lane("settings")

    def save(self) -> None:
        """Write the settings; a failure is told by `trouble`."""
        self._lane.ask(self.settings.save, self._saved, self.failed.emit)

    def _saved(self, done: bool) -> None:
        if not done:
            self.trouble.emit(self.settings.trouble)

    def save_and_wait(self, seconds: float) -> None:
        """Write the settings at the end of the program; a home folder that hangs does not keep it from ending."""
        self._lane.drop()
        start("settings", self.settings.save).join(seconds)

    def opened(self, opened: Opened, found: Counts) -> None:
        """Put a checkpoint at the head of the list."""
        checkpoint = opened.checkpoint
        n_files = plural(len(checkpoint.table.files), "file")
        detail = f"{checkpoint.format}, {n_files}, {size(opened.outline.n_bytes)}"
        self.settings.remember(Recent(opened.path, detail, found["error"], found["warning"], time.time()))
        self.changed.emit()
        self.save()

    def clear(self) -> None:
        """Forget what was open."""
        self.settings.values.recent = []
        self.changed.emit()
        self.save()

    def fill(self, menu: QMenu, open_path: Callable[[str], None]) -> None:
        """Fill a menu with what was open."""
        menu.clear()
        for entry in self.settings.values.recent[:_IN_MENU]:
            menu.addAction(mnemonic_free(home_folded(entry.path)), partial(open_path, entry.path))
        if menu.isEmpty():
            menu.addAction("None yet").setEnabled(False)

    def folder(self) -> str:
        """Return where a dialog begins to look."""
        recent = self.settings.values.recent
        return os.path.dirname(recent[0].path) if recent else os.getcwd()
