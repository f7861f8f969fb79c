"""The outline as a Qt model: a node's number is the index's id, and no row costs an object."""

from __future__ import annotations

from typing import Any

import numpy as np
from PySide6.QtCore import QAbstractItemModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from tensormorph.errors import Severity
from tensormorph.gui import rows as visible
from tensormorph.gui.outline import ROOT, Flags, Group, Kind, Outline
from tensormorph.gui.painting import tooltip
from tensormorph.model import Checkpoint, FileInfo, StoredObject
from tensormorph.text import count, plural, printable, shape, size

Index = QModelIndex | QPersistentModelIndex
_SEVERITIES: tuple[Severity | None, ...] = (None, "info", "warning", "error")
_LABEL_LIMIT = 300


class OutlineModel(QAbstractItemModel):
    """One column: a label. What else a row shows is asked by node, not by role: Qt asks eight roles a cell."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._checkpoint: Checkpoint | None = None
        self._outline: Outline | None = None
        self._rows: visible.Rows | None = None
        self._shown: list[int] = []
        self._unfolded: set[int] = set()
        self._group_at: dict[int, int] = {}
        self._objects: list[StoredObject] = []
        self._matched: Flags | None = None

    # ------------------------------------------------------------ content

    def set_checkpoint(
        self, checkpoint: Checkpoint | None, outline: Outline | None, rows: visible.Rows | None = None
    ) -> None:
        """Show another checkpoint, alike layers folded; `rows` are its first ones, where a worker has them already."""
        self.beginResetModel()
        self._checkpoint, self._outline, self._matched = checkpoint, outline, None
        self._objects = [] if checkpoint is None else list(checkpoint.objects.values())
        self._shown = [] if outline is None else [0] * len(outline.groups)
        self._unfolded = set()
        self._arrange(rows)
        self.endResetModel()

    def set_matched(self, matched: Flags | None, rows: visible.Rows | None = None) -> None:
        """Show only the names with a flag and what is above them, nothing folded; None shows all again.

        `rows` are those of the flags, where a worker has arranged them already.
        """
        self.beginResetModel()
        self._matched = matched
        self._arrange(rows)
        self.endResetModel()

    @property
    def outline(self) -> Outline | None:
        """What is shown."""
        return self._outline

    @property
    def filtered(self) -> bool:
        """Whether only matching names have rows."""
        return self._matched is not None

    def _arrange(self, rows: visible.Rows | None = None) -> None:
        """Compute the rows, unless they are given, and which row stands for which group."""
        self._group_at = {}
        if self._outline is None:
            self._rows = None
        elif self._matched is not None:
            self._rows = rows or visible.filtered(self._outline, self._matched)
        else:
            self._rows = rows or visible.folded(self._outline, self._shown, self._unfolded)
            for number, group in enumerate(self._outline.groups):
                if number not in self._unfolded:
                    self._group_at[group.members[self._shown[number]] if group.head is None else group.head] = number

    # ------------------------------------------------------------ folding

    def group_at(self, node: int) -> tuple[Group, int] | None:
        """Return the group that a row stands for, and which member it shows."""
        number = self._group_at.get(node)
        if number is None or self._outline is None:
            return None
        return self._outline.groups[number], self._shown[number]

    def step(self, node: int, by: int) -> dict[int, int]:
        """Show the next or previous member of the innermost group that a node stands in.

        Rows in the same place of the other member take over: what was selected or open stays so, one layer on.
        Returns which node took over from which; nothing where there is no further member.
        """
        if self._outline is None or self.filtered:
            return {}
        number = visible.enclosing_group(self._outline, node, self._unfolded)
        if number is None:
            return {}
        group = self._outline.groups[number]
        at = self._shown[number]
        to = min(max(at + by, 0), len(group.members) - 1)
        if to == at:
            return {}
        olds, news = visible.counterpart(self._outline, group.members[at], group.members[to])
        moved = dict(zip(olds.tolist(), news.tolist(), strict=True))
        self._follow_inner_groups(moved)
        self._shown[number] = to
        self._change(moved)
        return moved

    def _follow_inner_groups(self, moved: dict[int, int]) -> None:
        """Let groups inside the new member show and fold what those inside the old one did."""
        outline = self._outline
        assert outline is not None
        for old, new in moved.items():
            inner, other = int(outline.group_of[old]), int(outline.group_of[new])
            # The moved root itself belongs to the group that is being turned.
            if inner >= 0 and other >= 0 and inner != other:
                self._shown[other] = self._shown[inner]
                (self._unfolded.add if inner in self._unfolded else self._unfolded.discard)(other)

    def reveal(self, node: int) -> dict[int, int]:
        """Turn groups so that a node has a row; return which node took over from which, as `step` does."""
        if self._outline is None or self.filtered:
            return {}
        moved: dict[int, int] = {}
        for number, member in visible.enclosing_members(self._outline, node):
            members, at = self._outline.groups[number].members, self._shown[number]
            if at == member or number in self._unfolded:  # of an unfolded group every member has its row
                continue
            olds, news = visible.counterpart(self._outline, members[at], members[member])
            turned = dict(zip(olds.tolist(), news.tolist(), strict=True))
            self._follow_inner_groups(turned)
            self._shown[number] = member
            moved = {**turned, **{old: turned.get(new, new) for old, new in moved.items()}}
        if moved:
            self._change(moved)
        return moved

    def set_folded(self, node: int, folded: bool) -> None:
        """Give every member of a node's group a row, or one for all of them."""
        if self._outline is None or self.filtered:
            return
        if folded:
            number = self._unfolded_group(node)
            if number is not None:
                self._unfolded.discard(number)
                self._change({})
        else:
            number = visible.enclosing_group(self._outline, node, self._unfolded)
            if number is not None:
                self._unfolded.add(number)
                self._change({})

    def can_fold(self, node: int) -> bool:
        """Whether a node stands in a group that was unfolded."""
        return self._outline is not None and not self.filtered and self._unfolded_group(node) is not None

    def can_unfold(self, node: int) -> bool:
        """Whether a node stands in a folded group."""
        if self._outline is None or self.filtered:
            return False
        return visible.enclosing_group(self._outline, node, self._unfolded) is not None

    def _unfolded_group(self, node: int) -> int | None:
        assert self._outline is not None
        heads = {self._outline.groups[number].head: number for number in self._unfolded}
        at = node
        while at != ROOT:
            for number in (int(self._outline.group_of[at]), heads.get(at, -1)):
                if number in self._unfolded:
                    return number
            at = int(self._outline.parent[at])
        return None

    def _change(self, moved: dict[int, int]) -> None:
        self.layoutAboutToBeChanged.emit()
        self._rearranged(moved)

    def _rearranged(self, moved: dict[int, int]) -> None:
        held = self.persistentIndexList()
        self._arrange()
        self.changePersistentIndexList(held, [self.index_of(moved.get(i.internalId(), i.internalId())) for i in held])
        self.layoutChanged.emit()

    # ------------------------------------------------------------ by node

    def node(self, index: Index) -> int:
        """Return the node of an index; the root for the invalid one."""
        return index.internalId() if index.isValid() else ROOT

    def index_of(self, node: int) -> QModelIndex:
        """Return the index of a node, invalid if it has no row now."""
        if self._rows is None or node == ROOT or self._rows.row[node] < 0:
            return QModelIndex()
        return self.createIndex(int(self._rows.row[node]), 0, node)

    def kind(self, node: int) -> Kind:
        """Return what a node is."""
        assert self._outline is not None
        return Kind(int(self._outline.kind[node]))

    def name_of(self, node: int) -> str | None:
        """Return the name of a tensor's node."""
        if self._outline is None or not Kind.TENSOR <= self._outline.kind[node] <= Kind.UNREADABLE:
            return None
        return self._outline.names[int(self._outline.item[node])]

    def object_of(self, node: int) -> StoredObject | None:
        """Return the object of a node."""
        if self._outline is None or self._outline.kind[node] != Kind.OBJECT:
            return None
        return self._objects[int(self._outline.item[node])]

    def file_of(self, node: int) -> FileInfo | None:
        """Return the file of a node."""
        if self._outline is None or self._checkpoint is None or self._outline.kind[node] != Kind.FILE:
            return None
        return self._checkpoint.files[int(self._outline.item[node])]

    def label(self, node: int) -> str:
        """Return what a row is called, safe to draw."""
        assert self._outline is not None
        group = self.group_at(node)
        if group is not None and group[0].head is None:
            named = [f"{group[0].prefix}{number}" for number in group[0].numbers]
            return printable(", ".join(named) if len(named) <= 3 else f"{named[0]} … {named[-1]}", _LABEL_LIMIT)
        return printable(self._outline.labels[node], _LABEL_LIMIT) or '""'

    def detail(self, node: int, open_: bool) -> str:
        """Return what stands at the right of a row."""
        outline, checkpoint = self._outline, self._checkpoint
        assert outline is not None
        assert checkpoint is not None
        kind, item = self.kind(node), int(outline.item[node])
        if kind in (Kind.TENSOR, Kind.SLOT):
            return shape(checkpoint.table.shape(item))
        if kind is Kind.ALIAS:
            return f"alias of {printable(checkpoint.aliases[outline.names[item]], 120)}"
        if kind is Kind.UNREADABLE:
            lost = checkpoint.unreadable[outline.names[item]]
            return printable(lost.file, 120) if lost.file else "not stored"
        if kind is Kind.OBJECT:
            return printable(self._objects[item].summary, 120)
        if kind is Kind.FILE:
            return size(checkpoint.files[item].n_bytes)
        if kind is Kind.FILES:
            return plural(int(outline.count[node]), "file")
        return "" if self.group_at(node) is not None else visible.measure(outline, node, open_)

    def severity(self, node: int, open_: bool) -> Severity | None:
        """Return the worst problem of a row: its own while it is open, else of all that is below it too."""
        assert self._outline is not None
        group = self.group_at(node)
        if group is not None:
            # The members that are not shown have no row of their own to carry a mark.
            return _SEVERITIES[int(self._outline.badge_below[list(group[0].members)].max())]
        own = self._outline.badge if open_ else self._outline.badge_below
        return _SEVERITIES[int(own[node])]

    def _tip(self, node: int) -> tuple[str, ...]:
        name, group = self.name_of(node), self.group_at(node)
        file, stored = self.file_of(node), self.object_of(node)
        if name is not None:
            return (name,)
        if file is not None:
            return file.name, f"{file.role}, {count(file.n_bytes)} bytes"
        if stored is not None:
            return stored.name, stored.type
        if group is not None:
            return (f"{len(group[0].members)} modules that are alike inside; , and . show the previous and the next",)
        assert self._outline is not None
        return (self._outline.labels[node],)

    # ------------------------------------------------------------ QAbstractItemModel

    def index(self, row: int, column: int = 0, parent: Index = QModelIndex()) -> QModelIndex:
        rows = self._rows
        up = self.node(parent)
        if rows is None or column != 0 or not 0 <= row < int(rows.count[up]) or parent.column() > 0:
            return QModelIndex()
        return self.createIndex(row, 0, int(rows.order[int(rows.first[up]) + row]))

    def parent(self, index: Index = QModelIndex()) -> QModelIndex:  # type: ignore[override]
        if self._rows is None or not index.isValid():
            return QModelIndex()
        return self.index_of(max(int(self._rows.parent[index.internalId()]), ROOT))

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        if self._rows is None or parent.column() > 0:
            return 0
        return int(self._rows.count[self.node(parent)])

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 1

    def hasChildren(self, parent: Index = QModelIndex()) -> bool:
        return self.rowCount(parent) > 0

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid():
            return Qt.ItemFlag.NoItemFlags
        if self.kind(index.internalId()) is Kind.HEADING:
            return Qt.ItemFlag.ItemIsEnabled
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and index.isValid():
            return self.label(index.internalId())
        if role == Qt.ItemDataRole.ToolTipRole and index.isValid():
            return "<br>".join(map(tooltip, self._tip(index.internalId())))
        if role == Qt.ItemDataRole.AccessibleTextRole and index.isValid():
            node = index.internalId()
            return f"{self.label(node)} {self.detail(node, False)}".rstrip()
        return None

    # ------------------------------------------------------------ what a filter hides

    def n_hidden(self) -> int:
        """Return how many names the filter hides."""
        return 0 if self._matched is None else int(np.count_nonzero(~self._matched))

    def n_matched(self) -> int | None:
        """Return how many names match; None without a filter."""
        return None if self._matched is None else int(np.count_nonzero(self._matched))
