"""The module tree: order, folding, joined chains, what hostile names do to it, and which rows show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensormorph.columns import TensorKey
from tensormorph.errors import Problem
from tensormorph.gui import rows
from tensormorph.gui.outline import ROOT, Kind, Outline
from tensormorph.gui.outline_build import build, natural_key
from tensormorph.model import Checkpoint, StoredObject, UnreadableTensor
from tests.gui.conftest import llama_names, make_checkpoint


def outline_of(checkpoint: Checkpoint) -> Outline:
    return build(checkpoint, lambda what, done, total: None)


def labels_below(outline: Outline, node: int, shown: rows.Rows) -> list[str]:
    first, n = int(shown.first[node]), int(shown.count[node])
    return [outline.labels[i] for i in shown.order[first : first + n].tolist()]


def all_rows(outline: Outline) -> rows.Rows:
    return rows.folded(outline, [0] * len(outline.groups), set(range(len(outline.groups))))


def test_numbers_sort_by_value_and_letters_without_case() -> None:
    labels = ["layer.10", "layer.2", "Layer.1", "bias", "0", "10", "9", "007"]
    assert sorted(labels, key=natural_key) == ["0", "007", "9", "10", "bias", "Layer.1", "layer.2", "layer.10"]


def test_siblings_are_in_natural_order() -> None:
    outline = outline_of(make_checkpoint({f"h.{i}.w": (i + 1,) for i in (10, 2, 1)}))
    h = outline.labels.index("h")
    assert labels_below(outline, h, all_rows(outline)) == ["1.w", "2.w", "10.w"]


def test_a_module_with_one_child_is_joined_with_it() -> None:
    outline = outline_of(make_checkpoint({"a.b.c.weight": (2,), "a.b.c.bias": (2,), "x.y.z": (1,)}))
    assert labels_below(outline, ROOT, all_rows(outline))[:2] == ["a.b.c", "x.y.z"]


def test_alike_layers_are_one_group_headed_by_their_parent() -> None:
    outline = outline_of(make_checkpoint(llama_names(6)))
    (group,) = outline.groups
    assert group.numbers == ("0", "1", "2", "3", "4", "5")
    assert group.head is not None
    assert outline.labels[group.head] == "layers"


def test_a_layer_of_another_shape_is_not_folded_with_the_others() -> None:
    names = dict(llama_names(4))
    names["model.layers.0.mlp.up_proj.weight"] = (99, 8)
    outline = outline_of(make_checkpoint(names))
    (group,) = outline.groups
    assert group.numbers == ("1", "2", "3")
    assert group.head is None  # `layers` has another child, so the shown member is the row itself


def test_experts_inside_alike_layers_have_groups_of_their_own() -> None:
    names = {f"layers.{i}.experts.{e}.{w}": (3,) for i in range(3) for e in range(4) for w in ("up", "down")}
    outline = outline_of(make_checkpoint(names))
    sizes = sorted(len(group.members) for group in outline.groups)
    assert sizes == [3, 4, 4, 4]


def test_folded_rows_show_one_member_under_its_head() -> None:
    outline = outline_of(make_checkpoint(llama_names(6)))
    (group,) = outline.groups
    assert group.head is not None
    for member in (0, 3):
        shown = rows.folded(outline, [member], set())
        first = int(shown.first[group.head])
        below = shown.order[first : first + int(shown.count[group.head])].tolist()
        assert {int(outline.parent[i]) for i in below} == {group.members[member]}
        assert {int(shown.parent[i]) for i in below} == {group.head}


def test_every_name_has_a_row_when_nothing_is_folded() -> None:
    outline = outline_of(make_checkpoint(llama_names(5)))
    shown = all_rows(outline)
    assert (shown.row[outline.node_of] >= 0).all()


def test_filtered_rows_are_the_matches_and_what_is_above_them() -> None:
    outline = outline_of(make_checkpoint(llama_names(3)))
    matched = np.array(["layers.1." in name for name in outline.names])
    shown = rows.filtered(outline, matched)
    leaves = [i for i in shown.order.tolist() if outline.kind[i] == Kind.TENSOR]
    assert {outline.names[int(outline.item[i])] for i in leaves} == {n for n in outline.names if "layers.1." in n}


def test_counterpart_pairs_nodes_in_the_same_place() -> None:
    outline = outline_of(make_checkpoint(llama_names(4)))
    (group,) = outline.groups
    olds, news = rows.counterpart(outline, group.members[1], group.members[3])
    for old, new in zip(olds[1:].tolist(), news[1:].tolist(), strict=True):
        assert outline.labels[old] == outline.labels[new]
    tensors = [(o, n) for o, n in zip(olds.tolist(), news.tolist(), strict=True) if outline.kind[o] == Kind.TENSOR]
    for old, new in tensors:
        of = [outline.names[int(outline.item[i])] for i in (old, new)]
        assert of[0].replace("layers.1", "layers.3") == of[1]


def test_slots_stand_below_their_parameter_and_do_not_count_as_parameters() -> None:
    keys = {
        "w": TensorKey("", "m.weight"), "b": TensorKey("", "m.bias"), "avg": TensorKey("", "m.weight", "exp_avg"),
        "lone": TensorKey("", "m.gone", "exp_avg"),
    }  # fmt: skip
    outline = outline_of(make_checkpoint(dict.fromkeys(keys, (5,)), keys=keys.__getitem__))
    weight = int(outline.node_of[outline.place_of["w"]])
    slot = int(outline.node_of[outline.place_of["avg"]])
    assert outline.labels[slot] == "exp_avg"
    assert int(outline.parent[slot]) == weight
    assert outline.place_of.keys() >= {"lone"}
    assert outline.n_parameters == 10


def test_several_parts_come_first() -> None:
    keys = {"a/w.x": TensorKey("a.bin", "w.x"), "b/w.x": TensorKey("b.bin", "w.x"), "b/w.y": TensorKey("b.bin", "w.y")}
    outline = outline_of(make_checkpoint(dict.fromkeys(keys, (5,)), keys=keys.__getitem__))
    assert labels_below(outline, ROOT, all_rows(outline))[:2] == ["a.bin.w.x", "b.bin.w"]


def test_aliases_and_unreadable_tensors_have_rows() -> None:
    lost = UnreadableTensor("m.lost", TensorKey("", "m.lost"), "float32", (2,), "gone.safetensors", ())
    checkpoint = make_checkpoint({"m.w": (2,), "m.v": (2,)}, aliases={"head.w": "m.w"}, unreadable=[lost])
    outline = outline_of(checkpoint)
    kinds = {name: int(outline.kind[outline.node_of[place]]) for name, place in outline.place_of.items()}
    assert kinds == {"m.w": Kind.TENSOR, "m.v": Kind.TENSOR, "head.w": Kind.ALIAS, "m.lost": Kind.UNREADABLE}
    assert outline.n_elements[ROOT] == 4  # an alias and a tensor without values add nothing


def test_a_problem_marks_its_tensor_and_all_above_it() -> None:
    problem = Problem("gap", "warning", "A gap", tensor="model.layers.2.mlp.up_proj.weight")
    outline = outline_of(make_checkpoint(llama_names(4), problems=[problem]))
    node = int(outline.node_of[outline.place_of["model.layers.2.mlp.up_proj.weight"]])
    assert outline.badge[node] == 2
    assert outline.badge_below[ROOT] == 2
    assert (outline.badge > 0).sum() == 1


def test_many_alike_files_stand_behind_one_row() -> None:
    outline = outline_of(make_checkpoint({"w": (2,)}, n_files=7))
    files = outline.kind.tolist().index(Kind.FILES)
    assert int(outline.count[files]) == 7


def test_objects_are_listed() -> None:
    stored = StoredObject("step", "int", "1000", 8, "meta", 0, lambda: 1000)
    outline = outline_of(make_checkpoint({"w": (2,)}, objects=[stored]))
    assert outline.kind.tolist().count(Kind.OBJECT) == 1


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a..b", ".a", "a.", "x" * 70_000, "a." * 20_000, "a." * 20_000 + "b", "." * 5000, "\0", "\n.\n"],
)
def test_hostile_names_get_exactly_one_row(name: str) -> None:
    outline = outline_of(make_checkpoint([(name, (2,)), ("good.weight", (3,)), ("good.bias", (3,))]))
    shown = all_rows(outline)
    node = int(outline.node_of[outline.place_of[name]])
    assert shown.row[node] >= 0
    depth = 0
    while node != ROOT:
        node, depth = int(outline.parent[node]), depth + 1
    assert depth < 70


@given(st.lists(st.text(alphabet="ab.01\n", max_size=12), unique=True, max_size=40))
def test_any_set_of_names_makes_a_tree_that_holds_each_once(names: list[str]) -> None:
    outline = outline_of(make_checkpoint([(name, (1,)) for name in names]))
    assert sorted(outline.item[outline.node_of].tolist()) == list(range(len(names)))
    n = len(outline.labels)
    assert (outline.parent[1:] < np.arange(1, n)).all()
    assert outline.count.sum() == n - 1
    for node in range(n):
        below = slice(int(outline.first[node]), int(outline.first[node] + outline.count[node]))
        assert (outline.parent[below] == node).all()
    shown = rows.folded(outline, [0] * len(outline.groups), set())
    for node in [ROOT, *shown.order.tolist()]:
        kids = shown.order[int(shown.first[node]) : int(shown.first[node] + shown.count[node])]
        assert (shown.parent[kids] == node).all()
        assert shown.row[kids].tolist() == list(range(len(kids)))


def test_the_report_can_end_the_build() -> None:
    def stop(what: str, done: int, total: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        build(make_checkpoint(llama_names(2)), stop)
