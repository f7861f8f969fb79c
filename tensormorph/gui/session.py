"""Small questions about what is open or to be opened, each answered without a widget."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, qVersion

import tensormorph
from tensormorph.errors import BadIndexError, Problem
from tensormorph.resources import resource
from tensormorph.text import plural, printable, size

if TYPE_CHECKING:
    from tensormorph.gui.opening import Opened
    from tensormorph.model import Checkpoint, LogicalTensor

DEMO = "demo"
DEMO_WORDS: Mapping[str, str] = {
    "llama-docstrings": "A small language model: four safetensors shards with an index",
    "run/step-100": "A run on four ranks with FSDP2: torch DCP with optimizer, scheduler and position",
    "run/step-200": "The same run, 100 steps on",
    "run/step-300-fsdp-tp": "Resumed on 2 × 2 ranks, FSDP2 and tensor parallel: torch DCP",
    "run/step-300-ranks": "The model of that moment: one torch file a rank, with DTensors",
}
"""What each checkpoint of the demo's folder is, by its path in it."""


def display_name(path: Path) -> str:
    """Return what a checkpoint is called in few words: its own name, after its folder's where that is too general."""
    name = path.name or str(path)
    general = name.startswith(("step", "checkpoint", "iter", "global_step", "epoch", "model.", "pytorch_model"))
    return f"{path.parent.name} / {name}" if general and path.parent.name else name


def n_tensors(checkpoint: Checkpoint) -> int:
    """Return how many tensors a checkpoint has, unreadable ones too; an alias is one more name, not one more tensor."""
    return len(checkpoint.table) + len(checkpoint.unreadable)


def demo_path() -> str | None:
    """Return the folder of the demo's checkpoints, or None if it did not come with the program."""
    try:
        return str(resource(DEMO))
    except FileNotFoundError:
        return None


def words_below(path: str) -> Mapping[str, str]:
    """Return what is known beforehand of the checkpoints in a folder, by their paths in it: of the demo's only."""
    demo = demo_path()
    return DEMO_WORDS if demo is not None and os.path.normpath(path) == os.path.normpath(demo) else {}


def version_text() -> str:
    """Return version and system, for a report."""
    system = f"Python {platform.python_version()}, Qt {qVersion()}, {platform.system()} {platform.machine()}"
    return f"Tensormorph {tensormorph.__version__}, {system}"


def local_paths(data: QMimeData) -> list[str]:
    """Return the paths of files and folders among what is dragged."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()] if data.hasUrls() else []


def all_problems(checkpoint: Checkpoint) -> Sequence[Problem]:
    """Return the checkpoint's problems, those of unreadable tensors, and what a stated mesh came to."""
    from tensormorph.gui.layout_words import stated_problems  # with numpy, which the start page does without

    seen = set(checkpoint.problems) if checkpoint.unreadable else set()
    lost = dict.fromkeys(problem for tensor in checkpoint.unreadable.values() for problem in tensor.problems)
    return [*checkpoint.problems, *(one for one in lost if one not in seen), *stated_problems(checkpoint)]


def title(opened: Opened | None) -> str:
    """Return the window's title; Qt would replace a star in brackets."""
    if opened is None:
        return "Tensormorph"
    name = printable(display_name(opened.checkpoint.path), 200)
    return f"{name.replace('[*]', '[*][*]')} – Tensormorph"


def summary(opened: Opened) -> str:
    """Return the checkpoint in one line for the status bar."""
    from tensormorph.gui.rows import quantity  # as above

    checkpoint, outline = opened.checkpoint, opened.outline
    detail = printable(checkpoint.format_detail, 80)
    kind = f"{checkpoint.format}, {detail}" if detail else checkpoint.format
    tensors = plural(n_tensors(checkpoint), "tensor")
    return f"{kind}  ·  {tensors}, {quantity(outline.n_parameters)} parameters, {size(outline.n_bytes)}"


def element_at(text: str, tensor: LogicalTensor | None) -> tuple[int, ...] | str:
    """Return the element that a person means by an index such as ``5, -1``; a sentence if it is none."""
    if tensor is None:
        return "Choose a tensor first"
    from tensormorph.array import parse_index  # as above

    try:
        index = parse_index(text)
    except BadIndexError as error:
        return error.sentence
    if len(index) == len(tensor.shape) and all(isinstance(i, int) for i in index):
        place = tuple(i + n if i < 0 else i for i, n in zip(index, tensor.shape, strict=True))
        if all(0 <= i < n for i, n in zip(place, tensor.shape, strict=True)):
            return place
    return f"[{printable(text, 60)}] is no element of a tensor of shape ({', '.join(map(str, tensor.shape))})"
