"""The window: how soon it shows, and how long its thread is away while a large set opens."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import ROUNDS, Result, python
from benchmarks.sets import terabyte


def _child(folder: Path, *arguments: str) -> dict[str, Any]:
    done = python(folder, "-m", "benchmarks.window_child", *arguments)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def first_paint(folder: Path) -> Iterator[Result]:
    """From the start of the process to the first complete paint, against an empty window with a tree."""
    pairs = [(_until_painted(folder, "first-paint"), _until_painted(folder, "empty")) for _ in range(ROUNDS + 1)][1:]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    note = f"{1000 * ours:.0f} ms to {1000 * bare:.0f} ms (empty QMainWindow with a QTreeView)"
    yield Result("window: process start to first paint", tuple(a / b for a, b in pairs), "x", 3, note)


def _until_painted(folder: Path, what: str) -> float:
    began = time.monotonic_ns()
    return float((_child(folder, what)["painted_ns"] - began) / 1e9)


def stall(folder: Path) -> Iterator[Result]:
    """The longest time for which a timer of 5 ms did not come, from the opening to a second after it."""
    path = folder / "terabyte"
    terabyte(path)
    told = [_child(folder, "stall", str(path)) for _ in range(ROUNDS + 1)][1:]
    opened, at, idle = (statistics.median(t[key] for t in told) for key in ("opened_ms", "at_ms", "idle_ms"))
    note = f"shown {opened:.0f} ms after the wish, the stall at {at:.0f} ms; {idle:.1f} ms in an idle second before"
    yield Result("window: longest stall while 30,000 tensors open", tuple(t["stall_ms"] for t in told), "ms", 50, note)
