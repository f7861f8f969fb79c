"""The command line: a thin caller of the Python API.

Statuses: 0 answered, 1 ``check`` found an error or warning, 2 could not or wrong usage, 130 cancelled.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

import tensormorph
from tensormorph.errors import CancelledError, ChooseCheckpointError, TensormorphError, UnknownFormatError, UsageError
from tensormorph.text import printable

_COMMANDS = ("check", "info", "ls", "read", "show", "stats", "where")
"""Those of `cli_commands`, which is imported when one of them is asked for: the window shows without it."""


class _Program(click.Group):
    """Subcommands; anything else in their place is a path, which the window opens."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        from tensormorph import cli_commands

        command: click.Command = getattr(cli_commands, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.list_commands(ctx):
            return super().resolve_command(ctx, args)
        paths = [*args] if not args[0].startswith("-") else ["--", *args]
        return "window", _window, paths


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    subcommand_metavar="[COMMAND | PATH]",
)
@click.version_option(tensormorph.__version__, prog_name="tensormorph", message="%(prog)s %(version)s")
@click.pass_context
def _program(ctx: click.Context) -> None:
    """Look inside neural-network checkpoints.

    Without a command it opens the window, on PATH if one is given. A word that is a command wins over a file of
    that name: write ./check.

    \b
    Examples:
      tensormorph step-1000/
      tensormorph ls step-1000/ --filter 'attn dtype:bf16'
      tensormorph where step-1000/ layers.0.weight '5,7'
    """
    if ctx.invoked_subcommand is None:
        _run_window([])


def run(argv: Sequence[str]) -> int:
    """Run one command and return the process's status; every error ends here, as a sentence or as JSON."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # no name may end a command in an encoding error
    before_end = argv[: argv.index("--")] if "--" in argv else argv
    as_json = "--json" in before_end
    try:
        status = _program.main(args=list(argv), prog_name="tensormorph", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except (click.Abort, CancelledError, KeyboardInterrupt):
        _tell(CancelledError(), as_json)
        return 130
    except click.ClickException as error:
        sentence = error.format_message()
        if isinstance(error, click.NoSuchOption) and re.match(r"-\d", error.option_name):
            sentence = f"{sentence.rstrip('.')}. A value that begins with '-' stands behind a '--'"
        _tell(UsageError(sentence), as_json)
    except TensormorphError as error:
        _tell(error, as_json)
    except Exception as error:  # a defect of ours: still one sentence, with the place that a report needs
        if os.environ.get("TENSORMORPH_TRACEBACK"):
            traceback.print_exc()
        _tell(_internal(error), as_json)
    return 2


class _InternalError(TensormorphError):
    code = "internal-error"


def _internal(error: Exception) -> TensormorphError:
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {printable(str(error))}"
    return _InternalError(
        f"Internal error at {Path(place.filename).name}:{place.lineno}: {what}. "
        "Set TENSORMORPH_TRACEBACK=1 to see where it came from"
    )


def _tell(error: TensormorphError, as_json: bool) -> None:
    from tensormorph.cli_output import error_document, write_json, write_messages
    from tensormorph.cli_text import wrapped

    if as_json:
        write_json(error_document(error))
        return
    lines = wrapped(str(error))
    if isinstance(error, ChooseCheckpointError):
        lines += [f"  {printable(child)}" for child in error.children]
    if isinstance(error, UnknownFormatError):
        lines += [line for name, why in error.reasons.items() for line in wrapped(why, f"  {name}: ")]
    write_messages(lines)


@_program.command()
def demo() -> int:
    """Open the window on the checkpoints that come with the program, to choose one.

    \b
    Example:
      tensormorph demo
    """
    return _run_window([], demo=True)


@click.command("window")
@click.argument("paths", nargs=-1)
def _window(paths: tuple[str, ...]) -> int:
    """Open the window."""
    if len(paths) > 2:
        raise UsageError(f"{printable(paths[0])!r} is no command, and a window opens at most two paths")
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError(
                f"There is no command and no file called {printable(path)!r}: tensormorph --help", path=path
            )
    return _run_window([Path(path) for path in paths])


def _run_window(paths: Sequence[Path], demo: bool = False) -> int:
    if sys.platform.startswith("linux") and not any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    ):
        # Qt would end the process with a message about a missing library.
        raise UsageError("There is no display for a window. Without one there are: tensormorph info, ls, show, check")
    try:
        from tensormorph.gui.app import run as run_window
    except ImportError as error:  # most often a library of the system that Qt needs, such as libEGL
        raise UsageError(f"The window cannot start: {printable(str(error))}") from error
    return run_window(paths, demo=demo)
