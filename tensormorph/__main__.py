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
    sys.exit(status)


if __name__ == "__main__":
    main()
