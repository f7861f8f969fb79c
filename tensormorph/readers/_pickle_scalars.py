"""Opcodes of a pickle that push a number, a text or bytes.

Source: CPython 3.11, Lib/pickletools.py and Lib/pickle.py. What a text form says in no usual way is kept as text: what
Python would make of it differs between its C and its Python unpickler.
"""

from __future__ import annotations

import codecs
import re
from struct import Struct

from tensormorph.readers._pickle_machine import F64, I32, U8, U16, U32, U64, Act, Damage, Machine
from tensormorph.readers._pickle_nodes import SHOWN_BITS, ByteArray
from tensormorph.text import count, printable

TEXT_DIGITS = 4300
"""A number in text of more digits is kept as text: Python's own int() refuses it. Source: sys.int_info."""

_INTEGER = re.compile(rb"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(rb"[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|nan)")
# Looked up now: found at its first use, it would be imported while a file is read.
_RAW_UNICODE = codecs.lookup("raw-unicode-escape")
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {b"\\": b"\\", b"'": b"'", b'"': b'"', b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r",
            b"t": b"\t", b"v": b"\v"}  # fmt: skip


def _constant(value: bool | None) -> Act:
    """NONE, NEWTRUE, NEWFALSE."""
    return lambda machine: machine.stack.append(value)


def _number(form: Struct) -> Act:
    """BININT2, BININT, BINFLOAT."""
    unpack, n_bytes = form.unpack_from, form.size

    def act(machine: Machine) -> None:
        machine.stack.append(unpack(machine.data, machine.pos)[0])
        machine.pos += n_bytes

    return act


def _int_text(machine: Machine) -> None:
    """INT and LONG: decimal digits, L behind them in LONG; 00 and 01 of INT are the bools of protocols 0 and 1."""
    line = machine.line()
    if machine.data[machine.at] == 0x49 and line in (b"00", b"01"):
        machine.stack.append(line == b"01")
        return
    digits = line.removesuffix(b"L") if machine.data[machine.at] == 0x4C else line
    machine.stack.append(int(digits) if _fits(_INTEGER, digits) else _odd_number(machine, line))


def _float_text(machine: Machine) -> None:
    line = machine.line()
    machine.stack.append(float(line) if _fits(_FLOAT, line) else _odd_number(machine, line))


def _fits(form: re.Pattern[bytes], line: bytes) -> bool:
    return len(line) <= TEXT_DIGITS and form.fullmatch(line) is not None


def _odd_number(machine: Machine, line: bytes) -> str:
    text = line.decode("latin-1")
    machine.note("pickle-odd-number", "error",
        f"{machine.opcode} has a number of no usual form, {printable(text, 60)}: it is kept as text")  # fmt: skip
    return text


def _long(form: Struct) -> Act:
    """LONG1, LONG4: two's complement, little-endian."""

    def act(machine: Machine) -> None:
        value = int.from_bytes(machine.counted(form), "little", signed=True)
        if value.bit_length() > SHOWN_BITS:
            machine.note("pickle-big-integer", "warning",
                f"An integer of {count(value.bit_length())} bits is shown by its size")  # fmt: skip
        machine.stack.append(value)

    return act


def _text(form: Struct) -> Act:
    """SHORT_BINUNICODE, BINUNICODE, BINUNICODE8."""
    unpack, n_bytes = form.unpack_from, form.size

    def act(machine: Machine) -> None:
        start = machine.pos + n_bytes
        end = start + unpack(machine.data, machine.pos)[0]
        raw = machine.data[start:end]
        if end <= len(machine.data) and raw.isascii():
            machine.stack.append(raw.decode())
            machine.pos = end
        else:
            machine.stack.append(machine.text(machine.counted(form)))

    return act


def _bytes(form: Struct) -> Act:
    """SHORT_BINBYTES, BINBYTES, BINBYTES8."""
    return lambda machine: machine.stack.append(machine.counted(form))


def _bytearray(machine: Machine) -> None:
    machine.stack.append(ByteArray(machine.counted(U64)))


def _python_2(machine: Machine, raw: bytes) -> None:
    """Push a str of Python 2: text where it is UTF-8, as torch.load takes it; its encode() gives the bytes stored."""
    try:
        machine.stack.append(raw.decode("utf-8"))
    except UnicodeDecodeError:
        machine.stack.append(raw)


def _binstring(form: Struct) -> Act:
    return lambda machine: _python_2(machine, machine.counted(form))


def _string_text(machine: Machine) -> None:
    """STRING: a quoted str of Python 2 with its escapes."""
    line = machine.line().strip(b" \t\r")
    if len(line) < 2 or line[0] != line[-1] or line[:1] not in (b"'", b'"'):
        raise Damage("STRING has no quotes")
    _python_2(machine, _ESCAPE.sub(_unescaped, line[1:-1]))


def _unescaped(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    if escape in _ESCAPED:
        return _ESCAPED[escape]
    if escape[:1] == b"x" and len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape.isdigit() and escape[:1] < b"8":
        return bytes([int(escape, 8) & 0xFF])
    return match[0]


def _unicode_text(machine: Machine) -> None:
    """UNICODE: Latin-1 with escapes for the rest."""
    line = machine.line()
    try:
        machine.stack.append(_RAW_UNICODE.decode(line)[0])
    except UnicodeDecodeError as error:
        raise Damage(f"UNICODE has a broken escape, {printable(str(error.reason), 60)}") from None


SCALARS: dict[int, Act] = {
    0x4E: _constant(None), 0x88: _constant(True), 0x89: _constant(False), 0x4D: _number(U16),
    0x4A: _number(I32), 0x47: _number(F64), 0x49: _int_text, 0x4C: _int_text, 0x46: _float_text, 0x8A: _long(U8),
    0x8B: _long(I32), 0x8C: _text(U8), 0x58: _text(U32), 0x8D: _text(U64), 0x56: _unicode_text, 0x53: _string_text,
    0x54: _binstring(I32), 0x55: _binstring(U8), 0x42: _bytes(U32), 0x43: _bytes(U8), 0x8E: _bytes(U64),
    0x96: _bytearray,
}  # fmt: skip
