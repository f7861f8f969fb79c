"""Bytes against torch, against struct and against the formats' definitions in exact fractions; every code of the
small types, and the text of each."""

from __future__ import annotations

import bisect
import functools
import json
import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensormorph.dtypes import Encoding, encoding, encodings, plain, round_once, text, unpack_nibbles
from tensormorph.errors import UnsupportedDtypeError

MULTI_BYTE = [e for e in encodings() if e.readable and not e.packed and e.bits and e.bits > 8]
SIXTEEN = ("float16", "bfloat16")
EIGHT = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
SMALL = ("float4_e2m1fn", *EIGHT, *SIXTEEN)


def bits_of(name: str) -> int:
    bits = encoding(name).bits
    assert bits is not None
    return bits


@functools.cache
def all_values(name: str) -> NDArray[Any]:
    """Every code of a small type, decoded as from a file."""
    n = 1 << bits_of(name)
    raw = np.arange(n, dtype="<u2" if n > 256 else "<u1").tobytes()
    return np.frombuffer(raw, encoding(name).stored_dtype).astype(encoding(name).dtype)


# ---------------------------------------------------------------- the formats, by their definition


@dataclass(frozen=True)
class Format:
    """Exponent and mantissa bits, exponent bias, and what the special codes mean."""

    exponent: int
    mantissa: int
    bias: int
    specials: str  # "ieee": last exponent is Inf and NaN; "fn": all ones is NaN; "fnuz": -0 is NaN; "none"

    def value(self, code: int) -> Fraction | float:
        """The exact value of a code; nan and infinities as floats."""
        sign = -1 if code >> (self.exponent + self.mantissa) else 1
        e = (code >> self.mantissa) & ((1 << self.exponent) - 1)
        m = code & ((1 << self.mantissa) - 1)
        top = (1 << self.exponent) - 1
        if self.specials == "ieee" and e == top:
            return math.nan if m else sign * math.inf
        if self.specials == "fn" and e == top and m == (1 << self.mantissa) - 1:
            return math.nan
        if self.specials == "fnuz" and sign < 0 and e == m == 0:
            return math.nan
        if e == 0:
            return sign * Fraction(m) * Fraction(2) ** (1 - self.bias - self.mantissa)
        return sign * (Fraction(m, 1 << self.mantissa) + 1) * Fraction(2) ** (e - self.bias)


# OCP 8-bit Floating Point v1.0 (E4M3, E5M2), OCP Microscaling v1.0 (E2M1), arXiv:2206.02915 (FNUZ), IEEE 754.
FORMATS = {
    "float4_e2m1fn": Format(2, 1, 1, "none"),
    "float8_e4m3fn": Format(4, 3, 7, "fn"),
    "float8_e5m2": Format(5, 2, 15, "ieee"),
    "float8_e4m3fnuz": Format(4, 3, 8, "fnuz"),
    "float8_e5m2fnuz": Format(5, 2, 16, "fnuz"),
    "float16": Format(5, 10, 15, "ieee"),
    "bfloat16": Format(8, 7, 127, "ieee"),
}


def exact(name: str, code: int) -> Fraction | float:
    """The value of a code by the format's definition."""
    if name == "float8_e8m0fnu":  # OCP Microscaling v1.0, 5.4.1: eight bits of exponent, no sign, no zero
        return math.nan if code == 255 else Fraction(2) ** (code - 127)
    return FORMATS[name].value(code)


@pytest.mark.parametrize("name", SMALL)
def test_every_code_has_the_value_that_its_format_defines(name: str) -> None:
    for code, value in enumerate(all_values(name)):
        expected, found = exact(name, code), float(value)
        if isinstance(expected, Fraction):
            assert Fraction(found) == expected, f"code {code:#x}"
        else:
            assert np.array_equal(found, expected, equal_nan=True), f"code {code:#x}"


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"])
def test_the_sign_of_zero_is_kept(name: str) -> None:
    negative = all_values(name)[1 << (bits_of(name) - 1)]
    assert float(negative) == 0
    assert math.copysign(1, float(negative)) == -1
    assert text(negative) == "-0.0"
    assert math.copysign(1, plain(np.array(negative))) == -1


@pytest.mark.parametrize("name", [*EIGHT, *SIXTEEN])
def test_every_code_has_the_value_that_torch_gives_it(name: str) -> None:
    n = 1 << bits_of(name)
    codes = torch.from_numpy(np.arange(n, dtype=np.uint8 if n == 256 else np.int32).astype(f"i{n.bit_length() // 8}"))
    expected = codes.view(getattr(torch, name)).to(torch.float64).numpy()
    with np.errstate(invalid="ignore"):  # NaN codes
        np.testing.assert_array_equal(all_values(name).astype(np.float64), expected)


def test_names_are_those_of_torch_and_sizes_too() -> None:
    for kind in encodings():
        known = getattr(torch, kind.name, None)
        if known is not None:
            assert kind.bits == 8 * known.itemsize
            assert kind.readable
        assert encoding(kind.name) is kind
    assert {e.name for e in encodings() if not hasattr(torch, e.name)} == {
        "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn",
    }  # fmt: skip


# ---------------------------------------------------------------- bytes


STRUCT = {
    "uint16": "H", "uint32": "I", "uint64": "Q", "int16": "h", "int32": "i", "int64": "q", "float16": "e",
    "float32": "f", "float64": "d", "complex64": "ff", "complex128": "dd",
}  # fmt: skip


@pytest.mark.parametrize("kind", MULTI_BYTE, ids=lambda e: e.name)
@pytest.mark.parametrize("order", ["<", ">"])
def test_each_byte_order_decodes_on_any_machine(kind: Encoding, order: str) -> None:
    """R12: the expected numbers are packed by struct, which knows no numpy."""
    stored = kind.big_endian() if order == ">" else kind
    numbers: list[Any] = [1, 2, 513, 30_000] if kind.kind in ("int", "uint") else [1.5, -2.0, 0.15625, 240.0]
    if kind.name == "bfloat16":
        little = [struct.pack("<f", v)[2:] for v in numbers]
        raw = b"".join(b if order == "<" else b[::-1] for b in little)
    elif kind.kind == "complex":
        raw = b"".join(struct.pack(order + STRUCT[kind.name], v, -2 * v) for v in numbers)
        numbers = [complex(v, -2 * v) for v in numbers]
    else:
        raw = b"".join(struct.pack(order + STRUCT[kind.name], v) for v in numbers)
    assert len(raw) == kind.n_bytes(len(numbers))
    held = np.frombuffer(raw, stored.stored_dtype)
    decoded = held.astype(kind.dtype)
    assert decoded.dtype == kind.dtype
    assert decoded.dtype.isnative
    assert decoded.tolist() == numbers or [float(v) for v in decoded] == numbers
    assert plain(held) == plain(decoded), "printing needs no decoding first"
    assert [text(v) for v in held] == [text(v) for v in decoded]


@pytest.mark.parametrize("name", SIXTEEN)
def test_every_code_decodes_big_endian(name: str) -> None:
    raw = np.arange(1 << 16, dtype=">u2").tobytes()
    found = np.frombuffer(raw, encoding(name).big_endian().stored_dtype).astype(encoding(name).dtype)
    assert found.tobytes() == all_values(name).tobytes()


def test_bytes_have_no_order_in_elements_of_one_byte() -> None:
    raw = bytes(range(256))
    for kind in encodings():
        if kind.bits == 8 and kind.name != "bool":
            found = np.frombuffer(raw, kind.big_endian().stored_dtype).astype(kind.dtype)
            assert found.tobytes() == np.frombuffer(raw, kind.stored_dtype).tobytes()


def test_the_element_of_even_index_lies_in_the_low_nibble() -> None:
    """R10: torch's float4_e2m1fn_x2 packs the low half first: 0x21 holds 0.5 (code 1), then 1.0 (code 2)."""
    assert unpack_nibbles(np.array([0x21, 0xF0], np.uint8), 0, 4).tolist() == [1, 2, 0, 15]
    values = unpack_nibbles(np.array([0x21, 0xF0], np.uint8), 0, 4).view(encoding("float4_e2m1fn").dtype)
    assert [float(v) for v in values] == [0.5, 1.0, 0.0, -6.0]


def test_any_run_of_nibbles_can_be_unpacked() -> None:
    raw = np.arange(256, dtype=np.uint8)
    for source in (raw, np.repeat(raw, 2)[::2], raw[:5]):
        codes = [code for byte in source.tolist() for code in (byte & 15, byte >> 4)]
        for first in (0, 1, 2, 7):
            for n in (0, 1, 2, 3, len(codes) - first):
                assert unpack_nibbles(source, first, n).tolist() == codes[first : first + n][:n]


def test_a_last_partial_byte_counts_whole() -> None:
    four, six = encoding("float4_e2m1fn"), encoding("float6_e2m3fn")
    assert [four.n_bytes(n) for n in range(6)] == [0, 1, 1, 2, 2, 3]
    assert [six.n_bytes(n) for n in range(6)] == [0, 1, 2, 3, 3, 4]
    assert encoding("float64").n_bytes(1 << 70) == 1 << 73
    assert four.packed
    assert not any(e.packed for e in MULTI_BYTE)


def test_an_unknown_type_is_listed_and_never_decoded() -> None:
    odd = encoding("F9_NEW")
    assert (odd.name, odd.bits, odd.kind, odd.readable, odd.packed) == ("F9_NEW", None, "unknown", False, False)
    with pytest.raises(UnsupportedDtypeError, match="F9_NEW"):
        odd.n_bytes(3)
    for kind in (odd, encoding("float6_e3m2fn")):
        assert kind.dtype == np.dtype("V1")
        with pytest.raises(UnsupportedDtypeError, match=kind.name):
            _ = kind.stored_dtype


# ---------------------------------------------------------------- text of values


class Line:
    """The finite values of a small type from zero up, exactly, and what rounds to each: to nearest, ties to even."""

    def __init__(self, name: str) -> None:
        found = {code: exact(name, code) for code in range(1 << bits_of(name))}
        known = {v: code for code, v in found.items() if isinstance(v, Fraction) and v >= 0}
        self.values = sorted(known)
        self.codes = [min(known[v], known[v] & (1 << bits_of(name)) - 1) for v in self.values]
        if 0 in known:
            self.codes[0] = 0
        middles = [(a + b) / 2 for a, b in zip(self.values, self.values[1:], strict=False)]
        below = self.values[0] * Fraction(3, 4)  # float8_e8m0fnu has no zero: as if half the smallest value were there
        above = self.values[-1] + (self.values[-1] - self.values[-2]) / 2
        self.edges = [below, *middles, above]

    def rounds_to(self, number: Fraction, at: int) -> bool:
        """Whether a number rounds to the value at a position."""
        low, high = self.edges[at], self.edges[at + 1]
        return low < number < high or (self.codes[at] % 2 == 0 and number in (low, high))

    def shorter(self, at: int, digits: int) -> Fraction | None:
        """A decimal of at most so many digits that rounds to the value at a position, or None."""
        if digits < 1:
            return None
        low, high = self.edges[at], self.edges[at + 1]
        exponent = math.floor(math.log10(float(self.values[at])))
        for unit in (Fraction(10) ** (exponent - digits + k) for k in (0, 1, 2)):
            for mantissa in range(math.ceil(low / unit), math.floor(high / unit) + 1):
                if 0 < mantissa < 10**digits and self.rounds_to(mantissa * unit, at):
                    return mantissa * unit
        return None


@functools.cache
def line_of(name: str) -> Line:
    return Line(name)


@functools.cache
def texts(name: str) -> list[str]:
    """The text of every code."""
    return [text(value) for value in all_values(name)]


def digits_of(shown: str) -> int:
    """Digits of a decimal that matter."""
    return len(shown.lstrip("-").partition("e")[0].replace(".", "").strip("0"))


# Both ml_dtypes and torch round every float32 between 2**-127 and 2**-126 up, so that for float8_e8m0fnu's smallest
# value only texts from below it read back.
@pytest.mark.parametrize("name", SMALL)
def test_the_text_of_every_code_is_the_shortest_that_rounds_back_to_it(name: str) -> None:
    line, values = line_of(name), all_values(name)
    n_finite = 0
    for at, code in enumerate(line.codes):
        shown = texts(name)[code]
        number = Fraction(shown)
        assert line.rounds_to(number, at) or number == line.values[at], f"{shown} is not {values[code]}"
        if line.values[at]:
            assert line.shorter(at, digits_of(shown) - 1) is None, f"{shown} is not the shortest of {values[code]}"
        n_finite += 1
    assert n_finite == len(line.values)


@pytest.mark.parametrize("name", SMALL)
def test_the_text_of_every_code_reads_back_by_the_type_s_own_conversion(name: str) -> None:
    values = all_values(name)
    shown = texts(name)
    with np.errstate(invalid="ignore"):  # NaN codes
        back = np.array([float(s) for s in shown]).astype(values.dtype)
        np.testing.assert_array_equal(back.astype(np.float64), values.astype(np.float64))


@pytest.mark.parametrize("name", SMALL)
def test_negative_values_print_as_their_positive_ones_do(name: str) -> None:
    if name == "float8_e8m0fnu":
        return
    half = 1 << (bits_of(name) - 1)
    for code in range(0, half, 1 if half < 1000 else 37):
        positive, negative = texts(name)[code], texts(name)[code + half]
        if "NaN" not in (positive, negative):
            assert negative == "-" + positive


@pytest.mark.parametrize("name", SMALL)
def test_json_says_the_same_as_text(name: str) -> None:
    values = all_values(name)
    words = {"NaN": "NaN", "Infinity": "Inf", "-Infinity": "-Inf"}
    listed = plain(values.reshape(2, -1))
    told = [words[v] if isinstance(v, str) else repr(v) for v in listed[0] + listed[1]]
    assert told == texts(name)
    json.dumps(listed, allow_nan=False)


def test_some_texts_known_by_heart() -> None:
    import ml_dtypes

    assert text(ml_dtypes.bfloat16(0.1)) == "0.1"
    assert text(ml_dtypes.bfloat16(2.0**64)) == "1.85e+19", "1.84 would round to the value below"
    assert text(ml_dtypes.float8_e4m3fn(0.125)) == "0.13", "0.12 would round to the value below"
    assert text(ml_dtypes.float8_e8m0fnu(2.0**-127)) == "5e-39"
    assert text(np.float32(0.1)) == "0.1"
    assert text(np.float32(16777216)) == "16777216.0"
    assert text(np.float64(0.1) + np.float64(0.2)) == "0.30000000000000004"
    assert text(np.float16(65504)) == "65500.0"
    assert [text(v) for v in np.array([True, False])] == ["True", "False"]
    assert text(np.uint64(2**64 - 1)) == "18446744073709551615"
    assert text(np.int8(-128)) == "-128"


def neighbours(shown: str, digits: int) -> list[float]:
    """The decimals of so many digits on both sides of a number."""
    mantissa, _, exponent = f"{Decimal(shown):.{digits - 1}e}".partition("e")
    whole, scale = int(mantissa.replace(".", "")), int(exponent) - digits + 1
    return [float(f"{whole + step}e{scale}") for step in (-1, 0, 1)]


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32 - 1))
def test_the_text_of_a_float32_is_the_shortest_that_reads_back(code: int) -> None:
    value = np.uint32(code).view(np.float32)
    shown = text(value)
    if not np.isfinite(value):
        assert shown in ("NaN", "Inf", "-Inf")
        return
    with np.errstate(over="ignore"):
        assert np.float32(shown).view(np.uint32) == code
        if digits_of(shown) > 1:
            assert all(np.float32(v) != value for v in neighbours(shown, digits_of(shown) - 1))


@settings(deadline=None, max_examples=300)
@given(st.floats())
def test_the_text_of_a_float64_is_the_shortest_that_reads_back(number: float) -> None:
    value = np.float64(number)
    shown, listed = text(value), plain(np.array(value))
    if not math.isfinite(number):
        assert isinstance(listed, str)
        assert np.array_equal(float(shown), number, equal_nan=True)
        assert np.array_equal(float(listed), number, equal_nan=True)
        return
    assert struct.pack("d", float(shown)) == struct.pack("d", listed) == struct.pack("d", number)
    if digits_of(shown) > 1:
        assert number not in neighbours(shown, digits_of(shown) - 1)


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_json_of_numbers_that_json_lacks(name: str) -> None:
    values = np.array([math.nan, math.inf, -math.inf, 0.5, -0.0]).astype(encoding(name).dtype)
    listed = plain(values)
    assert listed == ["NaN", "Infinity", "-Infinity", 0.5, -0.0]
    assert json.dumps(listed, allow_nan=False) == '["NaN", "Infinity", "-Infinity", 0.5, -0.0]'


@pytest.mark.parametrize("kind", [e for e in encodings() if e.readable], ids=lambda e: e.name)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (0, 2), (1,), (2, 1, 3)], ids=str)
def test_json_nests_as_the_shape_says(kind: Encoding, shape: tuple[int, ...]) -> None:
    values = np.ones(shape).astype(kind.dtype)
    one: Any = [1.0, 0.0] if kind.kind == "complex" else True if kind.kind == "bool" else 1
    expected: Any = np.empty(shape, object)
    expected.fill(one)
    assert plain(values) == expected.tolist()
    assert plain(np.repeat(values[..., None], 2, axis=-1)[..., 0]) == expected.tolist(), "strided values too"
    json.dumps(plain(values), allow_nan=False)


def test_json_keeps_kinds_apart() -> None:
    assert plain(np.array(True)) is True
    assert plain(np.array(2**64 - 1, np.uint64)) == 2**64 - 1
    assert plain(np.array([-(2**63), 2**63 - 1])) == [-(2**63), 2**63 - 1]
    assert isinstance(plain(np.array(1, np.int8)), int)
    assert isinstance(plain(np.array(1, np.float32)), float)


@pytest.mark.parametrize("dtype", ["<c8", ">c8", "<c16", ">c16"])
def test_complex_values_are_pairs_with_both_signs(dtype: str) -> None:
    values = np.array([complex(1, -0.0), complex(-0.0, 2), complex(math.nan, -math.inf), 0.1 - 0.1j]).astype(dtype)
    assert json.dumps(plain(values)) == '[[1.0, -0.0], [-0.0, 2.0], ["NaN", "-Infinity"], [0.1, -0.1]]'
    assert plain(values[0]) == [1.0, -0.0]
    assert [text(v) for v in values] == ["1.0-0.0j", "-0.0+2.0j", "NaN-Infj", "0.1-0.1j"]
    assert text(np.complex64(complex(1, math.nan))) == "1.0+NaNj"
    assert text(np.complex64(complex(1, math.copysign(math.nan, -1)))) == "1.0+NaNj"


# ---------------------------------------------------------------- rounding once


def nearest(name: str, number: Fraction) -> Fraction | None:
    """The value of a small type nearest to a number, ties to even; None beyond the last."""
    line = line_of(name)
    size = abs(number)
    at = min(bisect.bisect_left(line.values, size), len(line.values) - 1)
    found = next((k for k in (at - 1, at) if k >= 0 and line.rounds_to(size, k)), None)
    if found is None:
        return line.values[0] if size < line.values[0] else None
    return line.values[found] if number >= 0 else -line.values[found]


@pytest.mark.parametrize("name", [n for n in SMALL if n != "float8_e8m0fnu"])
def test_values_just_beside_a_tie_round_to_their_own_side(name: str) -> None:
    line = line_of(name)
    step = 1 if len(line.values) < 1000 else 101
    ties = [float(edge) for edge in line.edges[1:-1:step]]
    numbers = [v for tie in ties for v in (tie, math.nextafter(tie, 0), math.nextafter(tie, math.inf))]
    numbers += [-v for v in numbers]
    found = round_once(np.array(numbers), encoding(name).dtype)
    for number, value in zip(numbers, found, strict=True):
        assert Fraction(float(value)) == nearest(name, Fraction(number)), f"{number!r} gave {value}"


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(SIXTEEN), st.floats(allow_nan=False, allow_infinity=False))
def test_any_value_is_rounded_once(name: str, number: float) -> None:
    found = float(round_once(np.array(number), encoding(name).dtype))
    expected = nearest(name, Fraction(number))
    if expected is None:
        assert found == math.copysign(math.inf, number)
    else:
        assert Fraction(found) == expected


def test_what_is_not_finite_stays_so_and_nothing_warns() -> None:
    values = np.array([math.nan, math.inf, -math.inf, 1e300, -1e300, -0.0])
    for name in ("bfloat16", "float16", "float32", "float8_e5m2"):
        found = [float(v) for v in round_once(values, encoding(name).dtype)]
        np.testing.assert_array_equal(found, [math.nan, math.inf, -math.inf, math.inf, -math.inf, -0.0])
        assert math.copysign(1, found[-1]) == -1
    assert round_once(np.array(1e300 + 1j), np.dtype(np.complex64)) == complex(math.inf, 1)
    assert round_once(values, np.dtype(np.float64)).tobytes() == values.tobytes()


def test_rounding_leaves_its_input_alone() -> None:
    values = np.array([1 + 2**-30, 2.5])
    before = values.copy()
    round_once(values, encoding("bfloat16").dtype)
    assert (values == before).all()
