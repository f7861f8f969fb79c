"""What a pickle holds, as inert nodes: data that names things and can do nothing with the names.

Primitives stay Python's own (None, bool, int, float, str, bytes). Everything else is one of the classes below, and
each of them is compared and hashed by identity and shown on one bounded line: a file may nest 200,000 deep, hold
itself, or share so much that its leaves number 2^63, so nothing here may follow a node into what it holds.

Names are kept as the file has them; `Global.known_as` has today's, for matching.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias, TypeGuard, cast

from tensormorph.readers._pickle_names import known_as
from tensormorph.text import count, plural, printable

KEY_PARTS = 64
"""A tuple of more parts than this can be seen as a key, but not be looked up."""
SHOWN_BITS = 1024
"""Integers of more bits than this are shown by their size: their digits take quadratic time, then a ValueError."""


class _Inert:
    """Identity instead of equality, one bounded line instead of a representation: neither may go into the depth."""

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def _unordered(self, other: object) -> Any:
        return NotImplemented

    __lt__ = __le__ = __gt__ = __ge__ = _unordered

    def __repr__(self) -> str:
        return f"<{describe(cast('Node', self))}>"


class Tuple(_Inert, tuple["Value", ...]):
    """A tuple; its items by index, length and iteration as ever."""

    __slots__ = ()


class FrozenSet(_Inert, tuple["Value", ...]):
    """A frozenset: its items in the order stored, also equal and unhashable ones."""

    __slots__ = ()


class Loose(_Inert, list["Value"]):  # type: ignore[misc]
    """Values that belong together without a container of the file's own.

    What lay on the stack where a pickle broke off (an inner one for each MARK), or the states of an object that was
    built more than once.
    """

    __slots__ = ()


class List(_Inert, list["Value"]):  # type: ignore[misc]  # a list has no hash; this one has its identity's
    """A list; filled while the pickle is interpreted, never after."""

    __slots__ = ()


class Set(_Inert, list["Value"]):  # type: ignore[misc]
    """A set of protocol 4: its items in the order stored, also equal and unhashable ones."""

    __slots__ = ()


class ByteArray(bytes):
    """A bytearray of protocol 5: bytes with a mark."""

    __slots__ = ()


class Dict(_Inert):
    """A dict: every pair in the order stored, also those under equal, unhashable and NaN keys.

    Fields
    ------
    flat
        key, value, key, value, ...
    """

    __slots__ = ("_last", "flat")

    def __init__(self, flat: list[Value] | None = None) -> None:
        self.flat: list[Value] = [] if flat is None else flat
        self._last: dict[object, int] | None = None

    def __len__(self) -> int:
        return len(self.flat) // 2

    def keys(self) -> list[Value]:
        """Return the keys in order."""
        return self.flat[::2]

    def values(self) -> list[Value]:
        """Return the values in order."""
        return self.flat[1::2]

    def pairs(self) -> Iterator[tuple[Value, Value]]:
        """Yield the pairs in order."""
        flat = iter(self.flat)
        return zip(flat, flat, strict=True)

    def get(self, key: object, default: Any = None) -> Any:
        """Return the value that Python's dict would give: of equal keys the last one's."""
        if self._last is None:
            self._last = {canonical(key): i for i, key in enumerate(self.keys())}
        i = self._last.get(canonical(key))
        return default if i is None else self.flat[2 * i + 1]

    def __contains__(self, key: object) -> bool:
        return self.get(key, self) is not self


class Global(_Inert):
    """A name that Python would import; here it is a name. One node stands for all uses in a pickle.

    Fields
    ------
    module, name
        As stored; a dotted name is never walked.
    at
        Byte of its first use.
    count
        Number of opcodes that name it.
    known_as
        (module, name) as they are called today.
    """

    __slots__ = ("at", "count", "known_as", "module", "name")

    def __init__(self, module: str, name: str, at: int) -> None:
        self.module = module
        self.name = name
        self.at = at
        self.count = 0
        self.known_as = known_as(module, name)


class _More:
    """What most Calls lack, apart, so that the 200,000 of an optimizer stay small."""

    __slots__ = ("items", "kwargs", "pairs", "state")

    def __init__(self) -> None:
        self.state: Value = None
        self.items: List | None = None
        self.pairs: Dict | None = None
        self.kwargs: Value = None


class Call(_Inert):
    """What Python would make by a call (REDUCE, NEWOBJ, NEWOBJ_EX, OBJ, INST), and what it would then do to it.

    Fields
    ------
    function
        What would be called: mostly a Global.
    args
        Its arguments, a Tuple unless the file is odd; None where nothing is called and the file only sets the state
        or items of `function` itself.
    at
        Byte of the opcode.
    state
        Argument of BUILD, None if there is none; a Loose of all if there are several.
    items, pairs
        What APPEND(S) or ADDITEMS, and SETITEM(S), would add.
    kwargs
        Keyword arguments of NEWOBJ_EX.
    """

    __slots__ = ("_more", "args", "at", "function")

    def __init__(self, function: Value, args: Value, at: int) -> None:
        self.function = function
        self.args = args
        self.at = at
        self._more: _More | None = None

    @property
    def state(self) -> Value:
        return None if self._more is None else self._more.state

    @property
    def items(self) -> List | None:
        return None if self._more is None else self._more.items

    @property
    def pairs(self) -> Dict | None:
        return None if self._more is None else self._more.pairs

    @property
    def kwargs(self) -> Value:
        return None if self._more is None else self._more.kwargs

    def more(self) -> _More:
        """Return the place of state, items, pairs and kwargs, for the interpreter to fill."""
        if self._more is None:
            self._more = _More()
        return self._more


class Persistent(_Inert):
    """An object that is stored outside the pickle, by what the pickle calls it: in torch's files a storage."""

    __slots__ = ("at", "value")

    def __init__(self, value: Value, at: int) -> None:
        self.value = value
        self.at = at


class Extension(_Inert):
    """A code of Python's extension registry, which no file defines."""

    __slots__ = ("at", "code")

    def __init__(self, code: int, at: int) -> None:
        self.code = code
        self.at = at


class OutOfBand(_Inert):
    """A buffer of protocol 5 that the writer handed over apart from the pickle; `index` counts them."""

    __slots__ = ("at", "index", "readonly")

    def __init__(self, index: int, at: int) -> None:
        self.index = index
        self.at = at
        self.readonly = False


Primitive: TypeAlias = bool | int | float | str | bytes | None
Node: TypeAlias = Tuple | List | Dict | Set | FrozenSet | Global | Call | Persistent | Extension | OutOfBand | Loose
Value: TypeAlias = Primitive | Node


def is_node(value: Value) -> TypeGuard[Node]:
    """Whether a value is no primitive."""
    return isinstance(value, _Inert)


PRIMITIVES: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes, ByteArray})
UNHASHABLE: frozenset[type] = frozenset({List, Dict, Set, ByteArray})
_LEAVES = PRIMITIVES | {Global}


def canonical(key: object) -> object:
    """Return a hashable that is equal for two keys if, and only if, Python's dict takes them for one.

    Numbers go in as text, for a file can choose numbers so that a dict of them takes quadratic time (integers hash to
    themselves modulo 2^61-1). Nodes other than tuples count by identity, as does NaN in Python; so do integers of more
    than SHOWN_BITS, for a file can name one of a megabyte a million times.
    """
    if type(key) is str:
        return key
    parts: list[object] = []
    stack = [key]
    while stack:
        part = stack.pop()
        if isinstance(part, tuple) and type(part) is not FrozenSet:
            if len(parts) + len(stack) + len(part) > KEY_PARTS:
                return (id(key),)
            parts.append(len(part))  # how many of what follows belong to it
            stack.extend(reversed(part))
        elif isinstance(part, str) or part is None:
            parts.append(part)
        elif isinstance(part, bytes) and not isinstance(part, ByteArray):
            parts.append((part,))
        elif isinstance(part, int) and part.bit_length() <= SHOWN_BITS:
            parts.append(b"%x" % part)
        elif isinstance(part, float) and part == part:
            parts.append(b"%x" % int(part) if part.is_integer() else struct.pack("<d", part) + b".")
        else:
            parts.append((id(part),))
    return parts[0] if len(parts) == 1 and type(parts[0]) is bytes else tuple(parts)


# ---------------------------------------------------------------- names


def is_global(value: object, module: str, *names: str) -> bool:
    """Whether `value` is a Global of one of these names, by today's names."""
    return isinstance(value, Global) and value.known_as[0] == module and value.known_as[1] in names


def dotted(value: Value) -> str:
    """Return what something callable is called: ``module.name``, or a description where it is no name.

    A nested class of protocols 2 and 3 is stored as ``getattr(Outer, "Inner")``: the names are put together, nothing
    is fetched.
    """
    inner: list[str] = []
    while isinstance(value, Call) and is_global(value.function, "builtins", "getattr") and len(inner) < 8:
        match value.args:
            case Tuple((owner, str(name))):
                inner.append(name)
                value = owner
            case _:
                break
    match value:
        case Global():
            base = f"{value.module}.{value.name}"
        case Extension():
            base = f"extension {value.code}"
        case Call():
            base = f"result of {dotted(value.function)}" if isinstance(value.function, Global) else "result of a call"
        case _:
            base = f"a {type(value).__name__.lower()}"
    return ".".join([base, *reversed(inner)])


def made_by(call: Call) -> Value:
    """Return the class of the object that a call makes, seen through the helpers by which old protocols spell it."""
    if is_global(call.function, "copyreg", "_reconstructor", "__newobj__", "__newobj_ex__"):
        match call.args:
            case Tuple((cls, *_)):
                return cls
    return call.function


# ---------------------------------------------------------------- one line


_HOLDERS = {("collections", "OrderedDict"), ("collections", "defaultdict"), ("collections", "Counter"),
            ("collections", "deque")}  # fmt: skip
_FEW = 8


def describe(value: Value, limit: int = 120) -> str:
    """Return one printable line of at most `limit` characters: ``OrderedDict of 12``, ``not loaded: module.Class``."""
    line = _described(value, limit)
    if len(line) <= limit:
        return line
    head = (limit - 1) // 2
    return f"{line[:head]}…{line[len(line) - (limit - 1 - head) :]}"


def _described(value: Value, limit: int) -> str:
    match value:
        case Global():
            return f"reference to {printable(dotted(value), limit)}"
        case Call():
            return _object(value, limit)
        case Persistent():
            known = not is_node(value.value) or isinstance(value.value, Tuple)
            return f"stored elsewhere, as {describe(value.value, limit)}" if known else "stored elsewhere"
        case Extension():
            return f"not loaded: extension {value.code}"
        case OutOfBand():
            return f"buffer {value.index}, not in this file"
        case Loose():
            return plural(len(value), "loose value")
        case Dict():
            return f"dict of {count(len(value))}"
        case Tuple() | List() | Set() | FrozenSet():
            if len(value) <= _FEW and all(type(item) in _LEAVES for item in value):
                shown = ", ".join(_described(item, max(limit // 4, 16)) for item in value)
                return f"{type(value).__name__.lower()} ({shown})"
            return f"{type(value).__name__.lower()} of {count(len(value))}"
        case bytes():
            return f"{type(value).__name__.lower()} of {count(len(value))}"
        case str():
            return f"'{printable(value, max(limit - 2, 3))}'"
        case int() if value.bit_length() > SHOWN_BITS:
            return f"integer of {count(value.bit_length())} bits"
        case _:
            return repr(value)


def _object(call: Call, limit: int) -> str:
    cls = made_by(call)
    if isinstance(cls, Global) and cls.known_as in _HOLDERS:
        n = len(call.items or ()) + len(call.pairs or ())
        return f"{cls.name} of {count(n)}"
    if call.args is None:
        return f"{describe(cls, limit)}, and what the pickle would change in it"
    return f"not loaded: {printable(dotted(cls), limit)}"
