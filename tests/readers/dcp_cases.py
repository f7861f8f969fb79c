"""The DCP cases of the corpus as tests use them: writable copies, and what each tensor must hold as numpy arrays.

``ckpt`` is what a person opens, ``oracle.safetensors`` holds the full logical tensors, ``case.json`` what the writer
was told; all of it written by torch 2.13 and read here with nothing of ours.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.readers.oracle import read_stored

CORPUS = Path(__file__).parent.parent / "data" / "torch"
Array = NDArray[Any]

DTYPES: dict[str, tuple[str, Any]] = {
    "F64": ("float64", np.float64), "F32": ("float32", np.float32), "F16": ("float16", np.float16),
    "BF16": ("bfloat16", ml_dtypes.bfloat16), "F8_E4M3": ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
    "F8_E5M2": ("float8_e5m2", ml_dtypes.float8_e5m2), "I64": ("int64", np.int64), "I32": ("int32", np.int32),
    "I16": ("int16", np.int16), "I8": ("int8", np.int8), "U64": ("uint64", np.uint64), "U32": ("uint32", np.uint32),
    "U16": ("uint16", np.uint16), "U8": ("uint8", np.uint8), "BOOL": ("bool", np.bool_),
}  # fmt: skip
# safetensors has no complex numbers: the oracle holds these as pairs of float32.
COMPLEX = {"w_complex64", "w_c64"}


def oracle(case: str) -> dict[str, tuple[str, Array]]:
    """Return torch's name of the element type and the values of every tensor of a case."""
    out: dict[str, tuple[str, Array]] = {}
    for name, (stored, shape, data) in read_stored(CORPUS / case / "oracle.safetensors").items():
        kind, dtype = DTYPES[stored]
        if name in COMPLEX:
            kind, dtype, shape = "complex64", np.complex64, shape[:-1]
        out[name] = (kind, np.frombuffer(data, dtype).reshape(shape))
    return out


def facts(case: str) -> dict[str, Any]:
    """Return what the writer of a case was told."""
    told: dict[str, Any] = json.loads((CORPUS / case / "case.json").read_text())
    return told


def copied(case: str, folder: Path) -> Path:
    """Return a copy of what a person would open, for a test that changes it."""
    target = folder / case
    shutil.copytree(CORPUS / case / "ckpt", target)
    return target


def same_bits(found: Array, expected: Array) -> bool:
    """Whether two arrays have one type, one shape and the same bytes."""
    return (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
