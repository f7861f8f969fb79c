"""Tensors of which a file of torch.save holds one rank's part, and says so: DTensor and ShardedTensor.

Source: torch 2.0 to 2.14: torch/distributed/tensor (``_tensor`` before 2.5), _dtensor_spec.py and placement_types.py;
torch/distributed/device_mesh.py and _mesh_layout.py; torch/distributed/_shard/sharded_tensor/api.py, `__getstate__`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensormorph.mesh import DeviceMesh, Partial, Placement, Replicate, Shard, StridedShard
from tensormorph.readers._pickle_nodes import Call, Dict, Global, List, Tuple, Value, describe

_MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a ShardedTensor that the file lists, whoever holds it."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    rank: int | None


@dataclass(slots=True)
class Placed:
    """What a file records of a tensor's place on the ranks.

    Fields
    ------
    kind
        ``DTensor`` or ``ShardedTensor``.
    shape
        Of the logical tensor.
    mesh, placements, order
        Of a DTensor; no mesh where the file records none that is whole.
    rank, world
        Whose file it is, and how many there are; None where it is not recorded.
    boxes
        All parts of a ShardedTensor.
    held
        Where the local tensors of a ShardedTensor belong, in the order in which the file holds them.
    note
        What of the record is of no usual form; empty if nothing is.
    """

    kind: str
    shape: tuple[int, ...]
    mesh: DeviceMesh | None = None
    placements: tuple[Placement, ...] = ()
    order: tuple[int, ...] = ()
    rank: int | None = None
    world: int | None = None
    boxes: tuple[Box, ...] = ()
    held: tuple[Box, ...] = ()
    note: str = ""
    locals: list[Value] = field(default_factory=list)


def placed_tensor(node: Call) -> Placed | None:
    """Return what a node records of a placed tensor, its local tensors as nodes; None if it is none."""
    match node.args:
        case Tuple((Global(), Global() as cls, Tuple((Global(), _, size, *_)), state)):
            shape = _numbers(size)
            if shape is None:
                return None
            if cls.name == "DTensor":
                return _dtensor(shape, state)
            if cls.name == "ShardedTensor":
                return _sharded(shape, state)
    return None


# ---------------------------------------------------------------- DTensor


def _dtensor(shape: tuple[int, ...], state: Value) -> Placed | None:
    fields = _state(state)
    local = fields.get("_local_tensor") if fields is not None else None
    spec = _state(fields.get("_spec")) if fields is not None else None
    if local is None or spec is None:
        return None
    out = Placed("DTensor", shape, locals=[local])
    placements = spec.get("placements")
    found = [_placement(p) for p in placements] if isinstance(placements, Tuple | List) else []
    mesh = _state(spec.get("mesh"))
    if not found or any(p is None for p in found) or mesh is None:
        out.note = f"its placements are {describe(placements, 80)}"
        return out
    out.placements = tuple(p for p in found if p is not None)
    out.order = _order(spec.get("shard_order"), len(found))
    out.mesh = _mesh(mesh, len(found))
    if out.mesh is None:
        out.note = "the mesh that it records is not whole"
        return out
    out.world = len(out.mesh.ranks)
    rank = mesh.get("_rank")
    at = _numbers(mesh.get("_coordinate_on_dim"))
    if type(rank) is int and rank in out.mesh.ranks:
        out.rank = rank
    elif (
        at is not None
        and len(at) == len(out.mesh.shape)
        and all(a < n for a, n in zip(at, out.mesh.shape, strict=True))
    ):
        out.rank = out.mesh.ranks[_flat(at, out.mesh.shape)]
    return out


def _placement(node: Value) -> Placement | None:
    if not isinstance(node, Call) or not isinstance(node.function, Global):
        return None
    fields = _state(node)
    name = node.function.name

    def number(key: str, at: int) -> int | None:
        value = fields.get(key) if fields is not None else None
        if value is None and isinstance(node.args, Tuple) and len(node.args) > at:
            value = node.args[at]
        return value if type(value) is int and 0 <= value < 64 * 1024 else None

    dim, factor = number("dim", 0), number("split_factor", 1)
    if name == "Shard" and dim is not None:
        return Shard(dim)
    if name == "_StridedShard" and dim is not None and factor:
        return StridedShard(dim, factor)
    if name == "Replicate":
        return Replicate()
    if name in ("Partial", "_Partial"):
        op = fields.get("reduce_op") if fields is not None else None
        return Partial(op if isinstance(op, str) else describe(op, 40) if op is not None else "sum")
    return None


def _order(node: Value, n: int) -> tuple[int, ...]:
    """Return the order in which mesh axes cut: as recorded (2.10 and later), else as they stand.

    Source: _dtensor_spec.py, ShardOrderEntry(tensor_dim, mesh_dims): the mesh axes of a cut in the order applied.
    """
    after: dict[int, set[int]] = {axis: set() for axis in range(n)}
    for entry in node if isinstance(node, Tuple | List) else ():
        dims = _numbers(entry.args[1]) if isinstance(entry, Call) and isinstance(entry.args, Tuple) else None
        if isinstance(entry, Call) and isinstance(entry.args, Tuple) and len(entry.args) > 1 and dims is not None:
            for i, axis in enumerate(dims):
                if axis in after:
                    after[axis] |= {d for d in dims[:i] if d in after}
    out: list[int] = []
    while len(out) < n:
        free = [axis for axis in range(n) if axis not in out and after[axis] <= set(out)]
        if not free:
            return tuple(range(n))
        out.append(free[0])
    return tuple(out)


def _mesh(fields: Dict, n: int) -> DeviceMesh | None:
    """Return the mesh that a file records, in whatever of its forms; a slice of a mesh has the ranks of its own axes.

    Ranks stand in ``_flatten_rank_map`` (2.10 and later) or ``_flatten_mesh_list``; the sizes in ``_layout``.
    """
    ranks = _numbers(fields.get("_flatten_rank_map")) or _numbers(fields.get("_flatten_mesh_list"))
    names = fields.get("_mesh_dim_names") or fields.get("mesh_dim_names")
    told = [name for name in names if isinstance(name, str)] if isinstance(names, Tuple | List) else []
    told = told if len(told) == n and len(set(told)) == n else [f"axis{i}" for i in range(n)]
    axes = _layout_axes(_state(fields.get("_layout")))
    if axes is None:
        tensor = fields.get("mesh")
        shape = _tensor_shape(tensor)
        axes = None if shape is None else _row_major(shape)
    if ranks is None or axes is None or len(axes) != n or not 0 < len(ranks) <= _MOST_RANKS:
        return None
    sizes = tuple(size for size, _ in axes)
    if math.prod(sizes) > len(ranks):
        return None
    order = [0]
    for size, stride in axes:
        order = [at + i * stride for at in order for i in range(size)]
    # A slice records the whole rank map: its own row of it is the one that this rank is on.
    rank, at = fields.get("_rank"), _numbers(fields.get("_coordinate_on_dim"))
    first = 0
    if type(rank) is int and rank in ranks and at is not None and len(at) == len(axes):
        first = ranks.index(rank) - sum(i * stride for i, (_, stride) in zip(at, axes, strict=True))
    if first < 0 or first + max(order) >= len(ranks):
        return None
    chosen = tuple(ranks[first + i] for i in order)
    try:
        return DeviceMesh(tuple(told), sizes, chosen)
    except ValueError:
        return None


def _layout_axes(fields: Dict | None) -> list[tuple[int, int]] | None:
    """Return (size, stride) of each axis of a recorded mesh layout, 2.13's list of axes or 2.10's shape and stride."""
    if fields is None:
        return None
    axes = fields.get("axes")
    out: list[tuple[int, int]] = []
    if isinstance(axes, Tuple | List):
        for axis in axes:
            one = _state(axis)
            size, stride = (None, None) if one is None else (_numbers(one.get("shape")), _numbers(one.get("stride")))
            if size is None or stride is None or len(size) != len(stride):
                return None
            if len(size) == 1:
                out.append((size[0], stride[0]))
            elif size:
                return None  # an axis that was flattened out of several: its ranks are no single stride
        return out
    size, stride = _numbers(fields.get("shape")), _numbers(fields.get("stride"))
    return (
        list(zip(size, stride, strict=True))
        if size is not None and stride is not None and len(size) == len(stride)
        else None
    )


def _row_major(shape: Sequence[int]) -> list[tuple[int, int]]:
    return [(extent, math.prod(shape[i + 1 :])) for i, extent in enumerate(shape)]


def _tensor_shape(node: Value) -> tuple[int, ...] | None:
    if isinstance(node, Call) and isinstance(node.args, Tuple) and len(node.args) > 2:
        return _numbers(node.args[2])
    return None


def _flat(at: Sequence[int], shape: Sequence[int]) -> int:
    out = 0
    for index, extent in zip(at, shape, strict=True):
        out = out * extent + index
    return out


# ---------------------------------------------------------------- ShardedTensor


def _sharded(shape: tuple[int, ...], state: Value) -> Placed | None:
    match state:
        case Tuple((Tuple() | List() as held, metadata, group, *_)):
            pass
        case _:
            return None
    out = Placed("ShardedTensor", shape)
    fields = _state(metadata)
    listed = fields.get("shards_metadata") if fields is not None else None
    boxes = [_box(item) for item in listed] if isinstance(listed, Tuple | List) else []
    out.boxes = tuple(box for box in boxes if box is not None)
    process = _state(group)
    if process is not None:
        rank, world = process.get("global_rank"), process.get("global_world_size")
        out.rank = rank if type(rank) is int and rank >= 0 else None
        out.world = world if type(world) is int and 0 < world <= _MOST_RANKS else None
    kept: list[Box] = []
    for shard in held:
        one = _state(shard)
        box = _box(one.get("metadata")) if one is not None else None
        if one is None or box is None or "tensor" not in one:
            out.note = f"a local part is {describe(shard, 60)}"
            continue
        kept.append(box)
        out.locals.append(one.get("tensor"))
    out.held = tuple(kept)
    return out


def _box(node: Value) -> Box | None:
    fields = _state(node)
    if fields is None:
        return None
    offsets, sizes = _numbers(fields.get("shard_offsets")), _numbers(fields.get("shard_sizes"))
    if offsets is None or sizes is None or len(offsets) != len(sizes):
        return None
    place = _state(fields.get("placement"))
    rank = place.get("_rank") if place is not None else None
    return Box(offsets, sizes, rank if type(rank) is int and rank >= 0 else None)


# ---------------------------------------------------------------- nodes


def _state(node: Value) -> Dict | None:
    """Return an object's fields: a dict, or the second of (None, fields) as classes with slots have them."""
    found = node.state if isinstance(node, Call) else node
    if isinstance(found, Tuple) and len(found) == 2 and isinstance(found[1], Dict):
        found = found[1]
    return found if isinstance(found, Dict) else None


def _numbers(node: Value) -> tuple[int, ...] | None:
    if isinstance(node, Call) and isinstance(node.function, Global) and node.function.name == "Size":
        node = node.args[0] if isinstance(node.args, Tuple) and node.args else Tuple(())
    if not isinstance(node, Tuple | List) or not all(type(n) is int and 0 <= n < 1 << 63 for n in node):
        return None
    return tuple(n for n in node if type(n) is int)
