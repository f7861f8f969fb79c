"""torch DCP: a folder of ``.distcp`` files by rank, and the metadata that says which box of which tensor lies where."""

from __future__ import annotations

from tensormorph.errors import Problem
from tensormorph.model import Checkpoint
from tensormorph.readers._process import Report
from tensormorph.readers._target import Claim, Stated, Target, look
from tensormorph.text import listing, plural, printable

NAME = "dcp"


def sniff(target: Target) -> Claim | str:
    """Return a claim on what torch.distributed.checkpoint wrote; else a sentence saying why not."""
    if not target.is_folder:
        name = target.path.name
        if name == ".metadata" or name.endswith((".distcp", ".metadata")):
            folder = sniff(look(target.root))
            if isinstance(folder, Claim) and name in folder.files:
                # It begins as a pickle or as an archive of torch.save does, and is neither by itself.
                told = f"{printable(name)} is part of a DCP checkpoint"
                return Claim(NAME, told, frozenset([name]), before=frozenset({"torch_save"}))
        return "a DCP checkpoint is a folder"
    data = [n for n in target.names if n.startswith("__") and n.endswith(".distcp")]
    metadata = [n for n in target.names if n == ".metadata" or (n.startswith("__") and n.endswith(".metadata"))]
    ours = [n for n in metadata if target.head(n)[:1] == b"\x80" or data]
    if not data and not ours:
        return "it holds no .metadata that begins as a pickle does, and no .distcp file"
    evidence = [f"{printable(n)} is there" for n in ours[:1]] or ["no .metadata"]
    evidence += [f"{plural(len(data), '.distcp file')} ({listing(data)})"] if data else []
    # What else lies in such a folder (a config, a rank's extra state) belongs to it.
    return Claim(NAME, ", ".join(evidence), frozenset(target.names))


def read(target: Target, claim: Claim, problems: list[Problem], report: Report, stated: Stated) -> Checkpoint:
    """Open what `sniff` claimed; reads the metadata, and no stored tensor.

    Raises
    ------
    CorruptFileError, LimitError
        If the metadata is no metadata, or cut short: without it nothing has a name or a place.
    """
    # The interpreter is a third of what all readers import: who opens another format need not wait for it.
    from tensormorph.readers._dcp_open import open_claim

    return open_claim(target, claim, problems, report, stated)
