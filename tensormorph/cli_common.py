"""What the subcommands share: opening, names on the command line, common options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from tensormorph.array import ArrayView
from tensormorph.cli_output import Document, Progress, tensor_documents, write_messages
from tensormorph.cli_text import problem_lines
from tensormorph.errors import CannotOpenError, LayoutError, Problem, UnsupportedDtypeError, UsageError
from tensormorph.model import Checkpoint, LogicalTensor, StoredObject, UnreadableTensor
from tensormorph.readers import open_checkpoint
from tensormorph.text import plural, printable

_F = TypeVar("_F", bound=Callable[..., Any])
_ORDER = "tensormorph.parameter_order"
_MESH = "tensormorph.mesh"
_JOINS = "tensormorph.joins"
_SCAN = "tensormorph.scan"


def _names_of(ctx: click.Context, _: click.Parameter, file: str | None) -> None:
    if file is None:
        return
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CannotOpenError(file, f"the parameter names are not readable ({error})") from error
    ctx.meta[_ORDER] = tuple(line.strip() for line in text.splitlines() if line.strip())


def _mesh_of(ctx: click.Context, parameter: click.Parameter, text: str | None) -> None:
    del parameter
    if text is not None:
        from tensormorph.mesh import parse_mesh

        ctx.meta[_MESH] = parse_mesh(text)


def _joins_of(ctx: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> None:
    del parameter
    joins: dict[str, int] = {}
    for text in texts:
        name, _, dim = text.rpartition("=")
        if not name or not re.fullmatch(r"[0-9]{1,2}", dim):
            raise UsageError(f"A join is stated as NAME=DIM, such as layers.0.weight=1, not as {printable(text)!r}")
        joins[name] = int(dim)
    ctx.meta[_JOINS] = joins


def _scan_of(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    del parameter
    ctx.meta[_SCAN] = wanted


def common(command: _F) -> _F:
    """Give a command the options that all of them have."""
    order = click.option(
        "--parameter-order",
        metavar="FILE",
        expose_value=False,
        callback=_names_of,
        help="Parameter names, one a line, in the order the optimizer got them.",
    )
    mesh = click.option(
        "--mesh", metavar="'dp=2,tp=4'", expose_value=False, callback=_mesh_of,
        help="How the ranks are arranged, where no file says it.",
    )  # fmt: skip
    join = click.option(
        "--join", metavar="NAME=DIM", multiple=True, expose_value=False, callback=_joins_of,
        help="Join the plain pieces of ranks' files along an axis.",
    )  # fmt: skip
    scan = click.option(
        "--scan", is_flag=True, expose_value=False, callback=_scan_of,
        help="Look through data files whose index is missing for whole tensors.",
    )  # fmt: skip
    command = scan(join(mesh(order(command))))
    command = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")(command)
    return click.option("--reader", metavar="NAME", help="Read it as this format.")(command)


@contextmanager
def opened(path: str, reader: str | None) -> Iterator[tuple[Checkpoint, Progress]]:
    """Open a checkpoint for as long as a command runs."""
    if not path:
        raise UsageError("The path is empty")
    progress = Progress()
    try:
        stated = click.get_current_context().meta
        with open_checkpoint(
            Path(path), reader=reader, report=progress, parameter_order=stated.get(_ORDER, ()),
            mesh=stated.get(_MESH), joins=stated.get(_JOINS, {}), scan=stated.get(_SCAN, False),
        ) as checkpoint:  # fmt: skip
            progress.clear()
            yield checkpoint, progress
    finally:
        progress.clear()


def tell_problems(problems: Sequence[Problem]) -> None:
    """Write errors and warnings to standard error."""
    shown = [problem for problem in problems if problem.severity != "info"]
    write_messages(problem_lines(shown))


def named(checkpoint: Checkpoint, name: str) -> LogicalTensor | UnreadableTensor | StoredObject:
    """Return what a name on the command line stands for: the name itself first, then ``@N``, row N of ``ls``."""
    lost_name = checkpoint.aliases.get(name, name)
    if lost_name in checkpoint.unreadable:
        return checkpoint.unreadable[lost_name]
    if name in checkpoint:
        return checkpoint[name]
    if name in checkpoint.objects:
        return checkpoint.objects[name]
    if found := re.fullmatch(r"@(\d{1,9})", name):
        row = int(found[1])
        if row < len(checkpoint.table):
            return checkpoint.tensors.at(row)
        lost = list(checkpoint.unreadable.values())
        if row < len(checkpoint.table) + len(lost):
            return lost[row - len(checkpoint.table)]
        n = len(checkpoint.table) + len(lost)
        raise UsageError(f"{name} is no row of ls: it has {n:,}, from @0 on", path=str(checkpoint.path))
    return checkpoint[name]  # raises, with the nearest names


def find_tensor(checkpoint: Checkpoint, name: str) -> LogicalTensor:
    """Return the tensor that a name on the command line stands for; raises where it has no values."""
    found = named(checkpoint, name)
    if isinstance(found, StoredObject):
        raise UsageError(f"{printable(name)!r} is no tensor but a {found.type}: tensormorph show prints it")
    return checkpoint[found.name] if isinstance(found, UnreadableTensor) else found


def row_of(checkpoint: Checkpoint, name: str) -> Document:
    """Return the row of ``ls`` of a tensor."""
    row = checkpoint.tensors.row(name)
    assert row is not None
    return tensor_documents(checkpoint, [row])[0]


def local_view(tensor: LogicalTensor, text: str) -> ArrayView:
    """Return what ``--local RANK`` (by the layout) or ``--local RANK:PIECE`` (as stored) stands for."""
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text)
    if found is None:
        raise UsageError(f"--local is a rank, or a rank and one of its pieces as in 3:0, not {text!r}")
    rank = int(found[1])
    if found[2] is None:
        try:
            return tensor.local(rank)
        except LayoutError as error:
            if any(local.rank == rank for local in tensor.locals):
                raise LayoutError(f"{error.sentence}. What its files store as they stand: --local {rank}:0") from None
            raise
    pieces = [local for local in tensor.locals if local.rank == rank]
    piece = int(found[2])
    if piece >= len(pieces):
        raise LayoutError(f"Rank {rank} stores {plural(len(pieces), 'piece')} of this tensor; there is no {piece}")
    return ArrayView(pieces[piece].source)


def refuse_undecodable(tensor: LogicalTensor) -> None:
    """Refuse elements that nothing decodes, before their count or text is asked for."""
    if not tensor.encoding.readable:
        raise UnsupportedDtypeError(tensor.encoding.name)


def own_files(checkpoint: Checkpoint) -> list[Path]:
    """Return every path that is part of the checkpoint, so that no export lands there."""
    lost = (tensor.file for tensor in checkpoint.unreadable.values() if tensor.file is not None)
    names = dict.fromkeys([*(info.name for info in checkpoint.files), *checkpoint.table.files, *lost])
    from tensormorph.audit import locator  # with the statistics behind it; most commands start without them

    path_of = locator(checkpoint)
    found: list[Path] = []
    for name in names:
        if "\0" not in name:
            found.append(checkpoint.root / name)
        with suppress(CannotOpenError):  # what is missing has only its name, and that is taken all the same
            found.append(path_of(name))
    return found
