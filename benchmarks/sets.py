"""Checkpoints to measure with, written with struct and json or by torch. Large ones are sparse: headers, no data."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

Shape = tuple[int, ...]
_BYTES = {"BF16": 2, "F32": 4}


def write_file(path: Path, shapes: Mapping[str, Shape], dtype: str = "BF16", data: bytes | None = None) -> int:
    """Write one file; without `data` its values are a hole. Return the bytes of its header."""
    entries: dict[str, object] = {}
    at = 0
    for name, shape in shapes.items():
        end = at + math.prod(shape) * _BYTES[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        if data is None:
            stream.truncate(8 + len(text) + at)
        else:
            stream.write(data)
    return 8 + len(text)


def write_set(folder: Path, names: Sequence[str], shape: Shape, n_files: int) -> int:
    """Write equal tensors as a set of sparse files with its index. Return the bytes of all headers and the index."""
    folder.mkdir()
    each = math.ceil(len(names) / n_files)
    weight_map: dict[str, str] = {}
    n_bytes = 0
    for i in range(n_files):
        file = f"model-{i + 1:05d}-of-{n_files:05d}.safetensors"
        held = names[i * each : (i + 1) * each]
        n_bytes += write_file(folder / file, dict.fromkeys(held, shape))
        weight_map.update(dict.fromkeys(held, file))
    total = len(names) * math.prod(shape) * _BYTES["BF16"]
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2)
    (folder / "model.safetensors.index.json").write_text(text)
    return n_bytes + len(text)


def expert_names(n: int) -> list[str]:
    """Return names as a model of many layers and experts has them."""
    parts = ("w1", "w2", "w3")
    return [f"model.layers.{i // 300}.mlp.experts.{i // 3 % 100}.{parts[i % 3]}.weight" for i in range(n)]


def terabyte(folder: Path) -> int:
    """Write 30,000 tensors in 250 files of 4 GB, 1 TB of which the disk holds next to nothing; return as write_set."""
    return write_set(folder, expert_names(30_000), (4096, 4068), 250)


def torch_file(path: Path) -> None:
    """Have torch.save write two F32 tensors of 5 GB and leave out their data: the size of each needs ZIP64."""
    import torch  # takes long, and no other set needs it

    # Memory that nothing touches is never given by the system: no 10 GB are needed here either.
    tensors = {f"layers.{i}.weight": torch.empty(32_768, 38_147) for i in range(2)}
    with torch.serialization.skip_data():
        torch.save(tensors, path)
