"""What a pickle holds, for people and for JSON: every node once, bounded, and without going into the depth."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tensormorph.readers._pickle_nodes import (
    PRIMITIVES,
    SHOWN_BITS,
    Call,
    Dict,
    FrozenSet,
    List,
    Loose,
    Node,
    Persistent,
    Set,
    Tuple,
    Value,
    describe,
    is_global,
    is_node,
)  # fmt: skip
from tensormorph.text import count

MOST = 2000
DEEPEST = 64
"""Levels of `to_plain`: what is deeper would make the writer of JSON recurse."""
PATH_STEPS = 40
"""Of a longer path the first and the last half are shown."""
_LONG_TEXT = 10_000
_SMALL = 16
_HOLDING = (Call, Dict, Persistent, Tuple, List, Set, FrozenSet, Loose)


class Visit:
    """A node where `walk` meets it.

    Fields
    ------
    node
        What is there.
    parent, field, key
        Where: in `field` of a Call, under `key` of a dict or at index `key`; field ``key`` is the key of pair `key`.
    depth
        Steps from the root.
    again
        ``cycle`` if the node is one of its own holders, ``shared`` if it was met before, else empty. It is not entered
        again; `first` is where it was met before, else None.
    """

    __slots__ = ("again", "depth", "field", "first", "key", "node", "parent")

    def __init__(self, node: Node, parent: Visit | None, field: str, key: Value) -> None:
        self.node = node
        self.parent = parent
        self.field = field
        self.key = key
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.again = ""
        self.first: Visit | None = None

    def holders(self) -> list[Visit]:
        """Return the visits from the root down to this one."""
        chain: list[Visit] = []
        here: Visit | None = self
        while here is not None:
            chain.append(here)
            here = here.parent
        chain.reverse()
        return chain

    @property
    def path(self) -> str:
        """The way from the root, as one would write it in Python: ``['state'][0]['step'].args[1]``."""
        steps = self.holders()[1:]
        if len(steps) > PATH_STEPS:
            half = PATH_STEPS // 2
            return f"{''.join(map(_step, steps[:half]))}…{''.join(map(_step, steps[-half:]))}"
        return "".join(map(_step, steps))


def _step(visit: Visit) -> str:
    if visit.field == "key":
        return f".key[{visit.key!r}]"
    if visit.field in ("items", "pairs"):
        return ""  # the index or key behind it says all
    return f".{visit.field}" if visit.field else f"[{describe(visit.key, 60)}]"


def held_by(node: Value) -> Iterator[tuple[str, Value, Value]]:
    """Yield (field, key, value) of all that a node holds, in the order of the file; see Visit."""
    match node:
        case Call():
            yield "function", None, node.function
            yield "args", None, node.args
            yield "kwargs", None, node.kwargs
            yield "state", None, node.state
            yield "items", None, node.items
            yield "pairs", None, node.pairs
        case Dict():
            for i, (key, value) in enumerate(node.pairs()):
                yield "key", i, key
                yield "", key, value
        case Persistent():
            yield "value", None, node.value
        case Tuple() | List() | Set() | FrozenSet() | Loose():
            for i, value in enumerate(node):
                yield "", i, value


def walk(value: Value, enter: Callable[[Node], bool] = lambda node: True) -> Iterator[Visit]:
    """Yield a Visit of every node (not of primitives) in the order of the file, holders before what they hold.

    Parameters
    ----------
    enter
        Whether to go into a node; asked once each.
    """
    if not is_node(value):
        return
    met: dict[int, Visit] = {}
    open_now: set[int] = set()
    way: list[tuple[Visit, Iterator[tuple[str, Value, Value]]]] = []
    here: Visit | None = Visit(value, None, "", None)
    while True:
        if here is not None:
            first = met.setdefault(id(here.node), here)
            if first is not here:
                here.first = first
                here.again = "cycle" if id(here.node) in open_now else "shared"
            yield here
            if first is here and enter(here.node):
                open_now.add(id(here.node))
                way.append((here, held_by(here.node)))
        if not way:
            return
        parent, rest = way[-1]
        here = None
        for field, key, held in rest:
            if is_node(held):
                here = Visit(held, parent, field, key)
                break
        else:
            way.pop()
            open_now.discard(id(parent.node))


# ---------------------------------------------------------------- JSON


def to_plain(value: Value, most: int = MOST) -> Any:
    """Return what JSON can write of a value: the upper levels first, about `most` entries and DEEPEST levels.

    Dicts whose keys are all text, or all whole numbers, are objects; of others the pairs are listed. What was met
    before is ``(shared, first at PATH)``, what holds itself ``(cycle)``, what is left out ``(… 1,234 more)``. Numbers
    that JSON lacks are "NaN", "Infinity" and "-Infinity"; all else that it lacks is described in words.
    """
    plain = _Plain(most)
    root: list[Any] = [None]
    plain.put(root, 0, value, None, "", None)
    while plain.queue:
        visit, holder, place = plain.queue.popleft()
        holder[place] = plain.made(visit)
    return root[0]


class _Plain:
    """What `to_plain` is at: the nodes to come, those met, and how many entries there is still room for."""

    __slots__ = ("met", "queue", "room")

    def __init__(self, most: int) -> None:
        self.room = most
        self.met: dict[int, Visit] = {}
        self.queue: deque[tuple[Visit, Any, Any]] = deque()

    def put(self, holder: Any, place: Any, value: Value, parent: Visit | None, field: str, key: Value) -> None:
        """Put the form of a value into its place, now if it holds nothing, else when its turn comes."""
        if not isinstance(value, _HOLDING):
            holder[place] = _leaf(value)
        elif isinstance(value, Tuple) and len(value) <= _SMALL and all(type(item) in PRIMITIVES for item in value):
            self.room -= len(value)  # such a tuple is a value like any other: it need not be met only once
            holder[place] = [_leaf(item) for item in value]
        else:
            visit = Visit(value, parent, field, key)
            first = self.met.setdefault(id(value), visit)
            if first is visit:
                holder[place] = None  # keeps the order of an object
                self.queue.append((visit, holder, place))
            elif any(above is first for above in visit.holders()):
                holder[place] = "(cycle)"
            else:
                holder[place] = f"(shared, first at {first.path or 'the top'})"

    def made(self, visit: Visit) -> Any:
        """Return the form of a node, whose content may follow later."""
        node = visit.node
        if self.room <= 0 or visit.depth >= DEEPEST:
            return describe(node)
        match node:
            case Call():
                return self._call(node, visit)
            case Dict():
                return self._dict(node, visit)
            case Persistent():
                self.room -= 1
                form: dict[str, Any] = {}
                self.put(form, "stored elsewhere as", node.value, visit, "value", None)
                return form
            case _:
                assert isinstance(node, Tuple | List | Set | FrozenSet | Loose)
                return self._list(node, visit)

    def _list(self, node: Tuple | List | Set | FrozenSet | Loose, visit: Visit) -> Any:
        shown = self._take(len(node))
        form: list[Any] = [None] * shown
        for i in range(shown):
            self.put(form, i, node[i], visit, "", i)
        if shown < len(node):
            form.append(_more(len(node) - shown))
        return form

    def _dict(self, node: Dict, visit: Visit) -> Any:
        kinds = set(map(type, node.keys()))
        shown = self._take(len(node))
        left = [] if shown == len(node) else [_more(len(node) - shown)]
        pairs = list(islice(node.pairs(), shown))
        if kinds <= {str} or kinds <= {int}:
            names = [key if isinstance(key, str) else _leaf(key) for key, _ in pairs]
            if len(set(map(str, names))) == shown:
                form: dict[str, Any] = {}
                for name, (key, value) in zip(names, pairs, strict=True):
                    self.put(form, str(name), value, visit, "", key)
                form.update(dict.fromkeys(left))
                return form
        listed: list[Any] = []
        for i, (key, value) in enumerate(pairs):
            pair: list[Any] = [None, None]
            self.put(pair, 0, key, visit, "key", i)
            self.put(pair, 1, value, visit, "", key)
            listed.append(pair)
        return {"pairs": listed + left}

    def _call(self, node: Call, visit: Visit) -> Any:
        if _is_plain_dict(node):
            return self._dict(node.pairs or Dict(), visit)
        form: dict[str, Any] = {"object": describe(node)}
        for field, _, value in held_by(node):
            if field != "function" and value is not None and not (isinstance(value, Tuple) and not value):
                self.room -= 1
                self.put(form, field, value, visit, field, None)
        return form

    def _take(self, n: int) -> int:
        """Return how many of `n` entries there is room for, and use that room up; half is left to those that wait."""
        shown = min(n, (self.room + 1) // 2 if self.queue else self.room)
        self.room -= shown
        return shown


def _is_plain_dict(call: Call) -> bool:
    """Whether a call makes an OrderedDict and does no more than to fill it."""
    bare = isinstance(call.args, Tuple) and not call.args and call.kwargs is None
    filled = call.items is None and call.state is None
    return bare and filled and is_global(call.function, "collections", "OrderedDict")


def _leaf(value: Value) -> Any:
    """Return the form of what holds nothing."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case str() if len(value) > _LONG_TEXT:
            return f"{value[:_LONG_TEXT]}{_more(len(value) - _LONG_TEXT)}"
        case None | bool() | float() | str():
            return value
        case int() if value.bit_length() <= SHOWN_BITS:
            return value
        case _:
            return describe(value)


def _more(n: int) -> str:
    return f"(… {count(n)} more)"
