"""What a benchmark gives, and how two things are timed side by side."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Unit = Literal["x", "s", "ms", "MB"]

ROUNDS = 7
"""How often each thing is measured, unless it takes long."""


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table.

    Fields
    ------
    unit
        ``x`` is a ratio of two times of one round.
    bound
        The median must not be above it; None where nothing is demanded.
    note
        What the values stand beside: the time of the thing compared with, bytes read.
    """

    name: str
    values: tuple[float, ...]
    unit: Unit
    bound: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def kept(self) -> bool:
        """Whether the bound is kept, or there is none."""
        return self.bound is None or self.median <= self.bound

    def cells(self) -> tuple[str, ...]:
        """Return the columns of the table."""
        low, high = min(self.values), max(self.values)
        bound = "" if self.bound is None else f"≤ {_number(self.bound)} {self.unit}" + ("" if self.kept else " MISSED")
        spread = f"{_number(low)} to {_number(high)}"
        return (self.name, f"{_number(self.median)} {self.unit}", str(len(self.values)), spread, bound, self.note)


HEADINGS = ("name", "median", "n", "spread", "bound", "beside it")


def table(results: Sequence[Result]) -> str:
    """Return the results as a table in Markdown."""
    rows = [HEADINGS, *(result.cells() for result in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    ruled = [rows[0], tuple("-" * width for width in widths), *rows[1:]]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in ruled
    )


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes, with the garbage collector still."""
    with still():
        began = time.perf_counter()
        result = work()
        took = time.perf_counter() - began
    del result
    return took


@contextmanager
def still() -> Iterator[None]:
    """Keep the garbage collector from running: what it finds belongs to nobody's time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def ratio(
    name: str,
    ours: Callable[[], object],
    other: Callable[[], object],
    beside: str,
    *,
    bound: float | None = None,
    rounds: int = ROUNDS,
) -> Result:
    """Time two things in turn, once each before it counts, and return the ratio of each round."""
    ours(), other()  # both warm
    pairs = [(seconds(ours), seconds(other)) for _ in range(rounds)]
    values = tuple(a / b for a, b in pairs)
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Result(name, values, "x", bound, f"{_time(mine)} to {_time(theirs)} ({beside})")


def _time(value: float) -> str:
    return f"{_number(value)} s" if value >= 1 else f"{_number(1000 * value)} ms"


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with arguments, without a screen, with settings and compiled modules in `folder`."""
    environment = {"QT_QPA_PLATFORM": "offscreen", **os.environ}
    # An installed program has its modules compiled; some environments forbid a checkout to keep them.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    environment["TENSORMORPH_CONFIG_DIR"] = str(folder / "config")
    environment["PYTHONFAULTHANDLER"] = "1"
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"python {' '.join(arguments)} ended with status {done.returncode}:\n{done.stderr}")
    return done
