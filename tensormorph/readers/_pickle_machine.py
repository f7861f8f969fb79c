"""The state of a pickle machine, what its opcodes have in common, and each opcode that is rare in a checkpoint.

The frequent ones stand in `_pickle`, in one loop. Opcodes, arguments and effects follow CPython 3.11: the list in
Lib/pickletools.py, the effects in Lib/pickle.py and Modules/_pickle.c.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

from tensormorph.errors import LimitError, Problem, Severity, TensormorphError, restore
from tensormorph.readers._pickle_nodes import (
    UNHASHABLE,
    Call,
    Dict,
    Global,
    List,
    Loose,
    Value,
    canonical,
    describe,
)  # fmt: skip
from tensormorph.readers._pickle_packed import Form, Packed
from tensormorph.readers._process import Report
from tensormorph.text import count, plural

U8, U16, U32, U64, I32, F64 = map(Struct, ("<B", "<H", "<I", "<Q", "<i", ">d"))

_FIELDS = 16
"""A dict of so many texts at most as keys may be the state of an object, of which there are many alike."""
_ONLY_TEXT = {str}
KEPT_OF_A_KIND = 20
"""From so many problems of one code on, they are only counted."""
REPORT_BYTES = 1 << 16
"""Between two reports lie at most so many bytes of small opcodes, hence at most as many opcodes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one pickle may hold. A real optimizer of 100,000 tensors has 3 million opcodes in 9 MB.

    Fields
    ------
    opcodes
        Setting pickle_opcodes.
    nodes
        Setting pickle_nodes: everything but None, bools, numbers, text and bytes.
    n_bytes
        Setting pickle_bytes.
    """

    opcodes: int = 50_000_000
    nodes: int = 50_000_000
    n_bytes: int = 1 << 30


class Damage(Exception):  # noqa: N818  # it never leaves the interpreter
    """The pickle cannot go on; `truncated` if that is because the data end."""

    def __init__(self, what: str, truncated: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.truncated = truncated


class SparseMemo(dict[str, Value]):
    """A memo whose ids are not 0, 1, 2, ...: by their text, for a file can choose integers that collide."""

    def __getitem__(self, i: Any) -> Value:
        return super().__getitem__(str(i))

    def __setitem__(self, i: Any, value: Value) -> None:
        super().__setitem__(str(i), value)

    def append(self, value: Value) -> None:
        """Set the id that is the number of entries, which is what MEMOIZE does, even where that id is taken."""
        self[len(self)] = value


Memo = list[Value] | SparseMemo


class Machine:
    """The state between two opcodes.

    Fields
    ------
    at, pos
        Byte of the opcode at work, and the byte behind what was read.
    stack, below
        Values since the last MARK, and the stacks that wait below it, as in Lib/pickle.py.
    memo
        A list as long as the ids are 0, 1, 2, ..., as every pickler of CPython 3 writes them.
    check_at
        Byte from which on `check` wants to be called.
    forms
        Name of a class -> the form of its objects, where they are taken in one step.
    n_packed
        Opcodes that were taken so, beyond the first of each object.
    dicts
        Those that got items: their keys are looked at when they are complete.
    """

    __slots__ = ("at", "below", "check_at", "data", "dicts", "forms", "frame_end", "globals", "limits", "memo",
                 "n_buffers", "n_nodes", "n_opcodes", "n_packed", "name", "pos", "problems", "report", "stack", "start",
                 "told")  # fmt: skip

    def __init__(
        self, data: bytes, start: int, limits: Limits, report: Report, name: str, forms: Sequence[Form] = ()
    ) -> None:
        self.forms = {form.name: form for form in forms}
        self.data = data
        self.start = self.pos = self.at = self.check_at = start
        self.limits = limits
        self.report = report
        self.name = name
        self.stack: list[Value] = []
        self.below: list[list[Value]] = []
        self.memo: Memo = []
        self.globals: dict[tuple[str, str], Global] = {}
        self.dicts: list[Dict] = []
        self.n_opcodes = self.n_packed = self.n_nodes = self.n_buffers = self.frame_end = 0
        self.problems: list[Problem] = []
        self.told: dict[str, int] = {}

    @property
    def opcode(self) -> str:
        """Name of the opcode at work."""
        return _NAMES[self.data[self.at]]

    # ---------------------------------------------------------------- around the opcodes

    def check(self) -> None:
        """Test the limits and the frame, report, and say in `check_at` when to be called again."""
        limits, pos = self.limits, self.pos
        n_bytes = pos - self.start
        for what, found, limit in (
            ("opcodes", self.n_opcodes, limits.opcodes),
            ("nodes", self.n_nodes, limits.nodes),
            ("bytes", n_bytes, limits.n_bytes),
        ):
            if found > limit:
                raise _over(self.name, what, found, limit)
        if self.frame_end and pos >= self.frame_end:
            if pos > self.frame_end:
                self.note("pickle-odd-frame", "warning", f"{self.opcode} goes beyond the end of its "
                    f"frame, byte {count(self.frame_end)}: readers differ in what they make of that")  # fmt: skip
            self.frame_end = 0
        self.report("Reading pickle", n_bytes, len(self.data) - self.start)
        # An opcode takes a byte at least, and a byte makes hardly more than a node: before so many no limit is passed.
        left = (limits.opcodes - self.n_opcodes, limits.nodes - self.n_nodes, limits.n_bytes - n_bytes)
        ahead = min(REPORT_BYTES, *(n + 1 for n in left))
        self.check_at = min(pos + ahead, self.frame_end) if self.frame_end else pos + ahead

    def note(self, code: str, severity: Severity, sentence: str) -> None:
        """Add a problem of the opcode at work, unless there are plenty of its code."""
        told = self.told.get(code, 0)
        self.told[code] = told + 1
        if told < KEPT_OF_A_KIND:
            self.problems.append(Problem(code, severity, f"{sentence} (byte {count(self.at)})", file=self.name,
                                         byte_range=(self.at, max(self.pos, self.at + 1))))  # fmt: skip

    def finish(self, broken: Damage | None) -> Value:
        """Return the object, or what there is of it, after saying what only the whole shows."""
        if broken is None:
            value = self.stack.pop()
            left = len(self.stack) + sum(map(len, self.below))
            if left or self.below:
                marks = plural(len(self.below), "MARK")
                self.note("pickle-left-over", "info",
                    f"{plural(left, 'value')} and {marks} are left at STOP: no part of the object")  # fmt: skip
            if self.frame_end > self.pos:
                self.note("pickle-odd-frame", "warning", f"STOP stands before the end of its frame, byte "
                    f"{count(self.frame_end)}")  # fmt: skip
        else:
            value = Loose(self.stack)
            for stack in reversed(self.below):
                value = Loose([*stack, value])
        self._look_at_all_keys()
        for code, told in self.told.items():
            if told > KEPT_OF_A_KIND:
                rest = plural(told - KEPT_OF_A_KIND, "more problem")
                self.problems.append(Problem(code, "info", f"{rest} of this kind ({code})", file=self.name))
        if broken is not None:
            code = "pickle-truncated" if broken.truncated else "pickle-damaged"
            sentence = f"The pickle breaks off at byte {count(self.at)}: {broken.what}"
            self.problems.append(Problem(code, "error", sentence, file=self.name, byte_range=(self.at, self.at + 1)))
        return value

    def look_at_items(self, items: list[Value]) -> None:
        """Report items of a set that Python would refuse."""
        for item in items:
            if type(item) in UNHASHABLE:
                self.note("pickle-unhashable", "warning", f"A set holds {describe(item)}, which Python refuses")

    def _look_at_all_keys(self) -> None:
        """Look at the keys of each dict; most have the few names of a class's fields, which are looked at once."""
        fine: set[tuple[Value, ...]] = set()
        for held in self.dicts:
            keys = tuple(held.flat[::2])
            # Only texts are hashed here: a file can name one number of a megabyte a million times.
            texts = set(map(type, keys)) == _ONLY_TEXT
            if texts and keys in fine:
                continue
            if texts and len(set(keys)) == len(keys):
                if len(keys) <= _FIELDS:
                    fine.add(keys)
                continue
            self._look_at_keys(held, keys)

    def _look_at_keys(self, held: Dict, keys: tuple[Value, ...]) -> None:
        """Report keys that Python would refuse, and keys that hide an earlier pair."""
        if not all(type(key) is str for key in keys):
            for key in keys:
                if type(key) in UNHASHABLE:
                    self.note("pickle-unhashable", "warning",
                              f"{describe(held)} has {describe(key)} as a key, which Python refuses")  # fmt: skip
        seen: set[object] = set()
        for key in keys:
            if type(key) is Packed:
                continue  # equal to itself alone; whether two are about one thing, their reader looks at
            plain = canonical(key)
            if plain in seen:
                self.note("pickle-duplicate-key", "warning", f"{describe(held)} has the key {describe(key)} more than "
                    "once: Python keeps the last, here all are kept")  # fmt: skip
            seen.add(plain)

    def explain(self) -> Damage:
        """Return why the opcode at work found nothing: the data, the memo, the marks or the stack were at their end."""
        if self.at >= len(self.data):
            return Damage("the data end without STOP", truncated=True)
        op = self.opcode
        if self.at + 1 + _FIXED.get(op, 0) > len(self.data):
            return Damage(f"the data end inside {op}", truncated=True)
        if op in _GETS:
            return Damage(f"{op} asks for a memo that was never set")
        if op in _MARKED and not self.below:
            return Damage(f"{op} needs a MARK, and there is none")
        return Damage(f"{op} finds the stack empty")

    # ---------------------------------------------------------------- arguments

    def take(self, n_bytes: int) -> bytes:
        """Return the next bytes, if there are as many: that is asked before anything is made of them."""
        left = len(self.data) - self.pos
        if n_bytes > left:
            raise Damage(f"{self.opcode} announces {plural(n_bytes, 'byte')}, {count(left)} are left",
                         truncated=True)  # fmt: skip
        self.pos += n_bytes
        return self.data[self.pos - n_bytes : self.pos]

    def number(self, form: Struct) -> Any:
        """Return a number of fixed size."""
        (value,) = form.unpack_from(self.data, self.pos)
        self.pos += form.size
        return value

    def counted(self, form: Struct) -> bytes:
        """Return the argument that begins with its own length."""
        n_bytes = self.number(form)
        if n_bytes < 0:
            raise Damage(f"{self.opcode} has a negative length, {n_bytes}")
        return self.take(n_bytes)

    def line(self) -> bytes:
        """Return the argument that ends with its line."""
        end = self.data.find(b"\n", self.pos)
        if end < 0:
            raise Damage(f"the line of {self.opcode} has no end", truncated=True)
        line = self.data[self.pos : end]
        self.pos = end + 1
        return line

    def text(self, raw: bytes) -> str | bytes:
        """Return UTF-8 as text; what is none stays bytes, so that only its owner is lost."""
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            self.note("pickle-odd-text", "error", f"A text of {plural(len(raw), 'byte')} is not UTF-8 at its byte "
                f"{count(error.start)} (0x{raw[error.start]:02x}): it is kept as bytes")  # fmt: skip
            return raw

    def marked(self) -> list[Value]:
        """Return the values since the last MARK, and go back to the stack below it."""
        below = self.below.pop()
        items, self.stack = self.stack, below
        return items

    # ---------------------------------------------------------------- effects

    def named(self, module: str, name: str) -> Global:
        """Return the one node of a name."""
        found = self.globals.get((module, name))
        if found is None:
            self.n_nodes += 1
            found = self.globals[module, name] = Global(module, name, self.at)
        found.count += 1
        return found

    def got(self, value: Value, i: int, at: int, behind: int) -> int:
        """Push what a get of memo number `i` at byte `at` gives, and return the byte behind what was taken.

        A class whose form is known gives its whole object where the bytes are of that form, and so do the objects that
        follow it.
        """
        if type(value) is Packed:
            self.stack.append(value if i == value.memo_at else value.nodes()[i - value.memo_at])
            return behind
        data, memo, stack, forms = self.data, self.memo, self.stack, self.forms
        begin = at
        while type(value) is Global and value.name in forms and type(memo) is list:
            made = forms[value.name].take(data, at, value, memo, self.frame_end or len(data))
            if made is None:
                break
            stack.append(made[0])
            self.n_nodes += 2
            self.n_packed += made[2]
            at = made[1]
            if at >= self.check_at:
                break
            code = data[at] if at < len(data) - 5 else 0
            i = data[at + 1] if code == 0x68 else U32.unpack_from(data, at + 1)[0] if code == 0x6A else len(memo)
            value = memo[i] if i < len(memo) else None
        if at > begin:
            self.n_packed -= 1  # the loop counts one itself
            return at
        stack.append(value)
        return behind

    def put(self, i: int) -> None:
        """Keep the top of the stack under an id."""
        value = self.stack[-1]
        memo = self.memo
        if i == len(memo):
            memo.append(value)
            return
        if isinstance(memo, list) and i > len(memo):
            self.memo = memo = SparseMemo((str(j), held) for j, held in enumerate(memo))
        if (memo[i] if isinstance(memo, list) else memo.get(str(i), value)) is not value:
            for form in self.forms.values():
                form.forget()
            self.note("pickle-memo", "warning", f"Memo {count(i)} is set a second time, to another object")
        memo[i] = value

    def add(self, items: list[Value]) -> None:
        """Append to, or add to, what is neither a list nor a set."""
        more = self._call_on_top("adds items to").more()
        if more.items is None:
            self.n_nodes += 1
            more.items = List()
        more.items += items

    def set_items(self, flat: list[Value]) -> None:
        """Set items of what is no dict."""
        more = self._call_on_top("sets items of").more()
        if more.pairs is None:
            self.n_nodes += 1
            more.pairs = Dict()
            self.dicts.append(more.pairs)
        more.pairs.flat += flat

    def build(self) -> None:
        """BUILD: give a state to what is below it."""
        state = self.stack[-1]
        if len(self.stack) < 2:
            raise self.explain()
        self.stack.pop()
        more = self._call_on_top("gives a state to").more()
        if more.state is None:
            more.state = state
        else:
            self.note("pickle-built-twice", "warning", "An object is given a state once more: all are shown")
            if not isinstance(more.state, Loose):
                self.n_nodes += 1
                more.state = Loose([more.state])
            more.state.append(state)

    def _call_on_top(self, does: str) -> Call:
        """Return the Call on the stack; anything else, which cannot take the change, is put into one first."""
        target = self.stack[-1]
        if not isinstance(target, Call):
            self.note("pickle-wrong-target", "error", f"{self.opcode} {does} {describe(target)}: "
                "both are shown, nothing is changed")  # fmt: skip
            self.n_nodes += 1
            target = self.stack[-1] = Call(target, None, self.at)
        return target


Act = Callable[[Machine], None]
"""What an opcode does; the machine stands behind its byte."""


def _over(name: str, what: str, found: int, limit: int) -> TensormorphError:
    """Return the error of a limit that counts no bytes, whose sentence LimitError itself would give in megabytes."""
    setting = f"pickle_{what}"
    if what == "bytes":
        return LimitError(name, "The pickle", found, limit, setting)
    sentence = f"The pickle has more than {count(limit)} {what}, which is the limit (setting {setting})"
    fields = {"sentence": sentence, "path": name, "problems": (), "found": found, "limit": limit, "name": setting}
    return restore(LimitError, sentence, fields)


# ---------------------------------------------------------------- opcodes


_NAMES = {
    0x28: "MARK", 0x29: "EMPTY_TUPLE", 0x2E: "STOP", 0x30: "POP", 0x31: "POP_MARK", 0x32: "DUP", 0x42: "BINBYTES",
    0x43: "SHORT_BINBYTES", 0x46: "FLOAT", 0x47: "BINFLOAT", 0x49: "INT", 0x4A: "BININT", 0x4B: "BININT1", 0x4C: "LONG",
    0x4D: "BININT2", 0x4E: "NONE", 0x50: "PERSID", 0x51: "BINPERSID", 0x52: "REDUCE", 0x53: "STRING", 0x54: "BINSTRING",
    0x55: "SHORT_BINSTRING", 0x56: "UNICODE", 0x58: "BINUNICODE", 0x5D: "EMPTY_LIST", 0x61: "APPEND", 0x62: "BUILD",
    0x63: "GLOBAL", 0x64: "DICT", 0x65: "APPENDS", 0x67: "GET", 0x68: "BINGET", 0x69: "INST", 0x6A: "LONG_BINGET",
    0x6C: "LIST", 0x6F: "OBJ", 0x70: "PUT", 0x71: "BINPUT", 0x72: "LONG_BINPUT", 0x73: "SETITEM", 0x74: "TUPLE",
    0x75: "SETITEMS", 0x7D: "EMPTY_DICT", 0x80: "PROTO", 0x81: "NEWOBJ", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
    0x85: "TUPLE1", 0x86: "TUPLE2", 0x87: "TUPLE3", 0x88: "NEWTRUE", 0x89: "NEWFALSE", 0x8A: "LONG1", 0x8B: "LONG4",
    0x8C: "SHORT_BINUNICODE", 0x8D: "BINUNICODE8", 0x8E: "BINBYTES8", 0x8F: "EMPTY_SET", 0x90: "ADDITEMS",
    0x91: "FROZENSET", 0x92: "NEWOBJ_EX", 0x93: "STACK_GLOBAL", 0x94: "MEMOIZE", 0x95: "FRAME", 0x96: "BYTEARRAY8",
    0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}  # fmt: skip
_MARKED = frozenset(
    {"POP_MARK", "TUPLE", "LIST", "DICT", "APPENDS", "SETITEMS", "ADDITEMS", "FROZENSET", "OBJ", "INST"}
)
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_FIXED = {
    "BINBYTES": 4, "SHORT_BINBYTES": 1, "BINFLOAT": 8, "BININT": 4, "BININT1": 1, "BININT2": 2, "BINSTRING": 4,
    "SHORT_BINSTRING": 1, "BINUNICODE": 4, "BINGET": 1, "LONG_BINGET": 4, "BINPUT": 1, "LONG_BINPUT": 4, "PROTO": 1,
    "EXT1": 1, "EXT2": 2, "EXT4": 4, "LONG1": 1, "LONG4": 4, "SHORT_BINUNICODE": 1, "BINUNICODE8": 8, "BINBYTES8": 8,
    "FRAME": 8, "BYTEARRAY8": 8,
}  # fmt: skip
"""Bytes of the argument, or of its length, where that is fixed."""
