"""The shipped files: found by name, complete, each set with its licence."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tensormorph.resources import resource

SVG = "{http://www.w3.org/2000/svg}"
OWN = {"tensor", "slot", "mesh", "shards", "copies", "conflict", "gap", "padding"}
LUCIDE = """
arrow-left arrow-right box check chevron-down chevron-right chevron-up chevrons-up-down circle-check circle-dashed
circle-x command copy crosshair download equal-not file folder-open funnel git-compare hard-drive info layers
maximize minus monitor moon panel-bottom panel-left panel-right play ruler search settings shield-check square-dashed
sun table terminal triangle-alert x
"""
ICONS = sorted(path for path in resource("icons").glob("*.svg") if path.stem != "tensormorph")


def test_resource_is_an_existing_path() -> None:
    assert resource("icons/check.svg").is_file()
    assert resource("fonts").is_dir()


def test_missing_resource_names_what_was_looked_for() -> None:
    with pytest.raises(FileNotFoundError, match=r"'icons/none\.svg' is missing; looked for .*icons.* and .*icons"):
        resource("icons/none.svg")


def test_icons_of_the_screens_are_all_there() -> None:
    assert {path.stem for path in ICONS} >= OWN.union(LUCIDE.split())


@pytest.mark.parametrize("path", ICONS, ids=lambda path: path.stem)
def test_icon_is_a_recolourable_drawing_on_the_24_grid(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert root.get("viewBox") == "0 0 24 24"
    assert root.get("stroke") == "currentColor"
    assert root.get("stroke-width") == "1.75"
    assert len(root) > 0
    # No shape may override what the root says.
    assert re.findall(r'stroke-width="([^"]*)"', text) == ["1.75"]
    assert set(re.findall(r'(?:stroke|fill)="([^"]*)"', text)) <= {"currentColor", "none"}


@pytest.mark.parametrize("path", ICONS, ids=lambda path: path.stem)
def test_icon_says_whose_it_is(path: Path) -> None:
    assert ("@license lucide-static" in path.read_text(encoding="utf-8")) == (path.stem not in OWN)


def test_application_icon_is_a_matrix_of_nine_full_colours() -> None:
    root = ET.parse(resource("icons/tensormorph.svg")).getroot()
    assert len({cell.get("fill") for cell in root.iter(f"{SVG}rect")}) == 9


@pytest.mark.parametrize(
    ("licence", "files", "words"),
    [
        ("fonts/OFL-Inter.txt", "fonts/Inter-*.ttf", "SIL OPEN FONT LICENSE"),
        ("fonts/OFL-JetBrainsMono.txt", "fonts/JetBrainsMono-*.ttf", "SIL OPEN FONT LICENSE"),
        ("icons/LICENSE-lucide.txt", "icons/*.svg", "ISC License"),
    ],
)
def test_each_set_lies_beside_its_licence(licence: str, files: str, words: str) -> None:
    folder, pattern = files.split("/")
    assert list(resource(folder).glob(pattern))
    assert words in resource(licence).read_text(encoding="utf-8")


def test_every_font_belongs_to_a_licensed_family() -> None:
    families = {path.stem.removeprefix("OFL-") for path in resource("fonts").glob("OFL-*.txt")}
    fonts = list(resource("fonts").glob("*.ttf"))
    assert {path.stem.split("-")[0] for path in fonts} == families
    # A cut that forgot to subset is five times as large.
    assert all(40_000 < path.stat().st_size < 130_000 for path in fonts)
