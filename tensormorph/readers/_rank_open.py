"""Opens the torch files of ranks: each one's tree, what its tensors record of their place, and one table over all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tensormorph.errors import Problem, TensormorphError
from tensormorph.mesh import DeviceMesh
from tensormorph.model import Checkpoint, LazyTensors, StoredObject
from tensormorph.readers import _hf
from tensormorph.readers._bytes import ByteSource, FilePool, pool_of_a_checkpoint
from tensormorph.readers._pickle_nodes import describe
from tensormorph.readers._pickle_show import to_plain
from tensormorph.readers._process import Report
from tensormorph.readers._rank_parts import Held
from tensormorph.readers._rank_table import build
from tensormorph.readers._target import Stated, Target
from tensormorph.readers._torch_begin import RANK_FILE
from tensormorph.readers._torch_code import code_references
from tensormorph.readers._torch_facts import training_facts
from tensormorph.readers._torch_table import local_rows
from tensormorph.readers._torch_tree import Tree, read_tree
from tensormorph.readers._torchzip import TorchFile, open_torch, verify
from tensormorph.text import count, listing, plural, printable

NAME = "rank_files"


@dataclass(slots=True)
class _Rank:
    """One file of one rank.

    Fields
    ------
    label
        Which set of files it belongs to: ``model`` beside ``optim``; empty where there is one set.
    """

    name: str
    rank: int
    label: str
    file: TorchFile
    tree: Tree


@dataclass(slots=True)
class _Found:
    """The files by set, and how many ranks the names tell."""

    ranks: list[_Rank] = field(default_factory=list)
    failures: dict[str, TensormorphError] = field(default_factory=dict)
    worlds: set[int] = field(default_factory=set)


def open_claim(
    target: Target, names: Sequence[str], problems: list[Problem], report: Report, stated: Stated
) -> Checkpoint:
    """Open the files of a folder. Raises as the reader's `read`."""
    with pool_of_a_checkpoint() as pool:
        return _read(target, names, problems, report, stated, pool)


def _read(
    target: Target, names: Sequence[str], problems: list[Problem], report: Report, stated: Stated, pool: FilePool
) -> Checkpoint:
    found = _open_all(target, names, pool, report, stated, problems)
    if not found.ranks:
        raise next(iter(found.failures.values()))
    held = _held(found, problems)
    recorded = {h.placed.world for many in held.values() for h in many if h.placed is not None and h.placed.world}
    world = max([*found.worlds, *recorded, 1 + max(r.rank for r in found.ranks)])
    _tell_missing(found, world, problems)
    built = build(held, stated.joins, world, problems)
    _tell_plain(held, stated.joins, problems)
    for one in found.ranks:
        problems.extend([*one.file.problems, *one.tree.problems, *code_references(one.file)])
    problems.extend(_hf.folder_problems(target, frozenset(names)))
    meshes = _meshes(held)
    root = target.root
    facts = training_facts([(r.file, r.tree) for r in found.ranks], len(built.table))
    facts = replace(facts, world_size=world)
    roles = {r.name: "rank" for r in found.ranks}
    return Checkpoint(
        root=root, path=target.path, format=NAME, format_detail=_detail(found, world), table=built.table,
        tensors=LazyTensors(built.table, built.tensor), unreadable=built.unreadable, aliases={},
        objects=_objects(found), files=_hf.file_infos(target, roles), facts=facts, problems=tuple(problems),
        close=pool.close, changed_files=lambda: tuple(sorted(os.path.relpath(p, root) for p in pool.changed())),
        verify=partial(_verify, [r.file for r in found.ranks]), mesh=meshes[0] if len(meshes) == 1 else None,
        meshes=tuple(meshes), mesh_evidence="recorded in the tensors" if meshes else "no tensor records a mesh",
    )  # fmt: skip


def _open_all(
    target: Target, names: Sequence[str], pool: FilePool, report: Report, stated: Stated, problems: list[Problem]
) -> _Found:
    out = _Found()
    labels: dict[str, str] = {}
    for i, name in enumerate(names):
        report("Reading pickles", i, len(names))
        match = RANK_FILE.fullmatch(name)
        assert match is not None
        if match["world"] is not None:
            out.worlds.add(int(match["world"]))
        label = labels.setdefault(match["stem"] + "*" + match["rest"], match["stem"].strip("._-") or match["stem"])
        try:
            path = target.resolve(name)
            file = open_torch(ByteSource(pool, path, name, 0, pool.identity(path).n_bytes), report)
            tree = read_tree(file.root, name, "tensor", stated.parameter_order)
        except TensormorphError as error:
            if error.code == "cancelled":
                raise
            out.failures[name] = error
            problems.append(Problem(error.code, "error", str(error), file=name))
            continue
        out.ranks.append(_Rank(name, int(match["rank"]), label, file, tree))
    if len(labels) < 2:
        for one in out.ranks:
            one.label = ""
    return out


def _held(found: _Found, problems: list[Problem]) -> dict[tuple[str, str], list[Held]]:
    """Return what each rank's file holds of each tensor, by set and name; ranks that a file records count for it."""
    out: dict[tuple[str, str], list[Held]] = {}
    told: set[str] = set()
    for one in found.ranks:
        for item in one.tree.tensors:
            if isinstance(item.found, str):
                problems.append(Problem("bad-tensor", "error",
                    f"{printable(item.name)} of {printable(one.name)} cannot be read: {item.found}", item.name,
                    one.name))  # fmt: skip
                continue
            placed = item.found.placed
            rank = one.rank
            if placed is not None and placed.rank is not None and placed.rank != rank:
                rank = placed.rank
                if one.name not in told:
                    told.add(one.name)
                    problems.append(Problem("rank-name", "warning",
                        f"{printable(one.name)} is called rank {one.rank}; its tensors record rank {rank}, which is "
                        "used", file=one.name))  # fmt: skip
            rows = local_rows(one.file, item.name, item.key, item.found, problems)
            out.setdefault((one.label, item.name), []).append(Held(one.name, rank, item.key, rows, placed))
    return out


def _tell_missing(found: _Found, world: int, problems: list[Problem]) -> None:
    by_label: dict[str, set[int]] = {}
    for one in found.ranks:
        by_label.setdefault(one.label, set()).add(one.rank)
    lost = {int(m["rank"]) for name in found.failures if (m := RANK_FILE.fullmatch(name)) is not None}
    for label, ranks in by_label.items():
        absent = sorted(set(range(world)) - ranks - lost)
        if absent:
            what = f" of {printable(label)}" if label else ""
            problems.append(Problem("missing-rank", "error",
                f"The files{what} of {plural(len(absent), 'rank')} of {count(world)} are not there "
                f"({listing([str(r) for r in absent], 8)}): what only they hold is unknown"))  # fmt: skip


def _tell_plain(
    held: Mapping[tuple[str, str], Sequence[Held]], joins: Mapping[str, int], problems: list[Problem]
) -> None:
    """Tell of tensors that several ranks hold and of which no file says whether they are copies or parts."""
    names = [
        f"{label}/{name}" if label else name for (label, name), many in held.items()
        if len(many) > 1 and all(one.placed is None for one in many)
    ]  # fmt: skip
    left = [name for name in names if name not in joins]
    if left:
        problems.append(Problem("nothing-records-a-place", "info",
            f"{plural(len(left), 'plain tensor')} stand in the files of several ranks ({listing(left)}), and nothing "
            "records whether they are copies or parts: they read where all ranks agree, bit for bit; --join NAME=DIM "
            "states that they are parts"))  # fmt: skip


def _meshes(held: Mapping[tuple[str, str], Sequence[Held]]) -> list[DeviceMesh]:
    """Return every mesh that tensors record, the largest first; slices of one of more axes go with it."""
    found: dict[DeviceMesh, None] = {}
    for many in held.values():
        for one in many:
            if one.placed is not None and one.placed.mesh is not None:
                found.setdefault(one.placed.mesh)
    ordered = sorted(found, key=lambda mesh: (-len(mesh.ranks), -len(mesh.shape)))
    return [m for i, m in enumerate(ordered) if not any(_slice_of(m, other) for other in ordered[:i])]


def _slice_of(mesh: DeviceMesh, other: DeviceMesh) -> bool:
    return set(mesh.names) <= set(other.names) and set(mesh.ranks) <= set(other.ranks)


def _objects(found: _Found) -> dict[str, StoredObject]:
    """Return what is no tensor: of objects that several ranks hold under one name the first rank's."""
    out: dict[str, StoredObject] = {}
    for one in found.ranks:
        for item in one.tree.objects:
            name = f"{one.label}/{item.name}" if one.label else item.name
            if name not in out:
                out[name] = StoredObject(
                    name, type(item.node).__name__.lower(), describe(item.node), None, one.name, one.file.pickle_at,
                    partial(to_plain, item.node),
                )  # fmt: skip
    return out


def _verify(files: Sequence[TorchFile], budget: int | None, report: Report) -> list[Problem]:
    out: list[Problem] = []
    for file in files:
        if file.archive is not None and (budget is None or budget > 0):
            told, n_bytes = verify(file.archive, budget, report)
            out.extend(told)
            budget = None if budget is None else budget - n_bytes
    return out


def _detail(found: _Found, world: int) -> str:
    return f"{plural(len(found.ranks), 'torch file')} of {plural(world, 'rank')}"
