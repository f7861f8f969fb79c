"""Finds tensors among any number of names, by the grammar that the whole program shares. No Qt here."""

from __future__ import annotations

import numpy as np

from tensormorph import query as queries
from tensormorph.gui.outline import Flags, Outline
from tensormorph.model import Checkpoint

_RANKED = 5000


class Searcher:
    """Answers queries over the names of an outline. Safe to use from any thread once it is made."""

    def __init__(self, checkpoint: Checkpoint, outline: Outline) -> None:
        self._checkpoint = checkpoint
        self._outline = outline
        self._index = queries.NameIndex(checkpoint)

    def match(self, query: str) -> Flags:
        """Return one flag for each name of the outline; an alias is found with the tensor that it names.

        Raises
        ------
        UsageError
            If the query cannot be understood.
        """
        asked = queries.parse(query)
        checkpoint, n = self._checkpoint, len(self._checkpoint.table)
        flags = np.zeros(len(self._outline.names), np.bool_)
        flags[asked.rows(checkpoint, self._index)] = True
        for place, target in enumerate(checkpoint.aliases.values(), n):
            row = self._outline.place_of.get(target)
            flags[place] = row is not None and flags[row]
        for lost in asked.unreadable(checkpoint):
            flags[self._outline.place_of[lost.name]] = True
        return flags

    def best(self, query: str, most: int) -> list[str]:
        """Return names that match, those first whose last part begins with the last word, then the shortest."""
        names = [self._outline.names[place] for place in np.flatnonzero(self.match(query))[:_RANKED]]
        words = queries.parse(query).names
        if words:
            names.sort(key=lambda name: (not name[-400:].lower().rpartition(".")[2].startswith(words[-1]), len(name)))
        return names[:most]
