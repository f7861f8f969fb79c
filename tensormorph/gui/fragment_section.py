"""Two sections of the Inspector: the stored parts of the selected tensor, and where the chosen one comes from."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout

from tensormorph.gui.fragment_list import FragmentList, place_in_set, rank_known_from
from tensormorph.gui.sections import Section
from tensormorph.gui.selection import Selection
from tensormorph.gui.states import PlainLabel, breakable, tool_button
from tensormorph.gui.theme import Tokens, mono_font
from tensormorph.model import LogicalTensor
from tensormorph.text import count, printable


class FragmentSection(Section):
    """The fragments as a list with its columns' heads. A fragment that is clicked is chosen everywhere."""

    def __init__(self, selection: Selection, tokens: Tokens) -> None:
        super().__init__("Fragments")
        self._selection = selection
        self.body.setContentsMargins(0, 4, 0, 8)
        heads = QHBoxLayout()
        heads.setContentsMargins(16, 0, 16, 2)
        self._rank_head, self.place_head = PlainLabel("rank", "text3", 11), PlainLabel("", "text3", 11)
        self._rank_head.setFixedWidth(32)
        for head in (self._rank_head, PlainLabel("region", "text3", 11)):
            heads.addWidget(head)
        heads.addStretch(1)
        heads.addWidget(self.place_head)
        self.body.addLayout(heads)
        self.list = FragmentList(tokens)
        self.more = tool_button()
        self.more.setCursor(Qt.CursorShape.PointingHandCursor)
        self.more.clicked.connect(self._show_more)
        self.body.addWidget(self.list)
        more = QHBoxLayout()
        more.setContentsMargins(12, 0, 12, 0)
        more.addWidget(self.more)
        more.addStretch(1)
        self.body.addLayout(more)
        self.list.fragmentPicked.connect(selection.choose_fragment)
        selection.fragmentChanged.connect(self._follow)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        super().set_tokens(tokens)
        self.list.set_tokens(tokens)
        palette = self.more.palette()
        palette.setColor(self.more.foregroundRole(), tokens.accent)
        self.more.setPalette(palette)

    def show_tensor(self, tensor: LogicalTensor) -> None:
        """Show the fragments of another tensor; of a single one there is no list."""
        n = len(tensor.fragments)
        checkpoint = self._selection.checkpoint
        self.list.show_fragments(tensor, checkpoint is not None and checkpoint.table.in_items)
        self._rank_head.setVisible(self.list.ranks)
        self.place_head.setText(self.list.place_head)
        self.setVisible(n > 1)
        boxes = self.list.n_boxes
        told = "" if boxes is None else ", no copies" if boxes == n else f" of {count(boxes)} regions"
        self.note.setText(f"{count(n)}{told}")
        self._update_more()

    def _follow(self) -> None:
        self.list.follow(self._selection.fragment)
        self._update_more()

    def _update_more(self) -> None:
        more = self.list.n_more()
        self.more.setVisible(bool(more))
        self.more.setText(f"{count(more)} more")

    def _show_more(self) -> None:
        self.list.set_long(True)
        self._update_more()


class OriginSection(Section):
    """Which file the fragment at hand lies in, whose it is and how that is known, and at which bytes."""

    def __init__(self) -> None:
        super().__init__("Origin of the selection")
        self.where, self.file = PlainLabel("", "text", 12), PlainLabel("", "text2", 12, wrap=True)
        self.file.setFont(mono_font(12))
        self.bytes, self.rank = PlainLabel("", "text2", 12), PlainLabel("", "text3", 11)
        for label in (self.where, self.file, self.bytes, self.rank):
            self.body.addWidget(label)

    def show_nothing(self) -> None:
        """Say that nobody stores the tensor."""
        self.where.setText("No file stores a part of it")
        for label in (self.file, self.bytes, self.rank):
            label.hide()

    def show_fragment(self, tensor: LogicalTensor, row: int, files: tuple[str, ...], words: str) -> None:
        """Show the place of a fragment among the checkpoint's files; `words` are its bytes."""
        fragments = tensor.fragments
        file, rank = fragments.files[int(fragments.file[row])], int(fragments.rank[row])
        self.where.setText(place_in_set(file, files, rank))
        self.file.setText(breakable(printable(file, 300)))
        self.bytes.setText(words)
        known = rank_known_from(tensor, row)
        self.rank.setText(known)
        self.rank.setVisible(bool(known))
        for label in (self.file, self.bytes):
            label.show()
