"""torch.save: one file, a ``.bin`` set with its index, several files in a folder as parts. Nothing is unpickled."""

from __future__ import annotations

import re

from tensormorph.errors import Problem
from tensormorph.model import Checkpoint
from tensormorph.readers._process import Report
from tensormorph.readers._sets import SAFETENSORS, TORCH
from tensormorph.readers._strangers import stranger
from tensormorph.readers._target import Claim, Stated, Target
from tensormorph.text import listing, plural, printable

NAME = "torch_save"
MODEL_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".th", ".model")


# ---------------------------------------------------------------- whose is it


def sniff(target: Target) -> Claim | str:
    """Return a claim on what torch.save wrote; else a sentence saying why not."""
    if not target.is_folder:
        name = target.path.name
        if TORCH.index.fullmatch(name):
            return Claim(NAME, f"{printable(name)} is an index of a sharded set", frozenset([name]))
        if name.endswith(".distcp"):
            return "it is a data file of a DCP checkpoint: its items are named by the metadata beside it"
        told = _told(target, name)
        return told if not told.startswith("=") else Claim(NAME, told[1:], frozenset([name]))
    weights = [n for n in target.names if SAFETENSORS.holds(n)]
    if weights:
        return "the folder's weights are in safetensors files; a torch file beside them opens by its own path"
    indexes = [n for n in target.names if TORCH.index.fullmatch(n)]
    files = [n for n in target.names if n.endswith(MODEL_SUFFIXES) and _told(target, n).startswith("=")]
    if not indexes and not files:
        return "no file in the folder begins as torch.save writes"
    evidence = [*(f"index {printable(n)}" for n in indexes)]
    evidence += [f"{plural(len(files), 'file')} written by torch.save ({listing(files)})"] if files else []
    return Claim(NAME, ", ".join(evidence), frozenset([*indexes, *files]))


def _told(target: Target, name: str) -> str:
    """Return evidence, with an equals sign before it, or a sentence why a file is not ours."""
    head = target.head(name)
    if head[:4] == b"PK\x03\x04":
        n_name = int.from_bytes(head[26:28], "little")
        first = head[30 : 30 + n_name]
        if first.endswith(b"data.pkl") or first.split(b"/")[-1] in (b".format_version", b"version", b"byteorder"):
            return f"=a zip whose first record is {printable(first.decode('utf-8', 'replace'))}"
        if name.endswith(MODEL_SUFFIXES):
            return "=a zip under a name that torch.save gives"
        return f"it is a zip archive whose first record is {printable(first.decode('utf-8', 'replace'))}, not torch's"
    if head[:2] == b"PK" and name.endswith(MODEL_SUFFIXES):
        return "=a zip under a name that torch.save gives"
    if re.match(rb"\x80[\x01-\x05\x63]", head) and not _is_header(head):
        return "=it begins as a pickle does"
    odd = stranger(head)
    if odd:
        return odd
    if name.endswith(MODEL_SUFFIXES) and head and not _is_header(head):
        return "=its name is one that torch.save's users give"
    return "its first bytes are neither a zip's nor a pickle's"


def _is_header(head: bytes) -> bool:
    """Whether a file begins as safetensors do: the length of a header may look like a pickle's first bytes."""
    return len(head) > 8 and int.from_bytes(head[:8], "little") < 1 << 40 and head[8:].lstrip()[:1] == b"{"


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
