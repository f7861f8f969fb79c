"""The nodes of a pickle: keys as Python's dict has them, names of today, and forms for people that stay small."""

from __future__ import annotations

import _compat_pickle
import json
import math
import pickle
import random
import struct
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensormorph.readers
from tensormorph.readers import _pickle_names as names
from tensormorph.readers._pickle import interpret
from tensormorph.readers._pickle_names import WOULD_FETCH, WOULD_REACH, WOULD_RUN, effect, known_as
from tensormorph.readers._pickle_nodes import (
    Call,
    Dict,
    FrozenSet,
    Global,
    List,
    Loose,
    Persistent,
    Set,
    Tuple,
    Value,
    canonical,
    describe,
    dotted,
    is_global,
    made_by,
)
from tensormorph.readers._pickle_show import DEEPEST, MOST, Visit, to_plain, walk
from tests.readers.pickles import G, I, S


def read(obj: Any, protocol: int = 4) -> Value:
    return interpret(pickle.dumps(obj, protocol)).value


def the(value: Value, kind: type[Any]) -> Any:
    assert isinstance(value, kind)
    return value


# ---------------------------------------------------------------- keys


NUMBERS = (
    st.integers(-3, 3) | st.booleans() | st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0**70, math.inf, 2**70, -(2**63)])
)
KEYS = st.recursive(
    NUMBERS | st.none() | st.sampled_from(["", "a", "1", "0x1", b"", b"a", b"1"]),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@given(st.lists(KEYS, max_size=12), st.lists(KEYS, max_size=12))
def test_a_dict_is_looked_up_as_pythons_own(stored: list[Any], asked: list[Any]) -> None:
    flat: list[Value] = []
    for i, key in enumerate(stored):
        flat += (the(read([key]), List)[0], i)
    ours, pythons = Dict(flat), {key: i for i, key in enumerate(stored)}
    assert len(ours) == len(stored)
    assert ours.values() == list(range(len(stored)))
    for key in stored + asked:
        assert ours.get(key, "none") == pythons.get(key, "none")
        assert (key in ours) == (key in pythons)


@given(KEYS, KEYS)
def test_keys_are_one_exactly_where_python_takes_them_for_one(a: Any, b: Any) -> None:
    assert (canonical(a) == canonical(b)) == (a == b)


def test_keys_that_python_would_refuse_or_lose_stay() -> None:
    nan = struct.pack(">d", math.nan)
    value = the(interpret(b"}(G" + nan + b"K\x01G" + nan + b"K\x02]K\x03]K\x04u.").value, Dict)
    assert [v for _, v in value.pairs()] == [1, 2, 3, 4]
    first, second, third, fourth = value.keys()
    # By identity, as NaN in Python.
    assert [value.get(key) for key in (first, second, third, fourth)] == [1, 2, 3, 4]
    assert value.get(math.nan) is None


def test_a_key_of_many_parts_or_of_a_megabyte_is_not_looked_into() -> None:
    wide = tuple(range(100))
    value = the(read({wide: 1, 2**9000: 2}), Dict)
    assert value.get(wide) is None
    assert [value.get(key) for key in value.keys()] == [1, 2]  # noqa: SIM118  # the nodes themselves, not a mapping


def test_a_huge_number_as_the_key_of_everything_is_not_written_out_each_time() -> None:
    n_bytes = 1 << 20
    data = b"\x8b" + struct.pack("<i", n_bytes) + b"\x7f" * n_bytes + b"q\x000}(" + b"h\x00N" * 20_000 + b"u."
    began = time.process_time()
    found = interpret(data)
    assert time.process_time() - began < 5  # written out each time it takes half a minute
    assert found.complete
    assert [p.code for p in found.problems][1] == "pickle-duplicate-key"


def test_values_that_are_missing_and_values_that_are_none_are_told_apart() -> None:
    value = the(read({"a": None}), Dict)
    assert value.get("a", 7) is None
    assert value.get("b", 7) == 7
    assert "a" in value
    assert "b" not in value


# ---------------------------------------------------------------- nodes are inert


@pytest.mark.parametrize("obj", [(1, 2), [1, 2], {1: 2}, {1, 2}, frozenset((1, 2)), len])
def test_nodes_are_equal_to_themselves_only_and_have_no_order(obj: Any) -> None:
    a, b = read(obj), read(obj)
    same: Any = a
    other: Any = b
    assert a is not b
    assert repr(a) == f"<{describe(a)}>"
    assert a == same
    assert a != b
    assert not a == b  # noqa: SIM201  # the other operator
    assert len({a, b, same}) == 2
    with pytest.raises(TypeError):
        same < other  # noqa: B015
    with pytest.raises(TypeError):
        same >= other  # noqa: B015


# ---------------------------------------------------------------- one line


@pytest.mark.parametrize(
    ("obj", "line"),
    [
        (None, "None"), (True, "True"), (-3, "-3"), (0.1, "0.1"), (math.inf, "inf"), ((), "tuple ()"),
        ("a\x1b[31m\n'", "'a\\x1b[31m\\n''"),
        (2**1023, str(2**1023)), (2**1024, "integer of 1,025 bits"), (-(2**20000), "integer of 20,001 bits"),
        (b"ab", "bytes of 2"), (bytearray(b"ab"), "bytearray of 2"), ((0.9, "x"), "tuple (0.9, 'x')"),
        ([1] * 9, "list of 9"), ([[1]], "list of 1"), ({"a": 1}, "dict of 1"), (set(range(1234)), "set of 1,234"),
        (frozenset((1,)), "frozenset (1)"), (OrderedDict(a=1, b=2), "OrderedDict of 2"),
        (len, "reference to builtins.len"),
        ([len], "list (reference to builtins.len)"), (ValueError("x"), "not loaded: builtins.ValueError"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_in_one_line(obj: Any, line: str) -> None:
    assert describe(read(obj, 5), 400) == line


@pytest.mark.parametrize("limit", [8, 20, 120])
def test_a_line_keeps_to_its_limit_and_is_printable(limit: int) -> None:
    nasty = "\x1b]0;title\x07\u202e" * 1000
    made: list[Any] = [nasty, (nasty,) * 8, {nasty: 1}, 2**9000]
    for value in [read(obj) for obj in made] + [interpret(S(nasty) + S(nasty) + b"\x93)R.").value]:
        line = describe(value, limit)
        assert len(line) <= limit
        assert line.isprintable()


def test_the_class_of_an_object_is_seen_through_the_helpers_of_old_protocols() -> None:
    old = interpret(b"ccopy_reg\n_reconstructor\n(cm\nC\nc__builtin__\nobject\nNtR}b.").value
    assert describe(old) == "not loaded: m.C"
    assert describe(interpret(G("copyreg", "__newobj__") + G("m", "D") + b"\x85R.").value) == "not loaded: m.D"
    odd = the(interpret(G("copyreg", "_reconstructor") + b")R.").value, Call)
    assert made_by(odd) is odd.function


def test_the_name_of_a_nested_class_is_put_together_and_never_fetched() -> None:
    nested = G("__builtin__", "getattr") + G("m", "Outer") + S("Inner") + b"\x86R"
    deeper = G("__builtin__", "getattr") + nested + S("Core") + b"\x86R"
    assert dotted(interpret(nested + b".").value) == "m.Outer.Inner"
    assert describe(interpret(deeper + b")\x81.").value) == "not loaded: m.Outer.Inner.Core"
    assert dotted(interpret(G("builtins", "getattr") + b")R.").value) == "result of builtins.getattr"
    assert dotted(interpret(nested + b")R)R.").value) == "result of a call"
    assert describe(interpret(b"\x82\x07)R.").value) == "not loaded: extension 7"
    assert dotted(5) == "a int"


def test_other_nodes_in_one_line() -> None:
    assert describe(interpret(S("k") + I(4) + b"\x86Q.").value) == "stored elsewhere, as tuple ('k', 4)"
    assert describe(interpret(b"NQQ.").value) == "stored elsewhere"
    assert describe(interpret(b"NN").value) == "2 loose values"
    assert describe(interpret(G("m", "f") + b"}b.").value) == "reference to m.f, and what the pickle would change in it"


# ---------------------------------------------------------------- walk


def told(visit: Visit) -> tuple[str, str, str]:
    return visit.path, describe(visit.node), visit.again


def test_walk_meets_every_node_once_and_says_where() -> None:
    shared = ["s"]
    obj: dict[Any, Any] = {"a": [1, (2, [])], 0: shared, "0": shared, ((1,), 2): "x"}
    obj["me"] = obj
    assert list(map(told, walk(read(obj)))) == [
        ("", "dict of 5", ""),
        ("['a']", "list of 2", ""),
        ("['a'][1]", "tuple of 2", ""),
        ("['a'][1][1]", "list ()", ""),
        ("[0]", "list ('s')", ""),
        ("['0']", "list ('s')", "shared"),
        (".key[3]", "tuple of 2", ""),
        (".key[3][0]", "tuple (1)", ""),
        ("['me']", "dict of 5", "cycle"),
    ]
    again = [visit for visit in walk(read(obj)) if visit.again]
    assert [visit.first.path for visit in again if visit.first is not None] == ["[0]", ""]
    assert [visit.depth for visit in again] == [1, 1]


def test_walk_goes_through_objects_field_by_field() -> None:
    data = (
        G("m", "C") + b"]\x85}" + S("k") + b"]s\x92" + b"(]e" + b"(" + S("p") + b"]u" + b"]Qb."
    )  # fmt: skip
    assert [(visit.path, type(visit.node).__name__) for visit in walk(interpret(data).value)] == [
        ("", "Call"), (".function", "Global"), (".args", "Tuple"), (".args[0]", "List"), (".kwargs", "Dict"),
        (".kwargs['k']", "List"), (".state", "Persistent"), (".state.value", "List"), ("", "List"), ("[0]", "List"),
        ("", "Dict"), ("['p']", "List"),
    ]  # fmt: skip


def test_walk_goes_only_where_it_is_let() -> None:
    asked: list[str] = []

    def enter(node: Any) -> bool:
        asked.append(describe(node))
        return not isinstance(node, Tuple)

    shared: tuple[list[Any]] = ([],)
    met = [visit.path for visit in walk(read([shared, shared, [[]]]), enter)]
    assert met == ["", "[0]", "[1]", "[2]", "[2][0]"]
    assert len(asked) == 4
    assert list(walk(5)) == []


def test_a_long_path_shows_its_ends() -> None:
    value = interpret(b"]" * 500 + b"a" * 499 + b".").value
    last = list(walk(value))[-1]
    assert last.depth == 499
    assert last.path == "[0]" * 20 + "…" + "[0]" * 20
    assert len(last.holders()) == 500


# ---------------------------------------------------------------- JSON


def test_to_plain_is_what_json_would_say() -> None:
    obj = {"a": [1, 2.5, None, True, "x"], "b": {"c": (1, 2)}, "d": {"1": 1}, "s": {7}, "n": {0: "a", 10: "b"}}
    assert to_plain(read(obj)) == {
        "a": [1, 2.5, None, True, "x"], "b": {"c": [1, 2]}, "d": {"1": 1}, "s": [7], "n": {"0": "a", "10": "b"},
    }  # fmt: skip
    assert list(to_plain(read(obj))) == list(obj)
    assert to_plain(5) == 5


def test_keys_of_several_kinds_are_never_taken_for_one_another() -> None:
    assert to_plain(read({0: "a", "0": "b"})) == {"pairs": [[0, "a"], ["0", "b"]]}
    assert to_plain(read({True: "a", 2: "b"})) == {"pairs": [[True, "a"], [2, "b"]]}
    assert to_plain(read({(1, 2): [3]})) == {"pairs": [[[1, 2], [3]]]}
    twice = interpret(b"}(" + S("w") + b"K\x01" + S("w") + b"K\x02u.").value
    assert to_plain(twice) == {"pairs": [["w", 1], ["w", 2]]}


def test_what_json_lacks_is_said_in_words() -> None:
    obj = [math.nan, math.inf, -math.inf, b"ab", 2**5000, len]
    plain = to_plain(read(obj))
    assert plain == [
        "NaN", "Infinity", "-Infinity", "bytes of 2", "integer of 5,001 bits", "reference to builtins.len",
    ]  # fmt: skip
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_cycles_and_sharing_are_said() -> None:
    ring: list[Any] = []
    ring.append(ring)
    assert to_plain(read(ring)) == ["(cycle)"]
    shared = {"k": [1, [2]]}
    assert to_plain(read({"a": shared, "b": [shared], "c": (0.9, 0.99)})) == {
        "a": {"k": [1, [2]]}, "b": ["(shared, first at ['a'])"], "c": [0.9, 0.99],
    }  # fmt: skip
    betas = (0.9, 0.999)
    assert to_plain(read([betas, betas])) == [[0.9, 0.999]] * 2
    wide = tuple(range(17))
    assert to_plain(read([wide, wide])) == [list(wide), "(shared, first at [0])"]


def test_objects_show_what_is_known_of_them() -> None:
    assert to_plain(read(OrderedDict(a=1))) == {"a": 1}
    with_state = G("collections", "OrderedDict") + b")R" + S("a") + b"K\x01s}" + S("v") + b"K\x02sb."
    assert to_plain(interpret(with_state).value) == {"object": "OrderedDict of 1", "state": {"v": 2}, "pairs": {"a": 1}}
    items = G("m", "L") + b")\x81(K\x01K\x02e."
    assert to_plain(interpret(items).value) == {"object": "not loaded: m.L", "items": [1, 2]}


def test_what_is_left_out_is_counted_and_the_upper_levels_come_first() -> None:
    assert to_plain(read(list(range(5000))), 10) == [*range(10), "(… 4,990 more)"]
    assert to_plain(read({str(i): i for i in range(5000)}), 2) == {"0": 0, "1": 1, "(… 4,998 more)": None}
    assert to_plain(read({i if i else "": i for i in range(3)}), 2)["pairs"] == [["", 0], [1, 1], "(… 1 more)"]
    plain = to_plain(read({"big": [[i] for i in range(5000)], "small": [1, 2, 3]}), 100)
    assert plain["small"] == [1, 2, 3]
    assert plain["big"][-1] == "(… 4,951 more)"
    assert to_plain(read("x" * 20_000)) == "x" * 10_000 + "(… 10,000 more)"
    assert to_plain(read([[1, 2]]), 1) == ["list (1, 2)"]


def test_billions_of_laughs_and_great_depth_stay_small() -> None:
    laughs = interpret(b"]" + b"2\x86" * 64 + b".").value
    text = json.dumps(to_plain(laughs))
    assert len(text) < 10_000
    assert "(shared, first at [0])" in text
    assert sum(1 for _ in walk(laughs)) == 129  # 65 nodes; 64 of them are met once more
    deep = to_plain(interpret(b"]" * 5000 + b"a" * 4999 + b".").value)
    assert json.dumps(deep) == "[" * DEEPEST + '"list of 1"' + "]" * DEEPEST
    assert len(json.dumps(to_plain(read([[i] * 50 for i in range(10_000)])))) < 40 * MOST


def test_random_graphs_always_give_json_of_a_bounded_size() -> None:
    draw = random.Random(1)
    for _ in range(200):
        pool: list[Any] = [draw.choice((list, dict))() for _ in range(30)]
        for _ in range(200):
            holder, item = draw.choice(pool), draw.choice(pool)
            if isinstance(holder, list):
                holder.append(draw.choice((item, (item, 1), "x")))
            else:
                holder[draw.choice((1, "a", (2, "b"), b"c"))] = item
        assert len(json.dumps(to_plain(read(pool), 100))) < 20_000


# ---------------------------------------------------------------- names


def test_names_of_python_2_are_those_that_python_itself_maps() -> None:
    """What an import of ours may not do, a test may: compare with Python's own table."""
    for module, moved in _compat_pickle.IMPORT_MAPPING.items():
        assert known_as(module, "no_such_name") == (moved, "no_such_name")
    for (module, name), today in _compat_pickle.NAME_MAPPING.items():
        assert known_as(module, name) == today
    for name in _compat_pickle.PYTHON2_EXCEPTIONS:
        assert known_as("exceptions", name) == ("builtins", name)
    assert known_as("torch", "Size") == ("torch", "Size")


def test_numpy_before_2_is_known_by_its_new_place() -> None:
    old = the(interpret(G("numpy.core.multiarray", "_reconstruct") + b".").value, Global)
    new = the(interpret(G("numpy._core.multiarray", "_reconstruct") + b".").value, Global)
    for name in (old, new):
        assert is_global(name, "numpy._core.multiarray", "scalar", "_reconstruct")
        assert not is_global(name, "numpy._core.multiarray", "scalar")
        assert not is_global(name, "numpy._core", "_reconstruct")
    assert (old.module, new.module) == ("numpy.core.multiarray", "numpy._core.multiarray")
    assert known_as("numpy.corex", "y") == ("numpy.corex", "y")
    assert not is_global("numpy._core.multiarray", "numpy._core.multiarray")


@pytest.mark.parametrize(
    ("module", "name", "sentence"),
    [
        ("os", "system", WOULD_RUN), ("posix", "system", WOULD_RUN), ("nt", "system", WOULD_RUN),
        ("os.path", "join", WOULD_RUN), ("subprocess", "Popen", WOULD_RUN), ("sys", "exit", WOULD_RUN),
        ("runpy", "run_path", WOULD_RUN), ("importlib", "import_module", WOULD_RUN), ("pty", "spawn", WOULD_RUN),
        ("ctypes", "CDLL", WOULD_RUN), ("webbrowser", "open", WOULD_RUN), ("pickle", "loads", WOULD_RUN),
        ("marshal", "loads", WOULD_RUN), ("code", "InteractiveConsole", WOULD_RUN), ("cProfile", "run", WOULD_RUN),
        ("torch.hub", "load", WOULD_RUN), ("torch", "hub.load", WOULD_RUN), ("torch", "load", WOULD_RUN),
        ("builtins", "eval", WOULD_RUN), ("builtins", "exec", WOULD_RUN), ("builtins", "compile", WOULD_RUN),
        ("builtins", "__import__", WOULD_RUN), ("collections", "abc.sys.modules", WOULD_RUN),
        ("m", "f.__globals__", WOULD_RUN), ("m", "x.os.path", WOULD_RUN),
        ("shutil", "rmtree", WOULD_REACH), ("socket", "socket", WOULD_REACH),
        ("builtins", "open", WOULD_REACH), ("builtins", "getattr", WOULD_FETCH), ("functools", "partial", WOULD_FETCH),
    ],
)  # fmt: skip
def test_names_that_do_more_than_make_an_object_have_their_sentence(module: str, name: str, sentence: str) -> None:
    assert effect(module, name) == ("info" if sentence == WOULD_FETCH else "warning", sentence)


@pytest.mark.parametrize(
    ("module", "name"),
    [("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict"), ("builtins", "set"), ("oslo", "system"),
     ("my.os", "system"), ("torch", "FloatStorage"), ("numpy", "dtype"), ("functools", "lru_cache"),
     ("m", "Outer.Inner"),
     ("torchvision.ops", "load"), ("codex", "C"), ("", ""), (".", "."), ("m", "modules")],
)  # fmt: skip
def test_of_other_names_nothing_is_said(module: str, name: str) -> None:
    assert effect(module, name) is None


def test_a_name_of_a_million_dots_takes_a_moment() -> None:
    assert effect("m" + ".x" * 1_000_000, "y" + ".x" * 1_000_000) is None


def test_nothing_is_ever_called_safe() -> None:
    for source in Path(tensormorph.readers.__file__).parent.glob("_pickle*.py"):
        assert "safe" not in source.read_text().lower()
    assert not {"torch", "collections", "numpy"} & {m for m, found in names.RUNS_PROGRAMS.items() if not found}


def test_every_kind_that_holds_something_is_walked_and_shown() -> None:
    """A kind that is forgotten would hide what it holds."""
    inside = Global("m", "hidden", 0)
    call = Call(inside, Tuple(), 0)
    holders: list[Value] = [
        Tuple((call,)), List([call]), Set([call]), FrozenSet((call,)), Loose([call]), Dict(["k", call]),
        Dict([call, "v"]), Persistent(call, 0), Call(call, Tuple(), 0), Call(inside, Tuple((call,)), 0),
    ]  # fmt: skip
    for holder in holders:
        assert call in [visit.node for visit in walk(holder)]
        if not (isinstance(holder, Call) and holder.function is call):
            assert "m.hidden" in json.dumps(to_plain(holder))
