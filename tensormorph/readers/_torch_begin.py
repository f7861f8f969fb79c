"""How files of torch.save are called and how they begin."""

from __future__ import annotations

import re

from tensormorph.readers._strangers import stranger
from tensormorph.readers._target import Target
from tensormorph.text import printable

MODEL_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".th", ".model")
# Source: habits of training scripts, verl (`model_world_size_8_rank_0.pt`), fairseq, Megatron (`mp_rank_00`).
RANK_FILE = re.compile(
    r"(?P<stem>.*?)(?:world_size_(?P<world>[0-9]{1,6})_)?(?:mp_)?rank[-_]?(?P<rank>[0-9]{1,6})(?P<rest>(?:[-_.].*)?)"
)


def begins_as_torch(target: Target, name: str) -> bool:
    """Whether a file begins as what torch.save writes."""
    return told_of(target, name).startswith("=")


def told_of(target: Target, name: str) -> str:
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
