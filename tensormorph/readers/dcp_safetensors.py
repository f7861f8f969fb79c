"""torch DCP with Hugging Face storage: each rank's slices in safetensors files of its own, joined by what they record.

Source: torch 2.7 to 2.14, torch/distributed/checkpoint/hf_storage.py and _hf_utils.py: files are named
``shard-{rank + 1}-model-{file}-of-{files}.safetensors``; ``DCP_SHARDING_INFO`` in a header is JSON of ``{name:
{"saved_offsets": [...]}}``. Nothing records the size of a tensor or the number of ranks.
"""

from __future__ import annotations

import re

from tensormorph.errors import Problem
from tensormorph.model import Checkpoint
from tensormorph.readers._process import Report
from tensormorph.readers._target import Claim, Stated, Target
from tensormorph.text import listing, plural

NAME = "dcp_safetensors"
SHARD = re.compile(r"shard-([0-9]{5,9})-model-([0-9]{5,9})-of-([0-9]{5,9})\.safetensors")
_KEY = b'"DCP_SHARDING_INFO"'


def sniff(target: Target) -> Claim | str:
    """Return a claim on a folder of rank's shards; else a sentence saying why not."""
    if not target.is_folder:
        return "slices of tensors are joined over a folder"
    names = [n for n in target.names if SHARD.fullmatch(n)]
    if not names:
        return "no file in it is named shard-*-model-*-of-*.safetensors"
    if not any(_KEY in target.head(n) for n in names[:8]):
        return "its shard-* files record no DCP_SHARDING_INFO"
    evidence = f"{plural(len(names), 'shard file')} with DCP_SHARDING_INFO ({listing(names)})"
    return Claim(NAME, evidence, frozenset(target.names), names, frozenset({"safetensors"}))


def read(target: Target, claim: Claim, problems: list[Problem], report: Report, stated: Stated) -> Checkpoint:
    """Open what `sniff` claimed; reads headers, and no tensor data.

    Raises
    ------
    CorruptFileError, LimitError
        If there is one shard only and its header cannot be read.
    """
    from tensormorph.readers._dcp_slices import open_claim

    return open_claim(target, claim.parsed, problems, report, stated)
