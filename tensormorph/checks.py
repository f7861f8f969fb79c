"""The audit of a checkpoint: what is stored, what is in doubt, and what it can be used for.

Nothing here knows a format. Facts come from the reader; files, values and hashes are looked at as far as asked. The
wording never says more than was looked at: a file that is there is not a file whose values were read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tensormorph.errors import Problem, Severity
from tensormorph.model import STATES, Checkpoint, Facts, Presence, State, StateFact
from tensormorph.region import Region
from tensormorph.text import count, plural, printable, size

Report = Callable[[str, int, int], None]
SUMMED_UNASKED = 64 << 20
"""So many bytes are compared with the checksums that a format stores even where nobody asked for hashes."""

Verdict = Literal["weights-only", "partial", "resumable-statistical", "resumable-exact", "incomplete"]

VERDICTS: dict[Verdict, str] = {
    "weights-only": "weights and no training state: fit for inference and fine-tuning, not for resuming a run",
    "partial": "some training state is stored, but not all that a resumed run needs",
    "resumable-statistical": "what a resumed run needs is recorded, but not the exact random numbers and data order",
    "resumable-exact": "all ten kinds of state are recorded or not needed; only a drill proves that a run resumes",
    "incomplete": "values are missing or doubtful: see the problems",
}
_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Inventory:
    """One of the ten kinds of state: whether it is recorded, and what tells so."""

    state: State
    present: Presence
    evidence: str


@dataclass(frozen=True, slots=True)
class Portability:
    """Whether a kind of state can be used after a change.

    Fields
    ------
    change
        What becomes different: ``mesh`` (another number or arrangement of ranks).
    status
        ``pass`` needs a drill or a document as evidence; ``unproven`` says that nobody tried.
    evidence
        ``drill``, ``documented``, ``limit`` (a property of what is stored rules it out) or ``none``.
    source
        Where the evidence can be read; empty for none.
    """

    state: State
    change: str
    status: Literal["pass", "unsupported", "unproven"]
    evidence: Literal["drill", "documented", "limit", "none"]
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found.

    Fields
    ------
    complete
        Whether every element of every tensor is stored in files that open and are long enough. None where files were
        not looked at and nothing else is known to be missing.
    committed
        Whether the writer's marker of a finished save is there; None where the format has none.
    looked_at, not_looked_at
        One phrase for each thing that was examined, and for each that was not.
    """

    verdict: Verdict
    portability: tuple[Portability, ...]
    complete: bool | None
    committed: bool | None
    step: int | None
    inventory: tuple[Inventory, ...]
    problems: tuple[Problem, ...]
    looked_at: tuple[str, ...]
    not_looked_at: tuple[str, ...]

    @property
    def meaning(self) -> str:
        """What the verdict says, as a sentence without its full stop."""
        return VERDICTS[self.verdict]

    @property
    def clean(self) -> bool:
        """Whether no problem of severity error or warning was found."""
        return all(problem.severity == "info" for problem in self.problems)


def check(
    checkpoint: Checkpoint,
    *,
    quick: bool = False,
    values: bool = False,
    hashes: bool = False,
    report: Report | None = None,
) -> CheckReport:
    """Audit a checkpoint.

    Parameters
    ----------
    quick
        Judge by the metadata alone: open no file.
    values
        Read every stored value; NaN and Inf become warnings, unreadable parts and copies that differ become errors.
    hashes
        Read every file and compare its hash with the one that the layout records.
    report
        Called as ``report(what, done, total)`` while work goes on; may raise CancelledError.
    """
    # Only an audit needs it; the package's `check` function is imported by everybody, `ls` included.
    from tensormorph.audit import check_files, check_hashes, check_values, resolve_places

    step = report or _no_report
    problems = [*checkpoint.problems, *(p for t in checkpoint.unreadable.values() for p in t.problems)]
    problems += _uncommitted(checkpoint.facts, problems)
    looked = [f"metadata of {plural(len(checkpoint.table) + len(checkpoint.unreadable), 'tensor')}"]
    skipped: list[str] = []
    if quick:
        skipped.append("the files' lengths (leave --quick out)")
    else:
        found, n_files = check_files(checkpoint, problems, step)
        problems += found
        problems += resolve_places(checkpoint, step)
        looked.append(f"presence and length of {plural(n_files, 'file')}")
        if checkpoint.verify is not None:
            problems += checkpoint.verify(None if hashes else SUMMED_UNASKED, step)
            looked.append("the checksums in the files" + ("" if hashes else f" (of the first {size(SUMMED_UNASKED)})"))
    if values:
        found, n_bytes = check_values(checkpoint, problems, step)
        problems += found
        looked.append(f"every value ({count(n_bytes)} bytes read)")
    else:
        skipped.append("values (--values)")
    if hashes:
        found, n_equal = check_hashes(checkpoint, step)
        problems += found
        looked.append(f"hashes ({plural(n_equal, 'file')} as recorded)" if n_equal else "hashes (none as recorded)")
    else:
        skipped.append("hashes (--hash)")
    problems += _unexplained(checkpoint, problems)
    if not quick:
        problems += [
            Problem(
                "changed-on-disk", "error", f"{printable(name)} changed since it was opened: check again", file=name
            )
            for name in checkpoint.changed_files()
        ]
    problems = sorted(dict.fromkeys(problems), key=lambda problem: _ORDER[problem.severity])

    whole = (
        bool(np.all(checkpoint.table.complete))
        and not checkpoint.unreadable
        and checkpoint.facts.committed is not False
    )
    whole = whole and all(problem.severity != "error" for problem in problems)
    inventory = _inventory(checkpoint)
    return CheckReport(
        verdict=_verdict(inventory, whole),
        portability=_portability(inventory, whole),
        complete=whole if not (quick and whole) else None,
        committed=checkpoint.facts.committed,
        step=(checkpoint.facts if quick else checkpoint.full_facts()).step,
        inventory=inventory,
        problems=tuple(problems),
        looked_at=tuple(looked),
        not_looked_at=tuple(skipped),
    )


def _no_report(what: str, done: int, total: int) -> None:
    del what, done, total


def _uncommitted(facts: Facts, known: Sequence[Problem]) -> list[Problem]:
    if facts.committed is not False or any(problem.code == "uncommitted" for problem in known):
        return []
    why = facts.commit_evidence or "the writer's marker of a finished save is absent"
    return [Problem("uncommitted", "error", f"The save was not finished: {why}")]


def _unexplained(checkpoint: Checkpoint, known: Sequence[Problem]) -> list[Problem]:
    """Give every incomplete tensor that no problem names one of its own, with the elements that are stored nowhere."""
    named = {problem.tensor for problem in known if problem.severity != "info"}
    found: list[Problem] = []
    table = checkpoint.table
    for row in np.flatnonzero(~table.complete).tolist():
        if table.names[row] in named:
            continue
        tensor = checkpoint.tensors.at(row)
        errors = [problem for problem in tensor.problems if problem.severity == "error"]
        if errors:
            found += errors
            continue
        gaps = tensor.fragments.gaps(Region.whole(tensor.shape))
        missing = sum(gap.size for gap in gaps)
        what = (
            f"{count(missing)} of {count(tensor.n_elements)} elements are stored nowhere, the first at [{gaps[0]}]"
            if gaps
            else f"its values (dtype {printable(tensor.encoding.name)}) cannot be decoded"
        )
        region = gaps[0] if gaps else None
        sentence = f"{printable(tensor.name)}: {what}"
        found.append(Problem("incomplete-tensor", "error", sentence, tensor=tensor.name, region=region))
    return found


def _inventory(checkpoint: Checkpoint) -> tuple[Inventory, ...]:
    told = dict(checkpoint.facts.states)
    if "weights" not in told and len(checkpoint.table):
        told["weights"] = StateFact("yes", f"{plural(len(checkpoint.table), 'tensor')} stored")
    nothing = StateFact("unknown", "nothing in what was read tells")
    return tuple(
        Inventory(state, told.get(state, nothing).present, told.get(state, nothing).evidence) for state in STATES
    )


def _verdict(inventory: Sequence[Inventory], whole: bool) -> Verdict:
    """Name what the recorded kinds of state allow. `unknown` never counts as recorded.

    A state that is absent by design (no loss scaler in a bfloat16 run) is not needed. Random numbers and the position
    in the data must be recorded themselves: a design that leaves them out resumes with other ones.
    """
    if not whole:
        return "incomplete"
    state = {entry.state: entry.present for entry in inventory}
    training: tuple[State, ...] = (
        "master",
        "moments",
        "hyperparameters",
        "scheduler",
        "scaler",
        "data_position",
        "rng",
    )
    if state["weights"] == "yes" and all(state[kind] != "yes" for kind in training):
        return "weights-only"
    core: tuple[State, ...] = ("moments", "hyperparameters", "step")
    if state["weights"] != "yes" or any(state[kind] not in ("yes", "by_design") for kind in core):
        return "partial"
    rest: tuple[State, ...] = ("master", "scheduler", "scaler")
    if any(state[kind] == "no" for kind in rest):
        return "partial"
    exact = all(state[kind] != "unknown" for kind in rest) and state["rng"] == state["data_position"] == "yes"
    return "resumable-exact" if exact else "resumable-statistical"


def _portability(inventory: Sequence[Inventory], whole: bool) -> tuple[Portability, ...]:
    """Say for each recorded kind of state what is known about using it on another mesh.

    Only a drill shows that something restores, and none was run: at best the answer is ``unproven``.
    """
    found: list[Portability] = []
    for entry in inventory:
        if entry.present == "no":
            reason = f"{entry.state} is not stored: {entry.evidence}"
            found.append(Portability(entry.state, "mesh", "unsupported", "limit", reason, ""))
        elif entry.present == "yes" and entry.state in ("weights", "master", "moments") and not whole:
            reason = "values are missing or doubtful: see the problems"
            found.append(Portability(entry.state, "mesh", "unsupported", "limit", reason, ""))
        elif entry.present != "by_design":
            found.append(Portability(entry.state, "mesh", "unproven", "none", "no drill was run", ""))
    return tuple(found)
