"""Objects that a pickle repeats a hundred thousand times, each taken in one step.

The interpreter spends a third of a microsecond on an opcode, and an object of a few numbers has thirty. Where the bytes
at an opcode are exactly what a pickler of protocol 4 writes for an object of a known form, one step does what those
opcodes would do: it makes one node, which shows itself as the same Call, and enters in the memo what they would enter.
Where one byte differs, the opcodes run one by one. The class is still only a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from tensormorph.readers._pickle_nodes import Call, Dict, Tuple, Value, is_global

Kind = Literal["size", "int", "text", "size?", "int?", "none"]
"""What a field holds: a torch.Size, a whole number or a text; with a question mark, or None."""

_INT = rb"(?:K.|M..|J....|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}))"
_GET = rb"(?:h.|j....)"
_SIZE = rb"@(\)|\(?(?:" + _INT + rb")+[\x85\x86\x87t]\x94)\x85\x94R\x94"
_FORMS: dict[Kind, bytes] = {
    "size": _SIZE, "int": rb"(" + _INT + rb")", "text": rb"(" + _GET + rb"|\x8c.[^\x94]*\x94)",
    "size?": rb"(?:N|" + _SIZE + rb")", "int?": rb"(N|" + _INT + rb")", "none": rb"(N)",
}  # fmt: skip
_SIZED = frozenset({"size", "size?"})
_A_SIZE, _A_TEXT = 1, 2
_MOST_LEARNED = 64
"""A pickle that names one class's fields in more ways than this is read opcode by opcode."""
_N_OPCODES = 9
"""Opcodes of an object without its fields: class, EMPTY_TUPLE, NEWOBJ, MEMOIZE, EMPTY_DICT, MEMOIZE, MARK, and two."""


class Packed(Call):
    """An object as its values; its state is put together when somebody asks for it.

    Fields
    ------
    values
        One a field: a tuple for a torch.Size, a number, a text, None.
    memo_at
        Memo number of the object itself; those behind it are of what it is made of.
    """

    __slots__ = ("_fresh", "_nodes", "form", "memo_at", "values")

    def __init__(self, form: Form, function: Value, at: int, values: tuple[Any, ...], memo_at: int, fresh: int):
        self.function = function
        self.args = _NOTHING
        self.at = at
        self._more = None
        self.form = form
        self.values = values
        self.memo_at = memo_at
        self._fresh = fresh
        self._nodes: list[Value] | None = None

    @property
    def state(self) -> Value:
        return self.nodes()[1] if self._more is None else self._more.state

    def more(self):  # type: ignore[no-untyped-def]
        """Return the place of state, items, pairs and kwargs, the state filled in."""
        state = self.nodes()[1]
        if self._more is None:
            super().more().state = state
        return super().more()

    def nodes(self) -> list[Value]:
        """Return what the opcodes would have entered in the memo, in order; the object and its state come first."""
        if self._nodes is None:
            state = Dict()
            nodes: list[Value] = [self, state]
            for (name, _), value in zip(self.form.fields, self.values, strict=True):
                shown: Value
                if isinstance(value, tuple):
                    inner = Tuple(value)
                    args = Tuple((inner,))
                    shown = Call(self.form.size_class, args, self.at)
                    nodes += [inner, args, shown] if value else [args, shown]
                else:
                    shown = value
                    if self._fresh >> len(nodes) & 1:
                        nodes.append(shown)
                state.flat += (name, shown)
            self._nodes = nodes
        return self._nodes


_NOTHING = Tuple(())


class Form:
    """The form of the objects of one class in one pickle.

    Parameters
    ----------
    name
        Of the class, in whatever module.
    fields
        Names and kinds, in the order in which they are stored.
    """

    def __init__(self, name: str, fields: Sequence[tuple[str, Kind]]) -> None:
        self.name = name
        self.fields = tuple(fields)
        self.size_class: Value = None
        self._any = re.compile(self._pattern(None), re.DOTALL).match
        self._known = self._any
        self._n_learned = 0
        # What a field without a size says: None, by one opcode that enters nothing.
        self._sizes: dict[bytes | None, tuple[tuple[int, ...] | None, int, int] | None] = dict.fromkeys(
            (None, b"N"), (None, 1, 0)
        )
        self._codes = [_A_SIZE if kind in _SIZED else _A_TEXT if kind == "text" else 0 for _, kind in self.fields]
        self._n_opcodes = _N_OPCODES + len(self.fields) + sum(code != _A_SIZE for code in self._codes)

    def _pattern(self, tokens: Sequence[bytes | None] | None) -> bytes:
        """Return the pattern of an object: with groups for the names that are got from the memo, or with these."""
        left = list(tokens or [])

        def name() -> bytes:
            token = left.pop(0) if tokens is not None else None
            return rb"(" + _GET + rb")" if token is None else re.escape(token)

        pattern = name() + rb"\)\x81\x94\}\x94\("
        for _, kind in self.fields:
            pattern += name()
            if kind in _SIZED and tokens is not None and left[0] is None:
                left.pop(0)
                pattern += rb"(N)"  # none of the size's class was seen: the first one that is will be looked at
            else:
                pattern += _FORMS[kind].replace(b"@", name()) if kind in _SIZED else _FORMS[kind]
        return pattern + rb"ub"

    def take(
        self, data: bytes, at: int, function: Value, memo: list[Value], limit: int
    ) -> tuple[Packed, int, int] | None:
        """Return the object whose class is got at byte `at`, the byte behind it and its opcodes; None for another form.

        Its entries are added to the memo. It is not taken if it goes beyond byte `limit`, the end of a frame.
        """
        found = self._known(data, at)
        if found is None or self._known is self._any:
            found = self._learn(data, at, memo)
            if found is None:
                return None
        if found.end() > limit:
            return None
        values: list[Any] = []
        memo_at = len(memo)
        n_entries, n_opcodes, fresh = 2, self._n_opcodes, 0
        sizes = self._sizes
        texts: list[tuple[int, str]] = []
        for code, raw in zip(self._codes, found.groups(), strict=True):
            if code == _A_SIZE:
                size = sizes[raw] if raw in sizes else self._decode(raw)
                if size is None:
                    return None
                values.append(size[0])
                n_entries += size[2]
                n_opcodes += size[1]
            elif code == _A_TEXT:
                text, new = _text(raw, memo)
                if text is None:
                    return None
                if new:
                    texts.append((memo_at + n_entries, text))
                    fresh |= 1 << n_entries
                    n_entries += 1
                    n_opcodes += 1
                values.append(text)
            else:
                op = raw[0]
                values.append(raw[1] if op == 0x4B else None if op == 0x4E else _int(raw))
        made = Packed(self, function, at, tuple(values), memo_at, fresh)
        memo += [made] * n_entries
        for i, text in texts:
            memo[i] = text
        return made, found.end(), n_opcodes

    def _learn(self, data: bytes, at: int, memo: list[Value]) -> re.Match[bytes] | None:
        """Match an object by what its names stand for, and know the same names from then on by their bytes."""
        found = self._any(data, at)
        if found is None or self._n_learned == _MOST_LEARNED:
            return None
        groups = iter(found.groups())
        tokens: list[bytes | None] = [next(groups)]
        for _, kind in self.fields:
            tokens.append(next(groups))
            if kind in _SIZED:
                tokens.append(next(groups))
            next(groups)
        if not self._is_known(tokens, memo):
            return None
        self._n_learned += 1
        self._known = re.compile(self._pattern(tokens), re.DOTALL).match
        return self._known(data, at)

    def forget(self) -> None:
        """Know no names any more: a memo number was given to another object."""
        self._known = self._any

    def _is_known(self, tokens: Sequence[bytes | None], memo: list[Value]) -> bool:
        """Whether the names that are got from the memo are those of the class, its fields and torch.Size."""
        found = [None if token is None else _got(token, memo) for token in tokens]
        at = 1
        for name, kind in self.fields:
            if type(found[at]) is not str or found[at] != name:
                return False
            at += 1
            if kind in _SIZED:
                if tokens[at] is not None:
                    if not is_global(found[at], "torch", "Size"):
                        return False
                    self.size_class = found[at]
                at += 1
        return True

    def _decode(self, raw: bytes) -> tuple[tuple[int, ...], int, int] | None:
        """Return the numbers of a size, its opcodes and memo entries; None where they and the tuple opcode differ."""
        out: list[int] = []
        at = 1 if raw[:1] == b"(" else 0
        end = len(raw) - 2
        while at < end:
            n = {0x4B: 2, 0x4D: 3, 0x4A: 5}.get(raw[at]) or 2 + raw[at + 1]
            out.append(_int(raw[at : at + n]))
            at += n
        code = raw[-2:-1]
        marked = raw[:1] == b"("
        fits = raw == b")" or (
            code == b"t" if marked else code == (b"", b"\x85", b"\x86", b"\x87", b"")[min(len(out), 4)]
        )
        # Get of the class, the numbers, MARK, tuple and MEMOIZE, TUPLE1 and MEMOIZE, REDUCE and MEMOIZE.
        size = (tuple(out), 5 + (1 if raw == b")" else len(out) + marked + 2), 3 if out else 2) if fits else None
        if len(self._sizes) < 1 << 16:
            self._sizes[raw] = size
        return size


def _got(token: bytes, memo: list[Value]) -> Value:
    i = token[1] if token[0] == 0x68 else int.from_bytes(token[1:5], "little")
    return memo[i] if i < len(memo) else None


def _text(raw: bytes, memo: list[Value]) -> tuple[str | None, int]:
    """Return a text that is got from the memo (and 0) or stands here (and 1); no text where it is another thing."""
    if raw[0] != 0x8C:
        found = _got(raw, memo)
        return (found, 0) if type(found) is str else (None, 0)
    if raw[1] != len(raw) - 3:
        return None, 0
    try:
        return raw[2:-1].decode("utf-8"), 1
    except UnicodeDecodeError:
        return None, 0


def _int(raw: bytes) -> int:
    match raw[0]:
        case 0x4B:
            return raw[1]
        case 0x4D:
            return raw[1] | raw[2] << 8
        case 0x4A:
            return int.from_bytes(raw[1:], "little", signed=True)
        case _:
            return int.from_bytes(raw[2:], "little", signed=True)
