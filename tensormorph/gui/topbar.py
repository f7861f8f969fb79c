"""The bar of 40 pixels at the top: menus, back and forward, the search field, three commands, three panel toggles."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAction, QIcon, QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QMenuBar, QSizePolicy, QToolButton, QWidget

from tensormorph.gui.go_field import GoField
from tensormorph.gui.icons import icon, pixmap
from tensormorph.gui.painting import draw_line
from tensormorph.gui.theme import Tokens, ui_font

HEIGHT = 40


class TopBar(QWidget):
    """Lays the actions of the window out; icons follow the theme."""

    def __init__(self, window: QWidget, tokens: Tokens) -> None:
        super().__init__(window)
        self._tokens = tokens
        self.setFixedHeight(HEIGHT)
        self._logo = QLabel()
        self._logo.setFixedWidth(18)
        self.menus = QMenuBar()
        self.menus.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Preferred)
        self.menus.setStyleSheet("QMenuBar { padding: 0 }")
        self.setStyleSheet("QToolButton:checked:disabled { background: transparent }")
        self.field = GoField(window, tokens)
        self._icons: dict[QAction, str] = {}
        self._left, self._right = QHBoxLayout(), QHBoxLayout()
        for side in (self._left, self._right):
            side.setSpacing(2)
        self._left.addWidget(self._logo)
        self._left.addWidget(self.menus)
        self._left.addSpacing(8)
        grid = QGridLayout(self)
        grid.setContentsMargins(14, 0, 14, 0)
        grid.setHorizontalSpacing(16)
        left, right = QWidget(), QWidget()
        left.setLayout(self._left)
        right.setLayout(self._right)
        for side in (self._left, self._right):
            side.setContentsMargins(0, 0, 0, 0)
        grid.addWidget(left, 0, 0, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        grid.addWidget(self.field, 0, 1)
        grid.addWidget(right, 0, 2, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        # Equal outer columns keep the field in the middle of the window as long as there is room.
        grid.setColumnStretch(0, 1)
        grid.setColumnStretch(2, 1)

    def add_left(self, action: QAction, name: str) -> QToolButton:
        """Add an icon button beside the menus."""
        return self._add(self._left, action, name, words=False)

    def add_right(self, action: QAction, name: str, *, words: bool) -> QToolButton:
        """Add a button at the right end, with its words or without."""
        return self._add(self._right, action, name, words=words)

    def add_rule(self) -> None:
        """Add a line between commands and toggles."""
        self._right.addSpacing(8)
        self._right.addWidget(_Rule(self._tokens))
        self._right.addSpacing(8)

    def _add(self, side: QHBoxLayout, action: QAction, name: str, *, words: bool) -> QToolButton:
        button = QToolButton()
        button.setDefaultAction(action)
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        button.setIconSize(QSize(16, 16))
        style = Qt.ToolButtonStyle
        button.setToolButtonStyle(style.ToolButtonTextBesideIcon if words else style.ToolButtonIconOnly)
        button.setFont(ui_font(12, 500))
        button.setAccessibleName(action.iconText().strip() or action.text())
        self._icons[action] = name
        side.addWidget(button)
        return button

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self._logo.setPixmap(pixmap("tensormorph", tokens.text, 16, self.devicePixelRatioF()))
        self.field.set_tokens(tokens)
        for rule in self.findChildren(_Rule):
            rule.tokens = tokens
        for action, name in self._icons.items():
            made = icon(name, tokens.text)
            for ratio in sorted({1.0, self.devicePixelRatioF()}):
                made.addPixmap(pixmap(name, tokens.text3, 16, ratio), QIcon.Mode.Disabled)
            action.setIcon(made)
            action.setIconVisibleInMenu(False)  # it would stand where the check mark of a shown panel belongs
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._tokens.chrome)
        draw_line(painter, 0, HEIGHT - 1, self.width(), HEIGHT - 1, self._tokens.border)


class _Rule(QWidget):
    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self.tokens = tokens
        self.setFixedSize(1, 16)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), self.tokens.border2)
