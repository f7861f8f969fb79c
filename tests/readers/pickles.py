"""What Python makes of a pickle, beside what we make of it: for tests only, which may unpickle what they wrote."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any

from tensormorph.readers._pickle_nodes import (
    ByteArray,
    Call,
    Dict,
    Extension,
    FrozenSet,
    Global,
    List,
    Loose,
    OutOfBand,
    Persistent,
    Set,
    Tuple,
    Value,
    is_global,
)
from tests import hostile_inputs

# The assembler of the hostile inputs: a text, a whole number, a name in two lines, a state dict's tensor.
S: Callable[[str], bytes] = hostile_inputs.S
I: Callable[[int], bytes] = hostile_inputs.I  # noqa: E741
G: Callable[[str, str], bytes] = hostile_inputs.G
TEN: Callable[[], bytes] = hostile_inputs.TEN


class Stub:
    """Stands for every class and function that a pickle names; notes what is done to it and does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def append(self, item: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass

    def add(self, item: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class _StubUnpickler(pickle._Unpickler):
    """CPython's own unpickler in Python, which allocates no memo by the file's word, with stubs for all names."""

    def find_class(self, module: str, name: str) -> Any:
        return Stub

    def persistent_load(self, pid: Any) -> Any:
        return Stub()


def python_reads(data: bytes) -> bool:
    """Whether CPython gets to the end of a pickle, if every name is something that takes anything."""
    try:
        _StubUnpickler(BytesIO(data)).load()
    except Exception:
        return False
    return True


def thaw(value: Value, made: dict[int, Any] | None = None) -> Any:
    """Return the Python object of a node that stands for None, numbers, text, bytes or built-in containers of these.

    This recurses, as nothing in the package may: what tests make is shallow.
    """
    made = {} if made is None else made
    if id(value) in made:
        return made[id(value)]
    out: Any
    match value:
        case List():
            made[id(value)] = out = []
            out.extend(thaw(item, made) for item in value)
        case Dict():
            made[id(value)] = out = {}
            out.update((thaw(k, made), thaw(v, made)) for k, v in value.pairs())
        case Set():
            made[id(value)] = out = set()
            out.update(thaw(item, made) for item in value)
        case Tuple():
            out = tuple(thaw(item, made) for item in value)
            out = made.setdefault(id(value), out)
        case FrozenSet():
            out = made.setdefault(id(value), frozenset(thaw(item, made) for item in value))
        case ByteArray():
            made[id(value)] = out = bytearray(value)
        case Call():
            out = made.setdefault(id(value), _built_in(value, made))
            if value.items is not None:
                out.extend(thaw(item, made) for item in value.items)
        case Global() | Persistent() | Extension() | OutOfBand() | Loose():
            raise TypeError(value)
        case _:
            return value
    return out


def _built_in(call: Call, made: dict[int, Any]) -> Any:
    """Make what pickles of early protocols write as a call of a built-in type."""
    args = thaw(call.args, made)
    if is_global(call.function, "_codecs", "encode"):
        text, encoding = args
        assert encoding == "latin1"
        return text.encode("latin-1")
    kinds = {"set": set, "frozenset": frozenset, "bytes": bytes, "bytearray": bytearray}
    assert is_global(call.function, "builtins", *kinds), call
    assert isinstance(call.function, Global)
    return kinds[call.function.known_as[1]](*args)


def same(ours: Any, pythons: Any, paired: dict[int, int] | None = None) -> bool:
    """Whether two objects have the same types, values down to the bits, order, and the same sharing."""
    paired = {} if paired is None else paired
    if type(ours) is not type(pythons):
        return False
    if isinstance(ours, float):
        return struct.pack("<d", ours) == struct.pack("<d", pythons)
    if isinstance(ours, list | dict | set | bytearray):
        if id(ours) in paired or -id(pythons) in paired:
            return paired.get(id(ours)) == id(pythons) and paired.get(-id(pythons)) == id(ours)
        paired[id(ours)] = id(pythons)
        paired[-id(pythons)] = id(ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(pythons) and all(same(a, b, paired) for a, b in zip(ours, pythons, strict=True))
    if isinstance(ours, dict):
        return len(ours) == len(pythons) and all(
            same(a, b, paired) for a, b in zip(ours.items(), pythons.items(), strict=True)
        )
    if isinstance(ours, set | frozenset):
        return sorted(map(_bits, ours)) == sorted(map(_bits, pythons))
    return bool(ours == pythons)


def _bits(item: Any) -> str:
    """Return a text by which items of a set are told apart: type and value, floats by their bits."""
    if isinstance(item, tuple):
        return f"({', '.join(map(_bits, item))})"
    if isinstance(item, frozenset):
        return f"{{{', '.join(sorted(map(_bits, item)))}}}"
    return f"{type(item).__name__} {item.hex() if isinstance(item, float) else item!r}"
