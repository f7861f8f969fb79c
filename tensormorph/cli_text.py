"""The command line's answers as text for people: 80 columns, names elided in the middle, numbers never."""

from __future__ import annotations

import json
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensormorph.errors import Problem
from tensormorph.text import count, listing, plural, printable, shape, size

if TYPE_CHECKING:
    from tensormorph.checks import CheckReport

WIDTH = 80
_NARROWEST_NAME = 24
_LABEL = 12
_OF_ONE_KIND = 8
_WHOLE_RUN, _SHORTEST_RUN = 10, 5
_NOT_FINITE = {"nan": "NaN", "+inf": "Inf", "-inf": "-Inf"}
_PRESENT = {"yes": "recorded", "no": "absent", "by_design": "not needed", "unknown": "not known"}

Document = Mapping[str, Any]

# ---------------------------------------------------------------- columns


def columns(text: str) -> int:
    """Return the columns that a text takes on a terminal: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )  # fmt: skip


def elide(text: str, width: int) -> str:
    """Return `text` in at most `width` columns, with an ellipsis for what is left out of its middle.

    Numbers tell names apart (layers, experts), so they stay where they can: the first run between two numbers that is
    long enough is shortened, or, where none is, all long ones are.
    """
    over = columns(text) - width
    if over <= 0:
        return text
    runs = re.split(r"(\d+)", text)
    widths = [columns(run) for run in runs]
    roomy = next((i for i in range(0, len(runs), 2) if widths[i] - over >= _WHOLE_RUN), None)
    if roomy is not None:
        runs[roomy] = _middle(runs[roomy], widths[roomy] - over)
        return "".join(runs)
    if sum(min(w, _SHORTEST_RUN) if i % 2 == 0 else w for i, w in enumerate(widths)) > width:
        return _middle(text, width)
    for _ in range(over):
        longest = max(range(0, len(runs), 2), key=lambda i: widths[i])
        widths[longest] -= 1
    return "".join(_middle(run, w) for run, w in zip(runs, widths, strict=True))


def _middle(text: str, width: int) -> str:
    if columns(text) <= width:
        return text
    head, tail = "", ""
    left = width - 1
    for character in text:
        if columns(head) + columns(character) > left // 2:
            break
        head += character
    left -= columns(head)
    for character in reversed(text):
        if columns(tail) + columns(character) > left:
            break
        tail = character + tail
    return f"{head}…{tail}"


def _pad(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset(), indent: int = 0) -> Iterator[str]:
    """Lay out rows in columns two blanks apart; the first column gives way, the columns in `right` end flush."""
    if not rows:
        return
    widths = [max(columns(row[i]) for row in rows) for i in range(len(rows[0]))]
    rest = sum(width + 2 for width in widths[1:] if width)
    widths[0] = min(widths[0], max(_NARROWEST_NAME, WIDTH - indent - rest))
    for row in rows:
        cells = [_pad(elide(row[0], widths[0]), widths[0])]
        for i in range(1, len(row)):
            if widths[i]:
                blank = " " * (widths[i] - columns(row[i]))
                cells.append(blank + row[i] if i in right else row[i] + blank)
        yield (" " * indent + "  ".join(cells)).rstrip()


def facts(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Lay out labels and what they stand for; a long text goes on below itself."""
    for label, told in pairs:
        yield from wrapped(told, f"  {label:<{_LABEL}}")


def wrapped(text: str, first: str = "") -> list[str]:
    """Return a text in lines of at most 80 columns behind `first`; a word longer than a line stays whole."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]  # fmt: skip


def problem_lines(problems: Sequence[Problem]) -> Iterator[str]:
    """One paragraph a problem, severity first; of many of one kind only the first, and how many more there are."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        kinds.setdefault((problem.severity, problem.code), []).append(problem)
    for (severity, code), group in kinds.items():
        for problem in group[:_OF_ONE_KIND]:
            sentence = problem.sentence
            if problem.file is not None and printable(problem.file) not in sentence:
                sentence = f"{sentence} ({printable(problem.file)})"
            yield from wrapped(f"{sentence}. {problem.hint}" if problem.hint else sentence, f"{severity:<8} ")
        if len(group) > _OF_ONE_KIND:
            more = f"and {count(len(group) - _OF_ONE_KIND)} more of this kind ({code}): check --json lists all"
            yield from wrapped(more, f"{'':<8} ")


def problem_counts(problems: Sequence[Problem]) -> str:
    """Return ``2 errors, 1 warning``."""
    counts = [(severity, sum(p.severity == severity for p in problems)) for severity in ("error", "warning")]
    words = [plural(n, severity) for severity, n in counts if n]
    n_info = sum(p.severity == "info" for p in problems)
    return ", ".join(words + ([f"{count(n_info)} info"] if n_info else []))


# ---------------------------------------------------------------- info, ls


def info_lines(info: Document) -> Iterator[str]:
    yield printable(info["path"])
    n = info["n_problems"]
    some = [plural(n[s], s) for s in ("error", "warning") if n[s]] + ([f"{count(n['info'])} info"] if n["info"] else [])
    dtypes = sorted(info["dtypes"].items(), key=lambda item: (-item[1], item[0]))
    mesh = info["mesh"]
    detail = f": {printable(info['format_detail'])}" if info["format_detail"] else ""
    stored = (
        "bytes known only from the items themselves"
        if info["n_stored_bytes"] is None
        else _bytes(info["n_stored_bytes"])
    )
    pairs = [
        ("format", printable(info["format"]) + detail),
        ("tensors", f"{count(info['n_tensors'])} with {plural(info['n_elements'], 'element')}"),
        ("values", _bytes(info["n_bytes"])),
        ("stored", f"{stored} in {plural(info['n_files'], 'file')}"),
        ("dtypes", ", ".join(f"{printable(name, 40)} ({count(k)})" for name, k in dtypes) or "none"),
    ]
    if info["world_size"] is not None:
        pairs.append(("world size", count(info["world_size"])))
    if mesh is not None:
        axes = ", ".join(f"{printable(a, 40)} {e}" for a, e in zip(mesh["names"], mesh["shape"], strict=True))
        pairs.append(("mesh", f"{axes} ({info['mesh_provenance'] or 'recorded'})"))
    elif info["mesh_evidence"]:
        pairs.append(("mesh", f"not known: {printable(info['mesh_evidence'], 300)}"))
    if info["step"] is not None:
        pairs.append(("step", count(info["step"])))
    if info["software"] is not None:
        pairs.append(("written by", printable(info["software"], 200)))
    pairs.append(("problems", ", ".join(some) or "none found in the metadata"))
    yield from facts(pairs)


def _bytes(n: int) -> str:
    return size(n) if n < 1000 else f"{size(n)} ({count(n)} B)"


def ls_lines(rows: Sequence[tuple[int, Document]], objects: Sequence[Document]) -> Iterator[str]:
    """One line a tensor: name, dtype, shape, bytes, and a word where it is not whole; its aliases below it."""
    cells = [
        (
            _name(number, row["name"]),
            "?" if row["dtype"] is None else printable(row["dtype"], 40),
            "?" if row["shape"] is None else shape(row["shape"]),
            "?" if row["n_bytes"] is None else size(row["n_bytes"]),
            "" if row["complete"] else "incomplete" if row["n_fragments"] else "unreadable",
        )
        for number, row in rows
    ]
    for line, (_, row) in zip(table(cells, frozenset({3})), rows, strict=True):
        yield line
        for alias in row["aliases"]:
            yield elide(f"  = {printable(alias)} (alias)", WIDTH)
    yield from table([(_name(None, o["name"]), printable(o["type"], 30), _worth(o)) for o in objects], frozenset({2}))


def _worth(told: Document) -> str:
    """Return the bytes of an object; of one inside something larger what it is."""
    return printable(told["summary"], 24) if told["n_bytes"] is None else size(told["n_bytes"])


def _name(number: int | None, name: str) -> str:
    """Return a name as text; one that cannot be typed comes with the number that stands for it."""
    shown = printable(name)
    if number is not None and (shown != name or not name):
        return f"@{number} {shown or '(empty name)'}"
    return shown


# ---------------------------------------------------------------- show, where


def show_lines(row: Document, fragments: Sequence[Document], n_locals: int, rank_evidence: str = "") -> Iterator[str]:
    yield printable(row["name"]) or "(empty name)"
    pairs = [("dtype", "not known" if row["dtype"] is None else printable(row["dtype"]))]
    if row["shape"] is None:
        pairs.append(("shape", "not known"))
    else:
        n_bytes = "size not known" if row["n_bytes"] is None else _bytes(row["n_bytes"])
        pairs.append(("shape", f"{shape(row['shape'])}: {plural(row['n_elements'], 'element')}, {n_bytes}"))
    if row["part"]:
        pairs.append(("part", printable(row["part"])))
    if row["slot"]:
        of = printable(row["param"]) if row["named"] else "a parameter that the file does not name"
        pairs.append(("slot", f"{printable(row['slot'])} of {of}"))
    if row["aliases"]:
        pairs.append(("aliases", listing(row["aliases"], 12)))
    layout = row["layout"]
    if layout is None:
        pairs.append(("layout", "none recorded"))
    else:
        axes = zip(layout["mesh"]["names"], layout["mesh"]["shape"], layout["placements"], strict=True)
        words = ", ".join(f"{printable(name, 40)} {extent}: {placement}" for name, extent, placement in axes)
        order = layout["order"]
        cut = [printable(layout["mesh"]["names"][axis], 40) for axis in order]
        first = "" if order == sorted(order) else f"; cut in the order {', '.join(cut)}"
        pairs.append(("layout", f"{words} ({layout['provenance']}{first})"))
        if layout["evidence"]:
            pairs.append(("evidence", printable(layout["evidence"], 300)))
    if n_locals:
        pairs.append(("local parts", count(n_locals)))
    if rank_evidence:
        pairs.append(("ranks", f"told by {rank_evidence}"))
    state = "every element is stored" if row["complete"] else "not every element can be read"
    pairs.append(("fragments", f"{count(row['n_fragments'])}, {state}"))
    yield from facts(pairs)
    yield from table([_fragment_cells(f) for f in fragments], indent=4)


def _fragment_cells(fragment: Document) -> tuple[str, ...]:
    region = ", ".join(f"{low}:{high}" for low, high in fragment["region"]) or "all"
    rank = "" if fragment["rank"] is None else f"rank {fragment['rank']}"
    return (printable(fragment["file"]), span(fragment["offset"], fragment["n_bytes"]), f"[{region}]", rank,
            "" if fragment["complete"] else "unreadable")  # fmt: skip


def span(offset: int | None, n_bytes: int | None, bit: int = 0) -> str:
    """Return where bytes lie: ``bytes 1,024 to 33,792``."""
    if offset is None:
        return "place not known"
    if n_bytes is None:
        return f"from byte {count(offset)}"
    return f"bytes {count(offset)} to {count(offset + n_bytes)}" + (f", bit {bit}" if bit else "")


def object_lines(told: Document) -> Iterator[str]:
    yield printable(told["name"])
    pairs = [("type", printable(told["type"])), ("file", printable(told["file"]))]
    pairs.append(("place", span(told["offset"], told["n_bytes"])))
    yield from facts(pairs)
    yield from json.dumps(told["value"], indent=2, allow_nan=False).split("\n")


def where_lines(told: Document) -> Iterator[str]:
    index = ", ".join(str(i) if isinstance(i, int) else f"{i[0]}:{i[1]}" for i in told["index"])
    value = "" if told["value"] is None else f" = {_value(told['value'])}"
    place = f"[{index}]" if told["index"] else ""
    yield f"{printable(told['name']) or '(empty name)'}{place}{value}"
    if not told["holders"]:
        yield "    stored nowhere that can be read"
    cells = []
    for holder in told["holders"]:
        region = ", ".join(f"{low}:{high}" for low, high in holder["region"]) or "all"
        rank = "" if holder["rank"] is None else f"rank {holder['rank']}"
        place, shown = span(holder["offset"], holder["n_bytes"], holder["bit"]), ""
        if region != "all" and not all(high - low == 1 for low, high in holder["region"]):
            place = f"first element at byte {count(holder['offset'])}"  # a region is rarely one run of bytes
            shown = f"[{region}]"
        cells.append((printable(holder["file"]), place, shown, rank))
    yield from table(cells, indent=4)


def _value(value: Any) -> str:
    return f"{value[0]} + {value[1]}i" if isinstance(value, list) else str(value)


# ---------------------------------------------------------------- read, stats


def value_lines(values: NDArray[Any], first: Sequence[int], step: Sequence[int]) -> Iterator[str]:
    """Write values in lines that each begin with the index, in the tensor, of their first value.

    Parameters
    ----------
    values
        What was selected, with all axes of the tensor.
    first, step
        Index of the first value on each axis, and the distance from one to the next.
    """
    from tensormorph.export import texts

    if not values.size:
        yield "no elements"
        return
    cells = texts(values)
    if not values.ndim:
        yield cells[0]
        return
    width = max(map(len, cells))
    last = [low + (n - 1) * by for low, n, by in zip(first, values.shape, step, strict=True)]
    digits = [max(len(str(a)), len(str(b))) for a, b in zip(first, last, strict=True)]
    label = sum(digits) + 2 * len(digits)
    a_line = max(1, (WIDTH - label) // (width + 2))
    run = values.shape[-1]
    rows = np.ndindex(*values.shape[:-1])
    for number, outer in enumerate(rows):
        for begin in range(0, run, a_line):
            at = [low + i * by for low, i, by in zip(first, (*outer, begin), step, strict=True)]
            index = ", ".join(f"{i:>{d}}" for i, d in zip(at, digits, strict=True))
            start = number * run + begin
            shown = cells[start : min(start + a_line, (number + 1) * run)]
            yield f"[{index}]" + "".join(f"  {cell:>{width}}" for cell in shown)


def stats_lines(rows: Sequence[tuple[int, int | None, Document]]) -> Iterator[str]:
    """One line a tensor (its number in ``ls``, elements and statistics), and below it what the numbers leave out."""
    any_zero = any(row["n_zero"] for _, _, row in rows)
    cells: list[tuple[str, ...]] = [("", "min", "max", "mean", "std", "zeros" if any_zero else "")]
    for number, n, row in rows:
        share = 1000 * row["n_zero"] // n / 10 if n else 0  # cut, not rounded: 100 % is all of them
        zeros = "" if not any_zero else "0" if not row["n_zero"] else f"{share} %" if share else "<0.1 %"
        cells.append((_name(number, row["name"]), *(_brief(row[key]) for key in cells[0][1:5]), zeros))
    notes: list[list[str]] = [[], *(_left_out(row, n) for _, n, row in rows)]
    for line, told in zip(table(cells, frozenset(range(1, 6))), notes, strict=True):
        yield line
        for note in told:
            yield from wrapped(note, "    ")


def _brief(number: Any) -> str:
    """Return a number in at most 10 columns; None is a dash."""
    return "-" if number is None else str(number) if type(number) is int and -1e8 < number < 1e8 else f"{number:.3g}"


def _left_out(row: Document, n: int | None) -> list[str]:
    notes = ["no elements"] if n == 0 else []
    first = row["first_bad"]
    if first is not None:
        counts = zip((row["n_nan"], row["n_posinf"], row["n_neginf"]), _NOT_FINITE.values(), strict=True)
        held = ", ".join(f"{count(k)} {kind}" for k, kind in counts if k)
        at = f" at [{', '.join(map(str, first['index']))}]" if first["index"] else ""
        place = "" if first["file"] is None else f", {printable(first['file'])} byte {count(first['offset'])}"
        rank = "" if first["rank"] is None else f", rank {first['rank']}"
        notes.append(f"{held}; the first is {_NOT_FINITE[first['kind']]}{at}{place}{rank}")
    return notes if row["exact"] else [*notes, "not exact: these numbers are without the values that cannot be read"]


# ---------------------------------------------------------------- check


def check_lines(path: str, report: CheckReport) -> Iterator[str]:
    yield f"{elide(printable(path), WIDTH - 24)}: {report.verdict}"
    yield from wrapped(f"{report.meaning}.", "  ")
    yield ""
    pairs = [("looked at", ", ".join(report.looked_at)), ("not read", ", ".join(report.not_looked_at) or "nothing")]
    if report.complete is not False:
        pairs.append(("tensors", _WHOLE[report.complete]))
    pairs.append(("save", _COMMITTED[report.committed]))
    pairs.append(("step", "not known" if report.step is None else count(report.step)))
    yield from facts(pairs)
    yield ""
    yield from _inventory_lines(report)
    yield ""
    yield from problem_lines(report.problems)
    yield problem_counts(report.problems) or "No problems in what was looked at"


def _inventory_lines(report: CheckReport) -> Iterator[str]:
    """One paragraph for the states that the same words are true of."""
    for present, word in _PRESENT.items():
        label = word
        alike: dict[str, list[str]] = {}
        for entry in report.inventory:
            if entry.present == present:
                alike.setdefault(entry.evidence, []).append(entry.state.replace("_", " "))
        for evidence, states in alike.items():
            yield from facts([(label, f"{', '.join(states)}: {printable(evidence)}")])
            label = ""


_WHOLE = {
    True: "every element is stored, in files that open and are long enough",
    None: "every element has its place in the metadata; files were not opened",
}
_COMMITTED = {
    True: "finished: the commit marker is there",
    False: "not finished",
    None: "this format has no commit marker",
}
