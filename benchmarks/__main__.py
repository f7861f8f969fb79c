"""Run the benchmarks and print their table; words choose those whose name holds one of them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import dcp, opening, reading, window
from benchmarks.measure import Result, table

ALL: tuple[Callable[[Path], Iterator[Result]], ...] = (
    opening.listing,
    opening.sparse,
    opening.headers,
    opening.torch_save,
    opening.cancel,
    dcp.sharded,
    dcp.chunked,
    reading.regions,
    window.first_paint,
    window.stall,
)


def main(words: Sequence[str]) -> int:
    """Return 0 if every bound is kept."""
    results: list[Result] = []
    for benchmark in ALL:
        name = f"{benchmark.__module__.rpartition('.')[2]}.{benchmark.__name__}"
        if words and not any(word in name for word in words):
            continue
        with tempfile.TemporaryDirectory(prefix="tensormorph-bench-") as folder:
            for result in benchmark(Path(folder)):
                print(f"{name}: {result.name}: {' · '.join(filter(None, result.cells()[1:]))}", file=sys.stderr)
                results.append(result)
    print(table(results))
    return 0 if all(result.kept for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
