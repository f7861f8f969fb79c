"""The subcommands: each asks the Python API and says the answer as JSON or as text."""

from __future__ import annotations

import math
from pathlib import Path

import click

from tensormorph import cli_text
from tensormorph.array import parse_index, select
from tensormorph.cli_common import (
    common,
    find_tensor,
    local_view,
    named,
    opened,
    own_files,
    refuse_undecodable,
    row_of,
    tell_problems,
)
from tensormorph.cli_output import (
    Document,
    check_document,
    fragment_document,
    holder_document,
    info_document,
    json_safe,
    local_document,
    object_row,
    problem_document,
    ranges,
    statistics_document,
    tensor_documents,
    unreadable_document,
    write_json,
    write_lines,
    write_messages,
)
from tensormorph.dtypes import plain
from tensormorph.errors import Problem, TensormorphError, UsageError
from tensormorph.model import Checkpoint, StoredObject, UnreadableTensor
from tensormorph.text import plural, printable

MOST_ELEMENTS = 1_000_000
"""Most elements that `read` writes to standard output."""


@click.command()
@click.argument("path")
@common
def info(path: str, reader: str | None, as_json: bool) -> None:
    """Say what a checkpoint is: format, tensors, bytes, mesh, step.

    \b
    Example:
      tensormorph info step-1000/
    """
    with opened(path, reader) as (checkpoint, _):
        told = info_document(checkpoint)
        if as_json:
            write_json(told)
            return
        write_lines(cli_text.info_lines(told))
        tell_problems(checkpoint.problems)


@click.command()
@click.argument("path")
@click.option("--filter", "query", default="", metavar="QUERY",
              help="Words to be found in the name; dtype:bf16 shape:*,64 file:00002 problem:gap.")  # fmt: skip
@click.option("--slot", metavar="SLOT", help="Only this slot: '' is the weights, exp_avg the first moments.")
@common
def ls(path: str, query: str, slot: str | None, reader: str | None, as_json: bool) -> None:
    """List tensors and objects: name, dtype, shape, bytes.

    \b
    Examples:
      tensormorph ls step-1000/
      tensormorph ls step-1000/ --filter 'attn dtype:bf16 shape:*,64'
    """
    from tensormorph.query import parse

    asked = parse(query)
    with opened(path, reader) as (checkpoint, _):
        table = checkpoint.table
        rows = [i for i in asked.rows(checkpoint).tolist() if slot is None or table.keys(i).slot == slot]
        lost = {t.name for t in asked.unreadable(checkpoint) if slot is None or t.key.slot == slot}
        numbers = rows + [len(table) + i for i, name in enumerate(checkpoint.unreadable) if name in lost]
        told = tensor_documents(checkpoint, rows)
        told += [unreadable_document(checkpoint, t) for t in checkpoint.unreadable.values() if t.name in lost]
        objects = [object_row(o) for o in checkpoint.objects.values()] if not query and slot is None else []
        if as_json:
            write_json({"tensors": told, "objects": objects})
            return
        write_lines(cli_text.ls_lines(list(zip(numbers, told, strict=True)), objects))
        n = len(table) + len(checkpoint.unreadable)
        if not told and n:
            write_messages([f"No tensor matches; {plural(n, 'tensor')} are hidden by the filter"])
        tell_problems(checkpoint.problems)


@click.command()
@click.argument("path")
@click.argument("name")
@common
def show(path: str, name: str, reader: str | None, as_json: bool) -> None:
    """Show one tensor or object, and where its parts lie.

    NAME is literal; @N is row N of ls, counted from 0. A name that begins with '-' stands behind '--'.

    \b
    Examples:
      tensormorph show step-1000/ layers.0.weight
      tensormorph show step-1000/ @0
    """
    with opened(path, reader) as (checkpoint, _):
        found = named(checkpoint, name)
        if isinstance(found, StoredObject):
            value: Document = {"name": found.name, "type": found.type, "value": json_safe(found.load()),
                               "file": found.file, "offset": found.offset, "n_bytes": found.n_bytes}  # fmt: skip
            if as_json:
                write_json(value)
            else:
                write_lines(cli_text.object_lines(value))
            return
        problems = list(dict.fromkeys([*found.problems, *(p for p in checkpoint.problems if p.tensor == found.name)]))
        fragments: list[Document] = []
        locals_: list[Document] = []
        if isinstance(found, UnreadableTensor):
            row = unreadable_document(checkpoint, found)
        else:
            row = row_of(checkpoint, found.name)
            columns = found.fragments
            fragments = [
                fragment_document(
                    columns[i], {"offset": int(columns.offset[i]), "length": int(columns.length[i])}, found
                )
                for i in range(len(columns))
            ]
            locals_ = [local_document(local, found) for local in found.locals]
        if as_json:
            told = [problem_document(problem) for problem in problems]
            write_json({**row, "fragments": fragments, "locals": locals_, "problems": told})
            return
        evidence = "" if isinstance(found, UnreadableTensor) else found.rank_evidence
        write_lines(cli_text.show_lines(row, fragments, len(locals_), evidence))
        tell_problems(problems)


@click.command()
@click.argument("path")
@click.argument("name")
@click.argument("index")
@common
def where(path: str, name: str, index: str, reader: str | None, as_json: bool) -> None:
    """Say which file, byte and rank holds an element or region.

    INDEX is as in numpy, steps of one: '5,7' or '0:10,3'; '' for a 0-d tensor. '--' before it if it begins with '-'.

    \b
    Examples:
      tensormorph where step-1000/ layers.0.weight '5,7'
      tensormorph where step-1000/ -- layers.0.weight '-1,0'
    """
    with opened(path, reader) as (checkpoint, _):
        tensor = find_tensor(checkpoint, name)
        key = parse_index(index)
        axes = select(key, tensor.shape)
        if any(abs(a.step) != 1 for a in axes):
            raise UsageError("An index for where has steps of one")
        value = None
        problem = None
        if all(a.drop for a in axes):
            try:
                refuse_undecodable(tensor)
                value = plain(tensor.full()[key])
            except TensormorphError as error:
                problem = Problem(error.code, "error", error.sentence, tensor.name)
        told: Document = {
            "name": tensor.name,
            "index": [a.start if a.drop else list(a.bounds) for a in axes],
            "value": value,
            "holders": [holder_document(holder, tensor) for holder in tensor.where(key)],
        }
        if as_json:
            write_json(told)
        else:
            write_lines(cli_text.where_lines(told))
        if problem is not None:
            tell_problems([problem])


@click.command()
@click.argument("path")
@click.argument("name")
@click.option("--region", default="", metavar="INDEX", help="As in numpy: '0:4, :, -1', '::2', '...'; default all.")
@click.option("--local", metavar="RANK[:PIECE]", help="What one rank holds, or one stored piece of it.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write FILE.npy, .safetensors or .csv.")
@common
def read(
    path: str, name: str, region: str, local: str | None, out: Path | None, reader: str | None, as_json: bool
) -> None:
    """Print values, or write them to a file.

    \b
    Examples:
      tensormorph read step-1000/ layers.0.weight --region '0:4, :8'
      tensormorph read step-1000/ layers.0.weight --out w.npy
    """
    with opened(path, reader) as (checkpoint, progress):
        tensor = find_tensor(checkpoint, name)
        key = parse_index(region)
        view = tensor.full() if local is None else local_view(tensor, local)
        axes = select(key, view.shape)
        shape = [a.count for a in axes if not a.drop]
        n = math.prod(shape)
        refuse_undecodable(tensor)
        # A stored piece may be of another type than the tensor is recorded as: it is told as what it is.
        kind = tensor.encoding.name if local is None or view.dtype == tensor.dtype else view.dtype.name
        told: Document = {"name": tensor.name, "region": ranges(axes), "shape": shape, "dtype": kind}
        if out is not None:
            from tensormorph.export import write_region

            write_region(view, key, out, forbidden=own_files(checkpoint), name=tensor.name, report=progress)
            progress.clear()
            if as_json:
                write_json({**told, "values": None, "file": str(out)})
            else:
                write_lines([f"Wrote {plural(n, 'value')} to {printable(str(out))}"])
            return
        if n > MOST_ELEMENTS:
            raise UsageError(
                f"{n:,} values are more than the {MOST_ELEMENTS:,} that are printed: "
                "give a --region, or a file with --out (.npy, .safetensors, .csv)"
            )
        values = view[key]
        if as_json:
            write_json({**told, "values": plain(values)})
        else:
            whole = values.reshape([a.count for a in axes])
            write_lines(cli_text.value_lines(whole, [a.start for a in axes], [a.step for a in axes]))


@click.command()
@click.argument("path")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--filter", "query", default="", metavar="QUERY", help="Only these tensors, as in ls.")
@common
def stats(path: str, names: tuple[str, ...], query: str, reader: str | None, as_json: bool) -> None:
    """Read every value: range, mean, deviation, zeros, NaN and Inf.

    Without NAME of all tensors. Numbers are over the finite elements; complex ones count by their magnitude.

    \b
    Examples:
      tensormorph stats step-1000/
      tensormorph stats step-1000/ layers.0.weight @3
    """
    if names and query:
        raise UsageError("Give names or a --filter, not both")
    from tensormorph.stats import statistics, unread_problem

    with opened(path, reader) as (checkpoint, progress):
        table, unreadable = checkpoint.table, list(checkpoint.unreadable.values())
        numbers = _numbers(checkpoint, names, query)
        known: dict[str | None, list[Problem]] = {}
        for problem in checkpoint.problems:
            known.setdefault(problem.tensor, []).append(problem)
        total = sum(table.n_bytes(i) or 0 for i in numbers if i < len(table))
        done = 0
        told: list[tuple[int, int | None, Document]] = []
        problems: list[Problem] = []
        for number in numbers:
            if number >= len(table):
                lost = unreadable[number - len(table)]
                n = None if lost.shape is None else math.prod(lost.shape)
                told.append((number, n, statistics_document(lost.name, None)))
                problems += [*lost.problems, *known.get(lost.name, [])]
                continue

            def read(n_bytes: int, before: int = done) -> None:
                progress("Reading values", before + n_bytes, total)

            tensor = checkpoint.tensors.at(number)
            held = statistics(tensor, report=read)
            done += held.n_bytes
            told.append((number, held.n_elements, statistics_document(tensor.name, held)))
            about = [*tensor.problems, *known.get(tensor.name, [])]
            unread = unread_problem(tensor, held, any(p.severity == "error" for p in about))
            problems += about if unread is None else [*about, unread]
        progress.clear()
        problems = list(dict.fromkeys(problems))
        if as_json:
            found = [problem_document(problem) for problem in problems]
            write_json({"tensors": [row for _, _, row in told], "problems": found})
            return
        write_lines(cli_text.stats_lines(told))
        if query and not told:
            write_messages(["No tensor matches the filter"])
        tell_problems(problems)


def _numbers(checkpoint: Checkpoint, names: tuple[str, ...], query: str) -> list[int]:
    """Return the rows of ``ls`` that are named on the command line, each once, or else those that a filter selects."""
    lost = {name: number for number, name in enumerate(checkpoint.unreadable, len(checkpoint.table))}
    if not names:
        from tensormorph.query import parse

        asked = parse(query)
        return [*asked.rows(checkpoint).tolist(), *(lost[tensor.name] for tensor in asked.unreadable(checkpoint))]
    found: list[int] = []
    for name in names:
        tensor = named(checkpoint, name)
        if not isinstance(tensor, UnreadableTensor):
            tensor = find_tensor(checkpoint, name)  # refuses an object
        row = checkpoint.tensors.row(tensor.name)
        found.append(lost[tensor.name] if row is None else row)
    return list(dict.fromkeys(found))


@click.command()
@click.argument("path")
@click.option("--quick", is_flag=True, help="Judge by the metadata alone: open no file.")
@click.option("--values", is_flag=True, help="Read every value: find NaN, Inf, and what cannot be read.")
@click.option("--hash", "hashes", is_flag=True, help="Compare each file with the hash that the layout records.")
@common
def check(path: str, quick: bool, values: bool, hashes: bool, reader: str | None, as_json: bool) -> int:
    """Audit a checkpoint: is it whole, and what can it be used for?

    Ends with status 1 if an error or a warning was found.

    \b
    Examples:
      tensormorph check step-1000/
      tensormorph check step-1000/ --values --hash
    """
    if quick and (values or hashes):
        raise UsageError("--quick opens no file: leave it out, or leave out --values and --hash")
    from tensormorph.checks import check as audit  # here, as with `stats`: the other commands start without it

    with opened(path, reader) as (checkpoint, progress):
        report = audit(checkpoint, quick=quick, values=values, hashes=hashes, report=progress)
        progress.clear()
        if as_json:
            write_json(check_document(report))
        else:
            write_lines(cli_text.check_lines(path, report))
        return 0 if report.clean else 1
