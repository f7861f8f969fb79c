"""The list of problems as a table; many of one kind fold into one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from tensormorph.errors import Problem, Severity
from tensormorph.gui.painting import tooltip
from tensormorph.text import count, printable

COLUMNS = ("Problem", "Code", "Tensor", "Where")
GROUP_ABOVE = 200
_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
Index = QModelIndex | QPersistentModelIndex
Counts = dict[Severity, int]


class ProblemModel(QAbstractTableModel):
    """Problems, the worst first. Above GROUP_ABOVE of them, those of one code stand behind one row that opens."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._problems: list[Problem] = []
        self._groups: dict[str, list[int]] = {}
        self._open: set[str] = set()
        self._rows: list[tuple[str, int]] = []  # code and number of the problem, -1 for the row of a group

    def set_problems(self, problems: Sequence[Problem]) -> None:
        """Show other problems."""
        self.beginResetModel()
        self._problems = sorted(problems, key=lambda p: (_ORDER[p.severity], p.code))
        self._groups = {}
        for number, problem in enumerate(self._problems):
            self._groups.setdefault(problem.code, []).append(number)
        self._open.clear()
        self._arrange()
        self.endResetModel()

    def _arrange(self) -> None:
        if len(self._problems) <= GROUP_ABOVE:
            self._rows = [(problem.code, number) for number, problem in enumerate(self._problems)]
            return
        self._rows = []
        for code, numbers in self._groups.items():
            if len(numbers) == 1:
                self._rows.append((code, numbers[0]))
                continue
            self._rows.append((code, -1))
            if code in self._open:
                self._rows += [(code, number) for number in numbers]

    @property
    def problems(self) -> Sequence[Problem]:
        """All problems, in the order of the list."""
        return self._problems

    def counts(self) -> Counts:
        """Return how many there are of each severity."""
        found: Counts = {"error": 0, "warning": 0, "info": 0}
        for problem in self._problems:
            found[problem.severity] += 1
        return found

    def problem(self, row: int) -> Problem | None:
        """Return the problem of a row; None for a row that stands for several."""
        number = self._rows[row][1]
        return None if number < 0 else self._problems[number]

    def severity(self, row: int) -> Severity:
        """Return the severity of a row, of several the worst."""
        code, number = self._rows[row]
        return self._problems[self._groups[code][0] if number < 0 else number].severity

    def is_group(self, row: int) -> bool:
        """Whether a row stands for several problems."""
        return self._rows[row][1] < 0

    def in_group(self, row: int) -> bool:
        """Whether a row stands below the row of its group."""
        code, number = self._rows[row]
        return number >= 0 and code in self._open

    def is_open(self, row: int) -> bool:
        """Whether the problems of a group have rows."""
        return self._rows[row][0] in self._open

    def toggle(self, row: int) -> None:
        """Open or close the row of a group."""
        code, number = self._rows[row]
        if number >= 0:
            return
        n = len(self._groups[code])
        if code in self._open:
            self.beginRemoveRows(QModelIndex(), row + 1, row + n)
            self._open.discard(code)
        else:
            self.beginInsertRows(QModelIndex(), row + 1, row + n)
            self._open.add(code)
        self._arrange()
        (self.endInsertRows if code in self._open else self.endRemoveRows)()

    def next_problem(self, row: int) -> int | None:
        """Return the row of the next problem after `row`, from the top again at the end; groups on the way open."""
        if not self._rows:
            return None
        at = (row + 1) % len(self._rows)
        if self._rows[at][1] < 0:
            if self._rows[at][0] not in self._open:
                self.toggle(at)
            at += 1
        return at

    def text(self, row: int, column: int) -> str:
        """Return what a cell says, printable."""
        code, number = self._rows[row]
        if number < 0:
            numbers = self._groups[code]
            first = self._problems[numbers[0]]
            return (f"{count(len(numbers))} problems of one kind; the first: {printable(first.sentence)}",
                    code.upper(), "", "")[column]  # fmt: skip
        problem = self._problems[number]
        if column == 0:
            return printable(problem.sentence)
        if column == 1:
            return printable(code).upper()
        if column == 2:
            return printable(problem.tensor) if problem.tensor is not None else ""
        return _where(problem)

    # ------------------------------------------------------------ QAbstractTableModel

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and index.isValid():
            return self.text(index.row(), index.column())
        if role == Qt.ItemDataRole.ToolTipRole and index.isValid():
            problem = self.problem(index.row())
            words = self.text(index.row(), index.column())
            return tooltip(f"{words}. {problem.hint}" if problem and problem.hint and not index.column() else words)
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None


def _where(problem: Problem) -> str:
    """Return file, bytes or region, whichever are known."""
    words = [printable(problem.file, 200)] if problem.file is not None else []
    if problem.byte_range is not None:
        words.append(f"bytes {count(problem.byte_range[0])} to {count(problem.byte_range[1])}")
    if problem.region is not None:
        words.append(f"[{problem.region}]")
    return ", ".join(words)


def as_text(problem: Problem) -> str:
    """Return a problem as lines for a message or a ticket."""
    lines = [f"{problem.severity}: {printable(problem.sentence)}", f"code: {problem.code}"]
    if problem.tensor is not None:
        lines.append(f"tensor: {printable(problem.tensor)}")
    where = _where(problem)
    return "\n".join([*lines, *([f"where: {where}"] if where else []), *([problem.hint] if problem.hint else [])])
