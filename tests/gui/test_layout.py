"""How a tensor is placed, in the Inspector; and the mesh that a person states, and what comes of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from tensormorph.errors import TensormorphError
from tensormorph.gui import opener
from tensormorph.gui.layout_section import LayoutSection
from tensormorph.gui.layout_words import order_text, ranks_text
from tensormorph.gui.mesh_dialog import MeshDialog, read_mesh
from tensormorph.gui.window import MainWindow
from tensormorph.mesh import DeviceMesh, Layout, Placement, Provenance, Replicate, Shard, parse_mesh
from tensormorph.model import Checkpoint
from tests.gui.conftest import MakeWindow, OpenTensors, opens, shown
from tests.gui.sharded import boxes, laid_out, numbered, sharded, two_by_two, two_stages

SHAPE = (40, 60)
MESH = parse_mesh("dp=2,tp=4")


@pytest.fixture
def section_of(qtbot: QtBot, make_window: MakeWindow) -> Any:
    """Return a maker of windows on a checkpoint with a tensor chosen; gives the window and its layout section."""

    def make(checkpoint: Checkpoint, name: str) -> tuple[MainWindow, LayoutSection]:
        window = make_window(opens(checkpoint))
        with qtbot.waitSignal(window.opener.opened):
            window.open_path(str(checkpoint.path))
        window.selection.choose(name)
        return window, window.workbench.inspector.layout_section

    return make


# ---------------------------------------------------------------- what the section says


def test_mesh_placements_and_evidence_are_told(section_of: Any) -> None:
    window, section = section_of(two_by_two(), "rows")
    assert shown(section.mesh) == "mesh axis0 2 × axis1 2"
    assert (section.axes.text(), section.placements.text()) == ("axis0\naxis1", "Shard(0)\nReplicate()")
    assert (section.pill.text, section.pill.mark) == ("inferred", "circle-dashed")
    assert shown(section.evidence).startswith("It explains the boxes and writers of 2 tensors")
    for label in (section.order, section.result, section.candidates):
        assert label.isHidden()
    assert section.state.isVisible()
    window.selection.choose("grid")
    assert section.placements.text() == "Shard(0)\nShard(1)"


def test_a_recorded_layout_is_certain_and_needs_no_statement(window_of: OpenTensors) -> None:
    placed = laid_out(
        sharded(numbered(SHAPE), boxes(SHAPE, (2, 1))), "dp=2", Shard(0), provenance="recorded", evidence="in each file"
    )
    section = window_of(placed).workbench.inspector.layout_section
    assert (section.pill.text, section.pill.mark) == ("recorded", "check")
    assert shown(section.evidence) == "In each file"
    assert section.state.isHidden()


@pytest.mark.parametrize(
    ("placements", "order", "told"),
    [
        ((Shard(0), Shard(0)), (0, 1), ""),
        ((Shard(0), Shard(0)), (1, 0), "tp was cut first"),
        ((Shard(0), Replicate()), (1, 0), ""),
    ],
)
def test_the_order_of_cuts_is_told_where_it_is_another(
    placements: tuple[Placement, ...], order: tuple[int, ...], told: str
) -> None:
    assert order_text(Layout(MESH, placements, order, "inferred")) == told


def test_three_cuts_in_another_order_are_listed() -> None:
    mesh = parse_mesh("a=2,b=2,c=2")
    assert order_text(Layout(mesh, (Shard(0),) * 3, (2, 0, 1), "inferred")) == "cut in the order c, a, b"


def test_ranks_are_listed_where_they_have_holes() -> None:
    assert ranks_text(parse_mesh("a=4")) == "ranks 0 to 3"
    assert ranks_text(DeviceMesh(("a",), (2,), (1, 5))) == "ranks 1, 5"
    assert ranks_text(DeviceMesh(("a",), (1,), (7,))) == "rank 7"


def test_several_readings_are_listed_and_none_is_chosen(section_of: Any) -> None:
    _, section = section_of(two_stages(), "layers.0.w")
    assert section.pill.text == ""
    assert shown(section.evidence).startswith(
        "Two readings fit: one mesh of 4 ranks that replicates, or 2 meshes apart"
    )
    assert section.candidates.text().splitlines() == [
        "axis0 2 × axis1 2, ranks 0 to 3", "axis0 2, ranks 0 to 1", "axis0 2, ranks 2 to 3",
    ]  # fmt: skip
    assert section.mesh.isHidden()
    assert section.state.isVisible()


def test_a_tensor_that_is_not_whole_has_the_mesh_and_no_layout(section_of: Any) -> None:
    checkpoint = two_by_two()
    half = dataclasses.replace(checkpoint["grid"], layout=None, complete=False)
    tensors = checkpoint.tensors
    at = type(tensors)(checkpoint.table, lambda row: half if row == 0 else tensors.at(row))
    _, section = section_of(dataclasses.replace(checkpoint, tensors=at), "grid")
    assert shown(section.mesh) == "mesh axis0 2 × axis1 2"
    assert section.pill.text == "inferred"
    assert shown(section.evidence) == "Its layout is not known: it is not stored whole"
    assert section.candidates.isHidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_pill_is_drawn_in_both_themes(window_of: OpenTensors, theme: str) -> None:
    placed = laid_out(sharded(numbered(SHAPE), boxes(SHAPE, (2, 1))), "dp=2", Shard(0))
    window = window_of(placed)
    window.set_theme(theme)
    pill = window.workbench.inspector.layout_section.pill
    kinds: tuple[Provenance | None, ...] = ("recorded", "inferred", None)
    drawn = []
    for kind in kinds:
        pill.say(kind)
        pill.resize(pill.sizeHint().width() or 40, 18)
        image = pill.grab().toImage()
        drawn.append({image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())})
    assert window.tokens.okbg.lower() in drawn[0]
    assert window.tokens.border2.lower() in drawn[1]
    assert window.tokens.okbg.lower() not in drawn[1]
    assert len(drawn[2]) == 1


# ---------------------------------------------------------------- what is typed


@pytest.mark.parametrize(
    ("text", "told", "colour", "usable"),
    [
        ("", "One name=extent an axis", "text2", False),
        ("dp=2,tp=2", "4 ranks, as many as the checkpoint names", "text2", True),
        ("dp=2", "2 ranks, but the checkpoint names 4: a mesh with too few ranks is not used", "warn", True),
        ("dp=8", "8 ranks, but the checkpoint names 4: those beyond wrote nothing", "warn", True),
        ("dp=2,tp", "A mesh is stated as 'dp=2,tp=4'", "err", False),
        ("dp=2,dp=2", "Axis names must differ", "err", False),
        ("dp=9999999", "9,999,999 ranks; at most 65,536", "err", False),
    ],
)
def test_what_is_typed_is_answered(text: str, told: str, colour: str, usable: bool) -> None:
    mesh, words, ink = read_mesh(text, 4)
    assert words.startswith(told)
    assert (ink, mesh is not None) == (colour, usable)


@pytest.fixture
def reopens(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, DeviceMesh | None]]:
    """Have the opener make the checkpoint of 2 x 2 on any stated mesh; return what it was asked for."""
    asked: list[tuple[str | None, DeviceMesh | None]] = []

    def open_(path: str, reader: str | None, report: object, mesh: DeviceMesh | None = None) -> Checkpoint:
        asked.append((reader, mesh))
        if mesh is not None and "boom" in mesh.names:
            raise TensormorphError("it cannot be opened like that")
        return two_by_two(mesh, path=path)

    monkeypatch.setattr(opener, "open_with_readers", open_)
    return asked


def dialog_of(window: MainWindow) -> MeshDialog:
    assert window.mesh_stating.dialog is not None
    return window.mesh_stating.dialog


def test_a_mesh_that_is_stated_is_taken_and_agrees(
    qtbot: QtBot, section_of: Any, reopens: list[tuple[str | None, DeviceMesh | None]]
) -> None:
    window, section = section_of(two_by_two(), "rows")
    window.actions_["bottom"].setChecked(False)
    QTest.mouseClick(section.state, Qt.MouseButton.LeftButton)
    dialog = dialog_of(window)
    assert dialog.isVisible()
    assert not dialog.isModal()
    assert dialog.line.text() == "axis0=2,axis1=2"
    assert shown(dialog.evidence).startswith("axis0 2 × axis1 2: it explains the boxes")
    assert not dialog.again.isVisible()
    dialog.line.clear()
    QTest.keyClicks(dialog.line, "dp=2,t")
    assert not dialog.use.isEnabled()
    QTest.keyClick(dialog.line, Qt.Key.Key_Return)
    assert dialog.isVisible()
    QTest.keyClicks(dialog.line, "p=2")
    assert shown(dialog.words) == "4 ranks, as many as the checkpoint names"
    with qtbot.waitSignal(window.opener.opened):
        QTest.keyClick(dialog.line, Qt.Key.Key_Return)
    assert not dialog.isVisible()
    assert reopens == [("safetensors", parse_mesh("dp=2,tp=2"))]
    assert window.selection.name == "rows"
    assert shown(section.mesh) == "mesh dp 2 × tp 2"
    assert section.pill.text == "stated"
    assert shown(section.result) == "The stated mesh (dp 2, tp 2) agrees with what is stored of 2 tensors"
    problems = window.workbench.bottom.table.problems.problems
    assert [(p.code, p.severity) for p in problems] == [("stated-mesh", "info")]
    assert window.workbench.bottom.isVisible()
    assert window.status.currentMessage() == section.result.text().replace("\u200b", "")


def test_a_mesh_that_does_not_explain_is_a_problem_and_can_be_taken_back(
    qtbot: QtBot, section_of: Any, reopens: list[tuple[str | None, DeviceMesh | None]]
) -> None:
    window, section = section_of(two_by_two(), "grid")
    with qtbot.waitSignal(window.opener.opened):
        window.mesh_stating.state(parse_mesh("x=4"))
    told = "The stated mesh (x 4) does not explain the stored boxes of 2 tensors of 2"
    assert shown(section.result).startswith(told)
    assert [p.severity for p in window.workbench.bottom.table.problems.problems] == ["warning"]
    assert section.pill.text == "stated"
    assert shown(section.evidence) == "No placement on this mesh gives the boxes that are stored of it"
    window.actions_["state_mesh"].trigger()
    dialog = dialog_of(window)
    assert dialog.again.isVisible()
    with qtbot.waitSignal(window.opener.opened):
        QTest.mouseClick(dialog.again, Qt.MouseButton.LeftButton)
    assert section.pill.text == "inferred"
    assert window.selection.name == "grid"


def test_too_few_ranks_are_told_and_the_candidates_are_offered(
    qtbot: QtBot, section_of: Any, reopens: list[tuple[str | None, DeviceMesh | None]]
) -> None:
    window, section = section_of(two_stages(), "layers.0.w")
    window.mesh_stating.ask()
    dialog = dialog_of(window)
    assert [button.text() for button in dialog.offered] == ["axis0=2,axis1=2", "axis0=2"]
    assert dialog.line.text() == ""
    QTest.mouseClick(dialog.offered[1], Qt.MouseButton.LeftButton)
    assert shown(dialog.words).startswith("2 ranks, but the checkpoint names 4")
    qtbot.waitUntil(dialog.isActiveWindow)
    QTest.keyClick(dialog.line, Qt.Key.Key_Escape)
    assert not dialog.isVisible()
    assert not reopens
    with qtbot.waitSignal(window.opener.opened):
        window.mesh_stating.state(parse_mesh("dp=2"))
    assert window.selection.name is None  # that tensor is not in what was opened
    window.selection.choose("grid")
    assert shown(section.result).startswith("The stated mesh has 2 ranks; files name 2 ranks beyond")


def test_what_fails_is_a_page_and_leaves_nothing_behind(
    qtbot: QtBot, section_of: Any, reopens: list[tuple[str | None, DeviceMesh | None]]
) -> None:
    window, section = section_of(two_by_two(), "grid")
    with qtbot.waitSignal(window.opener.failed):
        window.mesh_stating.state(parse_mesh("boom=4"))
    assert window.pages.currentWidget() is window.failure_page
    window.failure_page.backWanted.emit()
    assert section.pill.text == "inferred"
    assert window.selection.name == "grid"


def test_a_checkpoint_without_ranks_has_no_mesh_to_state(window_of: OpenTensors) -> None:
    window = window_of(sharded(numbered(SHAPE), boxes(SHAPE, (1, 1))))
    action = window.actions_["state_mesh"]
    assert not action.isEnabled()
    assert action.toolTip().endswith("no file of it names a rank")
    window.mesh_stating.ask()
    assert window.mesh_stating.dialog is None
