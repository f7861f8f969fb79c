"""torch.save: one file, a ``.bin`` set with its index, several files in a folder as parts. Nothing is unpickled."""

from __future__ import annotations

from tensormorph.errors import Problem
from tensormorph.model import Checkpoint
from tensormorph.readers._process import Report
from tensormorph.readers._sets import SAFETENSORS, TORCH
from tensormorph.readers._target import Claim, Stated, Target
from tensormorph.readers._torch_begin import MODEL_SUFFIXES, told_of
from tensormorph.text import listing, plural, printable

NAME = "torch_save"


# ---------------------------------------------------------------- whose is it


def sniff(target: Target) -> Claim | str:
    """Return a claim on what torch.save wrote; else a sentence saying why not."""
    if not target.is_folder:
        name = target.path.name
        if TORCH.index.fullmatch(name):
            return Claim(NAME, f"{printable(name)} is an index of a sharded set", frozenset([name]))
        if name.endswith(".distcp"):
            return "it is a data file of a DCP checkpoint: its items are named by the metadata beside it"
        told = told_of(target, name)
        return told if not told.startswith("=") else Claim(NAME, told[1:], frozenset([name]))
    weights = [n for n in target.names if SAFETENSORS.holds(n)]
    if weights:
        return "the folder's weights are in safetensors files; a torch file beside them opens by its own path"
    indexes = [n for n in target.names if TORCH.index.fullmatch(n)]
    files = [n for n in target.names if n.endswith(MODEL_SUFFIXES) and told_of(target, n).startswith("=")]
    if not indexes and not files:
        return "no file in the folder begins as torch.save writes"
    evidence = [*(f"index {printable(n)}" for n in indexes)]
    evidence += [f"{plural(len(files), 'file')} written by torch.save ({listing(files)})"] if files else []
    return Claim(NAME, ", ".join(evidence), frozenset([*indexes, *files]))


# ---------------------------------------------------------------- reading


def read(target: Target, claim: Claim, problems: list[Problem], report: Report, stated: Stated) -> Checkpoint:
    """Open what `sniff` claimed; reads directories and pickles, and no tensor data.

    Raises
    ------
    CorruptFileError, LimitError
        If there is one file only and it cannot be read, or the index that was named cannot be.
    """
    # The interpreter is a third of what all readers import: who opens another format need not wait for it.
    from tensormorph.readers._torch_open import open_claim

    return open_claim(target, claim, problems, report, stated)
