"""Checkpoints in memory for the tests of the window, and settings that are never the user's own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from tensormorph import dtypes
from tensormorph.array import Piece, Place
from tensormorph.columns import TensorKey, TensorTable
from tensormorph.errors import Problem
from tensormorph.gui.heatmap import HeatmapView
from tensormorph.gui.opening import OpenFunction, open_with_readers
from tensormorph.gui.selection import Selection
from tensormorph.gui.settings import Settings
from tensormorph.gui.states import PlainLabel
from tensormorph.gui.theme import Tokens
from tensormorph.gui.window import MainWindow
from tensormorph.model import (
    Checkpoint,
    Facts,
    FileInfo,
    LazyTensors,
    LogicalTensor,
    StoredObject,
    UnreadableTensor,
)
from tensormorph.region import Region

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

OpenTensors = Callable[..., MainWindow]
Specs = Mapping[str, tuple[int, ...]] | Sequence[tuple[str, tuple[int, ...]]]
NO_INTS: NDArray[np.int64] = np.empty(0, np.int64)


class CountingSource:
    """Values that are their own row-major numbers; a hook runs before each read and may raise."""

    def __init__(self, shape: tuple[int, ...], offset: int, file: str, before_read: Callable[[], None]) -> None:
        self.shape = shape
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self._offset = offset
        self._file = file
        self._before_read = before_read

    def read_into(self, region: Region, out: NDArray[Any], /) -> None:
        self._before_read()
        whole = np.arange(int(np.prod(self.shape)), dtype=np.float32).reshape(self.shape)
        out[...] = whole[region.slices()]

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        yield Piece(region, 4 * region.size)

    def place(self) -> Place:
        strides = tuple(int(np.prod(self.shape[k + 1 :])) for k in range(len(self.shape)))
        n_bytes = 4 * int(np.prod(self.shape))
        return Place(self._file, self._offset, n_bytes, dtypes.encoding("float32"), strides)

    def bit_of(self, index: Sequence[int], /) -> int:
        return 8 * (self._offset + 4 * int(np.ravel_multi_index(tuple(index), self.shape) if self.shape else 0))


def make_checkpoint(
    specs: Specs,
    *,
    path: Path | str = "run/step-10",
    keys: Callable[[str], TensorKey] | None = None,
    n_files: int = 2,
    aliases: Mapping[str, str] | None = None,
    unreadable: Sequence[UnreadableTensor] = (),
    problems: Sequence[Problem] = (),
    objects: Sequence[StoredObject] = (),
    before_read: Callable[[], None] = lambda: None,
    close: Callable[[], None] = lambda: None,
    changed_files: Callable[[], tuple[str, ...]] = lambda: (),
) -> Checkpoint:
    """Return a checkpoint of float32 tensors, one fragment each, dealt out over `n_files` files in turn."""
    pairs = list(specs.items() if isinstance(specs, Mapping) else specs)
    names = [name for name, _ in pairs]
    shapes = [shape for _, shape in pairs]
    n = len(pairs)
    ndim = np.array([len(shape) for shape in shapes], np.int64)
    first = np.concatenate([[0], np.cumsum(ndim)]).astype(np.int64)
    dims = np.array([extent for shape in shapes for extent in shape], np.int64)
    n_elements = np.array([int(np.prod(shape, dtype=np.int64)) for shape in shapes], np.int64)
    files = tuple(f"model-{i + 1:05d}-of-{n_files:05d}.safetensors" for i in range(n_files))
    file = (np.arange(n) % n_files).astype(np.int32)
    offset = 800 + 4 * (np.cumsum(n_elements) - n_elements)
    zeros = np.zeros(n, np.int32)
    table = TensorTable(
        names, lambda row: (keys or (lambda name: TensorKey("", name)))(names[row]), (dtypes.encoding("float32"),),
        np.zeros(n, np.int16), n_elements, np.ones(n, np.bool_), dims, first, np.arange(n + 1, dtype=np.int64),
        np.zeros(len(dims), np.int64), dims, first, file, offset, 4 * n_elements, zeros - 1, zeros, files,
    )  # fmt: skip

    def make(row: int) -> LogicalTensor:
        def source(at: int) -> CountingSource:
            return CountingSource(shapes[row], int(offset[row]), files[int(file[row])], before_read)

        told = tuple(p for p in problems if p.tensor == names[row])
        return LogicalTensor(
            names[row], table.keys(row), shapes[row], table.encodings[0], table.fragments(row, lambda at: source(at)),
            True, problems=told,
        )  # fmt: skip

    return Checkpoint(
        root=Path(path), path=Path(path), format="safetensors", format_detail="2 shards", table=table,
        tensors=LazyTensors(table, make), unreadable={lost.name: lost for lost in unreadable}, aliases=aliases or {},
        objects={item.name: item for item in objects},
        files=tuple(FileInfo(name, 1000 + i, "tensors") for i, name in enumerate(files)), facts=Facts(),
        problems=tuple(problems), close=close, changed_files=changed_files,
    )  # fmt: skip


def llama_names(layers: int, hidden: int = 8) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of a small transformer, in the order in which safetensors sorts them."""
    inner = {
        "self_attn.q_proj.weight": (hidden, hidden), "self_attn.k_proj.weight": (hidden, hidden),
        "self_attn.o_proj.weight": (hidden, hidden), "mlp.up_proj.weight": (2 * hidden, hidden),
        "mlp.down_proj.weight": (hidden, 2 * hidden), "input_layernorm.weight": (hidden,),
    }  # fmt: skip
    pairs = [("model.embed_tokens.weight", (32, hidden)), ("model.norm.weight", (hidden,))]
    pairs += [(f"model.layers.{i}.{name}", shape) for i in range(layers) for name, shape in inner.items()]
    return sorted(pairs)


class Picture(QWidget):
    """Stands in for the heatmap: what the window asks of it, and nothing read."""

    status = Signal(str)
    bytes_read = Signal(int)
    moved = Signal()

    def __init__(self, selection: Selection, tokens: Tokens) -> None:
        super().__init__()
        self.tokens = tokens

    def set_tokens(self, tokens: Tokens) -> None:
        self.tokens = tokens


class MakeWindow(Protocol):
    """Makes a window on settings of its own that opens paths by a given function."""

    def __call__(self, open_: OpenFunction = ..., settings: Settings | None = ...) -> MainWindow: ...


def shown(label: PlainLabel) -> str:
    """Return what a label shows, without the places where it may break."""
    return label.text().replace("\u200b", "")


def opens(checkpoint: Checkpoint) -> OpenFunction:
    """Return an open function that gives this checkpoint for every path."""
    return lambda path, reader, report: checkpoint


@pytest.fixture
def make_window(qtbot: QtBot, tmp_path: Path) -> Iterator[MakeWindow]:
    """Return a maker of windows that are shown, and closed at the end of the test."""
    made: list[MainWindow] = []

    def make(open_: OpenFunction = open_with_readers, settings: Settings | None = None) -> MainWindow:
        window = MainWindow(settings or Settings(tmp_path / "settings"), open_=open_, make_picture=Picture)
        qtbot.addWidget(window)
        made.append(window)
        with qtbot.waitExposed(window):
            window.show()
        return window

    yield make
    for window in made:
        window.close()


@pytest.fixture
def open_window(qtbot: QtBot, make_window: MakeWindow) -> Callable[[Checkpoint], MainWindow]:
    """Return a maker of windows with a checkpoint open."""

    def make(checkpoint: Checkpoint) -> MainWindow:
        window = make_window(opens(checkpoint))
        with qtbot.waitSignal(window.opener.opened):
            window.open_path(str(checkpoint.path))
        return window

    return make


@pytest.fixture
def window_of(qtbot: QtBot, tmp_path: Path) -> OpenTensors:
    """Return a maker of windows with the real views on these tensors, the first one chosen."""

    def make(*tensors: LogicalTensor) -> MainWindow:
        from tests.gui.planes import checkpoint_of  # which imports this module

        named = {f"w{k}": dataclasses.replace(tensor, name=f"w{k}") for k, tensor in enumerate(tensors)}
        checkpoint = checkpoint_of(named)
        window = MainWindow(Settings(tmp_path / "own"), open_=opens(checkpoint))
        qtbot.addWidget(window)
        window.resize(1400, 900)
        with qtbot.waitExposed(window):
            window.show()
        with qtbot.waitSignal(window.opener.opened):
            window.open_path(str(checkpoint.path))
        window.selection.choose("w0")
        view = heatmap_of(window)
        qtbot.waitUntil(lambda: view.title.badge.text == "exact", timeout=20_000)
        return window

    return make


def heatmap_of(window: MainWindow) -> HeatmapView:
    view = window.workbench.centre.views["Heatmap"]
    assert isinstance(view, HeatmapView)
    return view
