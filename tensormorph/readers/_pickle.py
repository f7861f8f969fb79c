"""Our interpreter of pickles, protocols 0 to 5: it builds inert nodes and has no way to import or call anything.

Opcodes, arguments and effects follow CPython 3.11: the list in Lib/pickletools.py, the effects in Lib/pickle.py and
Modules/_pickle.c. Where CPython stops, we stop: `Pickle.complete` is False, the last problem names the byte, and what
was built stays to be looked at. Where CPython would go on, we go on too, with a Problem if it is odd, lest a file hide
behind a stop of ours what Python would load.

Each length is compared with the bytes that are left before anything is made of it, so all memory is in proportion to
the file. Nothing here recurses, and no node can recurse when it is compared, shown or freed.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from struct import error as struct_error

from tensormorph.errors import Problem
from tensormorph.readers._pickle_machine import U32, Damage, Limits, Machine
from tensormorph.readers._pickle_nodes import Call, Global, Tuple, Value
from tensormorph.readers._pickle_opcodes import (
    ACTS,
    BINGET,
    BININT1,
    CALLS,
    GETS,
    MEMOIZE,
    STOP,
    TUPLE1,
    TUPLE2,
)
from tensormorph.readers._pickle_packed import Form, Packed
from tensormorph.readers._process import Report, silent

__all__ = ["Limits", "Pickle", "interpret"]


@dataclass(frozen=True, slots=True)
class Pickle:
    """What one pickle says.

    Fields
    ------
    value
        The object; where the pickle broke off, a Loose of what had been built.
    end
        Byte behind STOP, where a next pickle may begin; where it broke off, byte of the opcode concerned.
    globals
        Each distinct name, in the order of first use.
    n_opcodes
        Number of opcodes interpreted, without the one at which it broke off.
    problems
        What is odd; where the pickle broke off, that is the last.
    complete
        Whether STOP was reached.
    truncated
        Whether it broke off because the data end: with more data it may go on.
    """

    value: Value
    end: int
    globals: tuple[Global, ...]
    n_opcodes: int
    problems: tuple[Problem, ...]
    complete: bool
    truncated: bool


_DEFAULT = Limits()


def interpret(
    data: bytes | bytearray | memoryview,
    start: int = 0,
    *,
    limits: Limits = _DEFAULT,
    report: Report = silent,
    name: str = "pickle",
    forms: Sequence[Form] = (),
) -> Pickle:
    """Interpret the pickle that begins at byte `start`. Damage does not raise: see Pickle.

    Parameters
    ----------
    data
        Bytes; anything else is copied once.
    name
        Of the file or record, for problems; their offsets count from the beginning of `data`.
    forms
        Objects that are taken in one step each, as Packed nodes.

    Raises
    ------
    LimitError
        If one of `limits` is passed.
    CancelledError
        If `report` raises it.
    """
    machine = Machine(data if type(data) is bytes else bytes(data), start, limits, report, name, forms)
    broken: Damage | None = None
    collecting = gc.isenabled()
    gc.disable()  # nothing becomes garbage here, and looking for it among a million new nodes takes as long again
    try:
        try:
            _run(machine)
        except Damage as damage:
            broken = damage
        value = machine.finish(broken)
    finally:
        if collecting:
            gc.enable()
    return Pickle(value, machine.pos if broken is None else machine.at, tuple(machine.globals.values()),
                  machine.n_opcodes - (broken is not None), tuple(machine.problems), broken is None,
                  broken is not None and broken.truncated)  # fmt: skip


def _run(machine: Machine) -> None:
    """Interpret up to STOP.

    Four opcodes that are most of any large pickle are done here: a call costs more than what they do. What the loop
    needs of the machine is kept in local names, which every other opcode may have changed.
    """
    data, acts = machine.data, ACTS
    pos, check_at, stack, memo = machine.pos, machine.check_at, machine.stack, machine.memo
    at = pos
    n_opcodes = 0
    long_id = U32.unpack_from
    forms = machine.forms
    try:
        while True:
            n_opcodes += 1
            if pos >= check_at:
                machine.at, machine.pos, machine.n_opcodes = at, pos, n_opcodes + machine.n_packed
                machine.check()
                check_at = machine.check_at
            at = pos
            op = data[at]
            if op == MEMOIZE:
                memo.append(stack[-1])
                pos = at + 1
            elif op in GETS:
                if op == BINGET:
                    i = data[at + 1]
                    pos = at + 2
                else:
                    i = long_id(data, at + 1)[0]
                    pos = at + 5
                value = memo[i]
                if forms and (type(value) is Global or type(value) is Packed):
                    pos = machine.got(value, i, at, pos)
                else:
                    stack.append(value)
            elif op == BININT1:
                stack.append(data[at + 1])
                pos = at + 2
            elif op in CALLS:
                made = Call(stack[-2], stack[-1], at)
                del stack[-1]
                stack[-1] = made
                machine.n_nodes += 1
                pos = at + 1
            elif op == TUPLE1:
                stack[-1] = Tuple((stack[-1],))
                machine.n_nodes += 1
                pos = at + 1
            elif op == TUPLE2:
                pair = Tuple((stack[-2], stack[-1]))
                del stack[-1]
                stack[-1] = pair
                machine.n_nodes += 1
                pos = at + 1
            else:
                machine.at = at
                machine.pos = at + 1
                acts[op](machine)
                if op == STOP:
                    break
                pos, check_at, stack, memo = machine.pos, machine.check_at, machine.stack, machine.memo
    except (IndexError, KeyError, struct_error):
        machine.at = at
        raise machine.explain() from None
    finally:
        machine.n_opcodes = n_opcodes + machine.n_packed
    machine.check()
