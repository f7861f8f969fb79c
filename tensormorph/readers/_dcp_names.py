"""What the names of a DCP checkpoint say: which parameter an optimizer state belongs to, and which state is there.

Source: torch/distributed/checkpoint/_nested_dict.py (names are the keys of the saved dict, joined by dots; the planner
records the keys themselves) and state_dict.py (`get_optimizer_state_dict`: ``state.<parameter>.<slot>``, nested, or
flattened to one key).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tensormorph.columns import TensorKey
from tensormorph.model import STATES, State, StateFact
from tensormorph.readers._torch_facts import KEYS, MOMENTS
from tensormorph.readers._torch_tree import MODEL_KEYS, PART_KEYS
from tensormorph.text import listing, plural, printable

Path = Sequence[str | int]
STEP_KEYS = KEYS["step"]
_OPTIMIZER_KEYS = frozenset({"optim", "optimizer", "optimizers", "opt", "optimizer_state_dict", "optim_state_dict"})
_WRAPPED = 3
"""So many keys may stand before the one that says what it is: ``app``, ``state_dict``, a rank."""


def path_of(name: str, paths: Mapping[str, Path]) -> Path:
    """Return the keys that lead to a name: as recorded, else the name itself."""
    found = paths.get(name)
    return (name,) if found is None else found


def keys_of(names: Sequence[str], paths: Mapping[str, Path]) -> list[TensorKey]:
    """Return what each tensor is by the names that the file records; nothing is matched by shape.

    A parameter is what stands below ``model`` or the like. Optimizer state names its parameter: nested as a key of its
    own; flattened, its end is the slot, and what stands before is looked up among the parameters.
    """
    found: list[TensorKey | None] = []
    params: set[str] = set()
    state: list[tuple[int, str, str]] = []
    for i, name in enumerate(names):
        path = path_of(name, paths)
        where = _state(path)
        if where is None:
            key = _weight(path, name)
            found.append(key)
            if not key.part:
                params.add(key.param)
        else:
            found.append(None)
            state.append((i, *where))
    for i, owner, slot in state:
        if not slot:
            owner, slot = _split(owner, params)
        if slot and (owner in params or not owner.isdecimal()):
            found[i] = TensorKey("", owner, slot)
        elif slot:
            found[i] = TensorKey("", names[i][: -len(slot) - 1] or names[i], slot, named=False)
    keys: list[TensorKey] = []
    taken: set[TensorKey] = set()
    for name, known in zip(names, found, strict=True):
        key = known if known is not None and known not in taken else TensorKey("", name)
        taken.add(key)
        keys.append(key)
    return keys


def _state(path: Path) -> tuple[str, str] | None:
    """Return owner and slot of an optimizer state by its path, the slot empty where the two stand in one key."""
    for at, part in enumerate(path[: _WRAPPED + 1]):
        if part == "state" and len(path) > at + 2 and (at == 0 or path[at - 1] != "model"):
            return str(path[at + 1]), ".".join(str(p) for p in path[at + 2 :])
        if isinstance(part, str) and at == len(path) - 1:
            head, _, rest = part.partition("state.")
            if rest and (not head or head.rstrip(".").split(".")[-1] in _OPTIMIZER_KEYS):
                return rest, ""
    return None


def _split(text: str, params: set[str]) -> tuple[str, str]:
    """Split ``layers.0.weight.exp_avg`` where a parameter's name ends; else at its last dot."""
    at = len(text)
    while (at := text.rfind(".", 0, at)) > 0:
        if text[:at] in params:
            return text[:at], text[at + 1 :]
    owner, _, slot = text.rpartition(".")
    return owner, slot


def _weight(path: Path, name: str) -> TensorKey:
    for at, part in enumerate(path[:-1][:_WRAPPED]):
        rest = ".".join(str(p) for p in path[at + 1 :])
        if part in MODEL_KEYS:
            return TensorKey("", rest)
        if part in PART_KEYS:
            return TensorKey(str(part), rest)
    return TensorKey("", name)


# ---------------------------------------------------------------- what is there


def states_of(
    tensors: Sequence[str], keys: Sequence[TensorKey], objects: Sequence[str], paths: Mapping[str, Path],
    weights: Collection[str], float_dtypes: frozenset[str],
) -> dict[State, StateFact]:  # fmt: skip
    """Return which kinds of training state the names tell of, each with its evidence.

    Parameters
    ----------
    weights
        Names of the tensors that are the model's.
    float_dtypes
        Element types of the weights.
    """
    states: dict[State, StateFact] = dict.fromkeys(STATES, StateFact("no", "no saved name is called so"))
    moments = [(name, key) for name, key in zip(tensors, keys, strict=True) if key.slot in MOMENTS]
    if weights:
        states["weights"] = StateFact("yes", f"{plural(len(weights), 'tensor')} outside optimizer state")
    if moments:
        unnamed = "" if all(key.named for _, key in moments) else ", by number: no parameter names are recorded"
        states["moments"] = StateFact(
            "yes", f"{plural(len(moments), 'tensor')} such as {printable(moments[0][0])}{unnamed}"
        )
    steps = [name for name, key in zip(tensors, keys, strict=True) if key.slot == "step"]
    for state, words in KEYS.items():
        held = [name for name in (*objects, *tensors) if _tells(path_of(name, paths), state, words)]
        if held:
            states[state] = StateFact("yes", f"{plural(len(held), 'name')} such as {listing(held, 2)}")
    if states["step"].present == "no" and steps:
        states["step"] = StateFact("yes", f"{plural(len(steps), 'optimizer step')} such as {printable(steps[0])}")
    if states["master"].present == "no" and float_dtypes and float_dtypes <= {"float32", "float64"}:
        kinds = listing(sorted(float_dtypes))
        states["master"] = StateFact("by_design", f"the weights are stored as {kinds}: they are the master copy")
    if states["scaler"].present == "no" and "float16" not in float_dtypes:
        states["scaler"] = StateFact("unknown", "no saved name is called so; without float16 a run may need none")
    return states


def weights_of(tensors: Sequence[str], keys: Sequence[TensorKey], paths: Mapping[str, Path]) -> list[str]:
    """Return the names of tensors that are neither optimizer state nor, by their first keys, another kind of state."""
    rest = [state for state in KEYS if state not in ("step", "hyperparameters", "config")]
    return [
        name for name, key in zip(tensors, keys, strict=True)
        if not key.slot and not any(_tells(path_of(name, paths), state, KEYS[state]) for state in rest)
    ]  # fmt: skip


def _tells(path: Path, state: State, words: Sequence[str]) -> bool:
    """Whether a path leads to a kind of state: by one of its first keys; the step by its last one."""
    if state == "step":
        return len(path) <= 2 and str(path[-1]).lower().split(".")[-1] in words
    if state == "hyperparameters":
        return any(str(part).split(".")[0] == "param_groups" for part in path)
    firsts = [str(part).lower() for part in path[:2]]
    if len(path) == 1:
        firsts = firsts[0].split(".")[:2]
    return any(part in words for part in firsts)


def step_names(objects: Sequence[str], paths: Mapping[str, Path]) -> list[str]:
    """Return the objects that may hold the step, the likeliest first."""
    held = [name for name in objects if _tells(path_of(name, paths), "step", STEP_KEYS)]
    return sorted(held, key=lambda name: STEP_KEYS.index(str(path_of(name, paths)[-1]).lower().split(".")[-1]))
