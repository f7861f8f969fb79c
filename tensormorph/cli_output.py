"""What the command line says: documents for ``--json``, and how they, text and progress reach the streams.

The text for people is made from the same documents (`cli_text`), so that both say the same.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tensormorph.array import Axis, StoredSource
from tensormorph.dtypes import encoding
from tensormorph.errors import ChooseCheckpointError, Problem, TensormorphError
from tensormorph.fragments import Fragment
from tensormorph.mesh import DeviceMesh, Layout
from tensormorph.model import Checkpoint, Holder, LocalTensor, LogicalTensor, StoredObject, UnreadableTensor
from tensormorph.region import Region

if TYPE_CHECKING:
    from tensormorph.checks import CheckReport
    from tensormorph.stats import Statistics

Document = dict[str, Any]

_PRESENT = {"yes": True, "no": False, "by_design": "by_design", "unknown": "unknown"}
_DEEPEST = 100

# ---------------------------------------------------------------- streams


def write_json(document: Document) -> None:
    """Write one document; every character beyond ASCII is escaped, so that no text in it can break the stream."""
    write_lines([json.dumps(document, allow_nan=False)])


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output; when its reader has gone (``| head``), the rest is dropped quietly."""
    _write(sys.stdout, lines)


def write_messages(lines: Iterable[str]) -> None:
    """Write lines to standard error."""
    _write(sys.stderr, lines)


def _write(stream: Any, lines: Iterable[str]) -> None:
    try:
        for line in lines:
            stream.write(line + "\n")
        stream.flush()
    except BrokenPipeError:
        # What is left in the buffer would raise again when the interpreter flushes it at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class Progress:
    """Tells on a terminal how far a task is, once it has taken half a second; silent everywhere else."""

    def __init__(self) -> None:
        self._next = time.monotonic() + 0.5
        self._shown = False

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next = now + 0.1
        self._shown = True
        share = f" {100 * done // total} %" if total > 0 else ""
        sys.stderr.write(f"\r\x1b[K{what}{share}  (Ctrl-C cancels)"[:84])
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away again."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


# ---------------------------------------------------------------- small parts


def box(region: Region | None) -> list[list[int]] | None:
    """Return a region as ``[[start, stop], ...]``."""
    return None if region is None else [[low, high] for low, high in zip(region.start, region.stop, strict=True)]


def ranges(axes: Sequence[Axis]) -> list[list[int]]:
    """Return what is selected as ``[[start, stop, step], ...]``, with the meaning of Python's ``range``."""
    return [[a.start, a.start + a.count * a.step, a.step] for a in axes]


def mesh_document(mesh: DeviceMesh) -> Document:
    return {"names": list(mesh.names), "shape": list(mesh.shape), "ranks": list(mesh.ranks)}


def layout_document(layout: Layout | None, candidates: Sequence[DeviceMesh]) -> Document | None:
    if layout is None:
        return None
    return {
        "mesh": mesh_document(layout.mesh),
        "placements": [str(placement) for placement in layout.placements],
        "order": list(layout.order),
        "provenance": layout.provenance,
        "evidence": layout.evidence,
        "candidates": [mesh_document(mesh) for mesh in candidates],
    }


def problem_document(problem: Problem) -> Document:
    return {
        "code": problem.code,
        "severity": problem.severity,
        "sentence": problem.sentence,
        "tensor": problem.tensor,
        "file": problem.file,
        "region": box(problem.region),
    }


def error_document(error: TensormorphError) -> Document:
    told: Document = {"code": error.code, "sentence": error.sentence, "path": error.path}
    if isinstance(error, ChooseCheckpointError):
        told["children"] = list(error.children)
    return {"error": told, "problems": [problem_document(problem) for problem in error.problems]}


def json_safe(value: Any, depth: int = 0) -> Any:
    """Return data from a file as JSON can hold it: non-finite numbers and foreign types as text, depth limited."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    if depth >= _DEEPEST:
        return "(nested deeper than shown)"
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): json_safe(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_safe(item, depth + 1) for item in value]
    return str(value)


# ---------------------------------------------------------------- info and ls


def info_document(checkpoint: Checkpoint) -> Document:
    table = checkpoint.table
    lost = list(checkpoint.unreadable.values())
    per_encoding = np.bincount(table.encoding, minlength=len(table.encodings)).tolist() if len(table) else []
    dtypes: dict[str, int] = {}
    bits = 0
    for row, (known, n) in enumerate(zip(table.encodings, per_encoding, strict=False)):
        dtypes[known.name] = dtypes.get(known.name, 0) + n
        n_elements = table.n_elements[table.encoding == row]
        # A last partial byte counts whole, tensor by tensor.
        bits += 8 * int(np.sum(-(-n_elements * known.bits // 8))) if known.bits is not None else 0
    for tensor in lost:
        if tensor.dtype is not None:
            dtypes[tensor.dtype] = dtypes.get(tensor.dtype, 0) + 1
    problems = [problem.severity for problem in checkpoint.problems]
    facts = checkpoint.full_facts()
    return {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "format_detail": checkpoint.format_detail,
        "n_tensors": len(table) + len(lost),
        "n_elements": int(np.sum(table.n_elements)),
        "n_bytes": bits // 8,
        "n_stored_bytes": _stored_bytes(checkpoint),
        "dtypes": dict(sorted((name, n) for name, n in dtypes.items() if n)),
        "n_files": len(checkpoint.files),
        "world_size": facts.world_size,
        "mesh": None if checkpoint.mesh is None else mesh_document(checkpoint.mesh),
        "mesh_provenance": _mesh_provenance(checkpoint),
        "mesh_evidence": checkpoint.mesh_evidence,
        "step": facts.step,
        "software": facts.software,
        "n_problems": {severity: problems.count(severity) for severity in ("error", "warning", "info")},
    }


def _stored_bytes(checkpoint: Checkpoint) -> int | None:
    """Sum the distinct stored items; None if the place of one is known only from the item itself."""
    table = checkpoint.table
    if bool(np.any(table.length < 0)):
        return None
    items = np.stack([table.file.astype(np.int64), table.offset, table.length], axis=1)
    return int(np.sum(np.unique(items, axis=0)[:, 2])) if len(items) else 0


def _mesh_provenance(checkpoint: Checkpoint) -> str | None:
    if checkpoint.mesh is None:
        return None
    layouts = (checkpoint.tensors.at(row).layout for row in range(len(checkpoint.table)))
    return next((found.provenance for found in layouts if found is not None and found.mesh == checkpoint.mesh), None)


def tensor_documents(checkpoint: Checkpoint, rows: Iterable[int]) -> list[Document]:
    """Return one document for each row of the table, from its columns alone where no mesh is known."""
    table = checkpoint.table
    names = list(table.names)
    with_layout = checkpoint.mesh is not None or bool(checkpoint.meshes)
    aliases = _aliases(checkpoint)
    first, dims, first_dim = table.first_fragment.tolist(), table.dims.tolist(), table.first_dim.tolist()
    file, n_elements, complete = table.file.tolist(), table.n_elements.tolist(), table.complete.tolist()
    which = table.encoding.tolist()
    found: list[Document] = []
    for row in rows:
        name, key, stored = names[row], table.keys(row), table.encodings[which[row]]
        found.append({
            "name": name,
            "part": key.part,
            "param": key.param,
            "slot": key.slot,
            "named": key.named,
            "dtype": stored.name,
            "shape": dims[first_dim[row] : first_dim[row + 1]],
            "n_elements": n_elements[row],
            "n_bytes": None if stored.bits is None else stored.n_bytes(n_elements[row]),
            "n_fragments": first[row + 1] - first[row],
            "files": [table.files[i] for i in dict.fromkeys(file[first[row] : first[row + 1]])],
            "layout": layout_document(checkpoint.tensors.at(row).layout, checkpoint.mesh_candidates)
            if with_layout
            else None,
            "complete": complete[row],
            "aliases": aliases.get(name, []),
        })  # fmt: skip
    return found


def unreadable_document(checkpoint: Checkpoint, tensor: UnreadableTensor) -> Document:
    n = None if tensor.shape is None else math.prod(tensor.shape)
    stored = None if tensor.dtype is None else encoding(tensor.dtype)
    known = n is not None and stored is not None and stored.bits is not None
    return {
        "name": tensor.name,
        "part": tensor.key.part,
        "param": tensor.key.param,
        "slot": tensor.key.slot,
        "named": tensor.key.named,
        "dtype": tensor.dtype,
        "shape": None if tensor.shape is None else list(tensor.shape),
        "n_elements": n,
        "n_bytes": stored.n_bytes(n) if known and stored is not None and n is not None else None,
        "n_fragments": 0,
        "files": [] if tensor.file is None else [tensor.file],
        "layout": None,
        "complete": False,
        "aliases": _aliases(checkpoint).get(tensor.name, []),
    }


def _aliases(checkpoint: Checkpoint) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for alias, target in checkpoint.aliases.items():
        found.setdefault(target, []).append(alias)
    return found


def object_row(stored: StoredObject) -> Document:
    return {"name": stored.name, "type": stored.type, "summary": stored.summary, "n_bytes": stored.n_bytes}


# ---------------------------------------------------------------- show, where, stats, check


def fragment_document(fragment: Fragment, table_row: Mapping[str, int], tensor: LogicalTensor) -> Document:
    """Return a fragment; where the item itself cannot be looked into, its place is what the metadata tells."""
    told: Document = {
        "region": box(fragment.region),
        "file": fragment.file,
        "offset": table_row["offset"] if table_row["offset"] >= 0 else None,
        "n_bytes": table_row["length"] if table_row["length"] >= 0 else None,
        "dtype": None,
        "strides": None,
        "byteorder": None,
        "compression": None,
        "rank": fragment.rank,
        "rank_provenance": rank_provenance(fragment.rank, tensor),
        "term": fragment.term,
        "rule": None,
        "complete": False,
    }
    try:
        place = fragment.source.place()
        told |= {
            "offset": place.offset,
            "n_bytes": place.n_bytes,
            "dtype": place.encoding.name,
            "strides": list(place.strides),
            "byteorder": "big" if place.encoding.byteorder == ">" else "little",
            "compression": place.compression,
        }
        told["complete"] = place.encoding.readable and _readable(fragment.source)
    except TensormorphError:
        return told  # the tensor's problems say why
    return told


def _readable(source: StoredSource) -> bool:
    return all(piece.problem is None for piece in source.pieces(Region.whole(source.shape), 1 << 40))


def rank_provenance(rank: int | None, tensor: LogicalTensor) -> str | None:
    """Say how the rank of a part is known: inferred from other evidence, as the layout is, or recorded in the files."""
    if rank is None:
        return None
    if tensor.rank_evidence:
        return "inferred"
    return tensor.layout.provenance if tensor.layout is not None else "recorded"


def local_document(local: LocalTensor, tensor: LogicalTensor) -> Document:
    told: Document = {
        "part": local.part, "rank": local.rank, "device": local.device, "stored_name": local.stored_name,
        "shape": None, "file": None, "offset": None, "n_padding": None, "written_by": local.rank,
    }  # fmt: skip
    try:
        place = local.source.place()
    except TensormorphError:
        return told  # the tensor's problems say why
    rows: Sequence[int]
    if local.rows is not None:
        rows = local.rows
    else:
        end = place.offset + place.n_bytes
        inside = (tensor.fragments.offset >= place.offset) & (tensor.fragments.offset < end)
        files = tensor.fragments.files
        rows = [i for i in np.flatnonzero(inside).tolist() if files[int(tensor.fragments.file[i])] == place.file]
    n_held = sum(region.size for region in dict.fromkeys(tensor.fragments.region(row) for row in rows))
    shape = list(local.source.shape)
    padding = math.prod(shape) - n_held
    return told | {"shape": shape, "file": place.file, "offset": place.offset, "n_padding": padding}


def holder_document(holder: Holder, tensor: LogicalTensor) -> Document:
    return {
        "file": holder.file,
        "offset": holder.offset,
        "bit": holder.bit,
        "n_bytes": holder.n_bytes,
        "rank": holder.rank,
        "rank_provenance": rank_provenance(holder.rank, tensor),
        "region": box(holder.region),
        "term": holder.term,
    }


def statistics_document(name: str, held: Statistics | None) -> Document:
    """Return the statistics of a tensor; None stands for one of which nothing can be read."""
    values = ("min", "max", "mean", "std", "rms", "abs_max")
    counts = ("n_nan", "n_posinf", "n_neginf", "n_zero")
    first = None if held is None else held.first_bad
    return {
        "name": name,
        "exact": held is not None and held.exact,
        **{key: None if held is None else getattr(held, key) for key in values},
        **{key: 0 if held is None else getattr(held, key) for key in counts},
        "first_bad": None
        if first is None
        else {
            "index": list(first.index),
            "kind": first.kind,
            "rank": first.rank,
            "file": first.file,
            "offset": first.offset,
        },
    }


def check_document(report: CheckReport) -> Document:
    return {
        "verdict": report.verdict,
        "portability": [
            {
                "state": entry.state,
                "change": entry.change,
                "status": entry.status,
                "evidence": entry.evidence,
                "reason": entry.reason,
                "source": entry.source,
            }
            for entry in report.portability
        ],
        "complete": report.complete,
        "committed": report.committed,
        "step": report.step,
        "inventory": [
            {"state": entry.state, "present": _PRESENT[entry.present], "evidence": entry.evidence}
            for entry in report.inventory
        ],
        "problems": [problem_document(problem) for problem in report.problems],
    }
