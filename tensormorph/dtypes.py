"""Element encodings: how bytes in a file become numpy values, and values become text.

Every multi-byte element names its byte order; nothing here depends on the machine's own. Small floats come from the
``ml_dtypes`` package, whose decoding the tests compare with torch for every code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensormorph.errors import UnsupportedDtypeError

Kind = Literal["float", "int", "uint", "bool", "complex", "unknown"]


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one element lies in a file.

    Fields
    ------
    name
        torch's name without prefix (``bfloat16``); for a kind unknown to us, the name in the file.
    bits
        Bits an element takes in the file; None where that is unknown too.
    kind
        Sort of number.
    readable
        Whether a published packing tells how to decode it.
    byteorder
        ``<`` little-endian or ``>`` big-endian.
    """

    name: str
    bits: int | None
    kind: Kind
    readable: bool = True
    byteorder: Literal["<", ">"] = "<"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of decoded values, native byte order; ``void`` of one byte where nothing decodes them."""
        return _numpy_dtype(self.name) if self.readable else np.dtype("V1")

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The numpy type of the bytes as they lie in the file; only for elements of whole bytes.

        Raises
        ------
        UnsupportedDtypeError
            If no decoding is known.
        """
        if not self.readable:
            raise UnsupportedDtypeError(self.name)
        return self.dtype.newbyteorder(self.byteorder)

    @property
    def packed(self) -> bool:
        """Whether several elements share a byte."""
        return self.bits is not None and self.bits % 8 != 0

    def n_bytes(self, n_elements: int) -> int:
        """Return the bytes that a run of elements takes, a last partial byte counted whole.

        Raises
        ------
        UnsupportedDtypeError
            If the size of an element is unknown.
        """
        if self.bits is None:
            raise UnsupportedDtypeError(self.name)
        return -(-n_elements * self.bits // 8)

    def big_endian(self) -> Encoding:
        """Return the same elements stored big-endian."""
        return replace(self, byteorder=">")


def unpack_nibbles(raw: NDArray[np.uint8], first: int, n: int) -> NDArray[np.uint8]:
    """Return `n` four-bit codes, one a byte, from the `first`-th on.

    The element of even index sits in the low four bits of its byte: OCP Microscaling Formats v1.0 leaves packing to
    the implementation; this is torch's ``float4_e2m1fn_x2`` (low half first), which writes F4 into safetensors.
    """
    codes = np.empty(2 * raw.size, np.uint8)
    np.bitwise_and(raw, 15, out=codes[0::2])
    np.right_shift(raw, 4, out=codes[1::2])
    return codes[first : first + n]


_NAMED: dict[str, Encoding] = {
    e.name: e
    for e in (
        Encoding("bool", 8, "bool"),
        *(Encoding(f"uint{bits}", bits, "uint") for bits in (8, 16, 32, 64)),
        *(Encoding(f"int{bits}", bits, "int") for bits in (8, 16, 32, 64)),
        *(Encoding(f"float{bits}", bits, "float") for bits in (16, 32, 64)),
        Encoding("bfloat16", 16, "float"),
        *(
            Encoding(f"float8_{kind}", 8, "float")
            for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")
        ),
        Encoding("float4_e2m1fn", 4, "float"),
        Encoding("complex64", 64, "complex"),
        Encoding("complex128", 128, "complex"),
        # No publication fixes how six-bit elements are packed into the bytes of a file: listed, never decoded.
        Encoding("float6_e2m3fn", 6, "float", readable=False),
        Encoding("float6_e3m2fn", 6, "float", readable=False),
    )
}  # fmt: skip


def encoding(name: str) -> Encoding:
    """Return the little-endian encoding that torch calls `name`; an unknown name gives an unreadable one."""
    known = _NAMED.get(name)
    return known if known is not None else Encoding(name, None, "unknown", readable=False)


def encodings() -> Iterator[Encoding]:
    """Return every encoding known by name, little-endian."""
    return iter(_NAMED.values())


def round_once(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return float64 (or complex128) values in a narrower type of the same kind, ties to even; too large is infinite.

    A plain ``astype`` to the types of ml_dtypes goes through float32 and so rounds twice.
    """
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if dtype in (np.float16, np.float32, np.float64) or dtype.kind not in "fV":
            return values.astype(dtype)
        # On the way, inexact values are rounded to the float32 with an odd last bit: that is never a tie of `dtype`.
        narrow = values.astype(np.float32)
        back = narrow.astype(np.float64)
        inexact = np.isfinite(values) & (back != values)
        bits = narrow.view(np.uint32)
        bits -= (inexact & (np.abs(back) > np.abs(values))).astype(np.uint32)
        bits |= inexact.astype(np.uint32)
        return narrow.astype(dtype)


@cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16" or name.startswith(("float8", "float4")):
        import ml_dtypes  # only checkpoints that hold such elements pay for its import

        small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return small
    return np.dtype(name)


# ---------------------------------------------------------------- text of values


def plain(values: NDArray[Any]) -> Any:
    """Return values as nested lists for JSON; a 0-d array gives a bare value.

    Floats are the Python float whose text is the shortest that reads back in the element's own dtype (bfloat16
    0.1001 gives ``0.1``); non-finite ones are the strings "NaN", "Infinity" and "-Infinity"; a complex value is
    ``[re, im]``.
    """
    if values.dtype.kind == "c":
        return plain(np.stack([values.real, values.imag], axis=-1))
    if values.dtype.kind in "biu":
        return values.tolist()
    codes = np.ascontiguousarray(values)
    # One text a distinct value: a million small floats have at most 65,536 of them.
    unique, places = np.unique(codes.view(f"u{codes.dtype.itemsize}").ravel(), return_inverse=True)
    table = np.empty(unique.size, object)
    table[:] = [_json_float(v) for v in unique.view(codes.dtype)]
    return table[places].reshape(values.shape).tolist()


def text(value: Any) -> str:
    """Return one element (a numpy scalar) as the shortest text that reads back in its own dtype."""
    dtype = np.asarray(value).dtype
    if dtype.kind == "c":
        sign = "" if np.signbit(value.imag) and not np.isnan(value.imag) else "+"
        return f"{text(value.real)}{sign}{text(value.imag)}j"
    if dtype.kind in "biu":
        return str(value)
    number = float(value)
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "Inf" if number > 0 else "-Inf"
    return repr(_shortest(value))


def _json_float(value: Any) -> float | str:
    number = float(value)
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return _shortest(value)


def _shortest(value: Any) -> float:
    """Return the float64 whose shortest text is also the shortest that reads back as `value` in its dtype."""
    kind = type(value)
    if kind in (np.float16, np.float32, np.float64):
        return float(str(value))  # numpy prints these with the fewest digits that are unique in their own type
    number = float(value)
    if number == 0 or not isinstance(value, np.generic):
        return number
    values, edges = _nearest(np.dtype(kind))
    at = int(np.searchsorted(values, abs(number)))
    low, high = float(edges[at]), float(edges[at + 1])
    for digits in range(1, 8):
        # The decimals of so many digits on both sides: below a power of two values lie closer than above it, so that
        # the farther one may be the only one that reads back.
        mantissa, _, exponent = f"{abs(number):.{digits - 1}e}".partition("e")
        scale = int(exponent) - digits + 1
        near = int(mantissa.replace(".", ""))
        beyond = near + 1 if float(f"{near}e{scale}") < abs(number) else near - 1
        for decimal in (near, beyond):
            candidate = math.copysign(float(f"{decimal}e{scale}"), number)
            # Both tests: the type's own conversion rounds twice, but it is what reads the text back.
            if low <= abs(candidate) <= high and kind(candidate) == value:
                return candidate
    return number


@cache
def _nearest(dtype: np.dtype[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a small float type's finite values from zero up, and the ends of the range that rounds to each."""
    codes = np.arange(1 << 8 * dtype.itemsize, dtype=np.uint32).astype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # some codes are NaN
        values = np.unique(codes.view(dtype).astype(np.float64))
    values = values[(values >= 0) & np.isfinite(values)]
    middles = (values[1:] + values[:-1]) / 2
    return values, np.concatenate([[0.0], middles, [values[-1] + (values[-1] - values[-2]) / 2]])
