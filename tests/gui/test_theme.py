"""The theme: readable, recoloured, in the shipped fonts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from typing import Literal

import pytest
from PySide6.QtCore import QDir, QFile, Qt
from PySide6.QtGui import QColor, QFontInfo, QFontMetricsF, QImage, QPalette, QRawFont, QTextLayout
from PySide6.QtWidgets import QApplication, QComboBox, QPushButton
from pytestqt.qtbot import QtBot

from tensormorph.gui import theme
from tensormorph.gui.icons import icon, pixmap
from tensormorph.gui.theme import DARK, LIGHT, Tokens

TOKENS = [LIGHT, DARK]
GROUNDS = ["chrome", "panel", "canvas", "raised"]
TEXTS = ["text", "text2", "text3", "accent", "err", "warn", "ok", "side_a", "side_b", "delta"]
# Text on a ground of its own.
TINTS = [
    ("err", "errbg"),
    ("warn", "warnbg"),
    ("ok", "okbg"),
    ("accent", "accentbg"),
    ("onaccent", "accent"),
    ("text", "accentbg"),
    ("text2", "accentbg"),
    ("text", "selin"),
    ("text2", "selin"),
    ("text2", "neutbg"),
    ("text", "hover"),
    ("text", "field"),
    ("text3", "field"),
]


@pytest.fixture(autouse=True)
def _restored(qapp: QApplication) -> Iterator[None]:
    """Leave the shared application as it was."""
    before = qapp.font(), qapp.palette(), qapp.styleSheet()
    yield
    qapp.styleHints().setColorScheme(Qt.ColorScheme.Unknown)
    qapp.setFont(before[0])
    qapp.setPalette(before[1])
    qapp.setStyleSheet(before[2])


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    channels = [value / 255 for value in bytes.fromhex(colour[1:])]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def darkest(image: QImage) -> str:
    """The colour of the most opaque pixel."""
    points = product(range(image.width()), range(image.height()))
    return max((image.pixelColor(x, y) for x, y in points), key=QColor.alpha).name().upper()


def test_contrast_of_known_colours() -> None:
    assert contrast("#FFFFFF", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("tokens", TOKENS, ids=lambda t: t.name)
def test_text_is_readable_on_every_ground(tokens: Tokens, text: str, ground: str) -> None:
    assert contrast(getattr(tokens, text), getattr(tokens, ground)) >= 4.5


@pytest.mark.parametrize(("text", "ground"), TINTS)
@pytest.mark.parametrize("tokens", TOKENS, ids=lambda t: t.name)
def test_text_is_readable_on_its_tint(tokens: Tokens, text: str, ground: str) -> None:
    assert contrast(getattr(tokens, text), getattr(tokens, ground)) >= 4.5


@pytest.mark.parametrize("tokens", TOKENS, ids=lambda t: t.name)
def test_numbers_of_ranks_are_readable_on_their_tints(tokens: Tokens) -> None:
    assert len(set(tokens.rank_fill)) == len(tokens.rank_text) == 8
    for text, fill in zip(tokens.rank_text, tokens.rank_fill, strict=True):
        assert contrast(text, fill) >= 4.5


@pytest.mark.parametrize("tokens", TOKENS, ids=lambda t: t.name)
def test_every_token_is_a_colour(tokens: Tokens) -> None:
    values = [token for name, token in asdict(tokens).items() if name not in ("name", "rank_fill", "rank_text")]
    values += [*tokens.rank_fill, *tokens.rank_text]
    assert all(re.fullmatch("#[0-9A-F]{6}", value) for value in values)


@pytest.mark.parametrize("tokens", TOKENS, ids=lambda t: t.name)
def test_sheet_names_only_colours_of_its_theme(tokens: Tokens) -> None:
    sheet = theme.style_sheet(tokens)
    assert set(re.findall("#[0-9A-Fa-f]{6}", sheet)) <= set(map(str, asdict(tokens).values()))
    assert "$" not in sheet


@pytest.mark.parametrize(("mode", "expected"), [("system", LIGHT), ("light", LIGHT), ("dark", DARK)])
def test_apply_returns_and_sets_the_theme(
    qapp: QApplication, mode: Literal["system", "light", "dark"], expected: Tokens
) -> None:
    assert theme.apply(qapp, mode) == expected
    assert qapp.palette().color(QPalette.ColorRole.Window).name().upper() == expected.chrome
    inactive = qapp.palette().color(QPalette.ColorGroup.Inactive, QPalette.ColorRole.Highlight)
    assert inactive.name().upper() == expected.selin
    assert qapp.styleSheet() == theme.style_sheet(expected)


def test_high_contrast_gives_captions_the_colour_of_content(
    qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theme, "_high_contrast", lambda hints: True)
    tokens = theme.apply(qapp, "dark")
    assert tokens.text3 == tokens.text == DARK.text


@pytest.mark.parametrize("tokens", TOKENS, ids=lambda t: t.name)
def test_every_picture_of_the_sheet_exists_in_the_colours_of_the_theme(qapp: QApplication, tokens: Tokens) -> None:
    theme.apply(qapp, tokens.name)
    names = set(re.findall(r"url\((icons:[^)]*)\)", qapp.styleSheet()))
    assert len(names) >= 6
    for name in names:
        assert QFile.exists(name), name
        text = QFile(name)
        assert text.open(QFile.OpenModeFlag.ReadOnly)
        svg = bytes(text.readAll().data()).decode()
        text.close()
        assert "currentColor" not in svg
        assert any(token in svg for token in (tokens.text2, tokens.text3, tokens.onaccent))


def test_pictures_of_the_sheet_come_back_when_swept_away(qapp: QApplication) -> None:
    theme.apply(qapp, "light")
    folder = QDir(QDir.searchPaths("icons")[0])
    assert folder.removeRecursively()
    theme.apply(qapp, "light")
    assert QFile.exists("icons:down-light.svg")


def test_combo_box_keeps_its_arrow(qapp: QApplication, qtbot: QtBot) -> None:
    theme.apply(qapp, "light")
    box = QComboBox()
    qtbot.addWidget(box)
    box.resize(120, 24)
    grabbed = box.grab().toImage()
    # The two chevrons, and nothing between them.
    rows = [y for y in range(3, 21) if any(grabbed.pixelColor(x, y).lightness() < 200 for x in range(100, 116))]
    assert len(rows) >= 4
    assert set(range(rows[0], rows[-1])) - set(rows)


def test_weights_of_inter_are_different_drawings(qapp: QApplication) -> None:
    theme.load_fonts()
    widths = {}
    for weight in (400, 500, 600):
        font = theme.ui_font(40, weight)
        assert (QFontInfo(font).family(), QFontInfo(font).weight()) == ("Inter", weight)
        widths[weight] = QFontMetricsF(font).horizontalAdvance("Who holds this region")
    assert widths[400] < widths[500] < widths[600]


def test_figures_are_tabular_unless_told(qapp: QApplication) -> None:
    theme.load_fonts()

    def widths(tabular: bool) -> set[float]:
        metrics = QFontMetricsF(theme.ui_font(40, 400, tabular))
        return {metrics.horizontalAdvance(figure) for figure in "0123456789"}

    assert len(widths(True)) == 1
    assert len(widths(False)) > 1


def test_sheet_leaves_figures_tabular(qapp: QApplication, qtbot: QtBot) -> None:
    theme.apply(qapp, "light")
    button = QPushButton("1")
    qtbot.addWidget(button)
    button.ensurePolished()
    metrics = QFontMetricsF(button.font())
    assert button.font().weight() == 500
    assert metrics.horizontalAdvance("1111") == metrics.horizontalAdvance("0000")


def test_mono_is_even_and_has_no_ligatures(qapp: QApplication) -> None:
    theme.load_fonts()
    for bold in (False, True):
        font = theme.mono_font(40, bold)
        metrics = QFontMetricsF(font)
        assert QFontInfo(font).family() == "JetBrains Mono"
        assert QFontInfo(font).bold() == bold
        assert len({metrics.horizontalAdvance(letter) for letter in "iW0.:"}) == 1
        layout = QTextLayout("!= -> >=", font)
        layout.beginLayout()
        layout.createLine()
        layout.endLayout()
        drawn = [glyph for run in layout.glyphRuns() for glyph in run.glyphIndexes()]
        assert drawn == list(QRawFont.fromFont(font).glyphIndexesForString("!= -> >="))


@pytest.mark.parametrize("sign", list("−×≥≤≈≠ΔΣσ√∞→…·±äß"))
def test_shipped_fonts_hold_the_signs_of_the_screens(qapp: QApplication, sign: str) -> None:
    theme.load_fonts()
    for font in (theme.ui_font(), theme.mono_font()):
        assert QRawFont.fromFont(font).supportsCharacter(ord(sign))


@pytest.mark.parametrize("colour", [LIGHT.err, DARK.accent])
def test_icon_takes_the_colour(qapp: QApplication, colour: str) -> None:
    assert darkest(icon("minus", colour, 48).pixmap(48).toImage()) == colour


@pytest.mark.parametrize("ratio", [1.0, 1.25, 2.0])
def test_pixmap_is_drawn_at_device_pixels(qapp: QApplication, ratio: float) -> None:
    drawn = pixmap("check", LIGHT.text, 16, ratio)
    assert drawn.width() == 16 * ratio
    assert drawn.devicePixelRatio() == ratio
    assert drawn.deviceIndependentSize().width() == 16


def test_unknown_icon_is_named(qapp: QApplication) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-icon"):
        icon("no-such-icon", LIGHT.text)
