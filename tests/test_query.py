"""The words that narrow a list of tensors select what a plain loop over the tensors selects."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensormorph.columns import TensorKey
from tensormorph.dtypes import encoding
from tensormorph.errors import Problem, UsageError
from tensormorph.model import Checkpoint, LogicalTensor, UnreadableTensor
from tensormorph.query import NameIndex, parse
from tensormorph.region import Region
from tests.checkpoints import checkpoint
from tests.memory_source import MemoryFile, Part, store, tensor

SHAPES: dict[str, tuple[tuple[int, ...], str, str]] = {
    "model.layers.0.attn.weight": ((4, 64), "bfloat16", "a-00001.bin"),
    "model.layers.0.mlp.weight": ((64, 4), "bfloat16", "a-00002.bin"),
    "model.layers.10.attn.bias": ((64,), "float32", "a-00002.bin"),
    "Model.Norm": ((3,), "float16", "a-00001.bin"),
    "scale": ((), "float8_e4m3fn", "b.bin"),
    "ids": ((2, 3, 64), "int64", "b.bin"),
    "mask": ((2, 3, 64), "uint8", "b.bin"),
    "two words": ((1,), "bool", "b.bin"),
    "line\nbreak": ((1,), "bool", "b.bin"),
}


@pytest.fixture
def made() -> Checkpoint:
    files = {name: MemoryFile(name) for _, _, name in SHAPES.values()}
    tensors: list[LogicalTensor] = []
    for name, (shape, dtype, file) in SHAPES.items():
        kind = encoding(dtype)
        source = store(files[file], np.zeros(shape, kind.dtype), kind)
        tensors.append(tensor(shape, [Part(Region.whole(shape), source)], kind, name=name))
    gone = Problem("absent-file", "error", "c.bin is absent", tensor="lost", file="c.bin")
    odd = Problem("odd-order", "warning", "odd", tensor="scale")
    return checkpoint(
        Path(), tensors, aliases={"lm_head.weight": "ids", "other": "lost"}, problems=[odd, gone],
        unreadable=[UnreadableTensor("lost", TensorKey("", "lost"), "bfloat16", (7, 64), "c.bin", (gone,))],
    )  # fmt: skip


def selected(made: Checkpoint, text: str) -> list[str]:
    query = parse(text)
    rows = query.rows(made)
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert query.rows(made, NameIndex(made)).tolist() == rows.tolist()
    return [made.table.names[i] for i in rows.tolist()] + [t.name for t in query.unreadable(made)]


def by(condition: Callable[[str, tuple[int, ...], str, str], bool], lost: bool = False) -> list[str]:
    """The plain loop."""
    names = [name for name, (shape, dtype, file) in SHAPES.items() if condition(name, shape, dtype, file)]
    return names + (["lost"] if lost else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", by(lambda *_: True, lost=True)),
        ("attn", by(lambda n, *_: "attn" in n)),
        ("ATTN layers.0", by(lambda n, *_: "attn" in n and "layers.0" in n)),
        ("norm", ["Model.Norm"]),
        ("layers.1", ["model.layers.10.attn.bias"]),
        (".*", []),  # a word is no pattern
        ('"two words"', ["two words"]),
        ("line", ["line\nbreak"]),
        ("break", ["line\nbreak"]),
        ('"line\nbreak"', ["line\nbreak"]),
        ('"ids\nmask"', []),  # no word reaches from one name into the next
        ("lm_head", ["ids"]),  # an alias selects its tensor
        ("other", ["lost"]),
        ("lm_head ids", []),  # all words in one name
        ("dtype:bf16", by(lambda n, s, d, f: d == "bfloat16", lost=True)),
        ("dtype:fp8", ["scale"]),
        ("dtype:f16", ["Model.Norm"]),
        ("dtype:float", by(lambda n, s, d, f: d.startswith("float"))),
        ("dtype:int", ["ids"]),  # not uint8
        ("dtype:u8", ["mask"]),
        ("dtype:b", by(lambda n, s, d, f: d.startswith("b"), lost=True)),
        ("shape:64", by(lambda n, s, d, f: 64 in s, lost=True)),
        ("shape:64,", ["model.layers.10.attn.bias"]),
        ("shape:4,64", ["model.layers.0.attn.weight"]),
        ("shape:4×64", ["model.layers.0.attn.weight"]),
        ("shape:4x64", ["model.layers.0.attn.weight"]),
        ("shape:*,64", by(lambda n, s, d, f: len(s) == 2 and s[1] == 64, lost=True)),
        ("shape:...,64", by(lambda n, s, d, f: bool(s) and s[-1] == 64, lost=True)),
        ("shape:2,...", ["ids", "mask"]),
        ("shape:>4", by(lambda n, s, d, f: any(e > 4 for e in s), lost=True)),
        ("shape:<4,*", []),
        ("shape:<5,*", ["model.layers.0.attn.weight"]),
        ("shape:scalar", ["scale"]),
        ("file:00002", by(lambda n, s, d, f: "00002" in f)),
        ("file:A-0", by(lambda n, s, d, f: f.startswith("a-0"))),
        ("file:c.bin", ["lost"]),
        ("problem:", ["scale", "lost"]),
        ("problem:warning", ["scale"]),
        ("problem:error", ["lost"]),
        ("problem:absent", ["lost"]),
        ("problem:nothing", []),
        ("dtype:bf16 shape:64 file:00002 mlp", ["model.layers.0.mlp.weight"]),
        ("std::vector", []),  # an unknown prefix is a word
    ],
)
def test_selects_what_a_loop_selects(made: Checkpoint, text: str, expected: list[str]) -> None:
    assert selected(made, text) == expected


@pytest.mark.parametrize("text", ["shape:abc", "shape:-1", "shape:...,...", "shape:1,>"])
def test_a_shape_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="shape:128,64"):
        parse(text)


def test_an_incomplete_tensor_has_an_error(made: Checkpoint) -> None:
    kind = encoding("float32")
    half = store(MemoryFile("h.bin"), np.zeros((2, 2), np.float32), kind)
    gap = tensor((4, 2), [Part(Region((0, 0), (2, 2)), half)], kind, name="gap")
    assert selected(checkpoint(Path(), [gap]), "problem:error") == ["gap"]
    assert selected(checkpoint(Path(), [gap]), "problem:warning") == []


def test_an_empty_checkpoint_selects_nothing() -> None:
    empty = checkpoint(Path(), [])
    for text in ("", "w", "dtype:bf16", "shape:1", "shape:1,", "file:a", "problem:"):
        assert selected(empty, text) == []


class TensorNames:
    """As much of a table as a query of words looks at."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.files = self.encodings = ()

    def __len__(self) -> int:
        return len(self.names)


def test_a_hundred_thousand_names_take_less_than_a_reading_of_them() -> None:
    """The same questions asked in plain Python over the same names are the yardstick, in the same run."""
    names = [f"model.layers.{i // 900}.experts.{i % 900}.weight" for i in range(100_000)]

    table = TensorNames(names)
    made: Any = SimpleNamespace(table=table, aliases={})
    index = NameIndex(made)
    query = parse("layers.7. experts.12.")
    begin = time.perf_counter()
    rows = query.rows(made, index)
    ours = time.perf_counter() - begin
    begin = time.perf_counter()
    expected = [i for i, name in enumerate(names) if "layers.7." in name.lower() and "experts.12." in name.lower()]
    plain = time.perf_counter() - begin
    assert rows.tolist() == expected
    assert ours < 3 * plain
