"""Opens files of torch.save: each file's pickle and tree, sets and parts, the one table of them all."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tensormorph.errors import Problem, TensormorphError
from tensormorph.model import Checkpoint, LazyTensors, StoredObject, UnreadableTensor
from tensormorph.readers import _hf
from tensormorph.readers._bytes import ByteSource, FilePool, pool_of_a_checkpoint
from tensormorph.readers._pickle_nodes import describe
from tensormorph.readers._pickle_show import to_plain
from tensormorph.readers._process import Report
from tensormorph.readers._sets import (
    SAFETENSORS,
    TORCH,
    Contents,
    Part,
    indexed_part,
    missing_numbers,
    model_parts,
    owned_names,
    tell_misnamed,
)
from tensormorph.readers._target import Claim, Stated, Target, look
from tensormorph.readers._torch_code import code_references
from tensormorph.readers._torch_facts import training_facts
from tensormorph.readers._torch_table import FileTensors, build_table, file_tensors
from tensormorph.readers._torch_tree import Tree, read_tree
from tensormorph.readers._torchzip import TorchFile, open_torch, verify
from tensormorph.text import listing, plural, printable

NAME = "torch_save"


@dataclass(slots=True)
class _Opened:
    """One file: its container, its tree, and its tensors ready for the table."""

    file: TorchFile
    tree: Tree
    tensors: FileTensors


def open_claim(target: Target, claim: Claim, problems: list[Problem], report: Report, stated: Stated) -> Checkpoint:
    """Open what the reader claimed. Raises as its `read`."""
    with pool_of_a_checkpoint() as pool:
        return _read(target, claim, problems, report, stated, pool)


def _read(
    target: Target, claim: Claim, problems: list[Problem], report: Report, stated: Stated, pool: FilePool
) -> Checkpoint:
    if target.is_folder:
        indexes = sorted(n for n in claim.files if TORCH.index.fullmatch(n))
        listed = [n for n in target.names if n in claim.files and n not in indexes]
        parts = model_parts(TORCH, target, indexes, listed, pool, problems, report)
    elif TORCH.index.fullmatch(target.path.name):
        index = target.path.name
        target = look(target.root)
        parts = [indexed_part(TORCH, target, index, pool, report)]
    else:
        parts = [Part(TORCH, TORCH.stem(target.path.name), [target.path.name])]
    names = list(dict.fromkeys(n for part in parts for n in (*part.files, *part.strays)))
    tell_misnamed([n for n in names if SAFETENSORS.holds(n)], "what torch.save writes", problems)
    opened, failures = _open_all(target, names, pool, report, stated)
    if failures and not opened and len(names) == 1:
        raise failures[names[0]]
    problems.extend(Problem(e.code, "error", str(e), file=name) for name, e in failures.items())
    lost: dict[str, UnreadableTensor] = {}
    contents = {
        name: Contents(
            [row.name for row in o.tensors.rows],
            [row.encoding.n_bytes(math.prod(row.shape)) if row.encoding.bits else 0 for row in o.tensors.rows],
            [math.prod(row.shape) for row in o.tensors.rows],
            frozenset(lost_name for lost_name, _, _ in o.tensors.lost),
        )
        for name, o in opened.items()
    }  # fmt: skip
    rows: list[FileTensors] = []
    for part in parts:
        label = part.name if len(parts) > 1 else ""
        owned = owned_names(target, part, label, contents, failures, problems, lost)
        rows.extend(replace(opened[n].tensors, part=label, yields_to=yields) for n, yields in owned.items())
        missing_numbers(part, problems)
    for one in opened.values():
        problems.extend([*one.file.problems, *one.tree.problems, *code_references(one.file)])
    return _checkpoint(target, parts, opened, rows, lost, problems, pool)


def _open_all(
    target: Target, names: Sequence[str], pool: FilePool, report: Report, stated: Stated
) -> tuple[dict[str, _Opened], dict[str, TensormorphError]]:
    opened: dict[str, _Opened] = {}
    failures: dict[str, TensormorphError] = {}
    for i, name in enumerate(names):
        report("Reading pickles", i, len(names))
        try:
            path = target.resolve(name)
            source = ByteSource(pool, path, name, 0, pool.identity(path).n_bytes)
            file = open_torch(source, report)
            tree = read_tree(file.root, name, TORCH.stem(name), stated.parameter_order)
            opened[name] = _Opened(file, tree, file_tensors(file, tree))
        except TensormorphError as error:
            if error.code == "cancelled":
                raise
            failures[name] = error
    return opened, failures


# ---------------------------------------------------------------- the checkpoint


def _checkpoint(
    target: Target,
    parts: list[Part],
    opened: dict[str, _Opened],
    rows: list[FileTensors],
    lost: dict[str, UnreadableTensor],
    problems: list[Problem],
    pool: FilePool,
) -> Checkpoint:
    built = build_table(rows, problems)
    lost = built.unreadable | lost
    aliases = dict(built.aliases)
    config = _hf.read_json(target, pool, "config.json", problems) if target.is_folder else None
    if any(part.index is not None for part in parts) or config is not None:
        ties, told = _hf.declared_ties(config, [*built.table.names, *lost, *aliases])
        aliases.update(ties)
        problems.extend(told)
    several = len(parts) > 1
    labels = {n: part.name if several else "" for part in parts for n in (*part.files, *part.strays)}
    objects: dict[str, StoredObject] = {}
    for name, one in opened.items():
        for item in one.tree.objects:
            label = f"{labels[name]}/{item.name}" if labels.get(name) else item.name
            kind = type(item.node).__name__.lower()
            objects[label] = StoredObject(
                label, kind, describe(item.node), None, name, one.file.pickle_at, partial(to_plain, item.node)
            )  # fmt: skip
    objects.update(_hf.json_objects(target, pool, frozenset(p.index.file for p in parts if p.index is not None)))
    roles = dict.fromkeys(opened, "weights")
    roles.update((part.index.file, "index") for part in parts if part.index is not None)
    problems.extend(_hf.folder_problems(target, frozenset(opened)))
    root = target.root
    return Checkpoint(
        root=root, path=target.path, format=NAME, format_detail=_detail(parts, opened), table=built.table,
        tensors=LazyTensors(built.table, built.tensor), unreadable=lost, aliases=aliases, objects=objects,
        files=_hf.file_infos(target, roles),
        facts=training_facts([(o.file, o.tree) for o in opened.values()], len(built.table)), problems=tuple(problems),
        close=pool.close,
        verify=partial(_verify, [o.file for o in opened.values()]),
        changed_files=lambda: tuple(sorted(os.path.relpath(p, root) for p in pool.changed())),
    )  # fmt: skip


def _verify(files: Sequence[TorchFile], budget: int | None, report: Report) -> list[Problem]:
    out: list[Problem] = []
    for file in files:
        if file.archive is not None and (budget is None or budget > 0):
            told, n_bytes = verify(file.archive, budget, report)
            out.extend(told)
            budget = None if budget is None else budget - n_bytes
    return out


def _detail(parts: list[Part], opened: dict[str, _Opened]) -> str:
    words = {"zip": "zip", "stream": "older stream", "pickle": "bare pickle"}
    kinds = [("TorchScript " if o.file.script else "") + words[o.file.container] for o in opened.values()]
    told = f"{plural(len(opened), 'file')} ({', '.join(dict.fromkeys(kinds)) or 'none readable'})"
    if len(parts) > 1:
        return f"{told}, each its own part: {listing([p.name for p in parts], 4)}"
    return f"{told} by {printable(parts[0].index.file)}" if parts and parts[0].index is not None else told
