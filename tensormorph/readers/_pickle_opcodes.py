"""Opcodes of a pickle that move values about, hold them together, remember them, or name what Python would call.

Source: CPython 3.11, Lib/pickletools.py, Lib/pickle.py and Modules/_pickle.c. Each looks before it takes, so that
where a pickle breaks off nothing is lost that was built.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from tensormorph.readers._pickle_machine import I32, U8, U16, U32, U64, Act, Damage, Machine
from tensormorph.readers._pickle_nodes import (
    Call,
    Dict,
    Extension,
    FrozenSet,
    List,
    OutOfBand,
    Persistent,
    Set,
    Tuple,
    Value,
    describe,
)
from tensormorph.readers._pickle_scalars import SCALARS
from tensormorph.text import count, printable

HIGHEST_PROTOCOL = 5
STOP, MEMOIZE, BINGET, LONG_BINGET, BININT1 = 0x2E, 0x94, 0x68, 0x6A, 0x4B
TUPLE1, TUPLE2 = 0x85, 0x86
GETS = frozenset({BINGET, LONG_BINGET})
CALLS = frozenset({0x52, 0x81})
"""REDUCE, NEWOBJ."""


# ---------------------------------------------------------------- opcodes of the machine itself


def _proto(machine: Machine) -> None:
    protocol = machine.number(U8)
    if protocol > HIGHEST_PROTOCOL:
        raise Damage(f"protocol {protocol} is unknown; the highest is {HIGHEST_PROTOCOL}")


def _frame(machine: Machine) -> None:
    n_bytes = machine.number(U64)
    if machine.frame_end:
        machine.note("pickle-odd-frame", "warning", "A frame begins inside another")
    if n_bytes > len(machine.data) - machine.pos:
        machine.note("pickle-odd-frame", "warning", f"A frame of {count(n_bytes)} bytes is announced, "
            f"{count(len(machine.data) - machine.pos)} are left")  # fmt: skip
    machine.frame_end = machine.pos + n_bytes
    machine.check_at = min(machine.check_at, machine.frame_end)


def _stop(machine: Machine) -> None:
    if not machine.stack:
        raise machine.explain()


def _unknown(machine: Machine) -> None:
    raise Damage(f"0x{machine.data[machine.at]:02x} is no opcode")


def _mark(machine: Machine) -> None:
    machine.below.append(machine.stack)
    machine.stack = []


def _pop(machine: Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.stack = machine.below.pop()  # an empty MARK goes, as in CPython


def _dup(machine: Machine) -> None:
    machine.stack.append(machine.stack[-1])


def _pop_mark(machine: Machine) -> None:
    machine.stack = machine.below.pop()


# ---------------------------------------------------------------- containers


def _made(kind: Callable[[], Value]) -> Act:
    """EMPTY_LIST, EMPTY_TUPLE, EMPTY_DICT, EMPTY_SET."""

    def act(machine: Machine) -> None:
        machine.stack.append(kind())
        machine.n_nodes += 1

    return act


def _from_marked(kind: type[List] | type[Tuple]) -> Act:
    """LIST, TUPLE."""

    def act(machine: Machine) -> None:
        made = kind(machine.stack)
        machine.stack = machine.below.pop()
        machine.stack.append(made)
        machine.n_nodes += 1

    return act


def _tuple3(machine: Machine) -> None:
    stack = machine.stack
    stack[-3:] = (Tuple((stack[-3], stack[-2], stack[-1])),)
    machine.n_nodes += 1


def _frozenset(machine: Machine) -> None:
    items = machine.marked()
    machine.look_at_items(items)
    machine.stack.append(FrozenSet(items))
    machine.n_nodes += 1


def _dict(machine: Machine) -> None:
    if machine.below and len(machine.stack) % 2:
        raise Damage("DICT has a key without a value")
    made = Dict(machine.marked())
    if made.flat:
        machine.dicts.append(made)
    machine.stack.append(made)
    machine.n_nodes += 1


def _setitem(machine: Machine) -> None:
    stack = machine.stack
    if len(stack) < 3:
        raise machine.explain()
    pair = stack[-2:]
    del stack[-2:]
    _set(machine, stack[-1], pair)


def _setitems(machine: Machine) -> None:
    target = machine.below[-1][-1]
    if len(machine.stack) % 2:
        raise Damage("SETITEMS has a key without a value")
    _set(machine, target, machine.marked())


def _set(machine: Machine, target: Value, flat: list[Value]) -> None:
    if type(target) is Dict:
        if flat and not target.flat:
            machine.dicts.append(target)
        target.flat += flat
    elif flat:
        machine.set_items(flat)


def _append(machine: Machine) -> None:
    stack = machine.stack
    target, value = stack[-2], stack[-1]
    del stack[-1]
    if type(target) is List:
        target.append(value)
    else:
        machine.add([value])


def _appends(machine: Machine) -> None:
    target = machine.below[-1][-1]
    items = machine.marked()
    if type(target) is List:
        target += items
    elif items:
        machine.add(items)


def _additems(machine: Machine) -> None:
    target = machine.below[-1][-1]
    items = machine.marked()
    if type(target) is Set:
        machine.look_at_items(items)
        target += items
    elif items:
        machine.add(items)


# ---------------------------------------------------------------- memo


def _memo_id(machine: Machine) -> int:
    line = machine.line()
    try:
        i = int(line)  # takes blanks and underscores, as CPython does here
    except ValueError:
        i = -1
    if i < 0:
        raise Damage(f"{machine.opcode} has no memo number: {printable(line.decode('latin-1'), 60)}")
    return i


def _get(machine: Machine) -> None:
    machine.stack.append(machine.memo[_memo_id(machine)])


def _binput(machine: Machine) -> None:
    i = machine.data[machine.pos]
    machine.pos += 1
    machine.put(i)


def _long_binput(machine: Machine) -> None:
    (i,) = U32.unpack_from(machine.data, machine.pos)
    machine.pos += 4
    machine.put(i)


def _put(machine: Machine) -> None:
    machine.put(_memo_id(machine))


# ---------------------------------------------------------------- names and what is made by them


def _name_line(machine: Machine) -> str:
    line = machine.line()
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Damage(f"the name of {machine.opcode} is not UTF-8 (0x{line[error.start]:02x})") from None


def _global(machine: Machine) -> None:
    module = _name_line(machine)
    machine.stack.append(machine.named(module, _name_line(machine)))


def _stack_global(machine: Machine) -> None:
    stack = machine.stack
    module, name = stack[-2], stack[-1]
    if not isinstance(module, str) or not isinstance(name, str):
        odd = name if isinstance(module, str) else module
        raise Damage(f"STACK_GLOBAL names its class by {describe(odd)}, not by text")
    stack[-2:] = [machine.named(module, name)]


def _inst(machine: Machine) -> None:
    """INST: the class in two lines, its arguments from the MARK on."""
    module = _name_line(machine)
    name = _name_line(machine)
    args = Tuple(machine.marked())
    machine.stack.append(Call(machine.named(module, name), args, machine.at))
    machine.n_nodes += 2


def _obj(machine: Machine) -> None:
    """OBJ: the class is the first value from the MARK on, its arguments are the others."""
    if machine.below and not machine.stack:
        raise Damage("OBJ has no class")
    function, *args = machine.marked()
    machine.stack.append(Call(function, Tuple(args), machine.at))
    machine.n_nodes += 2


def _newobj_ex(machine: Machine) -> None:
    stack = machine.stack
    call = Call(stack[-3], stack[-2], machine.at)
    call.more().kwargs = stack[-1]
    stack[-3:] = [call]
    machine.n_nodes += 1


def _binpersid(machine: Machine) -> None:
    machine.stack[-1] = Persistent(machine.stack[-1], machine.at)
    machine.n_nodes += 1


def _persid(machine: Machine) -> None:
    machine.stack.append(Persistent(machine.text(machine.line()), machine.at))
    machine.n_nodes += 1


def _extension(form: Struct) -> Act:
    """EXT1, EXT2, EXT4."""

    def act(machine: Machine) -> None:
        code = machine.number(form)
        machine.note("pickle-extension", "warning",
            f"Code {code} of Python's extension registry stands for an object: no file says for which")  # fmt: skip
        machine.stack.append(Extension(code, machine.at))
        machine.n_nodes += 1

    return act


def _next_buffer(machine: Machine) -> None:
    machine.note("pickle-out-of-band", "warning", "A buffer was handed over apart from the pickle and is not here")
    machine.stack.append(OutOfBand(machine.n_buffers, machine.at))
    machine.n_buffers += 1
    machine.n_nodes += 1


def _readonly_buffer(machine: Machine) -> None:
    top = machine.stack[-1]
    if isinstance(top, OutOfBand):
        top.readonly = True
    elif not isinstance(top, bytes):
        machine.note("pickle-wrong-target", "error", f"READONLY_BUFFER is about {describe(top)}, which is no buffer")


_BY_CODE: dict[int, Act] = SCALARS | {
    0x80: _proto, 0x95: _frame, STOP: _stop, 0x28: _mark, 0x30: _pop, 0x31: _pop_mark, 0x32: _dup,
    0x5D: _made(List), 0x7D: _made(Dict), 0x8F: _made(Set), 0x29: _made(Tuple), 0x6C: _from_marked(List),
    0x74: _from_marked(Tuple), 0x87: _tuple3, 0x91: _frozenset,
    0x64: _dict, 0x73: _setitem, 0x75: _setitems, 0x61: _append, 0x65: _appends, 0x90: _additems,
    0x67: _get, 0x70: _put, 0x71: _binput, 0x72: _long_binput,
    0x63: _global, 0x93: _stack_global, 0x69: _inst, 0x6F: _obj, 0x92: _newobj_ex,
    0x62: Machine.build, 0x50: _persid, 0x51: _binpersid, 0x82: _extension(U8), 0x83: _extension(U16),
    0x84: _extension(I32), 0x97: _next_buffer, 0x98: _readonly_buffer,
}  # fmt: skip
ACTS = [_BY_CODE.get(code, _unknown) for code in range(256)]
"""What each byte does as an opcode: the 68 of protocols 0 to 5 but for the 8 that the loop itself does; a refusal."""
