"""Tensors in the object that torch.save stored: recognised by how the pickle would rebuild them, and not rebuilt.

Source: torch 2.13, torch/_utils.py (`_rebuild_*`), torch/_tensor.py (`__reduce_ex__`), numpy/_core/multiarray.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tensormorph import dtypes
from tensormorph.readers._pickle_nodes import Call, Dict, Global, List, Persistent, Tuple, Value, describe, is_global
from tensormorph.readers._torch_placed import Placed, placed_tensor
from tensormorph.readers._torchzip import Storage, parse_storage

Form = Literal["strided", "meta", "inline", "sparse", "quantised", "nested", "placed"]
_MOST_AXES = 64
_INT64 = (1 << 63) - 1


@dataclass(slots=True)
class TensorRef:
    """One tensor as the pickle describes it.

    Fields
    ------
    dtype
        torch's name of the element type.
    offset, strides
        In elements of `dtype`, into the storage.
    device
        As recorded; text only.
    inline
        The bytes themselves, where the pickle holds them (numpy arrays).
    parts
        Component tensors of a sparse, quantised or nested one, by name.
    numbers
        Scale and zero point of a quantised one; the axis of one per channel.
    placed
        What the file records of the tensor that this is one rank's part of.
    """

    form: Form
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    offset: int = 0
    storage: Storage | None = None
    device: str = ""
    bits: tuple[Literal["negated", "conjugated"], ...] = ()
    inline: bytes | None = None
    big_endian: bool = False
    at: int = 0
    layout: str = ""
    parts: dict[str, TensorRef] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    note: str = ""
    placed: Placed | None = None


class _Malformed(Exception):  # noqa: N818  it never leaves this module
    """A call that would rebuild a tensor has arguments that no writer gives it."""


def parse_tensor(node: Value) -> TensorRef | str | None:
    """Return the tensor that a node would become; a sentence where it is broken; None where it is something else."""
    try:
        return _parse(node, 0)
    except _Malformed as error:
        return str(error)


def _parse(node: Value, depth: int) -> TensorRef | None:
    if depth > 8:
        raise _Malformed("its wrappers are nested more than 8 deep")
    if isinstance(node, Persistent):
        storage = parse_storage(node)
        if storage is None:
            return None
        return TensorRef("strided", storage.dtype, (storage.n_elements,), (1,), 0, storage, storage.device, at=node.at,
                         note="a bare storage")  # fmt: skip
    if not isinstance(node, Call) or not isinstance(node.function, Global):
        return None
    module, name = node.function.known_as
    if module == "torch._utils":
        return _rebuild(name, node.args, node.at, depth)
    if (module, name) == ("torch._tensor", "_rebuild_from_type_v2"):
        match node.args:
            case Tuple((Global() as function, *_)) if is_global(function, "torch._utils", "_rebuild_wrapper_subclass"):
                return _placed(node, depth)
            case Tuple((Global() as function, _, Tuple() as arguments, *_)) if function.module == "torch._utils":
                return _rebuild(function.name, arguments, node.at, depth)
        return None
    if (module, name) == ("torch.storage", "TypedStorage") or name == "_load_from_bytes":
        return None
    if (module, name) in (("numpy._core.multiarray", "_reconstruct"), ("numpy._core.numeric", "_frombuffer")):
        return _numpy(node, name)
    return None


def _placed(node: Call, depth: int) -> TensorRef | None:
    """Return the part of a placed tensor that the file holds; of several parts each by itself."""
    placed = placed_tensor(node)
    if placed is None:
        return None
    found = [_parse(local, depth + 1) for local in placed.locals]
    parts = {f"shard{i}": ref for i, ref in enumerate(found) if ref is not None}
    if len(parts) != len(found):
        raise _Malformed(f"a local part of the {placed.kind} is no tensor")
    if len(found) == 1 and found[0] is not None:
        found[0].placed = placed
        return found[0]
    dtype = next(iter(parts.values())).dtype if parts else _wrapped_dtype(node)
    return TensorRef("placed", dtype, placed.shape, at=node.at, parts=parts, placed=placed)


def _wrapped_dtype(node: Call) -> str:
    match node.args:
        case Tuple((_, _, Tuple((_, dtype, *_)), *_)):
            return _dtype(dtype)
    raise _Malformed("its dtype is not told")


def _rebuild(name: str, args: Value, at: int, depth: int) -> TensorRef | None:
    if not isinstance(args, Tuple):
        return None
    match name, tuple(args):
        case (("_rebuild_parameter" | "_rebuild_parameter_with_state"), (inner, *_)):
            return _parse(inner, depth + 1)
        case (("_rebuild_tensor" | "_rebuild_tensor_v2"), (storage, offset, shape, strides, *more)):
            metadata = more[2] if len(more) > 2 else None
            return _strided(storage, offset, shape, strides, None, metadata, at)
        case "_rebuild_tensor_v3", (storage, offset, shape, strides, _, _, dtype, *more):
            return _strided(storage, offset, shape, strides, dtype, more[0] if more else None, at)
        case "_rebuild_meta_tensor_no_storage", (dtype, shape, strides, *_):
            extents, steps = _ints(shape, "shape"), _ints(strides, "strides")
            told = "a meta tensor: shape and dtype without values, by design"
            return TensorRef("meta", _dtype(dtype), extents, steps, device="meta", at=at, note=told)
        case "_rebuild_qtensor", (storage, offset, shape, strides, parameters, *_):
            return _quantised(storage, offset, shape, strides, parameters, at)
        case "_rebuild_sparse_tensor", (layout, data):
            return _sparse(layout, data, at)
        case "_rebuild_nested_tensor", arguments if len(arguments) == 4:
            parts = {n: _inner(a, n) for n, a in zip(("buffer", "sizes", "strides", "offsets"), arguments, strict=True)}
            return TensorRef("nested", parts["buffer"].dtype, (), at=at, parts=parts)
        case (("_rebuild_device_tensor_from_numpy" | "_rebuild_device_tensor_from_cpu_tensor"), (inner, _, device, *_)):
            found = _parse(inner, depth + 1)
            if found is not None:
                found.device = device if isinstance(device, str) else found.device
            return found
    return None


def _inner(node: Value, what: str) -> TensorRef:
    found = _parse(node, 1)
    if found is None:
        raise _Malformed(f"its {what} is no tensor")
    return found


def _strided(
    storage: Value, offset: Value, shape: Value, strides: Value, dtype: Value, metadata: Value, at: int
) -> TensorRef:
    found = parse_storage(storage)
    if found is None:
        raise _Malformed("what it is stored in is no storage of torch's")
    extents, steps = _ints(shape, "shape"), _ints(strides, "strides")
    if len(extents) != len(steps):
        raise _Malformed(f"it has {len(extents)} dimensions and {len(steps)} strides")
    if type(offset) is not int or not 0 <= offset <= _INT64:
        raise _Malformed(f"its storage offset is {_short(offset)}, no position in a storage")
    if len(extents) > _MOST_AXES:
        raise _Malformed(f"it has {len(extents):,} dimensions")
    name = found.dtype if dtype is None else _dtype(dtype)
    bits: list[Literal["negated", "conjugated"]] = []
    if isinstance(metadata, Dict):
        if metadata.get("conj") is True:
            bits.append("conjugated")
        if metadata.get("neg") is True:
            bits.append("negated")
    return TensorRef("strided", name, extents, steps, offset, found, found.device, tuple(bits), at=at)


def _quantised(storage: Value, offset: Value, shape: Value, strides: Value, parameters: Value, at: int) -> TensorRef:
    codes = _strided(storage, offset, shape, strides, None, None, at)
    match parameters:
        case Tuple((scheme, float() | int() as scale, int() as zero_point)) if _name(scheme) == "per_tensor_affine":
            return TensorRef("quantised", "float32", codes.shape, device=codes.device, at=at, parts={"int_repr": codes},
                             numbers={"scale": float(scale), "zero_point": float(zero_point)})  # fmt: skip
        case Tuple((scheme, scale, zero_point, int() as axis)) if 0 <= axis < len(codes.shape):
            parts = {"int_repr": codes, "scale": _inner(scale, "scale"), "zero_point": _inner(zero_point, "zero point")}
            return TensorRef("quantised", "float32", codes.shape, device=codes.device, at=at, parts=parts,
                             numbers={"axis": float(axis)})  # fmt: skip
    raise _Malformed("its quantiser is of a kind unknown to us")


def _sparse(layout: Value, data: Value, at: int) -> TensorRef:
    name = _layout(layout)
    names = {
        "torch.sparse_coo": ("indices", "values"),
        "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
        "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
        "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
        "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
    }.get(name)
    if names is None or not isinstance(data, Tuple) or len(data) <= len(names):
        raise _Malformed(f"its sparse layout {name!r} is unknown to us")
    parts = {n: _inner(a, n) for n, a in zip(names, data, strict=False)}
    shape = _ints(data[len(names)], "shape")
    return TensorRef("sparse", parts["values"].dtype, shape, at=at, layout=name, parts=parts)


def _layout(node: Value) -> str:
    match node:
        case Call(function=Global(name="_get_layout"), args=Tuple((str(name),))):
            return name
        case Global():
            return f"{node.module}.{node.name}"
    return ""


def _numpy(node: Call, name: str) -> TensorRef | None:
    """Return a numpy array whose bytes the pickle holds. Source: numpy, `ndarray.__reduce__` and `__setstate__`."""
    if name == "_frombuffer":
        match node.args:
            case Tuple((data, dtype, shape, order)):
                fortran = order == "F"
            case _:
                return None
    else:
        match node.state:
            case Tuple((int(), shape, dtype, bool() as fortran, data)):
                pass
            case _:
                return None
    raw = inline_bytes(data)
    found = numpy_dtype(dtype)
    if raw is None or found is None:
        return None  # of objects, texts or records: shown as an object
    extents = _ints(shape, "shape")
    encoding = dtypes.encoding(found[0])
    n = 1
    for extent in extents:
        n *= extent
    if encoding.bits is None or n * encoding.bits // 8 != len(raw):
        raise _Malformed(f"the array claims {n:,} elements of {found[0]}; {len(raw):,} bytes are stored")
    strides: list[int] = []
    step = 1
    for extent in extents if fortran else reversed(extents):
        strides.append(step)
        step *= max(extent, 1)
    ordered = strides if fortran else list(reversed(strides))
    return TensorRef("inline", found[0], extents, tuple(ordered), inline=raw, big_endian=found[1], at=node.at,
                     note="a numpy array, its bytes inside the pickle")  # fmt: skip


def inline_bytes(node: Value) -> bytes | None:
    """Return bytes as a pickle of any protocol holds them: protocol 2 has them as latin-1 text to be encoded."""
    match node:
        case bytes():
            return node
        case str():  # a string of Python 2, which had no other bytes
            return node.encode("latin-1") if all(ord(c) < 256 for c in node) else None
        case Call(function=Global() as function, args=Tuple((str(text), "latin1" | "latin-1", *_))):
            if is_global(function, "_codecs", "encode"):
                try:
                    return text.encode("latin-1")
                except UnicodeEncodeError:
                    return None
        case Call(function=Global() as function, args=Tuple(())) if is_global(function, "builtins", "bytes"):
            return b""
    return None


def numpy_dtype(node: Value) -> tuple[str, bool] | None:
    """Return (torch's name, big-endian) of a pickled numpy dtype of plain numbers; None for any other."""
    match node:
        case Call(function=Global() as function, args=Tuple((str(code), *_))) if is_global(function, "numpy", "dtype"):
            kinds = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
            if code[:1] in kinds and code[1:].isdecimal() and len(code) < 4:
                bits = 8 * int(code[1:])
                name = "bool" if code == "b1" else f"{kinds[code[0]]}{bits}"
                order = node.state[1] if isinstance(node.state, Tuple) and len(node.state) > 1 else "<"
                return (name, order == ">") if dtypes.encoding(name).readable else None
    return None


def _dtype(node: Value) -> str:
    if isinstance(node, Global) and node.module == "torch":
        return {"double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32",
                "short": "int16"}.get(node.name, node.name)  # fmt: skip
    raise _Malformed(f"its dtype is {_short(node)}")


def _name(node: Value) -> str:
    return node.name if isinstance(node, Global) else ""


def _ints(node: Value, what: str) -> tuple[int, ...]:
    if isinstance(node, Call) and is_global(node.function, "torch", "Size") and isinstance(node.args, Tuple):
        node = node.args[0] if node.args else Tuple(())
    if not isinstance(node, Tuple | List) or not all(type(n) is int and 0 <= n <= _INT64 for n in node):
        raise _Malformed(f"its {what} is {_short(node)}, not whole numbers of 0 or more")
    return tuple(n for n in node if type(n) is int)


def _short(node: Value) -> str:
    return describe(node, 60)
