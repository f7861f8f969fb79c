"""What runs beside the window, how far it is, and how to stop it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QRect, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import QAbstractItemView, QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem

from tensormorph.gui.painting import draw_icon, draw_text, fill_round
from tensormorph.gui.theme import Tokens, ui_font
from tensormorph.text import printable

_ROW = 28
_MOST = 100
Index = QModelIndex | QPersistentModelIndex


@dataclass(slots=True, eq=False)
class Task:
    """Something that runs: `share` is None while it is not known how much there is to do."""

    title: str
    cancel: Callable[[], None] | None
    state: str = "running"
    share: float | None = None
    detail: str = ""
    began: float = field(default_factory=time.monotonic)
    took: float | None = None

    @property
    def running(self) -> bool:
        return self.took is None


class _TaskModel(QAbstractListModel):
    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[Task] = []

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self.tasks)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and index.isValid():
            task = self.tasks[index.row()]
            return f"{task.title}: {task.state} {task.detail}".rstrip()
        return None


class _TaskDelegate(QStyledItemDelegate):
    def __init__(self, model: _TaskModel, tokens: Tokens, parent: QListView) -> None:
        super().__init__(parent)
        self._model = model
        self.tokens = tokens

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, _ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        task, tokens = self._model.tasks[index.row()], self.tokens
        rect: QRect = option.rect
        if option.state & QStyle.StateFlag.State_Selected:
            fill_round(painter, rect.adjusted(6, 0, -6, 0), tokens.selin, 5)
        mark = {"running": "hourglass", "done": "circle-check", "cancelled": "minus"}.get(task.state, "circle-x")
        ink = {"running": tokens.text2, "done": tokens.ok, "cancelled": tokens.text3}.get(task.state, tokens.err)
        draw_icon(painter, QRect(rect.x() + 14, rect.y(), 16, rect.height()), mark, ink)
        right = rect.right() - 14
        if task.running and task.cancel is not None:
            draw_icon(painter, QRect(right - 15, rect.y(), 16, rect.height()), "x", tokens.text2)
            right -= 24
        words = task.detail if task.took is None else f"{task.state}, {task.took:.1f} s"
        third = rect.width() // 3
        box = QRect(right - third, rect.y(), third, rect.height())
        draw_text(painter, box, words, tokens.text2, ui_font(11), right=True)
        if task.running:
            bar = QRect(right - 2 * third, rect.center().y() - 1, third - 24, 4)
            fill_round(painter, bar, tokens.neutbg, 2)
            if task.share is not None:
                fill_round(painter, QRect(bar.x(), bar.y(), round(bar.width() * task.share), 4), tokens.accent, 2)
        box = QRect(rect.x() + 39, rect.y(), rect.width() - 2 * third - 60, rect.height())
        draw_text(painter, box, task.title, tokens.text, ui_font(12), elide=Qt.TextElideMode.ElideMiddle)


class TaskTable(QListView):
    """The tasks, newest first. Delete or the cross cancels one."""

    runningChanged = Signal(int)  # noqa: N815

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tasks = _TaskModel()
        self._delegate = _TaskDelegate(self._tasks, tokens, self)
        self.setModel(self._tasks)
        self.setItemDelegate(self._delegate)
        self.setUniformItemSizes(True)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setAccessibleName("Tasks")

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._delegate.tokens = tokens
        self.viewport().update()

    @property
    def tasks(self) -> list[Task]:
        """All tasks, newest first."""
        return self._tasks.tasks

    def add(self, title: str, cancel: Callable[[], None] | None) -> Task:
        """Add a task that begins now."""
        task = Task(printable(title, 200), cancel)
        self._tasks.beginInsertRows(QModelIndex(), 0, 0)
        self._tasks.tasks.insert(0, task)
        self._tasks.endInsertRows()
        if len(self.tasks) > _MOST:
            self._tasks.beginRemoveRows(QModelIndex(), _MOST, len(self.tasks) - 1)
            del self._tasks.tasks[_MOST:]
            self._tasks.endRemoveRows()
        self._count()
        return task

    def progress(self, task: Task, share: float | None, detail: str) -> None:
        """Say how far a task is."""
        task.share, task.detail = share, printable(detail, 200)
        self.viewport().update()

    def end(self, task: Task, state: str) -> None:
        """Say how a task ended: done, cancelled or failed."""
        task.state, task.took = state, time.monotonic() - task.began
        self.viewport().update()
        self._count()

    def cancel_all(self) -> bool:
        """Cancel what runs; return whether anything did."""
        running = [task for task in self.tasks if task.running and task.cancel is not None]
        for task in running:
            assert task.cancel is not None
            task.cancel()
        return bool(running)

    def _count(self) -> None:
        self.runningChanged.emit(sum(task.running for task in self.tasks))

    def _cancel_row(self, index: QModelIndex) -> None:
        task = self.tasks[index.row()] if index.isValid() else None
        if task is not None and task.running and task.cancel is not None:
            task.cancel()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        pos = event.position().toPoint()
        index = self.indexAt(pos)
        if index.isValid() and pos.x() > self.viewport().width() - 36:
            self._cancel_row(index)
        super().mousePressEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Delete:
            self._cancel_row(self.currentIndex())
        else:
            super().keyPressEvent(event)
