"""The index of a sharded set: ``{"metadata": {...}, "weight_map": {tensor name: file name}}``.

Source: huggingface_hub, `split_torch_state_dict_into_shards`, and transformers, `save_pretrained`; safetensors and
``.bin`` sets share it. `total_size` counts bytes of tensors, never headers; loaders ignore it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensormorph.errors import CorruptFileError, Problem
from tensormorph.readers._bytes import ByteSource
from tensormorph.readers._json import JsonObject, plain_json, strict_json
from tensormorph.readers._process import THRESHOLD_BYTES, Message, Report, call
from tensormorph.text import count, listing, plural, printable


@dataclass(slots=True)
class ShardIndex:
    """What an index says.

    Fields
    ------
    file
        Name of the index itself.
    weight_map
        Tensor name -> file name, both as stored.
    metadata
        The rest, as JSON; `total_size` and `total_parameters` where they are numbers.
    """

    file: str
    weight_map: Mapping[str, str]
    metadata: Any
    total_size: int | None
    total_parameters: int | None
    problems: list[Problem] = field(default_factory=list)

    @property
    def files(self) -> tuple[str, ...]:
        """File names in order of first mention."""
        return tuple(dict.fromkeys(self.weight_map.values()))


def read_index(source: ByteSource, report: Report) -> ShardIndex:
    """Read a whole index, whatever its size; a big one is parsed by the helper.

    Raises
    ------
    CorruptFileError
        If it is no JSON, or its weight_map is no object.
    """
    raw = source.read(0, source.n_bytes)
    if len(raw) <= THRESHOLD_BYTES:
        found = _parse(raw, source.name)
    else:
        found = call("_index:parse_file", {"path": str(source.path), "name": source.name}, report, source.name)
    problems = [Problem(**fields) for fields in found["problems"]]
    files: list[str] = found["files"]
    weight_map = dict(zip(found["names"], (files[i] for i in found["file"]), strict=True))
    return ShardIndex(
        source.name, weight_map, found["metadata"], found["total_size"], found["total_parameters"], problems
    )  # fmt: skip


def parse_file(argument: Message, report: Report) -> Message:
    """Parse the index at ``argument["path"]``: the helper's side of `read_index`."""
    with open(argument["path"], "rb") as stream:
        return _parse(stream.read(), argument["name"])


def _parse(raw: bytes | bytearray, name: str) -> Message:
    found = strict_json(raw, name, "index")
    weight_map = found.get("weight_map") if isinstance(found, JsonObject) else None
    if not isinstance(weight_map, JsonObject):
        raise CorruptFileError(name, "The index has no weight_map, or it is no object of names and files")
    problems: list[dict[str, Any]] = []

    def tell(code: str, severity: str, sentence: str) -> None:
        problems.append({"code": code, "severity": severity, "sentence": sentence, "file": name})

    wrong = [key for key, value in weight_map if not isinstance(value, str)]
    if wrong:
        tell("index-entry", "error", f"The index gives no file name for {listing(wrong)}")
    pairs = [(key, value) for key, value in weight_map if isinstance(value, str)]
    if len({key for key, _ in pairs}) < len(pairs):
        twice = [key for key, n in Counter(key for key, _ in pairs).items() if n > 1]
        tell("index-duplicate", "warning", f"The index names {listing(twice)} twice; the last entry counts")
    metadata = found.get("metadata")
    numbers = {key: _number(metadata, key) for key in ("total_size", "total_parameters")}
    merged = dict(pairs)
    files = list(dict.fromkeys(merged.values()))
    at = {file: i for i, file in enumerate(files)}
    return {
        "names": list(merged), "file": [at[file] for file in merged.values()], "files": files,
        "metadata": plain_json(metadata), "problems": problems, **numbers,
    }  # fmt: skip


def _number(metadata: Any, key: str) -> int | None:
    value = metadata.get(key) if isinstance(metadata, JsonObject) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 80:
        return None
    return int(value)


def total_problems(index: ShardIndex, n_bytes: int, n_elements: int, packed: bool) -> list[Problem]:
    """Return what the declared totals get wrong, given what the headers add up to.

    `packed` tells that integer tensors may hold several parameters an element, so that the counts may rightly differ.
    """
    out: list[Problem] = []
    if index.total_size is not None and index.total_size != n_bytes:
        out.append(Problem("total-size", "warning",
            f"The index declares total_size {count(index.total_size)}; the headers add up to {plural(n_bytes, 'byte')} "
            "of tensors. Loaders ignore the number", file=index.file))  # fmt: skip
    if index.total_parameters is not None and index.total_parameters != n_elements:
        out.append(Problem("total-parameters", "info" if packed else "warning",
            f"The index declares {count(index.total_parameters)} parameters; the headers add up to "
            f"{plural(n_elements, 'stored element')}" + (" (packed integers may hold several each)" if packed else ""),
            file=index.file))  # fmt: skip
    return out


def absent_file_problem(index: ShardIndex, file: str, names: list[str], why: str) -> Problem:
    """Return the problem of a file that the index names and that cannot be used."""
    return Problem("missing-file", "error",
        f"{printable(file)}, which the index names for {plural(len(names), 'tensor')} ({listing(names)}), {why}",
        file=file, hint="Fetch the file again, or open the set without it: the other tensors read")  # fmt: skip
