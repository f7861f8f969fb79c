"""One torch file a rank, each with that rank's part: joined by what the files record of it, never on a guess."""

from __future__ import annotations

from tensormorph.errors import Problem
from tensormorph.model import Checkpoint
from tensormorph.readers._process import Report
from tensormorph.readers._target import Claim, Stated, Target
from tensormorph.readers._torch_begin import MODEL_SUFFIXES, RANK_FILE, begins_as_torch
from tensormorph.text import listing, plural

NAME = "rank_files"


def sniff(target: Target) -> Claim | str:
    """Return a claim on a folder whose torch files are named by ranks; else a sentence saying why not."""
    if not target.is_folder:
        return "ranks' files are joined over a folder"
    named = [n for n in target.names if n.endswith(MODEL_SUFFIXES) and RANK_FILE.fullmatch(n)]
    ours = [n for n in named if begins_as_torch(target, n)]
    if not ours:
        return "no torch file in it is named by a rank, such as rank_0.pt"
    evidence = f"{plural(len(ours), 'torch file')} named by rank ({listing(ours)})"
    return Claim(NAME, evidence, frozenset(target.names), ours, frozenset({"torch_save"}))


def read(target: Target, claim: Claim, problems: list[Problem], report: Report, stated: Stated) -> Checkpoint:
    """Open what `sniff` claimed; reads directories and pickles, and no tensor data.

    Raises
    ------
    CorruptFileError, LimitError
        If no file of it can be read.
    """
    from tensormorph.readers._rank_open import open_claim

    return open_claim(target, claim.parsed, problems, report, stated)
