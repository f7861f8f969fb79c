"""The list of problems: order, grouping, copying, and its way to the tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from tensormorph.errors import Problem
from tensormorph.gui.problem_model import GROUP_ABOVE, ProblemModel
from tensormorph.gui.window import MainWindow
from tensormorph.model import Checkpoint
from tensormorph.region import Region
from tests.gui.conftest import llama_names, make_checkpoint

OpenWindow = Callable[[Checkpoint], MainWindow]


def many(n: int) -> list[Problem]:
    return [Problem("orphan-file", "warning", f"File {i} belongs to no tensor", file=f"f{i}") for i in range(n)]


def texts(model: ProblemModel, column: int = 0) -> list[str]:
    return [model.text(row, column) for row in range(model.rowCount())]


@pytest.mark.parametrize("force_py", [False, True])
def test_the_model_keeps_qts_contract(qtmodeltester: ModelTester, force_py: bool) -> None:
    model = ProblemModel()
    model.set_problems([*many(GROUP_ABOVE + 5), Problem("gap", "error", "A gap")])
    qtmodeltester.check(model, force_py=force_py)  # type: ignore[no-untyped-call]
    model.toggle(1)
    model.toggle(1)
    model.set_problems([])


def test_the_worst_come_first() -> None:
    model = ProblemModel()
    model.set_problems([Problem("a", "info", "i"), Problem("b", "error", "e"), Problem("c", "warning", "w")])
    assert texts(model) == ["e", "w", "i"]
    assert model.counts() == {"error": 1, "warning": 1, "info": 1}


def test_few_problems_have_a_row_each_and_many_of_a_kind_share_one() -> None:
    model = ProblemModel()
    model.set_problems(many(GROUP_ABOVE))
    assert model.rowCount() == GROUP_ABOVE
    model.set_problems([*many(GROUP_ABOVE), Problem("gap", "error", "A gap")])
    assert texts(model) == ["A gap", "200 problems of one kind; the first: File 0 belongs to no tensor"]
    model.toggle(1)
    assert model.rowCount() == 2 + GROUP_ABOVE
    assert model.text(2, 3) == "f0"
    model.toggle(1)
    assert model.rowCount() == 2


def test_next_goes_round_and_into_groups() -> None:
    model = ProblemModel()
    assert model.next_problem(-1) is None
    model.set_problems([*many(GROUP_ABOVE), Problem("gap", "error", "A gap")])
    assert model.next_problem(-1) == 0
    assert model.next_problem(0) == 2
    assert model.next_problem(model.rowCount() - 1) == 0


def test_choosing_a_problem_chooses_its_tensor_and_f8_goes_on(qtbot: QtBot, open_window: OpenWindow) -> None:
    names = ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"]
    window = open_window(make_checkpoint(llama_names(3), problems=[Problem("gap", "error", "A gap", n) for n in names]))
    table = window.workbench.bottom.table
    cell = table.visualRect(table.problems.index(1, 0)).center()
    QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=cell)
    assert window.selection.name == names[1]
    QTest.keyClick(window, Qt.Key.Key_F8)
    assert window.selection.name == names[0]


def test_a_problem_is_copied_in_words(qtbot: QtBot, open_window: OpenWindow) -> None:
    problem = Problem("gap", "error", "Rows 3 to 4 are stored nowhere", "model.norm.weight", "a.safetensors", (8, 24),
                      Region((3,), (5,)), "Copy the missing file")  # fmt: skip
    window = open_window(make_checkpoint(llama_names(1), problems=[problem]))
    table = window.workbench.bottom.table
    table.setFocus()
    table.go_to_next()
    QTest.keyClick(table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text().splitlines() == [
        "error: Rows 3 to 4 are stored nowhere", "code: gap", "tensor: model.norm.weight",
        "where: a.safetensors, bytes 8 to 24, [3:5]", "Copy the missing file",
    ]  # fmt: skip
    assert table.problems.text(0, 1) == "GAP"


def test_without_problems_the_panel_says_what_was_looked_at(open_window: OpenWindow) -> None:
    bottom = open_window(make_checkpoint(llama_names(1))).workbench.bottom
    assert bottom.none.isVisible()
    assert bottom.none.title.text() == "No problems in what was checked"
