"""Reads safetensors files by struct and json alone: an oracle that shares nothing with our reader."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

Stored = dict[str, tuple[str, tuple[int, ...], bytes]]


def read_stored(path: Path) -> Stored:
    """Return name -> (dtype, shape, bytes) of a well-formed file."""
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header: dict[str, Any] = json.loads(raw[8 : 8 + n])
    header.pop("__metadata__", None)
    return {
        name: (e["dtype"], tuple(e["shape"]), raw[8 + n + e["data_offsets"][0] : 8 + n + e["data_offsets"][1]])
        for name, e in header.items()
    }


def container(header: dict[str, Any] | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """Return the bytes of a file with this header, whatever its sense; `length` overrides the header length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin: int, end: int, shape: tuple[int, ...] = (4,), dtype: str = "F32") -> dict[str, Any]:
    """Return one tensor's entry in a header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
