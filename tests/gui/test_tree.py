"""The Outliner: the model's contract, filtering as one types, folding, and that it follows the selection."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from PySide6.QtCore import QModelIndex, QPoint, QSortFilterProxyModel, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from tensormorph.errors import Problem
from tensormorph.gui.outline import Kind
from tensormorph.gui.outline_build import build
from tensormorph.gui.tree import Outliner, copyable
from tensormorph.gui.tree_model import OutlineModel
from tensormorph.gui.tree_view import stepper_rect
from tensormorph.gui.window import MainWindow
from tensormorph.model import Checkpoint
from tests.gui.conftest import llama_names, make_checkpoint, shown

OpenWindow = Callable[[Checkpoint], MainWindow]


def names_shown(outliner: Outliner) -> list[str]:
    """Return the names of all tensors that have a row, in the order of the rows."""
    model, found = outliner.model, []
    waiting = [model.index(row) for row in reversed(range(model.rowCount()))]
    while waiting:
        index = waiting.pop()
        name = model.name_of(index.internalId())
        found += [name] if name is not None else []
        waiting += [model.index(row, 0, index) for row in reversed(range(model.rowCount(index)))]
    return found


def type_filter(qtbot: QtBot, outliner: Outliner, text: str, n: int) -> None:
    """Type into the filter and wait until it has that many matches."""
    outliner.filter.clear()
    QTest.keyClicks(outliner.filter, text)
    qtbot.waitUntil(lambda: outliner.model.n_matched() == n)


def index_of(outliner: Outliner, name: str) -> QModelIndex:
    outline = outliner.model.outline
    assert outline is not None
    return outliner.model.index_of(int(outline.node_of[outline.place_of[name]]))


@pytest.mark.parametrize("force_py", [False, True])
def test_the_model_keeps_qts_contract(qtmodeltester: ModelTester, force_py: bool) -> None:
    checkpoint = make_checkpoint(llama_names(3), aliases={"head": "model.norm.weight"})
    outline = build(checkpoint, lambda *report: None)
    model = OutlineModel()
    model.set_checkpoint(checkpoint, outline)
    qtmodeltester.check(model, force_py=force_py)  # type: ignore[no-untyped-call]
    head = outline.groups[0].head
    assert head is not None
    assert model.step(head, 1)
    model.set_folded(head, False)
    model.set_folded(head, True)
    model.set_matched(np.arange(len(outline.names)) % 3 == 0)
    model.set_matched(None)
    model.reveal(int(outline.node_of[-1]))
    model.set_checkpoint(None, None)


def test_no_call_of_data_loses_a_reference_of_none(qapp: QApplication) -> None:
    checkpoint = make_checkpoint(llama_names(2))
    model = OutlineModel()
    model.set_checkpoint(checkpoint, build(checkpoint, lambda *report: None))
    proxy = QSortFilterProxyModel()
    proxy.setSourceModel(model)
    index = proxy.index(0, 0)
    before = sys.getrefcount(None)
    for _ in range(5000):
        assert proxy.data(index, Qt.ItemDataRole.DecorationRole) is None
    assert abs(sys.getrefcount(None) - before) < 500


@pytest.mark.parametrize(
    ("query", "n"),
    [
        ("q_proj", 4),
        ("Q_PROJ", 4),
        ("layers.3 proj", 5),
        ("proj layers.3", 5),
        ("dtype:f32", 26),
        ("dtype:bf16", 0),
        ("shape:32", 1),
        ("file:00001-of", 13),
        ("problem:", 1),
        ("problem:gap", 1),
        ("problem:overlap", 0),
    ],
)
def test_typing_narrows_the_tree(qtbot: QtBot, open_window: OpenWindow, query: str, n: int) -> None:
    problem = Problem("gap", "error", "A gap", tensor="model.norm.weight")
    outliner = open_window(make_checkpoint(llama_names(4), problems=[problem])).workbench.outliner
    type_filter(qtbot, outliner, query, n)
    if n:
        qtbot.waitUntil(lambda: len(names_shown(outliner)) == n)
        assert outliner.count.text() == f"{n} of 26 tensors"
    else:
        qtbot.waitUntil(outliner.nothing.isVisible)


def test_an_empty_result_says_what_hides_the_tensors_and_offers_the_way_back(
    qtbot: QtBot, open_window: OpenWindow
) -> None:
    outliner = open_window(make_checkpoint(llama_names(4))).workbench.outliner
    before = names_shown(outliner)
    type_filter(qtbot, outliner, "dtype:fp8 attn", 0)
    assert shown(outliner.nothing.title) == "No tensor matches dtype:fp8 attn"
    assert outliner.nothing.sentence.text() == "26 tensors are hidden by the filter"
    QTest.mouseClick(outliner.nothing.buttons[0], Qt.MouseButton.LeftButton)
    qtbot.waitUntil(outliner.tree.isVisible)
    assert outliner.filter.text() == ""
    assert names_shown(outliner) == before


def test_a_query_that_makes_no_sense_is_answered_in_words(qtbot: QtBot, open_window: OpenWindow) -> None:
    outliner = open_window(make_checkpoint(llama_names(2))).workbench.outliner
    QTest.keyClicks(outliner.filter, "shape:wide")
    qtbot.waitUntil(lambda: "'shape:wide'" in outliner.count.text() or "wide" in outliner.count.text())
    assert outliner.count.isVisible()


def test_clearing_the_filter_restores_what_was_open(qtbot: QtBot, open_window: OpenWindow) -> None:
    outliner = open_window(make_checkpoint(llama_names(4))).workbench.outliner
    outline = outliner.model.outline
    assert outline is not None
    layers = outliner.model.index_of(outline.labels.index("layers"))
    outliner.tree.setExpanded(layers, True)
    attn = outliner.model.index(next(
        row for row in range(outliner.model.rowCount(layers))
        if outliner.model.label(outliner.model.index(row, 0, layers).internalId()) == "self_attn"
    ), 0, layers)  # fmt: skip
    node = attn.internalId()
    outliner.tree.setExpanded(attn, True)
    type_filter(qtbot, outliner, "norm", 5)
    outliner.filter.clear()
    qtbot.waitUntil(lambda: not outliner.model.filtered)
    assert outliner.tree.isExpanded(outliner.model.index_of(node))


def test_enter_in_the_filter_chooses_the_first_match(qtbot: QtBot, open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(4)))
    type_filter(qtbot, window.workbench.outliner, "layers.2 down", 1)
    QTest.keyClick(window.workbench.outliner.filter, Qt.Key.Key_Return)
    assert window.selection.name == "model.layers.2.mlp.down_proj.weight"


def test_a_click_chooses_and_a_choice_elsewhere_moves_the_row(qtbot: QtBot, open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(4)))
    tree = window.workbench.outliner.tree
    index = index_of(window.workbench.outliner, "model.norm.weight")
    QTest.mouseClick(tree.viewport(), Qt.MouseButton.LeftButton, pos=tree.visualRect(index).center())
    assert window.selection.name == "model.norm.weight"
    window.selection.choose("model.layers.3.mlp.up_proj.weight")
    assert tree.currentIndex() == index_of(window.workbench.outliner, "model.layers.3.mlp.up_proj.weight")
    assert tree.visualRect(tree.currentIndex()).isValid()


def test_the_stepper_turns_the_layer_and_the_selection_with_it(qtbot: QtBot, open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(6)))
    outliner = window.workbench.outliner
    tree, model = outliner.tree, outliner.model
    window.selection.choose("model.layers.2.self_attn.q_proj.weight")
    outline = model.outline
    assert outline is not None
    head = outline.groups[0].head
    assert head is not None
    row = tree.visualRect(model.index_of(head))
    row.setLeft(0)
    row.setRight(tree.viewport().width() - 1)
    box = stepper_rect(row)
    right = QPoint(box.right() - 6, box.center().y())
    QTest.mouseClick(tree.viewport(), Qt.MouseButton.LeftButton, pos=right)
    assert window.selection.name == "model.layers.3.self_attn.q_proj.weight"
    QTest.mouseClick(tree.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(box.x() + 6, box.center().y()))
    assert window.selection.name == "model.layers.2.self_attn.q_proj.weight"
    QTest.keyClicks(tree, ".")
    QTest.keyClicks(tree, ".")
    assert window.selection.name == "model.layers.4.self_attn.q_proj.weight"
    assert tree.isExpanded(tree.currentIndex().parent())
    for _ in range(9):
        QTest.keyClicks(tree, ",")
    assert window.selection.name == "model.layers.0.self_attn.q_proj.weight"


def test_a_choice_in_another_layer_turns_the_stepper_and_keeps_open_what_is_open(open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(6)))
    outliner = window.workbench.outliner
    window.selection.choose("model.layers.1.self_attn.q_proj.weight")
    window.selection.choose("model.layers.1.mlp.up_proj.weight")
    window.selection.choose("model.layers.5.mlp.up_proj.weight")
    tree = outliner.tree
    assert tree.currentIndex() == index_of(outliner, "model.layers.5.mlp.up_proj.weight")
    attention = index_of(outliner, "model.layers.5.self_attn.q_proj.weight").parent()
    assert tree.isExpanded(attention)
    assert not index_of(outliner, "model.layers.1.mlp.up_proj.weight").isValid()


def test_layers_can_be_shown_each_and_folded_again(open_window: OpenWindow) -> None:
    window = open_window(make_checkpoint(llama_names(6)))
    outliner = window.workbench.outliner
    n_folded = len(names_shown(outliner))
    index = index_of(outliner, "model.layers.0.input_layernorm.weight")
    menu = outliner.menu_for(index)
    next(action for action in menu.actions() if action.text() == "Show each layer").trigger()
    assert len(names_shown(outliner)) == 38
    for layer in (1, 4):  # each keeps its own row, whichever is chosen
        window.selection.choose(f"model.layers.{layer}.mlp.up_proj.weight")
        assert outliner.model.name_of(outliner.tree.currentIndex().internalId()) == window.selection.name
    menu = outliner.menu_for(index_of(outliner, "model.layers.4.input_layernorm.weight"))
    next(action for action in menu.actions() if action.text() == "Fold alike layers").trigger()
    assert len(names_shown(outliner)) == n_folded


def test_a_folded_row_carries_the_mark_of_a_layer_that_is_not_shown(open_window: OpenWindow) -> None:
    problem = Problem("gap", "error", "A gap", tensor="model.layers.4.mlp.up_proj.weight")
    outliner = open_window(make_checkpoint(llama_names(6), problems=[problem])).workbench.outliner
    outline = outliner.model.outline
    assert outline is not None
    head = outline.groups[0].head
    assert head is not None
    assert outliner.model.severity(head, open_=True) == "error"


def test_letters_typed_on_the_tree_go_into_the_filter(qtbot: QtBot, open_window: OpenWindow) -> None:
    outliner = open_window(make_checkpoint(llama_names(2))).workbench.outliner
    outliner.tree.setFocus()
    QTest.keyClicks(outliner.tree, "n")
    assert outliner.filter.text() == "n"


def test_a_file_shows_its_tensors(qtbot: QtBot, open_window: OpenWindow) -> None:
    outliner = open_window(make_checkpoint(llama_names(4))).workbench.outliner
    outline = outliner.model.outline
    assert outline is not None
    node = [i for i in range(len(outline.labels)) if outline.kind[i] == Kind.FILE][1]
    outliner.tree.activated.emit(outliner.model.index_of(node))
    qtbot.waitUntil(lambda: outliner.model.n_matched() == 13)


@pytest.mark.parametrize(("name", "copied"), [("a.b", "a.b"), ("a\\b", "a\\b"), ("w\x1b[2J", "w\\x1b[2J")])
def test_what_is_copied_is_text_wherever_it_is_pasted(name: str, copied: str) -> None:
    assert copyable(name) == copied
