"""The chunks of a DCP checkpoint as columns, checked against their tensors and against the files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensormorph import dtypes
from tensormorph.columns import ends
from tensormorph.coverage import coverage, tiles
from tensormorph.dtypes import Encoding
from tensormorph.errors import OutsideRootError, Problem
from tensormorph.readers._dcp_items import ItemPlace, unsafe_component
from tensormorph.readers._dcp_metadata import Columns
from tensormorph.region import Region
from tensormorph.text import count, plural, printable

Ints = NDArray[np.int64]
_TOLD = 20
"""So many fragments that a file lacks are told by name; the others are counted."""
DOUBT = "chunk-outside"


@dataclass(slots=True)
class Chunks:
    """All chunks of all metadata files, sorted by tensor and first coordinate.

    Fields
    ------
    tensor
        Position of each chunk's tensor.
    file, offset, length, transform
        Where its item lies: position in `files`, bytes, position in `transforms`.
    coordinate
        Where its box begins in `start` and `stop`; one more entry at the end.
    lost
        Why the item cannot be read, as a position in `reasons`; 0 where nothing speaks against it.
    """

    tensor: Ints
    file: Ints
    offset: Ints
    length: Ints
    transform: Ints
    coordinate: Ints
    start: Ints
    stop: Ints
    lost: Ints
    files: list[str]
    transforms: list[tuple[str, ...]]
    reasons: list[tuple[str, str]] = field(default_factory=lambda: [("", "")])

    def place(self, row: int) -> ItemPlace:
        """Return where the item of a chunk lies."""
        return ItemPlace(
            self.files[int(self.file[row])], int(self.offset[row]), int(self.length[row]),
            self.transforms[int(self.transform[row])],
        )  # fmt: skip

    def region(self, row: int) -> Region:
        """Return the box of a chunk."""
        low, high = int(self.coordinate[row]), int(self.coordinate[row + 1])
        return Region(tuple(self.start[low:high].tolist()), tuple(self.stop[low:high].tolist()))


def lost_problem(chunks: Chunks, name: str, row: int) -> Problem:
    """Return the Problem of a chunk whose item cannot be read."""
    code, why = chunks.reasons[int(chunks.lost[row])]
    file, region = chunks.files[int(chunks.file[row])], chunks.region(row)
    end = int(chunks.offset[row] + chunks.length[row])
    told = why.format(begin=count(int(chunks.offset[row])), end=count(end))
    sentence = f"{printable(name)}, region {region}: {told}"
    return Problem(code, "error", sentence, tensor=name, file=file, region=region,
                   byte_range=(int(chunks.offset[row]), end))  # fmt: skip


@dataclass(slots=True)
class Tensors:
    """All tensors, in the order in which they were met."""

    names: list[str] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    encodings: list[Encoding] = field(default_factory=list)
    at: dict[str, int] = field(default_factory=dict)

    def add(self, file: str, one: Columns, problems: list[Problem]) -> Ints:
        """Add the tensors of a metadata file; return where each stands, -1 where its description is another's rival.

        Files of several ranks describe the same tensors; where they disagree, the first one holds.
        """
        dims: list[int] = one.numbers["dims"].tolist()
        where: list[int] = []
        low = 0
        for i, name in enumerate(one.names):
            n = int(one.numbers["n_dims"][i])
            shape = tuple(dims[low : low + n])
            low += n
            encoding = dtypes.encoding(one.dtypes[int(one.numbers["dtype"][i])] or "unknown")
            known = self.put(name, shape, encoding)
            if (self.shapes[known], self.encodings[known]) != (shape, encoding):
                problems.append(Problem("ranks-disagree", "error",
                    f"{printable(name)} is {self.encodings[known].name} of shape {self.shapes[known]}, but "
                    f"{encoding.name} of shape {shape} by {printable(file)}: the chunks of that rank are left out",
                    name, file))  # fmt: skip
                known = -1
            where.append(known)
        return np.array(where, np.int64)

    def put(self, name: str, shape: tuple[int, ...], encoding: Encoding) -> int:
        """Return where a tensor stands, added if it is new."""
        known = self.at.setdefault(name, len(self.names))
        if known == len(self.names):
            self.names.append(name)
            self.shapes.append(shape)
            self.encodings.append(encoding)
        return known


def chunks_of(
    columns: Sequence[tuple[Columns, Ints]], order: Sequence[int], tensors: Tensors, problems: list[Problem]
) -> Chunks:
    """Return all chunks that are boxes of their tensor and have a storage record, sorted."""
    names, shapes = tensors.names, tensors.shapes
    position = np.empty(len(order), np.int64)
    position[np.array(order, np.int64)] = np.arange(len(order))
    files: dict[str, int] = {}
    transforms: dict[tuple[str, ...], int] = {}
    parts: dict[str, list[Ints]] = {key: [] for key in ("tensor", "file", "offset", "length", "transform", "ndim")}
    starts: list[Ints] = []
    stops: list[Ints] = []
    for one, where in columns:
        numbers = one.numbers
        tensor = np.repeat(where, numbers["n_chunks"])
        ndim = np.repeat(numbers["n_dims"], numbers["n_chunks"])
        file_at = np.array([files.setdefault(name, len(files)) for name in one.files] or [0], np.int64)
        chain_at = np.array([transforms.setdefault(tuple(t), len(transforms)) for t in one.transforms], np.int64)
        parts["tensor"].append(tensor)
        parts["file"].append(np.where(numbers["file"] < 0, -1, file_at[numbers["file"]]))
        parts["transform"].append(chain_at[numbers["transform"]])
        parts["offset"].append(numbers["offset"])
        parts["length"].append(numbers["length"])
        parts["ndim"].append(ndim)
        starts.append(numbers["start"])
        stops.append(numbers["stop"])
    columns_of = {key: np.concatenate(value) if value else np.empty(0, np.int64) for key, value in parts.items()}
    start = np.concatenate(starts) if starts else np.empty(0, np.int64)
    stop = np.concatenate(stops) if stops else np.empty(0, np.int64)
    ndim, tensor = columns_of["ndim"], columns_of["tensor"]
    begin = ends(ndim)
    kept = (tensor >= 0) & (columns_of["file"] >= 0)
    inside, solid = _inside(tensor, ndim, start, stop, shapes)
    for row in np.flatnonzero((tensor >= 0) & (~inside | ((columns_of["file"] < 0) & solid))).tolist():
        t = int(tensor[row])
        box = Region(
            tuple(start[begin[row] : begin[row + 1]].tolist()), tuple(stop[begin[row] : begin[row + 1]].tolist())
        )
        if not inside[row] and solid[row]:
            problems.append(Problem(DOUBT, "error",
                f"{printable(names[t])} has shape {shapes[t]}; its chunk [{box}] lies outside: it is not used",
                names[t], region=box))  # fmt: skip
        elif solid[row]:
            problems.append(Problem("no-storage-record", "error",
                f"{printable(names[t])}, region {box}: the metadata lists the chunk and no place where it is stored",
                names[t], region=box))  # fmt: skip
    kept &= inside
    rows = np.flatnonzero(kept)
    first = np.zeros(len(rows), np.int64)
    deep = ndim[rows] > 0
    first[deep] = start[begin[:-1][rows[deep]]]
    ordered = rows[np.lexsort((columns_of["offset"][rows], columns_of["file"][rows], first, position[tensor[rows]]))]
    gather = _spread(begin[:-1][ordered], ndim[ordered])
    return Chunks(
        position[tensor[ordered]], columns_of["file"][ordered], columns_of["offset"][ordered],
        columns_of["length"][ordered], columns_of["transform"][ordered], ends(ndim[ordered]), start[gather],
        stop[gather], np.zeros(len(ordered), np.int64), list(files), list(transforms),
    )  # fmt: skip


def _spread(begin: Ints, n: Ints) -> Ints:
    """Return begin[0], begin[0] + 1, ... (n[0] of them), begin[1], ..."""
    total = int(n.sum())
    steps = np.arange(total) - np.repeat(ends(n)[:-1], n)
    return np.repeat(begin, n) + steps


def _inside(
    tensor: Ints, ndim: Ints, start: Ints, stop: Ints, shapes: Sequence[tuple[int, ...]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether each box lies in its tensor, and whether it holds anything."""
    dims = np.array([n for shape in shapes for n in shape], np.int64)
    first_dim = ends(np.array([len(shape) for shape in shapes], np.int64))
    axes = _spread(first_dim[np.maximum(tensor, 0)], ndim)
    owner = np.repeat(np.arange(len(tensor)), ndim)
    inside = np.ones(len(tensor), np.bool_)
    solid = np.ones(len(tensor), np.bool_)
    if len(axes):
        np.logical_and.at(inside, owner, (start >= 0) & (stop <= dims[axes]))
        np.logical_and.at(solid, owner, start < stop)
    return inside, solid


# ---------------------------------------------------------------- checking


def look_at_files(chunks: Chunks, sizes: Mapping[str, int], outside: frozenset[str]) -> None:
    """Mark the chunks whose item is in no file, beyond the end of one, or behind a transformation unknown to us."""

    def reason(code: str, why: str) -> int:
        chunks.reasons.append((code, why.replace("{", "{{").replace("}", "}}")))
        return len(chunks.reasons) - 1

    n_bytes = np.empty(len(chunks.files) or 1, np.int64)
    refused = np.zeros(len(chunks.files) or 1, np.int64)
    short = np.zeros(len(chunks.files) or 1, np.int64)
    for i, name in enumerate(chunks.files):
        shown = printable(name)
        why = unsafe_component(name)
        n_bytes[i] = sizes.get(name, 0)
        if why:
            refused[i] = reason(OutsideRootError.code, f"its file {shown} is not opened: the name {why}")
        elif name in outside:
            refused[i] = reason(OutsideRootError.code, f"{shown} is a link out of the folder; it is not followed")
        elif name not in sizes:
            refused[i] = reason("missing-file", f"its file {shown} is not there")
        elif not sizes[name]:
            refused[i] = reason("short-file", f"its file {shown} is empty (0 bytes)")
        else:
            chunks.reasons.append((
                "short-file",
                f"{shown} ends at byte {count(sizes[name])}; its item is at bytes {{begin}} to {{end}}"))  # fmt: skip
            short[i] = len(chunks.reasons) - 1
    unknown = np.zeros(len(chunks.transforms) or 1, np.int64)
    for i, chain in enumerate(chunks.transforms):
        strange = [name for name in chain if name != "stream.zstd/1"]
        if strange:
            unknown[i] = reason(
                "unknown-transform", f"its bytes went through '{printable(strange[0], 60)}', which is unknown to us"
            )
    if not len(chunks.file):
        return
    beyond = chunks.offset + chunks.length > n_bytes[chunks.file]
    lost = np.where(beyond, short[chunks.file], 0)
    lost = np.where(refused[chunks.file] > 0, refused[chunks.file], lost)
    chunks.lost = np.where(lost > 0, lost, unknown[chunks.transform])


def doubt(chunks: Chunks, names: Sequence[str], doubted: set[str]) -> None:
    """Refuse the whole of tensors of which a chunk lies outside: either the size is wrong or the chunk's place is.

    Their pieces stay readable as they are stored.
    """
    if doubted:
        chunks.reasons.append((DOUBT, "a chunk lies outside the size that is recorded: one of them is wrong"))
        rows = np.array([name in doubted for name in names], np.bool_)[chunks.tensor]
        chunks.lost[rows & (chunks.lost == 0)] = len(chunks.reasons) - 1


def cover(
    chunks: Chunks, names: Sequence[str], shapes: Sequence[tuple[int, ...]], known: Mapping[str, Sequence[Problem]]
) -> tuple[NDArray[np.bool_], list[Problem]]:
    """Return which tensors are stored whole, and the gaps and overlaps in the boxes of the others."""
    complete = np.zeros(len(names), np.bool_)
    holes: list[Problem] = []
    bounds = np.searchsorted(chunks.tensor, np.arange(len(names) + 1))
    alike: dict[tuple[tuple[int, ...], bytes, bytes], bool] = {}
    for t, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        first, last = int(bounds[t]), int(bounds[t + 1])
        low, high = int(chunks.coordinate[first]), int(chunks.coordinate[last])
        start = chunks.start[low:high].reshape(last - first, len(shape))
        stop = chunks.stop[low:high].reshape(last - first, len(shape))
        key = (shape, start.tobytes(), stop.tobytes())
        whole = alike.get(key)
        if whole is None:
            whole = alike[key] = tiles(shape, start, stop) if last > first else not math.prod(shape)
        lost = chunks.lost[first:last] > 0
        if not whole:
            holes.extend(_holes(name, shape, start, stop, known.get(name, ())))
        elif lost.any():
            whole = tiles(shape, start[~lost], stop[~lost])  # a copy may serve
        complete[t] = whole
    return complete, holes


def _holes(name: str, shape: tuple[int, ...], start: Ints, stop: Ints, known: Sequence[Problem]) -> Iterator[Problem]:
    found = coverage(shape, start, stop)
    for a, b, shared in found.overlaps[:_TOLD]:
        boxes = [Region(tuple(start[i].tolist()), tuple(stop[i].tolist())) for i in (a, b)]
        yield Problem("overlap", "error",
            f"{printable(name)}: the chunks [{boxes[0]}] and [{boxes[1]}] both hold [{shared}]; values there count "
            "only if both agree", name, region=shared)  # fmt: skip
    if found.n_missing is None:
        yield Problem("gap", "error",
            f"{printable(name)}: chunks leave elements out, and overlap too much to locate them", name)  # fmt: skip
    elif found.n_missing:
        told = {problem.region for problem in known}
        listed = "".join(f"[{gap}]" if i == 0 else f", [{gap}]" for i, gap in enumerate(found.gaps[:3]))
        where = f", at {listed}" + (" and elsewhere" if len(found.gaps) > 3 else "") if found.gaps else ""
        region = found.gaps[0] if found.gaps else None
        if region is None or region not in told:
            size = math.prod(shape)
            yield Problem("gap", "error",
                f"{printable(name)}: {count(found.n_missing)} of {plural(size, 'element')} are in no chunk{where}",
                name, region=region)  # fmt: skip


def lost_by_file(chunks: Chunks, names: Sequence[str]) -> list[Problem]:
    """Tell what the files lack: each fragment by name, and where a file lacks many the rest as a number."""
    out: list[Problem] = []
    rows = np.flatnonzero(chunks.lost)
    for file in np.unique(chunks.file[rows]).tolist():
        here = rows[chunks.file[rows] == file]
        out.extend(lost_problem(chunks, names[int(chunks.tensor[row])], row) for row in here[:_TOLD].tolist())
        if len(here) > _TOLD:
            code, _ = chunks.reasons[int(chunks.lost[here[0]])]
            tensors = np.unique(chunks.tensor[here])
            out.append(Problem(code, "error",
                f"{plural(len(here) - _TOLD, 'more fragment')} in {printable(chunks.files[file])} cannot be read; "
                f"{plural(len(tensors), 'tensor')} have one there", file=chunks.files[file]))  # fmt: skip
    return out
