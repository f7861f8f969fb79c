"""Logical tensors, who holds what, the table of a checkpoint, and how a name finds its tensor."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

from tensormorph.array import ArraySource
from tensormorph.columns import NameColumn, TensorKey, TensorTable
from tensormorph.dtypes import Encoding, encoding
from tensormorph.errors import (
    BadIndexError,
    LayoutError,
    MissingRegionError,
    NoSuchNameError,
    Problem,
    ReadError,
    UnreadableTensorError,
    UnsupportedDtypeError,
)
from tensormorph.fragments import FragmentTable
from tensormorph.model import Checkpoint, Facts, LazyTensors, LogicalTensor, UnreadableTensor
from tensormorph.region import Region
from tests.memory_source import MemoryFile, MemorySource, Part, cut, store, tensor

F32 = encoding("float32")


def grid_of(values: np.ndarray[Any, Any], tall: int, wide: int, files: list[MemoryFile]) -> list[Part]:
    """Blocks of an array in two files by turns, column-major so that no block lies as numpy would have it."""
    boxes = [
        Region((i, j), (min(i + tall, values.shape[0]), min(j + wide, values.shape[1])))
        for i in range(0, values.shape[0], tall)
        for j in range(0, values.shape[1], wide)
    ]
    return cut(values, boxes, file_of=lambda i: files[i % len(files)], column_major=True)


# ---------------------------------------------------------------- one tensor


def test_full_is_numpy_s_array_seen_lazily() -> None:
    values = np.arange(35, dtype=np.float32).reshape(5, 7)
    parts = grid_of(values, 2, 3, [MemoryFile("a"), MemoryFile("b")])
    t = tensor((5, 7), parts, F32)
    view = t.full()
    assert not any(part.source.reads for part in parts)
    assert isinstance(t, ArraySource)
    assert (view.shape, view.dtype) == ((5, 7), np.dtype(np.float32))
    np.testing.assert_array_equal(np.asarray(view), values)
    np.testing.assert_array_equal(view[::-2, -1], values[::-2, -1])
    assert (t.n_elements, t.n_bytes) == (35, 140)
    assert t.files == ("a", "b")


@settings(deadline=None, max_examples=100)
@given(basic_indices((5, 7), allow_newaxis=False, allow_ellipsis=True))
def test_any_index_of_a_tensor_in_parts_is_numpy_s(key: Any) -> None:
    values = np.arange(35, dtype=np.float32).reshape(5, 7)
    t = tensor((5, 7), grid_of(values, 2, 3, [MemoryFile("a")]), F32)
    np.testing.assert_array_equal(t.full()[key], values[key])


def test_local_without_a_layout_says_that_none_is_known() -> None:
    t = tensor((2,), cut(np.zeros(2, np.float32), [Region((0,), (2,))]), F32)
    with pytest.raises(LayoutError, match="Which part rank 3 holds is not known"):
        t.local(3)


def test_sizes_of_tensors_beyond_memory_and_of_odd_encodings() -> None:
    assert tensor((2**40, 2**40), [], F32).n_bytes == 2**82
    assert tensor((3, 3), [], encoding("float4_e2m1fn")).n_bytes == 5
    assert tensor((3,), [], encoding("F9_NEW")).n_bytes is None
    assert tensor((), [], F32).n_elements == 1


def test_fragments_of_another_number_of_axes_are_refused() -> None:
    with pytest.raises(ValueError, match="fragments of 1 axes"):
        LogicalTensor("w", TensorKey("", "w"), (2, 2), F32, FragmentTable.empty(1), True)


def test_a_lost_part_is_explained_by_the_tensor_s_own_problem() -> None:
    problem = Problem("missing-file", "error", "the file b.bin is missing", "w", "b.bin")
    note = Problem("note", "info", "saved by a new version")
    parts = cut(np.zeros((1, 2), np.float32), [Region((0, 0), (1, 2))])
    t = replace(tensor((2, 2), parts, F32), problems=(note, problem))
    with pytest.raises(MissingRegionError, match=r"^w, region 1:2, 0:2 cannot be read: the file b\.bin is missing$"):
        t.full()[...]
    parts[0].source.file.failure = ReadError("model.bin", "input/output error")
    with pytest.raises(MissingRegionError, match="input/output error"):
        t.full()[0]


def test_a_tensor_of_unknown_type_is_there_but_has_no_values() -> None:
    """R10."""
    kind = Encoding("F6_E2M3", 6, "float", readable=False)
    t = tensor((2, 2), [], kind)
    with pytest.raises(UnsupportedDtypeError, match="F6_E2M3"):
        t.full()[...]
    [piece] = t.pieces(Region((0, 0), (1, 2)), 100)
    assert piece.region == Region((0, 0), (1, 2))
    assert piece.problem is not None
    assert (piece.problem.code, piece.problem.tensor) == ("unsupported-dtype", "w")
    assert list(t.pieces(Region((0, 0), (0, 2)), 100)) == []


# ---------------------------------------------------------------- where an element lies


def test_where_gives_the_byte_of_every_element() -> None:
    values = np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32)
    files = {name: MemoryFile(name, bytearray(b"padding" * (3 + len(name)))) for name in ("a", "bb")}
    t = tensor((5, 7), grid_of(values, 2, 3, list(files.values())), F32)
    for i, j in np.ndindex(5, 7):
        [holder] = t.where((i, j))
        assert holder.offset is not None
        assert holder.n_bytes is not None
        stored = bytes(files[holder.file].data[holder.offset : holder.offset + holder.n_bytes])
        assert stored == values[i, j].tobytes()
        assert (holder.bit, holder.n_bytes, holder.term) == (0, 4, 0)
        assert holder.region == Region((i, j), (i + 1, j + 1))


def test_where_counts_from_the_end_as_numpy_does() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = tensor((2, 3), cut(values, [Region.whole((2, 3))]), F32)
    assert t.where((-1, -1)) == t.where((1, 2))
    [row] = t.where(1)
    assert (row.region, row.n_bytes) == (Region((1, 0), (2, 3)), 12)
    assert row.offset == t.where((1, 0))[0].offset
    assert t.where(np.s_[1:1]) == []


def test_where_names_replicas_and_terms_and_the_parts_of_a_region() -> None:
    values = np.arange(4, dtype=np.float32).reshape(4, 1)
    files = [MemoryFile(f"{rank}.bin") for rank in range(4)]
    top, bottom = Region((0, 0), (2, 1)), Region((2, 0), (4, 1))
    t = tensor((4, 1), cut(values, [top, bottom, top, bottom], file_of=lambda i: files[i]), F32)
    assert [(h.file, h.rank) for h in t.where((3, 0))] == [("1.bin", 1), ("3.bin", 3)]
    assert [(h.file, h.region) for h in t.where(np.s_[1:3])] == [
        ("0.bin", Region((1, 0), (2, 1))), ("1.bin", Region((2, 0), (3, 1))),
        ("2.bin", Region((1, 0), (2, 1))), ("3.bin", Region((2, 0), (3, 1))),
    ]  # fmt: skip
    assert [h.n_bytes for h in t.where(np.s_[0:3])] == [8, 4, 8, 4]
    terms = [Part(Region((0,), (1,)), store(files[k], np.zeros(1, np.float32), F32), k, k) for k in (0, 1)]
    assert [h.term for h in tensor((1,), terms, F32, reduction="sum").where(0)] == [0, 1]


def test_where_of_a_scalar_and_of_half_a_byte() -> None:
    file = MemoryFile("a", bytearray(7))
    t = tensor((), [Part(Region((), ()), store(file, np.array(3.5, np.float32), F32))], F32)
    [holder] = t.where(())
    assert (holder.offset, holder.n_bytes, holder.rank) == (7, 4, None)

    class Nibbles(MemorySource):
        def bit_of(self, index: Any, /) -> int:
            return 8 * self.offset + 4 * int(sum(index))

    nibbles = Nibbles(file, encoding("float4_e2m1fn"), 8, (4,), (1,))
    packed = tensor((4,), [Part(Region((0,), (4,)), nibbles)], nibbles.encoding)
    assert [(h.offset, h.bit, h.n_bytes) for i in range(4) for h in packed.where(i)] == [
        (8, 0, 1), (8, 4, 1), (9, 0, 1), (9, 4, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("index", [(0, 9), (0, 0, 0), None, 1.5, np.s_[::2], np.s_[::-1], (0, True)], ids=str)
def test_where_refuses_what_names_no_region(index: Any) -> None:
    t = tensor((3, 3), cut(np.zeros((3, 3), np.float32), [Region.whole((3, 3))]), F32)
    with pytest.raises(BadIndexError):
        t.where(index)


# ---------------------------------------------------------------- the table of all tensors


def whole_table(tensors: dict[str, LogicalTensor]) -> TensorTable:
    """Columns of these tensors, filled as a reader fills them."""
    made = list(tensors.values())
    kinds = tuple({t.encoding: None for t in made})
    files = tuple({name: None for t in made for name in t.fragments.files})

    def column(name: str, dtype: Any) -> np.ndarray[Any, Any]:
        return np.concatenate([np.empty(0, dtype), *(getattr(t.fragments, name) for t in made)]).astype(dtype)

    def ends(counts: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.cumsum([0, *counts], dtype=np.int64)

    renumbered = [files.index(t.fragments.files[i]) for t in made for i in t.fragments.file.tolist()]
    return TensorTable(
        names=tuple(tensors),
        keys=lambda row: made[row].key,
        encodings=kinds,
        encoding=np.array([kinds.index(t.encoding) for t in made], np.int16),
        n_elements=np.array([t.n_elements for t in made], np.int64),
        complete=np.array([t.complete for t in made], bool),
        dims=np.array([n for t in made for n in t.shape], np.int64),
        first_dim=ends([len(t.shape) for t in made]),
        first_fragment=ends([len(t.fragments) for t in made]),
        start=np.concatenate([np.empty(0, np.int64), *(t.fragments.start.ravel() for t in made)]),
        stop=np.concatenate([np.empty(0, np.int64), *(t.fragments.stop.ravel() for t in made)]),
        first_coordinate=ends([t.fragments.start.size for t in made]),
        file=np.array(renumbered, np.int32),
        offset=column("offset", np.int64),
        length=column("length", np.int64),
        rank=column("rank", np.int32),
        term=column("term", np.int32),
        files=files,
    )


def some_tensors() -> dict[str, LogicalTensor]:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    boxes = [Region((0, 0), (1, 3)), Region((1, 0), (4, 2)), Region((1, 2), (4, 3))]
    return {
        "layers.0.weight": tensor((4, 3), cut(values, boxes), F32, name="layers.0.weight"),
        "scale": tensor((), cut(np.array(2.5, np.float32), [Region((), ())] * 2), F32, name="scale"),
        "lost": tensor((9,), [], encoding("F9_NEW"), name="lost"),
        "codes": tensor((5,), cut(np.arange(5, dtype=np.int64), [Region((0,), (5,))]), encoding("int64"), name="codes"),
    }


def test_a_tensor_comes_out_of_the_table_as_it_went_in() -> None:
    made = some_tensors()
    columns = whole_table(made)
    assert len(columns) == 4
    sources = [(t, i) for t in made.values() for i in range(len(t.fragments))]
    for row, t in enumerate(made.values()):
        assert columns.shape(row) == t.shape
        assert columns.n_fragments(row) == len(t.fragments)
        assert columns.n_bytes(row) == t.n_bytes
        back = columns.fragments(row, lambda i: sources[i][0].fragments.open_source(sources[i][1]))
        assert list(back) == list(t.fragments)
        assert back.ndim == len(t.shape)
        if t.complete:
            np.testing.assert_array_equal(replace(t, fragments=back).full()[...], t.full()[...])


def test_an_empty_table_is_a_table() -> None:
    assert len(whole_table({})) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"encoding": np.zeros(3, np.int16)}, {"n_elements": np.zeros(5, np.int64)}, {"complete": np.ones(3, bool)},
        {"first_dim": np.zeros(4, np.int64)}, {"first_fragment": np.zeros(4, np.int64)},
        {"first_coordinate": np.zeros(6, np.int64)}, {"offset": np.zeros(5, np.int64)},
        {"length": np.zeros(7, np.int64)}, {"rank": np.zeros(0, np.int32)}, {"term": np.zeros(5, np.int32)},
        {"names": ("a",)}, {"start": np.zeros(4, np.int64)}, {"stop": np.zeros(2, np.int64)},
        {"dims": np.zeros(3, np.int64)}, {"first_dim": np.array([0, 3, 2, 3, 4])},
        {"first_dim": np.array([0, 2, 2, 3, 3])}, {"first_fragment": np.array([0, 3, 5, 5, 5])},
        {"first_fragment": np.array([1, 3, 5, 5, 6])}, {"first_coordinate": np.array([0, 5, 6, 6, 7])},
        {"first_fragment": np.array([0, 2, 5, 5, 6])},
    ],
    ids=lambda change: ", ".join(f"{name} {len(column)}" for name, column in change.items()),
)  # fmt: skip
def test_columns_that_do_not_fit_together_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"column|start and stop|coordinate"):
        replace(whole_table(some_tensors()), **change)


def test_columns_that_fall_are_refused_even_where_no_fragment_shows_it() -> None:
    columns = whole_table({name: tensor((9,), [], F32) for name in "ab"})
    with pytest.raises(ValueError, match="first_dim does not rise"):
        replace(columns, first_dim=np.array([0, 3, 2]))


# ---------------------------------------------------------------- names


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(st.characters(), max_size=5), max_size=6))
def test_a_column_of_names_is_the_list_of_them(names: list[str]) -> None:
    made = NameColumn.of(names)
    for column in (made, NameColumn(*made.parts)):
        assert list(column) == names
        assert len(column) == len(names)
        assert [column[i] for i in range(-len(names), len(names))] == names * 2
        assert column[1:4] == names[1:4]
        assert column[::-2] == names[::-2]
        for beyond in (len(names), -len(names) - 1):
            with pytest.raises(IndexError):
                column[beyond]


def checkpoint(**change: Any) -> tuple[Checkpoint, list[str]]:
    made = some_tensors()
    closed: list[str] = []
    columns = whole_table(made)
    unreadable = UnreadableTensor(
        "broken", TensorKey("", "broken"), "float32", (3,), "b.bin",
        (Problem("truncated-file", "error", "the file ends 16 bytes early", "broken", "b.bin"),),
    )  # fmt: skip
    fields: dict[str, Any] = {
        "root": Path("ck"), "path": Path("ck/model.bin"), "format": "memory", "format_detail": "", "table": columns,
        "tensors": LazyTensors(columns, lambda row: made[columns.names[row]]),
        "unreadable": {"broken": unreadable, "bare": replace(unreadable, name="bare", problems=())},
        "aliases": {"tied.weight": "layers.0.weight", "tied.broken": "broken"}, "objects": {}, "files": (),
        "facts": Facts(), "problems": (), "close": lambda: closed.append("closed"),
        "changed_files": lambda: (), **change,
    }  # fmt: skip
    return Checkpoint(**fields), closed


def test_a_name_or_an_alias_finds_the_tensor() -> None:
    ck, _ = checkpoint()
    assert ck["layers.0.weight"].name == "layers.0.weight"
    assert ck["tied.weight"] is ck["layers.0.weight"]
    assert "tied.weight" in ck
    assert "scale" in ck
    assert "broken" not in ck
    assert 3 not in ck
    assert list(ck) == list(some_tensors())
    assert len(ck) == 4


def test_a_broken_tensor_is_named_with_its_reason_by_alias_too() -> None:
    ck, _ = checkpoint()
    for name in ("broken", "tied.broken"):
        with pytest.raises(UnreadableTensorError, match="cannot be read: the file ends 16 bytes early") as caught:
            ck[name]
        assert caught.value.tensor == name
        assert [problem.code for problem in caught.value.problems] == ["truncated-file"]
    with pytest.raises(UnreadableTensorError, match="nothing usable is stored"):
        ck["bare"]


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    ck, _ = checkpoint()
    with pytest.raises(NoSuchNameError) as caught:
        ck["layer.0.weight"]
    assert caught.value.similar == ("layers.0.weight",)
    assert str(caught.value) == f"No tensor is called 'layer.0.weight'. Nearest: layers.0.weight ({ck.path})"
    with pytest.raises(KeyError, match="No tensor is called ''"):
        ck[""]
    with pytest.raises(NoSuchNameError) as caught:
        ck["zzzzzzzzzz"]
    assert caught.value.similar == ()


def test_the_nearest_names_come_nearest_first_and_soon() -> None:
    names = [f"model.layers.{i}.mlp.experts.{j}.{p}_proj.weight" for i in range(40) for j in range(99) for p in "ud"]
    made = dict.fromkeys([*names, "x" * 70_000], tensor((), [], F32))
    ck, _ = checkpoint(table=whole_table(made))
    began = time.perf_counter()
    for asked in ("model.layers.3.mlp.experts.7.q_proj.weight", "x" * 69_000, "y" * 70_000):
        with pytest.raises(NoSuchNameError) as caught:
            ck[asked]
        if asked.startswith("model"):
            assert set(caught.value.similar) >= {f"model.layers.3.mlp.experts.7.{p}_proj.weight" for p in "ud"}
        elif asked.startswith("x"):
            assert caught.value.similar == ("x" * 70_000,)
    assert time.perf_counter() - began < 5


def test_leaving_the_block_closes_the_files() -> None:
    ck, closed = checkpoint()
    with ck as inside:
        assert inside is ck
        assert not closed
    assert closed == ["closed"]
    with pytest.raises(RuntimeError, match="stop"), ck:
        raise RuntimeError("stop")
    assert len(closed) == 2


def test_tensors_are_made_when_asked_for() -> None:
    columns = whole_table(some_tensors())
    asked: list[int] = []

    def make(row: int) -> LogicalTensor:
        asked.append(row)
        return some_tensors()[columns.names[row]]

    tensors = LazyTensors(columns, make)
    assert len(tensors) == 4
    assert "scale" in tensors
    assert "other" not in tensors
    assert tensors.row("codes") == 3
    assert tensors.row("other") is None
    assert list(tensors) == list(columns.names)
    assert asked == []
    assert tensors["scale"].name == tensors.at(1).name == "scale"
    assert asked == [1, 1]
    assert tensors.get("other") is None
    with pytest.raises(KeyError):
        tensors["other"]


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 4))
def test_where_and_reading_agree_on_any_grid(n: int, tall: int, wide: int) -> None:
    values = np.arange(n * 5, dtype=np.float32).reshape(n, 5)
    files = {name: MemoryFile(name) for name in ("a", "b")}
    t = tensor((n, 5), grid_of(values, tall, wide, list(files.values())), F32)
    for i, j in np.ndindex(n, 5):
        [holder] = t.where((i, j))
        assert holder.offset is not None
        assert files[holder.file].data[holder.offset : holder.offset + 4] == t.full()[i, j].tobytes()
