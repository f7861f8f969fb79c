"""The words that narrow a list of tensors: one grammar for the Outliner and for ``ls --filter``.

All words of a query must hold (AND). A plain word is looked for in the name and its aliases, whatever the case; a word
between double quotes may hold blanks. Four prefixes ask for something else:

==============  ======================================================================================
``dtype:bf16``  element types whose name begins so; ``bf16``, ``fp8``, ``i32``, ``u8``, ``c64`` are short forms
``shape:*,64``  extents: a number, ``>n``, ``<n``, ``*`` (any one axis) or ``...`` (any axes); ``scalar`` is 0-d;
                a single extent as in ``shape:64`` is looked for on every axis, ``shape:64,`` is 1-d of 64
``file:00002``  stored in a file whose name holds this
``problem:gap`` with a problem of this severity or whose code begins so; ``problem:`` alone is any problem
==============  ======================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.columns import TensorTable
from tensormorph.errors import Problem, UsageError
from tensormorph.fragments import Ints
from tensormorph.model import Checkpoint, UnreadableTensor

Mask = NDArray[np.bool_]

_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_PREFIXES = ("dtype", "shape", "file", "problem")
_SHORT_DTYPES = (
    ("bf", "bfloat"), ("fp", "float"), ("f", "float"), ("i", "int"), ("u", "uint"), ("c", "complex"),
)  # fmt: skip
_ANY_AXES = "..."


def _one_line(text: str) -> str:
    """A line break stands between two names, so in a name it becomes a blank."""
    return text.replace("\n", " ")


class NameIndex:
    """The names and aliases of a checkpoint, made ready for looking up words: build it once for many queries."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        table = checkpoint.table
        row_of = {name: row for row, name in enumerate(table.names)} if checkpoint.aliases else {}
        others = [(alias, row_of[target]) for alias, target in checkpoint.aliases.items() if target in row_of]
        lines = [_one_line(name.lower()) for name in (*table.names, *(alias for alias, _ in others))]
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        self._text = "\n".join(lines)
        self._starts = np.cumsum(lengths + 1) - lengths - 1
        self._row_of_line = np.concatenate([np.arange(len(table)), np.array([row for _, row in others], np.int64)])
        self._n_rows = len(table)

    def with_all(self, words: Iterable[str]) -> Mask:
        """Return one flag a row of the table: whether its name, or one of its aliases, holds every word."""
        lines = np.ones(len(self._starts), np.bool_)
        for word in words:
            # One hit a line is enough: each match runs to the end of its line.
            hits = [match.start() for match in re.finditer(f"{re.escape(_one_line(word))}[^\n]*", self._text)]
            found = np.zeros(len(self._starts), np.bool_)
            found[np.searchsorted(self._starts, np.array(hits, np.int64), "right") - 1] = True
            lines &= found
        rows = np.zeros(self._n_rows, np.bool_)
        rows[self._row_of_line[lines]] = True
        return rows


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: `names` to be found in the name, and the words of each prefix, lower case throughout."""

    names: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    shapes: tuple[tuple[str, ...], ...] = ()
    files: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def rows(self, checkpoint: Checkpoint, index: NameIndex | None = None) -> Ints:
        """Return the rows of the checkpoint's table that the query selects, rising.

        `index` is one that was built for this checkpoint before; it makes a query of words some ten times as fast.
        """
        table = checkpoint.table
        keep = np.ones(len(table), np.bool_)
        for dtype in self.dtypes:
            known = np.array([e.name.startswith(dtype) for e in table.encodings] or [False])
            keep &= known[table.encoding]
        for shape in self.shapes:
            keep &= _of_shape(table, shape)
        for file in self.files:
            keep &= _in_file(table, file)
        if self.problems:
            found = _names_by_problem(checkpoint.problems)
            for problem in self.problems:
                named = set().union(*(names for kind, names in found.items() if _is_kind(kind, problem)))
                with_problem = np.fromiter((name in named for name in table.names), np.bool_, len(table))
                keep &= (with_problem | ~table.complete) if problem in ("", "error") else with_problem
        if self.names:
            keep &= (index or NameIndex(checkpoint)).with_all(self.names)
        return np.flatnonzero(keep)

    def unreadable(self, checkpoint: Checkpoint) -> list[UnreadableTensor]:
        """Return the tensors without usable shape or file that the query selects, in the checkpoint's order."""
        others = _aliases_by_target(checkpoint.aliases) if self.names else {}
        return [t for t in checkpoint.unreadable.values() if self._selects(t, others.get(t.name, ()))]

    def _selects(self, tensor: UnreadableTensor, aliases: Iterable[str]) -> bool:
        return (
            self._named(tensor.name, aliases)
            and all(tensor.dtype is not None and tensor.dtype.startswith(dtype) for dtype in self.dtypes)
            and all(tensor.shape is not None and _fits(tensor.shape, shape) for shape in self.shapes)
            and all(tensor.file is not None and file in tensor.file.lower() for file in self.files)
            and all(
                problem in ("", "error") or any(_is_kind((p.severity, p.code), problem) for p in tensor.problems)
                for problem in self.problems
            )
        )

    def _named(self, name: str, aliases: Iterable[str]) -> bool:
        low = name.lower()
        if all(word in low for word in self.names):
            return True
        return any(all(word in alias.lower() for word in self.names) for alias in aliases)


def parse(text: str) -> Query:
    """Return the query that a person writes; the empty text selects everything.

    Raises
    ------
    UsageError
        If an extent of ``shape:`` is no number, ``>n``, ``<n``, ``*`` or ``...``.

    Examples
    --------
    >>> parse('attn dtype:bf16 shape:*,64').dtypes
    ('bfloat16',)
    """
    found: dict[str, list[str]] = {prefix: [] for prefix in ("", *_PREFIXES)}
    for match in _WORD.finditer(text):
        word = match[0].lower()
        prefix, colon, rest = word.partition(":")
        kind = prefix if colon and prefix in _PREFIXES else ""
        value = (rest if kind else word).replace('"', "")
        if value or kind == "problem":
            found[kind].append(value)
    return Query(
        tuple(found[""]),
        tuple(_long_dtype(word) for word in found["dtype"]),
        tuple(_extents(word) for word in found["shape"]),
        tuple(found["file"]),
        tuple(found["problem"]),
    )


def _long_dtype(word: str) -> str:
    for short, long in _SHORT_DTYPES:
        if word.startswith(short) and (word[len(short) :] or "x")[0].isdigit():
            return long + word[len(short) :]
    return word


def _extents(word: str) -> tuple[str, ...]:
    if word == "scalar":
        return ()
    parts = re.split(r"[,x×]", word.strip("[]()"))
    extents = tuple(part for part in parts if part)
    if extents.count(_ANY_AXES) > 1 or not all(re.fullmatch(r"\*|\.\.\.|[<>]?\d{1,18}", part) for part in extents):
        raise UsageError(f"A shape is asked for as 'shape:128,64', 'shape:*,64' or 'shape:>1000', not as {word!r}")
    return (_ANY_AXES, *extents, _ANY_AXES) if len(parts) == 1 else extents


def _axes_of(pattern: tuple[str, ...], ndim: int) -> tuple[str, ...] | None:
    """Return one extent an axis for tensors of `ndim` axes, or None if the pattern has another number."""
    if _ANY_AXES not in pattern:
        return pattern if len(pattern) == ndim else None
    at = pattern.index(_ANY_AXES)
    free = ndim - (len(pattern) - 1)
    return None if free < 0 else (*pattern[:at], *("*" * free), *pattern[at + 1 :])


def _extent_fits(found: Any, asked: str) -> Any:
    """Compare one extent, or an array of them, with what is asked for."""
    if asked[0] == ">":
        return found > int(asked[1:])
    if asked[0] == "<":
        return found < int(asked[1:])
    return found == int(asked)


def _on_any_axis(pattern: tuple[str, ...]) -> str | None:
    """Return the extent that may stand on whatever axis, if the pattern asks for that."""
    return pattern[1] if len(pattern) == 3 and pattern[0] == pattern[2] == _ANY_AXES else None


def _fits(shape: tuple[int, ...], pattern: tuple[str, ...]) -> bool:
    single = _on_any_axis(pattern)
    if single is not None:
        return any(single == "*" or bool(_extent_fits(found, single)) for found in shape)
    axes = _axes_of(pattern, len(shape))
    return axes is not None and all(
        asked == "*" or bool(_extent_fits(found, asked)) for found, asked in zip(shape, axes, strict=True)
    )


def _of_shape(table: TensorTable, pattern: tuple[str, ...]) -> Mask:
    keep = np.zeros(len(table), np.bool_)
    single = _on_any_axis(pattern)
    if single is not None:
        hits = np.flatnonzero(_extent_fits(table.dims, single)) if single != "*" else np.arange(len(table.dims))
        keep[np.searchsorted(table.first_dim, hits, "right") - 1] = True
        return keep
    n_axes = np.diff(table.first_dim)
    for ndim in np.unique(n_axes).tolist():
        axes = _axes_of(pattern, ndim)
        if axes is None:
            continue
        rows = np.flatnonzero(n_axes == ndim)
        good = np.ones(len(rows), np.bool_)
        for axis, asked in enumerate(axes):
            if asked != "*":
                good &= _extent_fits(table.dims[table.first_dim[rows] + axis], asked)
        keep[rows[good]] = True
    return keep


def _in_file(table: TensorTable, word: str) -> Mask:
    wanted = np.array([word in name.lower() for name in table.files] or [False])
    keep = np.zeros(len(table), np.bool_)
    hits = np.flatnonzero(wanted[table.file]) if len(table.file) else np.empty(0, np.int64)
    keep[np.searchsorted(table.first_fragment, hits, "right") - 1] = True
    return keep


def _names_by_problem(problems: Iterable[Problem]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for problem in problems:
        if problem.tensor is not None:
            found.setdefault((problem.severity, problem.code), set()).add(problem.tensor)
    return found


def _is_kind(kind: tuple[str, str], word: str) -> bool:
    severity, code = kind
    return not word or severity == word or code.startswith(word)


def _aliases_by_target(aliases: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for alias, target in aliases.items():
        found.setdefault(target, []).append(alias)
    return found
