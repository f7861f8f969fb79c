"""Names of strangers stay letters: in the tree, tooltips, the title, lists, menus and the log."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from tensormorph.errors import Problem
from tensormorph.gui.opening import Report
from tensormorph.gui.settings import Recent, Settings
from tensormorph.model import Checkpoint, StoredObject
from tests.gui.conftest import MakeWindow, make_checkpoint, shown
from tests.hostile_inputs import NASTY

NAMES = {**NASTY, "star": "w[*]x", "amp": "a&b &File", "rich": "<h1>big</h1>", "long dots": "a." * 20_000}
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")


def visible(text: str) -> bool:
    return FORBIDDEN.search(text.replace("\u200b", "")) is None


@pytest.mark.parametrize("kind", sorted(NAMES))
def test_a_name_is_plain_text_wherever_it_stands(
    qtbot: QtBot, make_window: MakeWindow, tmp_path: Path, kind: str
) -> None:
    name = NAMES[kind]
    stored = StoredObject(f"object {name[:500]}", name[:500], name[:500], 9, name[:500], 0, lambda: {name: name})
    problem = Problem("gap", "error", f"{name[:2000]} has a gap", name, name[:300], hint=name[:300])
    path = "/run/" + name[:200].replace("\0", "").replace("/", "_")

    def open_(path: str, reader: str | None, report: Report) -> Checkpoint:
        return make_checkpoint([(name, (2, 3)), ("other", (2,))], path=path, problems=[problem], objects=[stored],
                               aliases={f"{name} alias": name})  # fmt: skip

    settings = Settings(tmp_path / "own")
    settings.values.recent = [Recent(path, name[:100])]
    window = make_window(open_, settings)
    window.start_page.grab()
    with qtbot.waitSignal(window.opener.opened):
        window.open_path(path)
    outliner, inspector = window.workbench.outliner, window.workbench.inspector
    outline = outliner.model.outline
    assert outline is not None
    for node in range(1, len(outline.labels)):
        index = outliner.model.index_of(node)
        label = outliner.model.data(index, Qt.ItemDataRole.DisplayRole)
        tip = outliner.model.data(index, Qt.ItemDataRole.ToolTipRole)
        assert label
        assert visible(label)
        assert len(label) <= 300
        assert len(tip) < 20_000
        assert re.sub(r"</?span[^<>]*>|<br>", "", tip).count("<") == 0  # no tag but our own
    window.selection.choose(name)
    assert window.selection.name == name
    for text in (window.windowTitle(), outliner.header.title, window.status.facts.text(), shown(inspector.leaf)):
        assert text
        assert visible(text)
    assert inspector.leaf.textFormat() == Qt.TextFormat.PlainText
    assert "[*]" not in window.windowTitle().replace("[*][*]", "")
    assert "<" not in re.sub(r"</?span[^<>]*>", "", inspector.leaf.toolTip())
    window.workbench.inspector.show_object(stored.name)
    objects = window.workbench.inspector.objects
    qtbot.waitUntil(lambda: objects.value.toPlainText() != "Reading…")
    assert visible(objects.value.toPlainText())
    table = window.workbench.bottom.table.problems
    assert all(visible(table.text(0, column)) for column in range(4))
    menu = QMenu()
    window.remembered.fill(menu, window.open_path)
    text = menu.actions()[0].text()
    assert visible(text)
    assert "&" not in text.replace("&&", "")
    window.log(f"about {name}")
    assert visible(window.workbench.bottom.log.toPlainText())
    window.grab()  # and drawing it all ends


def test_what_is_shown_still_tells_hostile_names_apart(make_window: MakeWindow) -> None:
    from tensormorph.gui.painting import mnemonic_free, tooltip

    assert html.unescape(re.sub("<[^<>]*>", "", tooltip("<b>w</b>"))) == "<b>w</b>"
    assert mnemonic_free("a&b") == "a&&b"
