"""The formats that we read, in order, and how a path finds its reader."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from tensormorph.errors import (
    AmbiguousFormatError,
    ChooseCheckpointError,
    Problem,
    TensormorphError,
    UnknownFormatError,
    UsageError,
)
from tensormorph.mesh import DeviceMesh, parse_mesh
from tensormorph.model import Checkpoint
from tensormorph.readers import dcp, dcp_safetensors, rank_files, safetensors, torch_save
from tensormorph.readers._process import Report, silent
from tensormorph.readers._strangers import stranger
from tensormorph.readers._target import Claim, Stated, Target, look, natural
from tensormorph.text import listing, printable

READERS: tuple[ModuleType, ...] = (dcp, dcp_safetensors, rank_files, safetensors, torch_save)
"""One module a format, in order: NAME, ``sniff(target)``, ``read(target, claim, problems, report, stated)``."""

FOLDERS_SEEN = 4096
"""So many folders are looked into below a path that is no checkpoint itself."""


def open_checkpoint(
    path: str | os.PathLike[str],
    *,
    reader: str | None = None,
    report: Report = silent,
    parameter_order: Sequence[str] = (),
    mesh: DeviceMesh | str | None = None,
    joins: Mapping[str, int] | None = None,
    scan: bool = False,
) -> Checkpoint:
    """Open a checkpoint: a file, a folder, an index, or a folder that holds exactly one checkpoint somewhere below.

    Reads metadata and no tensor data; never changes, locks or runs anything.

    Parameters
    ----------
    reader
        Name of the format where it cannot be told, or where it is told wrongly.
    report
        Called as ``report(what, done, total)`` while reading; raises CancelledError to stop.
    parameter_order
        Names of the parameters in the order in which the optimizer was given them: names optimizer state that the
        file itself only numbers. Nothing is matched by shape.
    mesh
        How the ranks are arranged, where no file records it, also as ``dp=2,tp=4``: it is told whether the stored
        regions agree.
    joins
        Name of a tensor -> axis along which plain pieces of ranks' files are joined in rank order.
    scan
        Where a save has data files and no index, look through every byte of them for whole items: tensors without
        names.

    Raises
    ------
    CannotOpenError
        If nothing is there, or it may not be opened.
    UnknownFormatError, AmbiguousFormatError
        If no reader, or several, recognise it.
    ChooseCheckpointError
        If the folder holds several checkpoints; its `children` name them.
    CorruptFileError, LimitError, HelperError, CancelledError
    """
    readers = _chosen(reader)
    target = look(path)
    claims, reasons = _sniff(readers, target)
    if not claims and target.is_folder:
        below = _below(readers, target, report)
        if len(below) > 1:
            raise ChooseCheckpointError(str(target.path), [os.path.relpath(t.path, target.path) for t, _ in below])
        if below:
            target, claims = below[0]
    if not claims:
        raise UnknownFormatError(str(target.path), reasons, _stranger(target))
    module, claim = _decide(target, claims)
    mesh = parse_mesh(mesh) if isinstance(mesh, str) else mesh
    stated = Stated(tuple(parameter_order), mesh, dict(joins or {}), scan)
    problems = _locked_folders(Path(os.path.abspath(path)), target.path)
    checkpoint: Checkpoint = module.read(target, claim, problems, report, stated)
    return checkpoint


def _locked_folders(top: Path, bottom: Path) -> list[Problem]:
    """Return the folders between the path asked for and the checkpoint found that only an administrator may enter."""
    out: list[Problem] = []
    for folder in (bottom, *bottom.parents):
        if folder == top or not folder.is_relative_to(top):
            break
        if os.name == "posix" and not folder.stat().st_mode & 0o444:
            told = f"The folder {printable(folder.name)} gives nobody the right to read it; only an administrator can"
            out.append(Problem("no-permission-bits", "warning", told))
    return out


def _chosen(reader: str | None) -> Sequence[ModuleType]:
    if reader is None:
        return READERS
    found = [module for module in READERS if reader == module.NAME]
    if not found:
        raise UsageError(f"No reader is called {reader!r}; there are: {listing([m.NAME for m in READERS], 20)}")
    return found


def _sniff(readers: Sequence[ModuleType], target: Target) -> tuple[list[tuple[ModuleType, Claim]], dict[str, str]]:
    claims: list[tuple[ModuleType, Claim]] = []
    reasons: dict[str, str] = {}
    for module in readers:
        answer: Claim | str = module.sniff(target)
        if isinstance(answer, str):
            reasons[module.NAME] = answer
        else:
            claims.append((module, answer))
    return claims, reasons


def _decide(target: Target, claims: list[tuple[ModuleType, Claim]]) -> tuple[ModuleType, Claim]:
    """Return the one claim, or the one whose files contain those of all others."""
    for module, claim in claims:
        if all(
            other is claim or other.files < claim.files or (other.reader in claim.before and other.files <= claim.files)
            for _, other in claims
        ):
            return module, claim
    raise AmbiguousFormatError(str(target.path), {module.NAME: claim.evidence for module, claim in claims})


def _below(
    readers: Sequence[ModuleType], target: Target, report: Report
) -> list[tuple[Target, list[tuple[ModuleType, Claim]]]]:
    """Return the checkpoints below a folder, in natural order. No folder is seen twice, no link is followed."""
    found: list[tuple[Target, list[tuple[ModuleType, Claim]]]] = []
    seen = {_place(target)}
    waiting = deque([target])
    while waiting and len(seen) < FOLDERS_SEEN:
        here = waiting.popleft()
        for entry in here.entries:
            if entry.kind != "folder" or entry.link:
                continue
            # In the Hugging Face cache blobs/ holds content by hash; snapshots/ names it.
            if here.path.name.startswith("models--") and entry.name != "snapshots":
                continue
            report("Looking for checkpoints", len(seen), 0)
            try:
                child = look(here.path / entry.name)
            except TensormorphError:
                continue  # it may not be listed: nothing in it can be opened either
            child = replace(child, boundary=child.boundary if child.boundary != child.root.resolve() else here.boundary)
            place = _place(child)
            if place in seen:
                continue
            seen.add(place)
            claims, _ = _sniff(readers, child)
            if claims:
                found.append((child, claims))
            else:
                waiting.append(child)
    return sorted(found, key=lambda pair: natural(str(pair[0].path)))


def _place(target: Target) -> tuple[int, int]:
    state = target.path.stat()
    return state.st_dev, state.st_ino


def _stranger(target: Target) -> str:
    """Return a sentence on what the path holds instead, where its files begin like something known."""
    names = [target.path.name] if not target.is_folder else list(target.names[:20])
    for name in names:
        told = stranger(target.head(name))
        if told:
            return f"{printable(name)} is not read: {told}"
    if target.is_folder and not target.entries:
        return "The folder is empty"
    if not target.is_folder and not target.entries[0].n_bytes:
        return "The file is empty (0 bytes); maybe it is still being written"
    return ""


__all__ = ["READERS", "open_checkpoint"]
