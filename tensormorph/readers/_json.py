"""JSON from strangers: strict, without surprises, duplicates kept, and no recursion of ours.

Python's ``json.loads`` takes UTF-16, byte order marks and NaN, keeps the last of two equal keys silently, and raises
ValueError on integers of more than 4,300 digits: none of that may pass for what a file says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tensormorph.errors import CorruptFileError


class JsonObject(tuple[tuple[str, Any], ...]):
    """A JSON object as its pairs in order, duplicates kept; arrays are lists, so the two are told apart."""

    __slots__ = ()

    def get(self, key: str) -> Any:
        """Return the last value of a key, as other readers see it; None where it is absent."""
        return next((value for name, value in reversed(self) if name == key), None)


Hook = Callable[[list[tuple[str, Any]]], Any]


def strict_json(raw: bytes | bytearray, file: str, what: str, at: int = 0, hook: Hook = JsonObject) -> Any:
    """Return parsed JSON; objects are JsonObject, or what `hook` makes of their pairs.

    Parameters
    ----------
    file, what
        Name of the file and of the text in it, for errors.
    at
        Byte of the file at which `raw` begins.

    Raises
    ------
    CorruptFileError
        If it is not UTF-8, does not begin with an object, or is not JSON.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise CorruptFileError(file, f"The {what} is not UTF-8: byte 0x{byte:02x}", at + error.start) from None
    body = text.lstrip(" \t\r\n")
    if not body.startswith("{"):
        how = "begins with a byte order mark" if body.startswith("\ufeff") else "does not begin with '{'"
        raise CorruptFileError(file, f"The {what} {how}: it is no JSON object", at)
    try:
        return _loads(text, hook)
    except json.JSONDecodeError as error:
        byte_at = at + len(text[: error.pos].encode("utf-8", "surrogatepass"))
        raise CorruptFileError(file, f"The {what} is not JSON ({error.msg.lower()})", byte_at) from None
    except RecursionError:
        raise CorruptFileError(file, f"The {what} is nested too deep", at) from None


def _loads(text: str, hook: Hook) -> Any:
    try:
        return json.loads(text, object_pairs_hook=hook, parse_constant=_no_constant)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer of more digits than Python converts: such a number is kept as text, so that only its owner is lost.
        return json.loads(text, object_pairs_hook=hook, parse_constant=_no_constant, parse_int=_short_int)


def _no_constant(name: str) -> Any:
    raise json.JSONDecodeError(f"{name} is not JSON", name, 0)


def _short_int(digits: str) -> int | str:
    return int(digits) if len(digits) < 1000 else digits


def plain_json(value: Any) -> Any:
    """Return parsed JSON with objects as dictionaries (of two equal keys the last)."""
    root: list[Any] = [None]
    stack: list[tuple[Any, Any, Any]] = [(root, 0, value)]
    while stack:
        holder, key, item = stack.pop()
        made: Any
        if isinstance(item, JsonObject):
            made = dict.fromkeys(name for name, _ in item)
            stack.extend((made, name, entry) for name, entry in dict(item).items())
        elif isinstance(item, list):
            made = [None] * len(item)
            stack.extend((made, i, entry) for i, entry in enumerate(item))
        else:
            made = item
        holder[key] = made
    return root[0]
