"""The object that torch.save stored, as a tree of named tensors and of everything else. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tensormorph.columns import TensorKey
from tensormorph.errors import Problem
from tensormorph.readers._pickle_nodes import (
    Call,
    Dict,
    FrozenSet,
    Global,
    List,
    Loose,
    Persistent,
    Set,
    Tuple,
    Value,
    describe,
)
from tensormorph.readers._pickle_show import held_by
from tensormorph.readers._torch_tensors import TensorRef, parse_tensor
from tensormorph.text import count, plural

SEQUENCES = (Tuple, List, Set, FrozenSet, Loose)
MOST_OBJECTS = 5000
DEEP = 1000
"""An object nested deeper than this is told of: other programs recurse into it."""
WRITTEN_OUT = 10_000_000
"""Parts of an object, with shared ones counted as often as they stand, from which on it is told of."""
MOST_DEPTH = 500
"""Deeper than this a part of the tree is shown as one object."""

# Source: habits of training scripts, of torch's examples, timm, fairseq and Lightning: where the model's own state is.
MODEL_KEYS = ("model", "state_dict", "model_state_dict", "module", "net", "network", "weights")
PART_KEYS = (
    "ema", "model_ema", "ema_model", "ema_state_dict", "state_dict_ema", "swa", "teacher", "student", "generator",
    "discriminator", "actor", "critic", "encoder", "decoder", "policy", "target",
)  # fmt: skip
# Source: torch/nn/modules/module.py: the dictionaries that hold what a module's state_dict() names.
_MODULE_FIELDS = ("_parameters", "_buffers", "_modules")


@dataclass(slots=True)
class NamedTensor:
    """A tensor of the tree: unique name, key, and the description or the sentence that says why there is none."""

    name: str
    key: TensorKey
    found: TensorRef | str


@dataclass(slots=True)
class NamedObject:
    """What holds no tensor: its path and its node."""

    name: str
    node: Value


@dataclass(slots=True)
class Tree:
    """Everything in the object, in the order of the file."""

    tensors: list[NamedTensor] = field(default_factory=list)
    objects: list[NamedObject] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    top: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Optimizer:
    """An optimizer's state dict: how many names lead to it, and its parameters' names where its groups record them.

    Source: torch 2.13, torch/optim/optimizer.py, `state_dict`: ``param_groups[i]["param_names"]`` stands beside
    ``param_groups[i]["params"]`` where the optimizer was given named parameters.
    """

    depth: int
    names: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the tree a node stands: the names that lead to it, and the optimizer that it belongs to."""

    path: tuple[str, ...] = ()
    depth: int = 0
    optimizer: _Optimizer | None = None
    name: str = ""

    def below(self, name: str, optimizer: _Optimizer | None, shown: str = "") -> _Place:
        """Return the place of a member, by its name and how it is `shown`; an empty name adds nothing to the path."""
        if not name:
            return _Place(self.path, self.depth + 1, optimizer, self.name)
        joint = "" if shown or not self.path else "."
        return _Place((*self.path, name), self.depth + 1, optimizer, f"{self.name}{joint}{shown or name}")


def read_tree(root: Value, file: str, alone: str, order: Sequence[str] = (), indices: str = "") -> Tree:
    """Return the tensors and objects of `root`.

    Parameters
    ----------
    alone
        Name of the tensor where `root` is nothing but a tensor.
    order
        Parameter names in the order in which the optimizer was given them, where the person states it.
    indices
        How places in a list are written in names, such as ``[{}]``; empty: as a name of their own, ``.0``.
    """
    tree = Tree()
    tensors = _Tensors()
    if tensors.of(root) is not None:
        tree.tensors.append(NamedTensor(alone, TensorKey("", alone), tensors.of(root) or ""))
        return tree
    holds, nodes = _holders(root, tensors)
    tree.problems.extend(_odd_form(nodes, file))
    taken: set[str] = set()
    keys: set[TensorKey] = set()
    tree.top = {name: value for name, value, _ in _members(root)}
    skipped = 0
    stack: list[tuple[Value, _Place]] = [(root, _Place())]
    seen: set[int] = set()
    while stack:
        node, place = stack.pop()
        found = tensors.of(node)
        if found is not None:
            name = _unique(place.name, taken)
            key = _key(place, name)
            key = key if key not in keys else TensorKey("", name)
            keys.add(key)
            tree.tensors.append(NamedTensor(name, key, found))
        elif id(node) in holds and id(node) not in seen and place.depth <= MOST_DEPTH:
            seen.add(id(node))
            optimizer = _optimizer(node, place, order, file, tree.problems) or place.optimizer
            numbered = bool(indices) and isinstance(node, SEQUENCES)
            below = [
                (value, place.below(name, optimizer, indices.format(name) if numbered else ""))
                for name, value, _ in _members(node)
            ]  # fmt: skip
            stack.extend(reversed(below))
        elif len(tree.objects) < MOST_OBJECTS:
            tree.objects.append(NamedObject(_unique(place.name or alone, taken), node))
        else:
            skipped += 1
    if skipped:
        told = f"{plural(skipped, 'object')} beyond the first {count(MOST_OBJECTS)} are not listed by name"
        tree.problems.append(Problem("objects-not-listed", "info", told, file=file))
    return tree


class _Tensors:
    """What each node is as a tensor, asked once."""

    def __init__(self) -> None:
        self._known: dict[int, TensorRef | str | None] = {}

    def of(self, node: Value) -> TensorRef | str | None:
        if not isinstance(node, Call | Persistent):
            return None
        if id(node) not in self._known:
            self._known[id(node)] = parse_tensor(node)
        return self._known[id(node)]


def _holders(root: Value, tensors: _Tensors) -> tuple[set[int], list[tuple[Value, int]]]:
    """Return the ids of all nodes below which a tensor stands, and every node once with its depth."""
    order: list[tuple[Value, int]] = []
    parents: dict[int, list[int]] = {}
    seen: set[int] = set()
    stack: list[tuple[Value, int]] = [(root, 0)]
    leaves: list[int] = []
    while stack:
        node, depth = stack.pop()
        if id(node) in seen or node is None or isinstance(node, str | bytes | int | float):
            continue
        seen.add(id(node))
        order.append((node, depth))
        if tensors.of(node) is not None:
            leaves.append(id(node))
            continue
        for _, _, value in held_by(node):
            if not isinstance(value, str | bytes | int | float | None):
                parents.setdefault(id(value), []).append(id(node))
                stack.append((value, depth + 1))
    holds: set[int] = set()
    waiting = leaves
    while waiting:
        for parent in parents.get(waiting.pop(), ()):
            if parent not in holds:
                holds.add(parent)
                waiting.append(parent)
    return holds, order


def _odd_form(order: list[tuple[Value, int]], file: str) -> list[Problem]:
    """Tell of objects that a program which follows them into the depth, or writes them out, would choke on."""
    out: list[Problem] = []
    deepest = max((depth for _, depth in order), default=0)
    if deepest > DEEP:
        told = f"The object is nested {count(deepest)} deep; below {MOST_DEPTH} it is shown as one object"
        out.append(Problem("deep-object", "warning", told, file=file))
    # Sizes if every shared part were written out, children before parents; a part of a cycle counts once.
    sizes: dict[int, int] = {}
    for node, _ in reversed(order):
        held = (value for _, _, value in held_by(node) if value is not None)
        sizes[id(node)] = min(1 + sum(sizes.get(id(value), 1) for value in held), 1 << 62)
    root = sizes[id(order[0][0])] if order else 0
    if root > WRITTEN_OUT and root > 1000 * len(order):
        out.append(Problem("shared-object", "warning",
            f"The object shares its {count(len(order))} parts so that, written out, they would be more than "
            f"{count(WRITTEN_OUT)}; each is shown once", file=file))  # fmt: skip
    return out


def _members(node: Value) -> Iterator[tuple[str, Value, Value]]:
    """Yield (name, value, key) of what a node holds as a person would name it; an empty name adds nothing to a path."""
    match node:
        case Dict():
            for key, value in node.pairs():
                yield _text(key), value, key
        case Call():
            if node.pairs is not None:
                yield from _members(node.pairs)
            if node.items is not None:
                yield from _members(node.items)
            state = node.state
            if isinstance(state, Dict):
                for key, value in state.pairs():
                    name = _text(key)
                    if name == "_metadata" and node.pairs is not None:
                        continue  # the versions that an OrderedDict of state_dict() carries
                    yield ("" if name in _MODULE_FIELDS else name), value, key
            elif state is not None:
                yield "", state, None
            if node.args is not None and not isinstance(node.function, Global | None):
                yield "", node.args, None
            elif isinstance(node.args, SEQUENCES):
                for i, value in enumerate(node.args):
                    if not isinstance(value, str | bytes | int | float | Global | None):
                        yield f"args.{i}", value, i
        case _ if isinstance(node, SEQUENCES):
            for i, value in enumerate(node):
                yield str(i), value, i


def _text(key: Value) -> str:
    if isinstance(key, str):
        return key
    return str(key) if isinstance(key, int | float | bool) or key is None else describe(key, 60)


def _optimizer(
    node: Value, place: _Place, order: Sequence[str], file: str, problems: list[Problem]
) -> _Optimizer | None:
    members = {name: value for name, value, _ in _members(node)} if isinstance(node, Dict | Call) else {}
    groups = members.get("param_groups")
    if "state" not in members or not isinstance(groups, SEQUENCES):
        return None
    names: dict[str, str] = {}
    all_ids: list[str] = []
    for group in groups:
        if not isinstance(group, Dict):
            continue
        ids, told = group.get("params"), group.get("param_names")
        if isinstance(ids, SEQUENCES):
            all_ids.extend(_text(i) for i in ids)
            if isinstance(told, SEQUENCES) and len(ids) == len(told):
                names.update((_text(i), name) for i, name in zip(ids, told, strict=True) if isinstance(name, str))
    if order and not names:
        if len(order) == len(all_ids):
            names = dict(zip(all_ids, order, strict=True))
            told = f"Optimizer state is named by the order of {plural(len(order), 'parameter')} that was stated"
            problems.append(Problem("parameter-order", "info", told, file=file))
        else:
            told = f"{plural(len(order), 'parameter')} were stated; the optimizer has {count(len(all_ids))}: not used"
            problems.append(Problem("parameter-order", "warning", told, file=file))
    return _Optimizer(len(place.path), names)


def _key(place: _Place, name: str) -> TensorKey:
    """Return what a tensor is by the names that lead to it; optimizer state is never matched by shape."""
    path, optimizer = place.path, place.optimizer
    if optimizer is not None and len(path) > optimizer.depth + 2 and path[optimizer.depth] == "state":
        owner = path[optimizer.depth + 1]
        slot = ".".join(path[optimizer.depth + 2 :])
        known = optimizer.names.get(owner)
        if known is not None:
            return TensorKey("", known, slot)
        return TensorKey("", ".".join(path[: optimizer.depth + 2]), slot, named=False)
    if len(path) > 1 and path[0] in MODEL_KEYS:
        return TensorKey("", ".".join(path[1:]))
    if len(path) > 1 and path[0] in PART_KEYS:
        return TensorKey(path[0], ".".join(path[1:]))
    return TensorKey("", name)


def _unique(name: str, taken: set[str]) -> str:
    found, n = name, 2
    while found in taken:
        found, n = f"{name} [{n}]", n + 1
    taken.add(found)
    return found
