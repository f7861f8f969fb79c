"""The Inspector: what the selected tensor is, where its bytes are, what is wrong with it, and one element."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QScrollArea, QStackedLayout, QVBoxLayout, QWidget

from tensormorph import dtypes
from tensormorph.errors import Problem, TensormorphError
from tensormorph.gui.background import Lane
from tensormorph.gui.fragment_section import FragmentSection, OriginSection
from tensormorph.gui.hover import index_text, others_text, place_text
from tensormorph.gui.icons import icon
from tensormorph.gui.layout_section import LayoutSection
from tensormorph.gui.objects import ObjectView
from tensormorph.gui.outline import Kind, Outline
from tensormorph.gui.overview import Overview
from tensormorph.gui.painting import tooltip
from tensormorph.gui.piece_section import PieceSection
from tensormorph.gui.sections import Section, problem_row
from tensormorph.gui.selection import Selection
from tensormorph.gui.states import PlainLabel, breakable, tool_button
from tensormorph.gui.statistics_section import StatisticsSection
from tensormorph.gui.theme import Tokens, mono_font
from tensormorph.gui.tree import copyable
from tensormorph.model import Holder, LogicalTensor, UnreadableTensor
from tensormorph.text import count, listing, plural, printable, shape, size

_MOST_PROBLEMS = 5
_MOST_HOLDERS = 4
_FACTS = ("dtype", "shape", "elements", "stored", "slots", "aliases")


def split_name(name: str) -> tuple[str, str]:
    """Return the module path and the last word of a name, each of a length that can be laid out."""
    head, _, leaf = name[-2000:].rpartition(".")
    return (head if len(name) <= 2000 else f"…{head}"), leaf or name or '""'


class Inspector(QWidget):
    """The right panel. Follows the selection; reads values in a thread of its own."""

    problemsWanted = Signal()  # noqa: N815
    bytesRead = Signal(int)  # noqa: N815
    internalError = Signal(object)  # noqa: N815

    def __init__(self, selection: Selection, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._selection = selection
        self._tokens = tokens
        self._files: tuple[str, ...] = ()
        self._outline: Outline | None = None
        self._aliases: dict[str, list[str]] = {}
        self._lane = Lane("element")
        self._build()
        self.setMinimumWidth(280)
        self.setAutoFillBackground(True)
        selection.checkpointChanged.connect(self._show_checkpoint)
        selection.tensorChanged.connect(self._show_tensor)
        selection.pieceChanged.connect(self._show_piece)
        selection.elementChanged.connect(self._show_element)
        self.set_tokens(tokens)
        self._show_tensor()

    # ------------------------------------------------------------ widgets

    def _build(self) -> None:
        self.path = PlainLabel("", "text2", 11, wrap=True)
        self.leaf = PlainLabel("", "text", 17, 600, wrap=True)
        self._copy = tool_button(tip="Copy the full name")
        self._copy.clicked.connect(self._copy_name)
        self.identity = Section("", line=False)
        self.identity.body.setContentsMargins(16, 10, 8, 4)
        self.identity.body.addWidget(self.path)
        line = QHBoxLayout()
        line.addWidget(self.leaf, 1)
        line.addWidget(self._copy, 0, Qt.AlignmentFlag.AlignTop)
        self.identity.body.addLayout(line)
        self.facts: dict[str, PlainLabel] = {}
        self._facts = QGridLayout()
        self._facts.setContentsMargins(0, 4, 8, 6)
        self._facts.setHorizontalSpacing(12)
        self._facts.setVerticalSpacing(4)
        self._facts.setColumnMinimumWidth(0, 76)
        self._facts.setColumnStretch(1, 1)
        for row, name in enumerate(_FACTS):
            self.facts[name] = PlainLabel("", "text", 12, wrap=True)
            self._facts.addWidget(PlainLabel(name, "text2", 12), row, 0, Qt.AlignmentFlag.AlignTop)
            self._facts.addWidget(self.facts[name], row, 1)
        self.identity.body.addLayout(self._facts)
        self.problems = Section("Problems")
        self.element = Section("Element")
        self.index, self.value = PlainLabel("", "text2", 12, wrap=True), PlainLabel("", "text", 15, 600, wrap=True)
        self.index.setFont(mono_font(12))
        self.holders = PlainLabel("", "text2", 11, wrap=True)
        for label in (self.index, self.value, self.holders):
            self.element.body.addWidget(label)
        self.view = PieceSection(self._selection)
        self.layout_section = LayoutSection(self._selection, self._tokens)
        self.fragments = FragmentSection(self._selection, self._tokens)
        self.list = self.fragments.list
        self.list.fragmentShown.connect(self._show_origin)
        self.origin = OriginSection()
        self.where, self.file, self.bytes = self.origin.where, self.origin.file, self.origin.bytes
        self.statistics = StatisticsSection(self._selection, self._tokens)
        self.statistics.bytesRead.connect(self.bytesRead)
        self.statistics.internalError.connect(self.internalError)
        self.statistics.elementWanted.connect(self._selection.choose_element)
        inner = QWidget()
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        self._sections = (self.identity, self.problems, self.element, self.view, self.layout_section, self.fragments,
                          self.origin, self.statistics)  # fmt: skip
        for section in self._sections:
            column.addWidget(section)
        column.addStretch(1)
        self._scroll = QScrollArea(widgetResizable=True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setWidget(inner)
        self._inner = inner
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.overview = Overview(self._tokens)
        self.objects = ObjectView(self._tokens)
        self.objects.internalError.connect(self.internalError)
        self._stack = QStackedLayout(self)
        for page in (self.overview, self._scroll, self.objects):
            self._stack.addWidget(page)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        for widget in (self, self._scroll.viewport(), self._inner):
            palette = widget.palette()
            palette.setColor(widget.backgroundRole(), tokens.panel)
            widget.setPalette(palette)
            widget.setAutoFillBackground(True)
        for part in (*self._sections, self.overview, self.objects):
            part.set_tokens(tokens)
        self._copy.setIcon(icon("copy", tokens.text2))
        self._show_problems(self._problems_of_selection())

    # ------------------------------------------------------------ what is selected

    def set_outline(self, outline: Outline | None) -> None:
        """Take the module tree of the checkpoint that is selected next."""
        self._outline = outline

    def _show_checkpoint(self) -> None:
        checkpoint = self._selection.checkpoint
        self._files = () if checkpoint is None else tuple(checkpoint.table.files)
        self._aliases = {}
        for alias, target in () if checkpoint is None else checkpoint.aliases.items():
            self._aliases.setdefault(target, []).append(alias)
        self.objects.clear()
        self.overview.show_checkpoint(checkpoint, self._outline)

    def show_object(self, name: str) -> None:
        """Show something of the checkpoint that is no tensor."""
        checkpoint = self._selection.checkpoint
        if checkpoint is not None and name in checkpoint.objects:
            self.objects.show_object(checkpoint.objects[name])
            self._stack.setCurrentWidget(self.objects)

    def _show_tensor(self) -> None:
        self._lane.drop()
        self.element.hide()
        checkpoint, name, tensor = self._selection.checkpoint, self._selection.name, self._selection.tensor
        self._show_piece()
        if checkpoint is None or name is None:
            self._stack.setCurrentWidget(self.overview)
            return
        head, leaf = split_name(name)
        self.path.setText(breakable(printable(head, 400)))
        self.path.setVisible(bool(head))
        self.leaf.setText(breakable(printable(leaf, 160)))
        for label in (self.path, self.leaf):
            label.setToolTip(tooltip(name))
        lost = checkpoint.unreadable.get(name) if tensor is None else None
        for section in (self.layout_section, self.fragments, self.origin):
            section.setVisible(tensor is not None)
        if tensor is not None:
            self._show_facts(name, tensor)
            self.layout_section.show_tensor()
            self._show_fragments(tensor)
        elif lost is not None:
            self._show_lost(lost)
        self._show_problems(self._problems_of_selection())
        self._stack.setCurrentWidget(self._scroll)
        self._scroll.verticalScrollBar().setValue(0)

    def _show_piece(self) -> None:
        view = self._selection.view
        named = "" if view is None else f" of {view.short}"
        self.statistics.heading.setText(f"Statistics{named}")
        self.statistics.show_tensor(self._selection.source)
        if self._selection.trouble is not None and not isinstance(self._selection.trouble, TensormorphError):
            self.internalError.emit(self._selection.trouble)

    def _show_facts(self, name: str, tensor: LogicalTensor) -> None:
        slots, aliases = self._slots(tensor.name), self._aliases.get(tensor.name, [])
        stored = int(tensor.fragments.length.clip(0).sum())
        self._set_facts(
            dtype=printable(tensor.encoding.name, 60),
            shape=shape(tensor.shape),
            elements=count(tensor.n_elements),
            stored=f"{size(stored)} in {plural(len(tensor.fragments), 'fragment')}",
            slots=listing(slots, 6) if slots else "none",
            aliases=breakable(listing(aliases, 3)) if aliases else "none",
        )
        if tensor.name != name:
            self._set_fact("aliases", breakable(f"this is another name of {printable(tensor.name, 300)}"))

    def _show_lost(self, lost: UnreadableTensor) -> None:
        self._set_facts(
            dtype=printable(lost.dtype, 60) if lost.dtype else "not known",
            shape=shape(lost.shape) if lost.shape is not None else "not known",
            elements="none can be read",
            stored=f"needs {printable(lost.file, 200)}" if lost.file else "in no file",
            slots="not known",
            aliases="none",
        )

    def _set_facts(self, **facts: str) -> None:
        for name, text in facts.items():
            self._set_fact(name, text)

    def _set_fact(self, name: str, text: str) -> None:
        self.facts[name].setText(breakable(text) if "\u200b" not in text else text)

    def _slots(self, name: str) -> list[str]:
        """Return the slots of the tensor's parameter: the rows beside or below its own in the tree."""
        outline = self._outline
        place = None if outline is None else outline.place_of.get(name)
        if outline is None or place is None:
            return []
        node = int(outline.node_of[place])
        if outline.kind[node] == Kind.SLOT:
            node = int(outline.parent[node])
        first, n = int(outline.first[node]), int(outline.count[node])
        below = [i for i in range(first, first + min(n, 100)) if outline.kind[i] == Kind.SLOT]
        weight = ["weight"] if outline.kind[node] == Kind.TENSOR and below else []
        return weight + [outline.labels[i] for i in below]

    def _show_fragments(self, tensor: LogicalTensor) -> None:
        self.fragments.show_tensor(tensor)
        if not len(tensor.fragments):
            self.origin.show_nothing()

    def _show_origin(self, row: int) -> None:
        tensor = self._selection.tensor
        if tensor is not None:
            self.origin.show_fragment(tensor, row, self._files, self.list.words(row))

    # ------------------------------------------------------------ problems

    def _problems_of_selection(self) -> Sequence[Problem]:
        checkpoint, name, tensor = self._selection.checkpoint, self._selection.name, self._selection.tensor
        if checkpoint is None or name is None:
            return ()
        if tensor is not None:
            return tensor.problems
        return checkpoint.unreadable[name].problems if name in checkpoint.unreadable else ()

    def _show_problems(self, problems: Sequence[Problem]) -> None:
        while self.problems.body.count():
            item = self.problems.body.takeAt(0)
            widget = item.widget() if item is not None else None
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        self.problems.setVisible(bool(problems))
        self.problems.note.setText(count(len(problems)) if len(problems) > 1 else "")
        for problem in problems[:_MOST_PROBLEMS]:
            self.problems.body.addWidget(problem_row(problem, self._tokens, self.problemsWanted.emit))
        if len(problems) > _MOST_PROBLEMS:
            more = tool_button(f"{count(len(problems) - _MOST_PROBLEMS)} more in Problems")
            more.clicked.connect(self.problemsWanted)
            self.problems.body.addWidget(more)

    # ------------------------------------------------------------ element

    def _show_element(self) -> None:
        tensor, element = self._selection.source, self._selection.element
        if tensor is None or element is None:
            self._lane.drop()
            self.element.hide()
            return
        self.index.setText(self._index_words(element))
        self.element.show()
        self._lane.ask(partial(_read_element, tensor, element), self._show_value, self._show_failure)

    def _index_words(self, element: tuple[int, ...]) -> str:
        """Return an index; of an element of local(), where it is in the whole too."""
        whole, view = self._selection.full_element, self._selection.view
        if view is None:
            return index_text(element)
        full = "" if whole is None else f" = full {index_text(whole)}"
        return f"{view.short} {index_text(element)}{full}"

    def _show_value(self, answer: tuple[str, list[Holder], int]) -> None:
        value, holders, n_bytes = answer
        self.value.set_colour("text", self._tokens)
        self.value.setText(value.replace("-", "\u2212"))
        lines = [place_text(holder) for holder in holders[:_MOST_HOLDERS]]
        lines += [f"and {count(len(holders) - _MOST_HOLDERS)} more"] if len(holders) > _MOST_HOLDERS else []
        lines += filter(None, [others_text(holders)])
        self.holders.setText("\n".join(map(breakable, lines)))
        self.bytesRead.emit(n_bytes)

    def _show_failure(self, error: Exception) -> None:
        self.value.set_colour("err", self._tokens)
        self.holders.setText("")
        if isinstance(error, TensormorphError):
            self.value.setText("cannot be read")
            self.holders.setText(breakable(printable(str(error), 600)))
        else:
            self.value.setText("internal error")
            self.internalError.emit(error)

    def _copy_name(self) -> None:
        if self._selection.name is not None:
            QGuiApplication.clipboard().setText(copyable(self._selection.name))


def _read_element(tensor: LogicalTensor, element: tuple[int, ...]) -> tuple[str, list[Holder], int]:
    """Return an element as text, who holds it, and the bytes that reading it took."""
    value = tensor.full()[element]
    bits = tensor.encoding.bits or 8
    return dtypes.text(value[()]), tensor.where(element), max(1, bits // 8)
