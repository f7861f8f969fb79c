"""The entry point of ``tensormorph`` and ``python -m tensormorph``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process with its status."""
    try:
        from tensormorph.cli import run  # inside, so that Ctrl-C during start-up ends quietly too

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    if status == 130:
        # An interrupt inside a string that is executed (every dataclass and named tuple is made so, while modules are
        # imported) leaves a mark in the interpreter, and `python -m` then ends by the signal even if it was caught
        # (Modules/main.c, `unhandled_keyboard_interrupt`). The next executed string takes the mark away.
        exec("")
    sys.exit(status)


if __name__ == "__main__":
    main()
