"""The main window: frame, pages, and what the commands do."""

from __future__ import annotations

import os
import traceback
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QEvent, QPoint, Qt
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QFileDialog, QMainWindow, QMenu, QStackedWidget, QWidget

from tensormorph.errors import Problem, TensormorphError
from tensormorph.gui import theme
from tensormorph.gui.actions import Actions
from tensormorph.gui.background import Lane
from tensormorph.gui.mesh_stating import MeshStating
from tensormorph.gui.opener import Opener
from tensormorph.gui.opening import Failed, Opened, OpenFunction, close_later, open_with_readers
from tensormorph.gui.pages import FailurePage, OpeningPage
from tensormorph.gui.recent import Remembered
from tensormorph.gui.selection import Selection
from tensormorph.gui.session import (
    all_problems,
    demo_path,
    display_name,
    element_at,
    local_paths,
    title,
    version_text,
)
from tensormorph.gui.settings import Settings
from tensormorph.gui.start import StartPage
from tensormorph.gui.status import StatusLine
from tensormorph.gui.topbar import TopBar
from tensormorph.gui.view_actions import ViewActions
from tensormorph.text import printable

if TYPE_CHECKING:
    from tensormorph.gui.workbench import MakeView, Workbench

_NEEDS_CHECKPOINT = ("open_again", "close", "copy_name", "filter", "outliner", "bottom", "inspector", "go_element",
                     "previous_layer", "next_layer", "next_problem", "next_panel", "check", "heatmap",
                     "table", "placement")  # fmt: skip
_PANELS = ("outliner", "bottom", "inspector")


class MainWindow(QMainWindow):
    """One window with at most one checkpoint in it.

    The start page shows without numpy, the readers and the panels: they are most of what starting takes.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        open_: OpenFunction = open_with_readers,
        make_picture: MakeView | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        self._app = app
        self.tokens = theme.apply(app, settings.values.theme)
        self.selection = Selection(self)
        self.opened: Opened | None = None
        self._n_internal = 0
        self._changed = Lane("changed files")
        self.remembered = Remembered(settings, self)
        self.actions_ = Actions(self)
        self.view_actions = ViewActions(
            self.actions_, self.selection, settings.values, self.tokens, self._shown_view, self
        )
        self.bar = TopBar(self, self.tokens)
        self.start_page = StartPage(self.tokens)
        self.opening_page = OpeningPage(self.tokens)
        self.failure_page = FailurePage(self.tokens)
        self._make_picture = make_picture
        self._workbench: Workbench | None = None
        self.opener = Opener(open_, self.opening_page, lambda: self.workbench.bottom.tasks, self)
        self.pages = QStackedWidget()
        for page in (self.start_page, self.opening_page, self.failure_page):
            self.pages.addWidget(page)
        self.pages.setAutoFillBackground(True)
        self.setMenuWidget(self.bar)
        self.setCentralWidget(self.pages)
        self.status = StatusLine()
        self.setStatusBar(self.status)
        self._build_bar()
        self._connect()
        self.mesh_stating = MeshStating(
            self.actions_, self.selection, self.opener, lambda: self.opened, self._tell_result, self
        )
        self.mesh_stating.internalError.connect(self.report_internal)
        self.setAcceptDrops(True)
        self.resize(1440, 900)
        self.setMinimumSize(880, 560)
        self.set_tokens(self.tokens)
        self._restore()
        self._show_checkpoint(None)
        self._show_recent()
        self._show_page(self.start_page)
        if settings.trouble:
            self._tell_trouble(settings.trouble)

    # ------------------------------------------------------------ frame

    @property
    def workbench(self) -> Workbench:
        """The panels of an open checkpoint, built when they are first asked for."""
        return self._build_workbench() if self._workbench is None else self._workbench

    def prepare(self) -> None:
        """Build the panels before they are needed, unless they are there."""
        if self._workbench is None:
            self._build_workbench()

    def _build_workbench(self) -> Workbench:
        from tensormorph.gui.workbench import Workbench, make_heatmap

        bench = self._workbench = Workbench(self.selection, self.tokens, self._make_picture or make_heatmap)
        self.pages.addWidget(bench)
        bench.set_tokens(self.tokens)
        bench.outliner.objectChosen.connect(bench.inspector.show_object)
        bench.outliner.headerClicked.connect(self._offer_recent)
        bench.inspector.problemsWanted.connect(self.check)
        bench.inspector.bytesRead.connect(self.status.count_element)
        bench.inspector.internalError.connect(self.report_internal)
        bench.inspector.layout_section.stateWanted.connect(self.mesh_stating.ask)
        bench.centre.problemsWanted.connect(self.check)
        bench.centre.banner.againWanted.connect(self.open_again)
        self.view_actions.connect_statistics(bench.inspector.statistics)
        bench.centre.viewMade.connect(self._connect_view)
        bench.bottom.closed.connect(lambda: self.actions_["bottom"].setChecked(False))
        bench.bottom.table.problemChosen.connect(self._follow_problem)
        bench.set_panel_sizes(self.settings.values.panels)
        for name in _PANELS:
            bench.set_panel_visible(name, self.actions_[name].isChecked())
            self.actions_[name].toggled.connect(partial(bench.set_panel_visible, name))
        return bench

    def _build_bar(self) -> None:
        self.actions_.fill(self.bar.menus, self.set_theme, self.settings.values.theme)
        self.bar.add_left(self.actions_["back"], "arrow-left")
        self.bar.add_left(self.actions_["forward"], "arrow-right")
        self.bar.add_right(self.actions_["open_folder"], "folder-open", words=True)
        self.bar.add_right(self.actions_["check"], "shield-check", words=True)
        self.bar.add_right(self.actions_["compare"], "git-compare", words=True)
        self.bar.add_rule()
        for name, icon in (("outliner", "panel-left"), ("bottom", "panel-bottom"), ("inspector", "panel-right")):
            self.bar.add_right(self.actions_[name], icon, words=False)

    def _connect(self) -> None:
        self.actions_.connect({
            "open_folder": self.ask_folder, "open_file": self.ask_file, "open_demo": self.open_demo,
            "open_again": self.open_again, "close": self.close_checkpoint, "quit": self.close,
            "copy_name": self._copy_name, "filter": self._focus_filter, "cancel": self.cancel,
            "back": self.selection.back, "forward": self.selection.forward, "go_tensor": self.bar.field.begin,
            "go_element": partial(self.bar.field.begin, ":"), "previous_layer": partial(self.step_layer, -1),
            "next_layer": partial(self.step_layer, 1), "next_problem": self.next_problem,
            "next_panel": lambda: self.workbench.focus_next(), "check": self.check, "log": self.show_log,
            "heatmap": lambda: self.workbench.centre.show_view("Heatmap"),
            "table": lambda: self.workbench.centre.show_view("Table"),
            "placement": lambda: self.workbench.centre.show_view("Placement"),
            "copy_version": self._copy_version,
        })  # fmt: skip
        recent = self.actions_.recent
        recent.aboutToShow.connect(partial(self.remembered.fill, recent, self.open_path))
        self.remembered.changed.connect(self._show_recent)
        self.remembered.trouble.connect(self._tell_trouble)
        self.remembered.failed.connect(self.report_internal)
        field, start_page, failure = self.bar.field, self.start_page, self.failure_page
        field.nameChosen.connect(self.selection.choose)
        field.elementWanted.connect(self.go_to_element)
        field.pathEntered.connect(lambda text: self.open_path(os.path.expanduser(text)))
        self.opener.opened.connect(self._show_opened)
        self.opener.failed.connect(self._show_failed)
        self.opener.cancelled.connect(self._opening_cancelled)
        self.opener.pageWanted.connect(partial(self._show_page, self.opening_page))
        start_page.openFolderWanted.connect(self.ask_folder)
        start_page.openFileWanted.connect(self.ask_file)
        start_page.demoWanted.connect(self.open_demo)
        start_page.pathChosen.connect(self.open_path)
        start_page.clearWanted.connect(self.remembered.clear)
        self.opening_page.cancelled.connect(self.cancel)
        failure.openWanted.connect(lambda path, reader: self.open_path(path, reader or None))
        failure.otherWanted.connect(self.ask_folder)
        failure.backWanted.connect(lambda: self._show_page(self.workbench))
        failure.logWanted.connect(self.show_log)
        self.view_actions.internalError.connect(self.report_internal)
        self.selection.historyChanged.connect(self._update_history)
        self.selection.tensorChanged.connect(partial(self.status.show_element, ""))
        self._app.styleHints().colorSchemeChanged.connect(self._scheme_changed)

    def _connect_view(self, view: QWidget) -> None:
        view.status.connect(self.status.show_element)  # type: ignore[attr-defined]
        view.bytes_read.connect(partial(self.status.count_view, view))  # type: ignore[attr-defined]
        self.view_actions.connect_view(view)
        self.mesh_stating.connect_view(view)

    def _shown_view(self) -> QWidget | None:
        return None if self._workbench is None else self._workbench.centre.shown

    def set_theme(self, mode: str) -> None:
        """Take a theme and remember it."""
        self.settings.values.theme = mode  # type: ignore[assignment]
        self.set_tokens(theme.apply(self._app, self.settings.values.theme))
        self.remembered.save()

    def _scheme_changed(self) -> None:
        if self.settings.values.theme == "system":
            self.set_tokens(theme.apply(self._app, "system"))

    def set_tokens(self, tokens: theme.Tokens) -> None:
        """Give all parts the colours of a theme."""
        self.tokens = tokens
        palette = self.pages.palette()
        palette.setColor(QPalette.ColorRole.Window, tokens.canvas)
        self.pages.setPalette(palette)
        for part in (self.bar, self.start_page, self.opening_page, self.failure_page, self.status, self.view_actions,
                     self.mesh_stating):  # fmt: skip
            part.set_tokens(tokens)
        if self._workbench is not None:
            self._workbench.set_tokens(tokens)

    def _show_page(self, page: QWidget) -> None:
        self.pages.setCurrentWidget(page)
        if page is self.start_page:
            self.start_page.open_folder.setFocus()
        if page is self._workbench:
            self._workbench.outliner.tree.setFocus()

    # ------------------------------------------------------------ opening

    def open_path(self, path: str, reader: str | None = None) -> None:
        """Begin to open a path; what is open stays until the new one is there."""
        self.opener.begin(path, reader)

    def _opening_cancelled(self) -> None:
        self._show_page(self.workbench if self.opened is not None else self.start_page)
        self.say("Cancelled")

    def _show_opened(self, opened: Opened) -> None:
        self._show_checkpoint(opened)
        self._show_page(self.workbench)

    def _show_failed(self, failed: Failed) -> None:
        if isinstance(failed.error, TensormorphError):
            self.log(f"{failed.path}: {failed.error}")
        else:
            self.report_internal(failed.error)
        back = None if self.opened is None else printable(display_name(self.opened.checkpoint.path), 40)
        self.failure_page.show_failure(failed, back)
        self._show_page(self.failure_page)

    def _show_checkpoint(self, opened: Opened | None) -> None:
        """Show another checkpoint, or none, in all parts; the former one is closed."""
        former, self.opened = self.opened, opened
        checkpoint = None if opened is None else opened.checkpoint
        self._changed.drop()
        if opened is not None or self._workbench is not None:
            bench = self.workbench
            bench.centre.banner.hide()
            bench.inspector.set_outline(None if opened is None else opened.outline)
            bench.outliner.show_checkpoint(opened)
            bench.bottom.show_problems(() if checkpoint is None else all_problems(checkpoint))
        self.selection.open(checkpoint)
        self.bar.field.set_find(None if opened is None else opened.searcher.best)
        self.status.show_opened(opened)
        self.setWindowTitle(title(opened))
        self.actions_.enable(_NEEDS_CHECKPOINT, checkpoint is not None, "no checkpoint is open")
        demo = demo_path()
        self.actions_.enable(("open_demo",), demo is not None, "it did not come with this installation")
        self.start_page.set_demo_available(demo is not None)
        self._update_history()
        if opened is not None:
            self.remembered.opened(opened, self.workbench.bottom.table.problems.counts())
        if former is not None:
            close_later(former)

    def ask_folder(self) -> None:
        """Let the user choose a folder."""
        if path := QFileDialog.getExistingDirectory(self, "Open a checkpoint folder", self.remembered.folder()):
            self.open_path(path)

    def ask_file(self) -> None:
        """Let the user choose a file."""
        if path := QFileDialog.getOpenFileName(self, "Open a checkpoint file", self.remembered.folder())[0]:
            self.open_path(path)

    def open_demo(self) -> None:
        """Offer the checkpoints that come with the program."""
        if path := demo_path():
            self.open_path(path)

    def open_again(self) -> None:
        """Read the open checkpoint from disk again."""
        if self.opened is not None:
            self.open_path(self.opened.path)

    def close_checkpoint(self) -> None:
        """Go back to the start page."""
        self.opener.cancel()
        self._show_checkpoint(None)
        self._show_page(self.start_page)

    # ------------------------------------------------------------ commands

    def cancel(self) -> None:
        """Cancel what runs; if nothing does, clear the chosen element or fragment, then the chosen tensor."""
        if self.workbench.bottom.tasks.cancel_all():
            return
        if self.selection.place_chosen:
            self.selection.choose_element(None)
        else:
            self.selection.choose(None)

    def check(self) -> None:
        """Show what is wrong with the checkpoint."""
        self._show_bottom("Problems")

    def _tell_result(self, text: str) -> None:
        self._show_bottom("Problems")
        self.say(text)

    def show_log(self) -> None:
        """Show the log."""
        self._show_page(self.workbench)
        self._show_bottom("Log")

    def _show_bottom(self, page: str) -> None:
        self.actions_["bottom"].setChecked(True)
        self.workbench.set_panel_visible("bottom", True)
        self.workbench.bottom.open_page(page)

    def next_problem(self) -> None:
        """Choose the next problem."""
        self._show_bottom("Problems")
        self.workbench.bottom.table.go_to_next()

    def step_layer(self, by: int) -> None:
        """Choose the same tensor of the previous or next of the folded layers."""
        from tensormorph.gui.outline import ROOT

        self.workbench.outliner.step(ROOT, by)

    def _focus_filter(self) -> None:
        self.actions_["outliner"].setChecked(True)
        self.workbench.outliner.focus_filter()

    def go_to_element(self, text: str) -> None:
        """Choose the element of an index as a person writes it."""
        place = element_at(text, self.selection.source)
        if isinstance(place, str):
            self.say(place)
        else:
            self.selection.choose_element(place)

    def _follow_problem(self, problem: Problem) -> None:
        if problem.tensor is not None:
            self.selection.choose(problem.tensor)

    def _copy_name(self) -> None:
        if self.selection.name is not None:
            from tensormorph.gui.tree import copyable

            QGuiApplication.clipboard().setText(copyable(self.selection.name))

    def _copy_version(self) -> None:
        QGuiApplication.clipboard().setText(version_text())
        self.say("Copied")

    def _update_history(self) -> None:
        self.actions_["back"].setEnabled(self.selection.can_go_back)
        self.actions_["forward"].setEnabled(self.selection.can_go_forward)

    # ------------------------------------------------------------ recent and settings

    def _show_recent(self) -> None:
        self.start_page.show_recent(self.settings.values.recent)

    def _offer_recent(self, place: QPoint) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.remembered.fill(menu, self.open_path)
        menu.addSeparator()
        for name in ("open_folder", "open_file", "close"):
            menu.addAction(self.actions_[name])
        menu.popup(place)

    def _tell_trouble(self, trouble: str) -> None:
        self.log(trouble)
        self.say(trouble)

    def _restore(self) -> None:
        values = self.settings.values
        if values.geometry:
            self.restoreGeometry(QByteArray.fromBase64(values.geometry.encode("ascii")))
        for name in _PANELS:
            self.actions_[name].setChecked(name not in values.hidden_panels)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.opener.cancel()
        values = self.settings.values
        values.geometry = bytes(self.saveGeometry().toBase64().data()).decode("ascii")
        if self._workbench is not None:
            values.panels = self._workbench.panel_sizes()
        values.hidden_panels = [name for name in _PANELS if not self.actions_[name].isChecked()]
        self.remembered.save_and_wait(1.0)
        self._show_checkpoint(None)
        super().closeEvent(event)

    # ------------------------------------------------------------ what the system tells

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.ActivationChange and self.isActiveWindow():
            self.look_for_changes()

    def look_for_changes(self) -> None:
        """Ask in a thread whether the files are still those that were opened."""
        if self.opened is not None:
            self._changed.ask(self.opened.checkpoint.changed_files, self._show_changed, self.report_internal)

    def _show_changed(self, files: tuple[str, ...]) -> None:
        if files:
            self.workbench.centre.banner.show_changed(files)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if local_paths(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        paths = local_paths(event.mimeData())
        if paths:
            event.acceptProposedAction()
            self.open_path(paths[0])
            if len(paths) > 1:
                self.say(f"The first of {len(paths)} paths is opened; comparing is not part of this version")

    # ------------------------------------------------------------ telling

    def say(self, text: str) -> None:
        """Show a line in the status bar for a few seconds."""
        self.status.say(text)

    def log(self, text: str) -> None:
        """Append to the log."""
        self.workbench.bottom.write_log(text)

    def report_internal(self, error: BaseException) -> None:
        """Put an error of our own into the log; the window lives on."""
        self.report_text("".join(traceback.format_exception(error)))

    def report_text(self, text: str) -> None:
        """Put the text of an internal error into the log and mark its tab."""
        self._n_internal += 1
        self.log(f"internal error\n{text}")
        self.workbench.bottom.tabs.set_pill(2, str(self._n_internal), "err", "errbg")
        self.say("Internal error: see the log")
