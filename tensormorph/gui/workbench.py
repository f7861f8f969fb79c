"""The open checkpoint: Outliner, picture, Inspector and the panel below, with splitters between them."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QPushButton,
    QSplitter,
    QStackedWidget,
    QTabBar,
    QVBoxLayout,
    QWidget,
)

from tensormorph.gui.icons import icon
from tensormorph.gui.inspector import Inspector
from tensormorph.gui.painting import draw_icon
from tensormorph.gui.problems import BottomPanel
from tensormorph.gui.selection import Selection
from tensormorph.gui.states import PlainLabel, StatePanel, tool_button
from tensormorph.gui.theme import Tokens
from tensormorph.gui.tree import Outliner
from tensormorph.text import listing, plural, printable

MakeView = Callable[[Selection, Tokens], QWidget]
SIZES = {"outliner": 304, "inspector": 320, "bottom": 176}


def make_heatmap(selection: Selection, tokens: Tokens) -> QWidget:
    """Return the heatmap. Its libraries are loaded when the first checkpoint opens, not when the window shows."""
    from tensormorph.gui.heatmap import HeatmapView

    return HeatmapView(selection, tokens)


def make_table(selection: Selection, tokens: Tokens) -> QWidget:
    """Return the table of exact values, loaded when its tab is first shown."""
    from tensormorph.gui.table import TableView

    return TableView(selection, tokens)


def make_placement(selection: Selection, tokens: Tokens) -> QWidget:
    """Return the mesh of ranks, loaded when its tab is first shown."""
    from tensormorph.gui.mesh_view import PlacementView

    return PlacementView(selection, tokens)


class Banner(QWidget):
    """Says over the picture that files changed, and offers to open them again."""

    againWanted = Signal()  # noqa: N815

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self.text = PlainLabel("", "text", 12)
        self.again = QPushButton("Open again")
        self._close = tool_button(tip="Hide this message")
        self._close.clicked.connect(self.hide)
        self.again.clicked.connect(self.againWanted)
        line = QHBoxLayout(self)
        line.setContentsMargins(38, 4, 8, 4)
        line.addWidget(self.text, 1)
        line.addWidget(self.again)
        line.addWidget(self._close)
        self.setFixedHeight(40)
        self.hide()

    def show_changed(self, files: tuple[str, ...]) -> None:
        """Say which files changed; the time is that of the first notice."""
        if not self.isVisible():
            what = "The file" if len(files) == 1 else f"{plural(len(files), 'file')} of it"
            self.text.setText(
                f"{what} changed while it was open ({listing(files, 2)}). Values shown before {time.strftime('%H:%M')} "
                "are kept, new reads are refused"
            )
            self.text.setToolTip("")
            self.show()

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.text.set_tokens(tokens)
        self._close.setIcon(icon("x", tokens.text2))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._tokens.warnbg)
        box = self.rect()
        box.setWidth(40)
        draw_icon(painter, box, "triangle-alert", self._tokens.warn)


class Centre(QWidget):
    """Tabs of views on the selected tensor, and what stands there while there is none."""

    problemsWanted = Signal()  # noqa: N815
    viewMade = Signal(QWidget)  # noqa: N815  # a view is made when its tab is first shown

    def __init__(self, selection: Selection, tokens: Tokens, make_picture: MakeView) -> None:
        super().__init__()
        self._selection = selection
        self._tokens = tokens
        self._makers: dict[str, MakeView] = {
            "Heatmap": make_picture, "Table": make_table, "Placement": make_placement,
        }  # fmt: skip
        self.views: dict[str, QWidget] = {}
        self.banner = Banner(tokens)
        self.tabs = QTabBar()
        self.tabs.setDrawBase(False)
        self.tabs.setExpanding(False)
        for n, title in enumerate(self._makers, 1):
            self.tabs.addTab(title)
            self.tabs.setTabToolTip(n - 1, f"{title} (Alt+{n})")
        self._strip = QWidget()
        strip = QHBoxLayout(self._strip)
        strip.setContentsMargins(8, 0, 0, 0)
        strip.addWidget(self.tabs, 0, Qt.AlignmentFlag.AlignBottom)
        strip.addStretch(1)
        self._strip.setFixedHeight(36)
        self._strip.setAutoFillBackground(True)
        self.empty = StatePanel(tokens)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.empty)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for widget in (self._strip, self.banner):
            column.addWidget(widget)
        column.addWidget(self.stack, 1)
        self.stack.setAutoFillBackground(True)
        selection.tensorChanged.connect(self._show_tensor)
        self.tabs.currentChanged.connect(self._show_tensor)
        self.set_tokens(tokens)
        self._show_tensor()

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        for widget, colour in ((self.stack, tokens.canvas), (self._strip, tokens.chrome)):
            palette = widget.palette()
            palette.setColor(widget.backgroundRole(), colour)
            widget.setPalette(palette)
        self.empty.set_tokens(tokens)
        self.banner.set_tokens(tokens)
        for view in self.views.values():
            view.set_tokens(tokens)  # type: ignore[attr-defined]

    def show_view(self, title: str) -> None:
        """Bring the tab of a view to the front."""
        self.tabs.setCurrentIndex(list(self._makers).index(title))

    @property
    def shown(self) -> QWidget | None:
        """The view that is on screen; None while there is no tensor to view."""
        view = self.stack.currentWidget()
        return None if view is self.empty else view

    def _show_tensor(self) -> None:
        checkpoint, name, tensor = self._selection.checkpoint, self._selection.name, self._selection.tensor
        if tensor is not None:
            title = self.tabs.tabText(self.tabs.currentIndex())
            if title not in self.views:
                self.views[title] = self._makers[title](self._selection, self._tokens)
                self.stack.addWidget(self.views[title])
                self.viewMade.emit(self.views[title])
            self.stack.setCurrentWidget(self.views[title])
            return
        if checkpoint is None or name is None:
            self.empty.show_state("tensor", "Choose a tensor", "Its values, places and statistics appear here")
        else:
            problems = checkpoint.unreadable[name].problems
            words = problems[0].sentence if problems else "Nothing usable is stored for it"
            self.empty.show_state("circle-x", f"{printable(name, 120)} cannot be read", printable(words, 600),
                                  [("Show in Problems", self.problemsWanted.emit)], "err")  # fmt: skip
        self.stack.setCurrentWidget(self.empty)


class Workbench(QWidget):
    """All panels of an open checkpoint."""

    def __init__(self, selection: Selection, tokens: Tokens, make_picture: MakeView) -> None:
        super().__init__()
        self.outliner = Outliner(selection, tokens)
        self.inspector = Inspector(selection, tokens)
        self.centre = Centre(selection, tokens, make_picture)
        self.bottom = BottomPanel(tokens)
        self._middle = QSplitter(Qt.Orientation.Vertical)
        self._across = QSplitter(Qt.Orientation.Horizontal)
        for splitter in (self._middle, self._across):
            splitter.setHandleWidth(1)
            splitter.setChildrenCollapsible(False)
        self._middle.addWidget(self.centre)
        self._middle.addWidget(self.bottom)
        self._across.addWidget(self.outliner)
        self._across.addWidget(self._middle)
        self._across.addWidget(self.inspector)
        self._middle.setStretchFactor(0, 1)
        self._middle.setStretchFactor(1, 0)
        self._across.setStretchFactor(1, 1)
        self._across.setStretchFactor(0, 0)
        self._across.setStretchFactor(2, 0)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._across)
        self._panels: dict[str, tuple[QWidget, QSplitter, int]] = {
            "outliner": (self.outliner, self._across, 0),
            "inspector": (self.inspector, self._across, 2),
            "bottom": (self.bottom, self._middle, 1),
        }
        self._sizes = dict(SIZES)
        self._laid_out = False

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._laid_out:  # sizes given to a splitter that has none of its own yet are lost
            self._laid_out = True
            for name in self._panels:
                self._apply(name)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        for part in (self.outliner, self.inspector, self.centre, self.bottom):
            part.set_tokens(tokens)

    def set_panel_visible(self, name: str, visible: bool) -> None:
        """Show or hide a panel; it comes back in the size that it had."""
        panel, splitter, at = self._panels[name]
        if visible == (not panel.isHidden()):
            return
        if not visible:
            self._sizes[name] = (splitter.sizes()[at] if self._laid_out else 0) or self._sizes[name]
        panel.setVisible(visible)
        if visible:
            self._apply(name)

    def panel_sizes(self) -> dict[str, int]:
        """Return the size of each panel, of a hidden one that which it comes back in."""
        sizes = dict(self._sizes)
        for name, (panel, splitter, at) in self._panels.items():
            if self._laid_out and not panel.isHidden() and splitter.sizes()[at]:
                sizes[name] = splitter.sizes()[at]
        return sizes

    def set_panel_sizes(self, sizes: dict[str, int]) -> None:
        """Give panels the sizes of an earlier run; those not named get the ones they begin with."""
        self._sizes = {name: sizes.get(name, size) for name, size in SIZES.items()}
        for name in self._panels if self._laid_out else ():
            self._apply(name)

    def _apply(self, name: str) -> None:
        panel, splitter, at = self._panels[name]
        if panel.isHidden() or not self._laid_out:
            return
        wanted = splitter.sizes()
        middle = 0 if splitter is self._middle else 1
        wanted[middle] = max(1, wanted[middle] + wanted[at] - self._sizes[name])
        wanted[at] = self._sizes[name]
        splitter.setSizes(wanted)

    def focus_next(self) -> None:
        """Move the focus to the next visible panel."""
        shown = self.centre.shown or self.centre.tabs
        panels = [(self.outliner, self.outliner.tree), (self.centre, shown), (self.inspector, self.inspector.list),
                  (self.bottom, self.bottom.table)]  # fmt: skip
        order = [(panel, widget) for panel, widget in panels if not panel.isHidden()]
        focus = QApplication.focusWidget()
        holds = [focus is not None and panel.isAncestorOf(focus) for panel, _ in order]
        order[(holds.index(True) + 1) % len(order) if any(holds) else 0][1].setFocus(Qt.FocusReason.TabFocusReason)
