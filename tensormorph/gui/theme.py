"""Colours, fonts and the style sheet of the window. Every colour of a widget is here; sizes of layouts are not."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Final, Literal

from PySide6.QtCore import QDir, Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QPalette, QStyleHints
from PySide6.QtWidgets import QApplication

from tensormorph import colours
from tensormorph.gui.icons import recoloured
from tensormorph.resources import resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The colours of one theme, each as `#RRGGBB`, named by use."""

    name: Literal["light", "dark"]
    # Grounds: bars, side panels, behind pictures, menus and buttons, inputs, under the pointer.
    chrome: str
    panel: str
    canvas: str
    raised: str
    field: str
    hover: str
    # Lines between regions; outlines of controls.
    border: str
    border2: str
    # Content; labels; captions and units.
    text: str
    text2: str
    text3: str
    # Selection, focus, links and the one primary button; the tint of a selection; text on the accent.
    accent: str
    accentbg: str
    onaccent: str
    # Selection without focus; neutral pill.
    selin: str
    neutbg: str
    # A severity and its tint.
    err: str
    errbg: str
    warn: str
    warnbg: str
    ok: str
    okbg: str
    # The two sides of a diff and their difference; side A is also the colour of profiles.
    side_a: str
    side_b: str
    delta: str
    # By what a rank holds, so copies share one; the last is neutral. Always with the rank's number.
    rank_fill: tuple[str, ...]
    rank_text: tuple[str, ...]
    # Marks of elements that are not ordinary values: hatch of a gap, ground and dots of padding.
    nan: str = colours.NAN
    positive_infinity: str = colours.POSITIVE_INFINITY
    negative_infinity: str = colours.NEGATIVE_INFINITY
    missing: str
    padding: str
    padding_dot: str


LIGHT: Final = Tokens(
    name="light",
    chrome="#F3F4F6",
    panel="#FBFBFC",
    canvas=colours.CANVAS["light"],
    raised="#FFFFFF",
    field="#FFFFFF",
    hover="#EBEDF0",
    border="#DFE2E7",
    border2="#C4C9D1",
    text="#1B1F26",
    text2="#525B67",
    text3="#616A76",
    accent="#2563C9",
    accentbg="#DDE8FA",
    onaccent="#FFFFFF",
    selin="#E7EAEE",
    neutbg="#E9ECF0",
    err="#B3261E",
    errbg="#FCE8E6",
    warn="#855200",
    warnbg="#FBEFD5",
    ok="#1B7340",
    okbg="#E0F2E6",
    side_a="#0F62A8",
    side_b="#B04A00",
    delta="#6A3FB5",
    rank_fill=("#C9DBF3", "#F2D9C4", "#CFE6D3", "#E3D3EC", "#F3E6B8", "#C8E4E8", "#F0CFD6", "#D9DDE3"),
    rank_text=("#2E5E9E", "#874A12", "#2B6B3F", "#6F4594", "#776000", "#1D6C77", "#9B3A50", "#525B67"),
    missing=colours.MISSING["light"],
    padding=colours.PADDING["light"],
    padding_dot=colours.PADDING_DOT["light"],
)

DARK: Final = Tokens(
    name="dark",
    chrome="#1B1D21",
    panel="#202328",
    canvas=colours.CANVAS["dark"],
    raised="#2A2E34",
    field="#16181B",
    hover="#2A2E34",
    border="#31353C",
    border2="#4A505A",
    text="#E4E6EA",
    text2="#A9B0BA",
    text3="#8D95A1",
    accent="#7DB0FA",
    accentbg="#263B5C",
    onaccent="#10213A",
    selin="#2C3037",
    neutbg="#2F343B",
    err="#FF9389",
    errbg="#45231F",
    warn="#EBB755",
    warnbg="#40311A",
    ok="#6FCF97",
    okbg="#1C3A29",
    side_a="#6FB1F2",
    side_b="#F0A063",
    delta="#BBA1F0",
    rank_fill=("#2A405F", "#54402E", "#2C4A36", "#443353", "#4A4222", "#22464C", "#51323A", "#3A3F47"),
    rank_text=("#9CC3F5", "#E9B98D", "#93D1A6", "#CDADE6", "#DDC66C", "#8ACFD9", "#EBA3B3", "#A9B0BA"),
    missing=colours.MISSING["dark"],
    padding=colours.PADDING["dark"],
    padding_dot=colours.PADDING_DOT["dark"],
)

_ROLES: Final = {
    QPalette.ColorRole.Window: "chrome",
    QPalette.ColorRole.WindowText: "text",
    QPalette.ColorRole.Base: "panel",
    QPalette.ColorRole.AlternateBase: "panel",
    QPalette.ColorRole.Text: "text",
    QPalette.ColorRole.Button: "raised",
    QPalette.ColorRole.ButtonText: "text",
    QPalette.ColorRole.BrightText: "err",
    QPalette.ColorRole.Highlight: "accentbg",
    QPalette.ColorRole.HighlightedText: "text",
    QPalette.ColorRole.Link: "accent",
    QPalette.ColorRole.LinkVisited: "accent",
    QPalette.ColorRole.Accent: "accent",
    QPalette.ColorRole.PlaceholderText: "text3",
    QPalette.ColorRole.ToolTipBase: "raised",
    QPalette.ColorRole.ToolTipText: "text",
    QPalette.ColorRole.Light: "raised",
    QPalette.ColorRole.Midlight: "border",
    QPalette.ColorRole.Mid: "border",
    QPalette.ColorRole.Dark: "border2",
    QPalette.ColorRole.Shadow: "border2",
}

# A sheet that touches a control takes away Fusion's arrow, so each has its own: the icon and the token it is drawn in.
_SHEET_ICONS: Final = {
    "combo": ("chevrons-up-down", "text3"),
    "up": ("chevron-up", "text3"),
    "down": ("chevron-down", "text3"),
    "right": ("chevron-right", "text3"),
    "close": ("x", "text3"),
    "checked": ("check", "text2"),
    "checked-box": ("check", "onaccent"),
    "branch-closed": ("chevron-right", "text3"),
    "branch-open": ("chevron-down", "text3"),
}

_SHEET: Final = Template("""
QMainWindow::separator { background: $border; width: 1px; height: 1px; }
QSplitter::handle { background: $border; }
QMenuBar { background: $chrome; border: 0; padding: 0 8px; }
QMenuBar::item { padding: 4px 10px; border-radius: 4px; color: $text2; background: transparent; }
QMenuBar::item:selected, QMenu::item:selected { background: $hover; color: $text; }
QMenu { background: $raised; border: 1px solid $border2; padding: 4px; }
QMenu::item { padding: 4px 24px 4px 12px; border-radius: 4px; }
QMenu::item:disabled { color: $text3; }
QMenu::icon { left: 8px; }
QMenu::separator { height: 1px; background: $border; margin: 4px 8px; }
QMenu::indicator { width: 12px; height: 12px; left: 8px; }
QMenu::indicator:checked { image: url(icons:checked-$name.svg); }
QMenu::right-arrow { image: url(icons:right-$name.svg); width: 12px; height: 12px; right: 6px; }
QTreeView, QTableView, QListView { background: $panel; border: 0; outline: 0; }
QTableView { gridline-color: $border; }
QTableCornerButton::section { background: $panel; border: 0; }
QTreeView::item, QTableView::item, QListView::item { border: 0; padding: 0 4px; }
QTreeView::item:hover, QListView::item:hover { background: $hover; }
QTreeView::item:selected, QTableView::item:selected, QListView::item:selected { background: $accentbg; color: $text; }
QTreeView::item:selected:!active, QTableView::item:selected:!active, QListView::item:selected:!active {
    background: $selin; }
QTreeView::branch { background: $panel; }
QTreeView::branch:hover { background: $hover; }
QTreeView::branch:selected { background: $accentbg; }
QTreeView::branch:selected:!active { background: $selin; }
QTreeView::branch:closed:has-children { image: url(icons:branch-closed-$name.svg); }
QTreeView::branch:open:has-children { image: url(icons:branch-open-$name.svg); }
QHeaderView { background: $panel; border: 0; }
QHeaderView::section { background: $panel; color: $text3; border: 0; padding: 0 4px; font: 500 11px; height: 22px; }
QHeaderView::up-arrow { image: url(icons:up-$name.svg); width: 12px; height: 12px; }
QHeaderView::down-arrow { image: url(icons:down-$name.svg); width: 12px; height: 12px; }
QLineEdit, QComboBox, QAbstractSpinBox {
    background: $field; border: 1px solid $border2; border-radius: 5px; padding: 0 8px; min-height: 24px;
    selection-background-color: $accentbg; selection-color: $text; }
QLineEdit:focus, QComboBox:focus, QAbstractSpinBox:focus { border: 1px solid $accent; }
QLineEdit:disabled, QComboBox:disabled, QAbstractSpinBox:disabled { color: $text3; border-color: $border; }
QComboBox, QAbstractSpinBox { min-height: 22px; font-size: 12px; }
QComboBox { combobox-popup: 0; }
QComboBox::drop-down { border: 0; width: 20px; }
QComboBox::down-arrow { image: url(icons:combo-$name.svg); width: 12px; height: 12px; }
QComboBox QAbstractItemView { background: $raised; border: 1px solid $border2; outline: 0; }
QComboBox QAbstractItemView::item { min-height: 24px; }
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button { border: 0; width: 18px; background: transparent; }
QAbstractSpinBox::up-arrow { image: url(icons:up-$name.svg); width: 12px; height: 12px; }
QAbstractSpinBox::down-arrow { image: url(icons:down-$name.svg); width: 12px; height: 12px; }
QCheckBox, QRadioButton { spacing: 8px; }
QCheckBox:disabled, QRadioButton:disabled { color: $text3; }
QCheckBox::indicator, QRadioButton::indicator {
    width: 12px; height: 12px; border: 1px solid $border2; border-radius: 3px; background: $field; }
QRadioButton::indicator { border-radius: 7px; }
QCheckBox::indicator:focus, QRadioButton::indicator:focus { border-color: $accent; }
QCheckBox::indicator:checked {
    background: $accent; border-color: $accent; image: url(icons:checked-box-$name.svg); }
QRadioButton::indicator:checked { width: 6px; height: 6px; border: 4px solid $accent; background: $onaccent; }
QToolButton { border: 1px solid transparent; border-radius: 5px; padding: 3px; }
QToolButton:hover { background: $hover; }
QToolButton:checked, QToolButton:pressed { background: $accentbg; }
QToolButton:focus { border-color: $accent; }
QToolButton:disabled { color: $text3; }
QToolButton::menu-indicator { image: none; }
QPushButton {
    background: $raised; border: 1px solid $border2; border-radius: 5px; padding: 0 12px; min-height: 26px;
    font: 500 12px; }
QPushButton:hover { background: $hover; }
QPushButton:pressed { background: $selin; }
QPushButton:checked { background: $accentbg; }
QPushButton:focus { border-color: $accent; }
QPushButton:default { background: $accent; color: $onaccent; border-color: $accent; }
QPushButton:default:focus { border-color: $text; }
QPushButton:disabled { background: $raised; color: $text3; border-color: $border; }
QTabBar { background: $chrome; }
QTabBar::tab {
    background: transparent; color: $text2; padding: 0 12px; height: 34px; border: 0;
    border-top: 2px solid transparent; }
QTabBar::tab:selected { background: $canvas; color: $text; border-top: 2px solid $accent; }
QTabBar::tab:hover:!selected, QTabBar::tab:focus { color: $text; }
QTabBar::close-button {
    image: url(icons:close-$name.svg); width: 12px; height: 12px; padding: 2px; border-radius: 4px; }
QTabBar::close-button:hover { background: $hover; }
QTabWidget::pane { border: 0; background: $canvas; }
QStatusBar { background: $chrome; border-top: 1px solid $border; font-size: 11px; color: $text2; min-height: 24px; }
QStatusBar::item { border: 0; }
QStatusBar QLabel { color: $text2; font-size: 11px; }
QToolTip { background: $raised; color: $text; border: 1px solid $border2; padding: 4px 8px; }
QProgressBar { background: $neutbg; border: 0; border-radius: 2px; max-height: 4px; }
QProgressBar::chunk { background: $accent; border-radius: 2px; }
QScrollBar:vertical { background: transparent; width: 10px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: 10px; margin: 0; }
QScrollBar::handle { background: $border2; border-radius: 3px; margin: 2px; min-height: 24px; min-width: 24px; }
QScrollBar::handle:hover { background: $text3; }
QScrollBar::add-line, QScrollBar::sub-line, QScrollBar::add-page, QScrollBar::sub-page {
    background: none; border: 0; width: 0; height: 0; }
""")


def palette(tokens: Tokens) -> QPalette:
    """Return the palette that Fusion and our delegates draw with."""
    made = QPalette()
    for role, token in _ROLES.items():
        made.setColor(role, QColor(getattr(tokens, token)))
    made.setColor(QPalette.ColorGroup.Inactive, QPalette.ColorRole.Highlight, QColor(tokens.selin))
    for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText):
        made.setColor(QPalette.ColorGroup.Disabled, role, QColor(tokens.text3))
    return made


def style_sheet(tokens: Tokens) -> str:
    """Return the sheet for the whole application; its arrows need the search path that `apply` sets."""
    return _SHEET.substitute(asdict(tokens))


def apply(app: QApplication, mode: Literal["system", "light", "dark"]) -> Tokens:
    """Give the application its style, fonts, palette and sheet, and return the tokens for all that paints itself.

    `system` follows the desktop, where unknown is light: call again on `styleHints().colorSchemeChanged`, and once
    for each change of the setting. With a desktop set to high contrast, captions take the colour of content.
    OSError when no temporary folder can be written (the sheet reads its arrows from files).
    """
    hints = app.styleHints()
    forced = {"system": Qt.ColorScheme.Unknown, "light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}[mode]
    hints.setColorScheme(forced)  # the frame of the window and native dialogs follow it, where the system can
    dark = mode == "dark" or (mode == "system" and hints.colorScheme() == Qt.ColorScheme.Dark)
    tokens = DARK if dark else LIGHT
    if _high_contrast(hints):
        tokens = replace(tokens, text3=tokens.text)
    load_fonts()
    app.setStyle("fusion")
    app.setFont(ui_font())
    app.setPalette(palette(tokens))
    QDir.setSearchPaths("icons", [str(_write_sheet_icons(tokens))])
    app.setStyleSheet(style_sheet(tokens))
    return tokens


@lru_cache(maxsize=1)
def load_fonts() -> None:
    """Make the shipped fonts known to Qt, once for the process. RuntimeError names a file that Qt refuses."""
    for path in sorted(resource("fonts").glob("*.ttf")):
        if QFontDatabase.addApplicationFont(str(path)) == -1:
            raise RuntimeError(f"Qt cannot read the font {path}")


def ui_font(size_px: int = 13, weight: Literal[400, 500, 600] = 400, tabular: bool = True) -> QFont:
    """Return Inter at a height of `size_px` logical pixels, by default with figures of equal width."""
    font = _font("Inter", size_px, QFont.Weight(weight))
    if tabular:
        font.setFeature(QFont.Tag("tnum"), 1)  # the stubs allow a plain str, which fails
    return font


def mono_font(size_px: int = 12, bold: bool = False) -> QFont:
    """Return JetBrains Mono, for what could be pasted; the shipped cut has no ligatures."""
    return _font("JetBrains Mono", size_px, QFont.Weight.Bold if bold else QFont.Weight.Normal)


def _font(family: str, size_px: int, weight: QFont.Weight) -> QFont:
    font = QFont(family)
    font.setPixelSize(size_px)
    font.setWeight(weight)
    font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    return font


def _high_contrast(hints: QStyleHints) -> bool:
    if not hasattr(hints, "accessibility"):  # new in Qt 6.10
        return False
    return hints.accessibility().contrastPreference() == Qt.ContrastPreference.HighContrast


def _write_sheet_icons(tokens: Tokens) -> Path:
    """Write the sheet's arrows in the colours of a theme and return their folder; a sheet knows no `currentColor`.

    Each time a new folder, removed at exit: one that was swept away must not be made again under a known name.
    """
    folder = Path(tempfile.mkdtemp(prefix="tensormorph-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, (icon, token) in _SHEET_ICONS.items():
        # Shown at about 12 px, where 1.75 of 24 is less than a device pixel and Qt breaks up the stroke.
        svg = recoloured(icon, getattr(tokens, token)).replace(b'"1.75"', b'"2.1"')
        if name.startswith("branch"):  # fills the indentation of 20 px: the margin keeps it as small as the others
            svg = svg.replace(b'"0 0 24 24"', b'"-4 -4 32 32"')
        (folder / f"{name}-{tokens.name}.svg").write_bytes(svg)
    return folder
