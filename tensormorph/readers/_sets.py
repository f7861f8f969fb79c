"""Which files make up which model, and where an index and the headers disagree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tensormorph.columns import TensorKey
from tensormorph.errors import Problem, TensormorphError
from tensormorph.fragments import Ints
from tensormorph.model import UnreadableTensor
from tensormorph.readers._bytes import ByteSource, FilePool
from tensormorph.readers._index import ShardIndex, absent_file_problem, read_index, total_problems
from tensormorph.readers._process import Report
from tensormorph.readers._target import Target, natural
from tensormorph.text import count, listing, plural, printable

# Source: transformers, `from_pretrained`: the default file names, before variants and adapters.
_FIRST = ("model", "pytorch_model")


@dataclass(frozen=True, slots=True)
class SetKind:
    """How a format names the files of a set: by suffix, by number, and the index that lists them."""

    suffixes: tuple[str, ...]
    index: re.Pattern[str]
    shard: re.Pattern[str]

    def holds(self, name: str) -> bool:
        """Whether a name has a suffix of the format."""
        return name.endswith(self.suffixes)

    def stem(self, name: str) -> str:
        """Return a file name without its suffix."""
        return next((name.removesuffix(s) for s in self.suffixes if name.endswith(s)), name)


SAFETENSORS = SetKind(
    (".safetensors",),
    re.compile(r"(.+)\.safetensors\.index(\.[\w-]+)?\.json"),
    re.compile(r"(.+)-(\d{5,})-of-(\d{5,})((?:\.[\w-]+)?)\.safetensors"),
)
TORCH = SetKind(
    (".bin", ".pt", ".pth", ".ckpt"),
    re.compile(r"(.+)\.bin\.index(\.[\w-]+)?\.json"),
    re.compile(r"(.+)-(\d{5,})-of-(\d{5,})((?:\.[\w-]+)?)\.(?:bin|pt|pth)"),
)


@dataclass(frozen=True, slots=True)
class Contents:
    """What one file of a set holds: stored names, with bytes and elements of each, and names that are broken in it.

    `packed` tells that integers may hold several parameters an element.
    """

    names: Sequence[str]
    n_bytes: Sequence[int] | Ints
    n_elements: Sequence[int] | Ints
    lost: frozenset[str] = frozenset()
    packed: bool = False


@dataclass(slots=True)
class Part:
    """One model in the folder: its files, and the index that lists them."""

    kind: SetKind
    name: str
    files: list[str]
    index: ShardIndex | None = None
    total: int | None = None
    strays: list[str] = field(default_factory=list)


def model_parts(
    kind: SetKind, target: Target, indexes: list[str], names: list[str], pool: FilePool, problems: list[Problem],
    report: Report,
) -> list[Part]:  # fmt: skip
    """Return the models that `names` make up, the one that loaders take first standing first."""
    left = names
    parts: list[Part] = []
    for name in indexes:
        try:
            part = indexed_part(kind, target, name, pool, report)
        except TensormorphError as error:
            told = f"The index {printable(name)} is not used ({error}); the files are read without it"
            problems.append(Problem("bad-index", "error", told, file=name))
            continue
        parts.append(part)
        listed = frozenset(part.files)
        left = [n for n in left if n not in listed]
    sets: dict[tuple[str, str], Part] = {}
    for name in left:
        shard = kind.shard.fullmatch(name)
        if shard is None:
            sets[name, ""] = Part(kind, kind.stem(name), [name])
            continue
        key = (shard[1] + shard[4], shard[3])
        part = sets.setdefault(key, Part(kind, shard[1] + shard[4], [], total=min(int(shard[3]), 1 << 20)))
        part.files.append(name)
    if len(parts) == 1:
        # One index speaks for the folder: what it does not name is a stray, but for variants and other models.
        for key, part in list(sets.items()):
            if same_set(parts[0], part):
                parts[0].strays.extend(part.files)
                del sets[key]
    parts.extend(sorted(sets.values(), key=lambda p: (p.name not in _FIRST, natural(p.name))))
    named = Counter(p.name for p in parts)
    for part in parts:
        if named[part.name] > 1:
            part.name = part.index.file if part.index is not None else part.files[0]
    return parts


def same_set(indexed: Part, other: Part) -> bool:
    """Whether files that an index does not name look like part of its set: numbered shards, or files of its own stem.

    `model.fp16.safetensors` or `adapter_model.safetensors` beside `model.safetensors.index.json` are other models.
    """
    assert indexed.index is not None
    stems = {_stem(indexed.kind, name) for name in indexed.index.files} | {indexed.name}
    return other.total is not None or other.name in stems or _stem(other.kind, other.files[0]) in stems


def _stem(kind: SetKind, name: str) -> str:
    """Return a file name without suffix and without the number at its end."""
    return re.sub(r"[-_.]?\d+$", "", kind.stem(kind.shard.sub(r"\1", name)))


def tell_misnamed(names: Iterable[str], holds: str, problems: list[Problem]) -> None:
    """Tell of files whose content is of a format that their names do not promise."""
    told = f"holds {holds}, whatever its name says; it is opened as such"
    problems.extend(Problem("wrong-extension", "warning", f"{printable(name)} {told}", file=name) for name in names)


def indexed_part(kind: SetKind, target: Target, name: str, pool: FilePool, report: Report) -> Part:
    """Return the part that an index describes. Raises as `read_index`."""
    path = target.resolve(name)
    index = read_index(ByteSource(pool, path, name, 0, pool.identity(path).n_bytes), report)
    found = kind.index.fullmatch(name)
    stem = (found[1] + (found[2] or "")) if found else name
    return Part(kind, stem, [n for n in index.files if _usable(target, n) is None], index)


def _usable(target: Target, name: str) -> TensormorphError | None:
    """Return why a file that an index names cannot be used, or None."""
    try:
        target.resolve(name)
    except TensormorphError as error:
        return error
    return None


def owned_names(
    target: Target,
    part: Part,
    label: str,
    contents: Mapping[str, Contents],
    failures: Mapping[str, TensormorphError],
    problems: list[Problem],
    lost: dict[str, UnreadableTensor],
) -> dict[str, dict[str, str]]:
    """Return for each readable file of a part the names that another file owns, as name -> owner.

    Tells where index and files disagree; names of the index that nothing holds go into `lost`.
    """
    names = [n for n in dict.fromkeys([*part.files, *part.strays]) if n in contents]
    holders: dict[str, list[str]] = {}
    if len(names) > 1 or part.index is not None:
        for name in names:
            for tensor in dict.fromkeys(contents[name].names):
                holders.setdefault(tensor, []).append(name)
    weight_map = part.index.weight_map if part.index is not None else {}
    owner = {t: weight_map[t] if weight_map.get(t) in found else found[0] for t, found in holders.items()}
    yields_to: dict[str, dict[str, str]] = {}
    for name in names:
        yields = {t: owner[t] for t in contents[name].names if len(holders.get(t, ())) > 1 and owner[t] != name}
        if yields:
            problems.append(Problem("duplicate-tensor", "warning",
                f"{printable(name)} holds {plural(len(yields), 'tensor')} that {listing(sorted(set(yields.values())))} "
                f"holds too ({listing(list(yields))}); "
                + ("the index's choice keeps the name" if part.index is not None else "the first keeps the name")
                + ", the other is shown with its file", file=name))  # fmt: skip
        yields_to[name] = yields
    if part.index is not None:
        _compare_index(target, part, part.index, label, contents, failures, holders, problems, lost)
    return yields_to


def _compare_index(
    target: Target,
    part: Part,
    index: ShardIndex,
    label: str,
    contents: Mapping[str, Contents],
    failures: Mapping[str, TensormorphError],
    holders: dict[str, list[str]],
    problems: list[Problem],
    lost: dict[str, UnreadableTensor],
) -> None:
    problems.extend(index.problems)
    by_file: dict[str, list[str]] = {}
    for tensor, name in index.weight_map.items():
        by_file.setdefault(name, []).append(tensor)
    for name, tensors in by_file.items():
        absent = [t for t in tensors if name not in holders.get(t, ())]
        elsewhere = [t for t in absent if t in holders]
        gone = [t for t in absent if t not in holders]
        unusable = _usable(target, name)
        refused = unusable is not None and unusable.code == "outside-root"
        if elsewhere:
            sentence = (
                f"The index says {printable(name)} for {plural(len(elsewhere), 'tensor')} ({listing(elsewhere)}) that "
                f"{listing(sorted({holders[t][0] for t in elsewhere}))} holds; they are read from there"
            )
            wrong = Problem("index-wrong-file", "warning", sentence, file=name)
            problems.append(_refused(wrong) if refused else wrong)
        if not gone:
            continue
        if name in contents:
            gone = [t for t in gone if t not in contents[name].lost]
            told = [Problem("index-absent-tensor", "error",
                f"{printable(t)} is in the index, absent from {printable(name)}", t, name) for t in gone]  # fmt: skip
        else:
            why = str(failures[name]) if name in failures else "is absent"
            if unusable is not None and refused:
                why = f"is refused: {unusable.sentence.removeprefix('Cannot open it: ')}"
            whole = absent_file_problem(index, name, gone, why)
            whole = _refused(whole) if refused else whole
            problems.append(whole)
            told = [Problem(whole.code, "error", f"{printable(t)} needs {printable(name)}, which {why}", t, name)
                    for t in gone]  # fmt: skip
        for tensor, problem in zip(gone, told, strict=True):
            unique = f"{label}/{tensor}" if label else tensor
            lost[unique] = UnreadableTensor(unique, TensorKey(label, tensor), None, None, name, (problem,))
        if name in contents:
            problems.extend(told[:20])
            if len(told) > 20:
                problems.append(Problem("index-absent-tensor", "error",
                    f"{count(len(told) - 20)} more tensors of the index are absent from {printable(name)}",
                    file=name))  # fmt: skip
    _unlisted(part, index, contents, holders, problems)
    if not lost and all(n in contents for n in index.files):
        rows = [(n, contents[n], i) for n in index.files for i in range(len(contents[n].names))]
        listed = [(c, i) for n, c, i in rows if index.weight_map.get(c.names[i]) == n]
        n_bytes, n_elements = sum(int(c.n_bytes[i]) for c, i in listed), sum(int(c.n_elements[i]) for c, i in listed)
        packed = any(contents[n].packed for n in index.files)
        problems.extend(total_problems(index, n_bytes, n_elements, packed))


def _refused(problem: Problem) -> Problem:
    return Problem("outside-root", "error", problem.sentence, file=problem.file,
                   hint="The name was not followed; the other tensors read")  # fmt: skip


def _unlisted(
    part: Part,
    index: ShardIndex,
    contents: Mapping[str, Contents],
    holders: dict[str, list[str]],
    problems: list[Problem],
) -> None:
    """Tell of tensors and whole files that the index does not name."""
    for name in part.files:
        new = [t for t in contents[name].names if t not in index.weight_map] if name in contents else []
        if new:
            problems.append(Problem("not-in-index", "warning",
                f"{printable(name)} holds {plural(len(new), 'tensor')} that the index does not name: {listing(new)}",
                file=name))  # fmt: skip
    for name in part.strays:
        if name not in contents:
            continue
        tensors = list(contents[name].names)
        twice = sum(1 for t in tensors if len(holders[t]) > 1)
        problems.append(Problem("stray-file", "warning",
            f"{printable(name)} is not in the index; of its {plural(len(tensors), 'tensor')} {count(twice)} have "
            "names that indexed files hold", file=name,
            hint=f"If that file is the one you mean, open it by its own path: {printable(name)}"))  # fmt: skip


def missing_numbers(part: Part, problems: list[Problem]) -> None:
    """Tell which files of a numbered set without index are absent."""
    if part.total is None:
        return
    there = {int(m[2]) for n in part.files if (m := part.kind.shard.fullmatch(n))}
    absent = [n for n in range(1, part.total + 1) if n not in there]
    if absent:
        problems.append(Problem("missing-file", "error",
            f"Of {count(part.total)} files of {printable(part.name)} {plural(len(absent), 'is', 'are')} absent: number "
            f"{listing([str(n) for n in absent], 6)}. Without an index nobody knows which tensors they held",
            file=part.files[0]))  # fmt: skip
