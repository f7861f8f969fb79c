"""Checkpoints for tests that no reader made: logical tensors of any sources, put together as a reader would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensormorph.columns import TensorTable
from tensormorph.errors import Problem
from tensormorph.mesh import DeviceMesh
from tensormorph.model import Checkpoint, Facts, FileInfo, LazyTensors, LogicalTensor, StoredObject, UnreadableTensor


def table_of(tensors: Sequence[LogicalTensor]) -> TensorTable:
    """Return these tensors as columns."""
    files = tuple(sorted({name for tensor in tensors for name in tensor.fragments.files}))
    encodings = tuple(dict.fromkeys(tensor.encoding for tensor in tensors))

    def ends(lengths: Sequence[int]) -> Any:
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def joined(column: str, kind: type[np.generic]) -> Any:
        parts = [np.asarray(getattr(tensor.fragments, column)).reshape(-1) for tensor in tensors]
        return np.concatenate([np.empty(0, kind), *parts]).astype(kind)

    file = [files.index(tensor.fragments.files[i]) for tensor in tensors for i in tensor.fragments.file.tolist()]
    return TensorTable(
        names=[tensor.name for tensor in tensors],
        keys=lambda row: tensors[row].key,
        encodings=encodings,
        encoding=np.array([encodings.index(tensor.encoding) for tensor in tensors], np.int16),
        n_elements=np.array([tensor.n_elements for tensor in tensors], np.int64),
        complete=np.array([tensor.complete for tensor in tensors], np.bool_),
        dims=np.array([extent for tensor in tensors for extent in tensor.shape], np.int64),
        first_dim=ends([len(tensor.shape) for tensor in tensors]),
        first_fragment=ends([len(tensor.fragments) for tensor in tensors]),
        start=joined("start", np.int64),
        stop=joined("stop", np.int64),
        first_coordinate=ends([tensor.fragments.start.size for tensor in tensors]),
        file=np.array(file, np.int32),
        offset=joined("offset", np.int64),
        length=joined("length", np.int64),
        rank=joined("rank", np.int32),
        term=joined("term", np.int32),
        files=files,
    )


def checkpoint(
    root: Path,
    tensors: Sequence[LogicalTensor],
    *,
    facts: Facts | None = None,
    files: Sequence[FileInfo] = (),
    aliases: Mapping[str, str] | None = None,
    unreadable: Sequence[UnreadableTensor] = (),
    objects: Sequence[StoredObject] = (),
    problems: Sequence[Problem] = (),
    mesh: DeviceMesh | None = None,
    changed: tuple[str, ...] = (),
) -> Checkpoint:
    """Return a checkpoint of these parts in a folder."""
    table = table_of(tensors)
    return Checkpoint(
        root=root,
        path=root,
        format="made",
        format_detail="by a test",
        table=table,
        tensors=LazyTensors(table, lambda row: tensors[row]),
        unreadable={tensor.name: tensor for tensor in unreadable},
        aliases=dict(aliases or {}),
        objects={stored.name: stored for stored in objects},
        files=tuple(files),
        facts=facts or Facts(),
        problems=tuple(problems),
        close=lambda: None,
        changed_files=lambda: changed,
        meshes=() if mesh is None else (mesh,),
        mesh=mesh,
    )
