"""What a pickle of torch names that Python would import: told as problems, never imported."""

from __future__ import annotations

import re

from tensormorph.errors import Problem
from tensormorph.readers._pickle_names import effect
from tensormorph.readers._pickle_nodes import Global
from tensormorph.readers._torchzip import TorchFile
from tensormorph.text import count, listing, plural, printable

# Names whose content Python itself would run on loading: told apart from those that only make objects.
_KNOWN = re.compile(r"(torch|collections|numpy|builtins|_codecs|pathlib|datetime|argparse|uuid|copyreg)(\.|$)")


def code_references(file: TorchFile) -> list[Problem]:
    """Tell which names of a pickle Python would import: those that would do more than make an object as warnings."""
    out: list[Problem] = []
    foreign: list[Global] = []
    for reference in file.globals:
        module, name = reference.known_as
        found = effect(module, name)
        dotted = printable(f"{reference.module}.{reference.name}", 120)
        if found is not None and found[0] == "warning":
            out.append(Problem("code-reference", "warning",
                f"The pickle names {dotted} at byte {count(reference.at)}, which {found[1]}", file=file.name,
                byte_range=(file.pickle_at + reference.at, file.pickle_at + reference.at + 1)))  # fmt: skip
        elif not _KNOWN.match(module):
            foreign.append(reference)
    if foreign:
        names = [f"{g.module}.{g.name} (byte {g.at:,})" for g in foreign]
        out.append(Problem("objects-not-loaded", "info",
            f"Objects of {plural(len(foreign), 'class', 'classes')} outside torch and numpy are shown, not loaded: "
            f"{listing(names)}", file=file.name))  # fmt: skip
    return out
