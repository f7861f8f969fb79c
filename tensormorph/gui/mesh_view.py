"""The Placement tab: the device mesh, and what each rank of it holds of the selected tensor."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QStackedLayout, QVBoxLayout, QWidget

from tensormorph.gui.background import Lane
from tensormorph.gui.badge import ElidedLabel, ProvenancePill, TitleRow
from tensormorph.gui.hover import HoverCard, Line
from tensormorph.gui.layout_words import (
    axis_name,
    coordinate_text,
    mesh_provenance,
    mesh_text,
    named_ranks,
    sentence,
    why_no_layout,
)
from tensormorph.gui.mesh_cells import ICONS, draw_ground, mark_colour
from tensormorph.gui.mesh_picture import MeshPicture, marks_in_use
from tensormorph.gui.painting import draw_icon, draw_text, width_of
from tensormorph.gui.rank_map import MOST_RANKS, WORDS, Mark, RankMap, rank_map
from tensormorph.gui.rank_parts import writer_words
from tensormorph.gui.selection import Selection, piece_key
from tensormorph.gui.states import PlainLabel, StatePanel, breakable, title_text
from tensormorph.gui.theme import Tokens, mono_font, ui_font
from tensormorph.model import Checkpoint, LogicalTensor
from tensormorph.text import count, plural, printable, shape, size

_MOST_REGIONS = 3


class Legend(QWidget):
    """The marks that the picture shows, each with its word."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self.marks: list[Mark] = []
        self.setFixedHeight(28)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.update()

    def show_marks(self, marks: list[Mark]) -> None:
        """Explain these marks."""
        self.marks = marks
        self.setAccessibleName(", ".join(WORDS[mark] for mark in marks))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(200, 28)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, x = QPainter(self), 14
        for mark in self.marks:
            box = QRect(x, 8, 12, 12)
            if mark in ICONS:
                draw_icon(painter, box, ICONS[mark], mark_colour(mark, self._tokens), 14)
            else:
                draw_ground(painter, box, 0 if mark is Mark.HOLDS else -1, mark, self._tokens)
            words = QRect(x + 20, 0, self.width() - x - 20, self.height())
            draw_text(painter, words, WORDS[mark], self._tokens.text2, ui_font(11))
            x += 20 + width_of(WORDS[mark], ui_font(11)) + 20


class PlacementView(QWidget):
    """Title, how the mesh is known, the mesh, and the marks. A rank that is clicked is looked at everywhere."""

    status = Signal(str)
    bytes_read = Signal(object)
    moved = Signal()
    stateWanted = Signal()  # noqa: N815
    internalError = Signal(object)  # noqa: N815
    drawn = Signal()
    """Another tensor's ranks are shown."""

    def __init__(self, selection: Selection, tokens: Tokens, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._selection, self._tokens = selection, tokens
        self._lane = Lane("ranks")
        self._asked: LogicalTensor | None = None
        self.title = TitleRow(tokens)
        self.mesh = ElidedLabel(tokens, "text", ui_font(12, 500), Qt.TextElideMode.ElideRight)
        self.roles = ElidedLabel(tokens, "text2", ui_font(12), Qt.TextElideMode.ElideRight)
        self.pill = ProvenancePill(tokens)
        self.state_mesh = QPushButton("State the mesh…")
        self.state_mesh.clicked.connect(self.stateWanted)
        self.why = PlainLabel("", "text2", 12, wrap=True)
        self.picture = MeshPicture(tokens)
        self.legend = Legend(tokens)
        self.state = StatePanel(tokens)
        self.card = HoverCard(tokens, self.picture)
        self._lay_out()
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.picture.clicked.connect(self._choose)
        self.picture.hovered.connect(self._hover)
        selection.tensorChanged.connect(self._on_tensor)
        for signal in (selection.pieceChanged, selection.fragmentChanged):
            signal.connect(self._follow)
        self.set_tokens(tokens)
        self._on_tensor()

    def _lay_out(self) -> None:
        controls = QHBoxLayout()
        controls.setContentsMargins(14, 0, 14, 0)
        controls.setSpacing(10)
        self.state_mesh.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        controls.addWidget(self.mesh, 4)
        controls.addWidget(self.pill)
        controls.addWidget(self.roles, 1)
        controls.addWidget(self.state_mesh)
        row = QWidget()
        row.setLayout(controls)
        row.setFixedHeight(36)
        told = QHBoxLayout()
        told.setContentsMargins(14, 4, 14, 4)
        told.addWidget(self.why)
        self._page = QWidget()
        page = QVBoxLayout(self._page)
        page.setContentsMargins(0, 0, 0, 0)
        page.setSpacing(0)
        page.addWidget(row)
        page.addLayout(told)
        page.addWidget(self.picture, 1)
        page.addWidget(self.legend)
        stack = QWidget()
        self._stack = QStackedLayout(stack)
        self._stack.addWidget(self._page)
        self._stack.addWidget(self.state)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.title)
        column.addWidget(stack, 1)

    def set_tokens(self, tokens: Tokens) -> None:
        """Take the colours of a theme."""
        self._tokens = tokens
        self.setAutoFillBackground(True)
        palette = self.palette()
        palette.setColor(self.backgroundRole(), tokens.canvas)
        self.setPalette(palette)
        for part in (self.title, self.mesh, self.roles, self.pill, self.why, self.picture, self.legend, self.state,
                     self.card):  # fmt: skip
            part.set_tokens(tokens)

    # ------------------------------------------------------------ which tensor

    @property
    def ranks(self) -> RankMap | None:
        """What is shown."""
        return self.picture.ranks

    def _on_tensor(self) -> None:
        self._lane.drop()
        self._asked = None
        self.card.hide()
        self.title.name.set_text(title_text(self._selection))
        if self.isVisible():
            self._ask()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._ask()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.status.emit("")

    def _ask(self) -> None:
        checkpoint, tensor = self._selection.checkpoint, self._selection.tensor
        if checkpoint is None or tensor is None or tensor is self._asked:
            return
        self._asked = tensor
        self._lane.ask(partial(rank_map, checkpoint, tensor), partial(self._show, checkpoint, tensor), self._failed)

    def _failed(self, error: Exception) -> None:
        self._say("circle-x", "The mesh cannot be drawn", printable(str(error), 400))
        self.internalError.emit(error)

    def _show(self, checkpoint: Checkpoint, tensor: LogicalTensor, ranks: RankMap | None) -> None:
        if tensor is not self._selection.tensor:
            return
        self.picture.show_ranks(ranks)
        if ranks is None:
            n = named_ranks(checkpoint) if tensor.layout is None else len(tensor.layout.mesh.ranks)
            if n > MOST_RANKS:
                self._say("mesh", f"{count(n)} ranks are more than can be drawn", "Each can be chosen beside local()")
            else:
                why = sentence(checkpoint.mesh_evidence) or "No file of this checkpoint names the rank that wrote it"
                self._say("mesh", "No rank is known to hold a part of this tensor", why)
            self.drawn.emit()
            return
        mesh = ranks.mesh
        self.mesh.set_text(f"Mesh  {mesh_text(mesh)}" if mesh is not None else plural(len(ranks.ranks), "rank"))
        self.mesh.setMaximumWidth(width_of(self.mesh.text, self.mesh.font()))  # what is left is for the roles
        self.roles.set_text("" if mesh is None else _roles(ranks))
        provenance = mesh_provenance(checkpoint, tensor)
        self.pill.say(provenance)
        self.state_mesh.setVisible(provenance != "recorded")
        why = ""
        if not ranks.by_layout:
            drawn = "Drawn is what each rank stored." if mesh is not None else "Drawn are the ranks that stored a part."
            why = f"{why_no_layout(checkpoint, tensor).removesuffix('.')}. {drawn}"
        self.why.setText(breakable(why))
        self.why.setVisible(bool(why))
        self.legend.show_marks(marks_in_use(ranks))
        self._stack.setCurrentWidget(self._page)
        self._follow()
        self.drawn.emit()

    def _say(self, icon_name: str, title: str, words: str) -> None:
        self.state.show_state(icon_name, title, words)
        self._stack.setCurrentWidget(self.state)

    # ------------------------------------------------------------ the selected rank

    def _follow(self) -> None:
        """Frame the rank that is looked at, or that the chosen fragment is of."""
        self.title.name.set_text(title_text(self._selection))
        ranks, tensor, row = self.picture.ranks, self._selection.tensor, self._selection.fragment
        rank = self._selection.rank
        if rank is None and self._selection.view is None and tensor is not None and row is not None:
            rank = int(tensor.fragments.rank[row])
        known = ranks is not None and tensor is ranks.tensor and rank is not None and rank in ranks.ranks
        self.picture.select(ranks.ranks.index(rank) if known and ranks is not None and rank is not None else None)

    def _choose(self, at: int) -> None:
        self.setFocus(Qt.FocusReason.MouseFocusReason)
        ranks = self.picture.ranks
        if ranks is None or ranks.tensor is not self._selection.tensor:
            return
        rank, share = ranks.ranks[at], ranks.share(at)
        self._selection.choose_rank(rank)
        if self._selection.rank != rank and share is not None and share.rows:
            self._selection.choose_piece(None)
            self._selection.choose_fragment(share.rows[0])

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not piece_key(self._selection, event) and not self.picture.step(event):
            super().keyPressEvent(event)

    # ------------------------------------------------------------ under the pointer

    def _hover(self, at: int | None) -> None:
        ranks = self.picture.ranks
        if at is None or ranks is None:
            self.card.hide()
            self.status.emit("")
            return
        head, body, where = self.told(at)
        lines = [Line(text, colour, mono_font(12) if text.startswith("[") else ui_font(12), 19)
                 for text, colour in body]  # fmt: skip
        self.card.fill(head, lines, where, self._beside(at))
        self.status.emit("  ".join([head, *(text for text, _ in body)]))

    def _beside(self, at: int) -> QPoint:
        pointer = self.picture.mapFromGlobal(self.picture.cursor().pos())
        cell = self.picture.cell(at)
        return pointer if cell.adjusted(-20, -20, 20, 20).contains(pointer) else cell.center()

    def told(self, at: int) -> tuple[str, list[tuple[str, str]], list[str]]:
        """Return what is said of the rank at a place: heading, lines with their colours, and where it is stored."""
        ranks = self.picture.ranks
        assert ranks is not None
        rank, share, mark, tensor = ranks.ranks[at], ranks.share(at), ranks.mark(at), ranks.tensor
        head = f"rank {rank}"
        if ranks.mesh is not None:
            head += f"   {coordinate_text(ranks.mesh, ranks.coordinate(at))}"
        body = [(f"[{box}]", "text") for box in (() if share is None else share.boxes[:_MOST_REGIONS])]
        if share is not None and len(share.boxes) > _MOST_REGIONS:
            body.append(("and further regions", "text2"))
        if share is not None and len(share.boxes) == 1:
            n_bytes = None if tensor.encoding.bits is None else tensor.encoding.n_bytes(share.size)
            body.append((f"{shape(share.boxes[0].shape)}{'' if n_bytes is None else f', {size(n_bytes)}'}", "text2"))
        if mark is Mark.REPLICA and share is not None and rank != share.first:
            body.append((f"replica: the same part as rank {share.first}", "text2"))
        elif mark is not Mark.HOLDS:
            body.append((WORDS[mark], mark_colour_name(mark)))
        if share is not None and share.writers and rank not in share.writers:
            body.append((writer_words(share.writers), "text2"))
        return head, body, [] if share is None else self._places(ranks, share.rows, share.n_rows)

    def _places(self, ranks: RankMap, rows: tuple[int, ...], n_rows: int) -> list[str]:
        fragments = ranks.tensor.fragments
        checkpoint = self._selection.checkpoint
        items = checkpoint is not None and checkpoint.table.in_items
        where: list[str] = []
        for row in rows:
            first, length = int(fragments.offset[row]), int(fragments.length[row])
            at = f"   {'item at ' if items else ''}bytes {count(first)} to {count(first + length)}"
            known = first >= 0 and length >= 0
            where.append(f"{printable(fragments.files[int(fragments.file[row])], 60)}{at if known else ''}")
        return where + ([f"and {count(n_rows - len(rows))} more"] if n_rows > len(rows) else [])


def mark_colour_name(mark: Mark) -> str:
    """Return the token of a mark's colour."""
    return "err" if mark in (Mark.GAP, Mark.UNREADABLE, Mark.MISSING) else "text2"


def _roles(ranks: RankMap) -> str:
    """Return which axis is which direction: ``rows dp, columns tp``."""
    mesh = ranks.mesh
    if mesh is None or len(mesh.shape) < 2:
        return ""
    told = f"rows {axis_name(mesh, len(mesh.shape) - 2)}, columns {axis_name(mesh, len(mesh.shape) - 1)}"
    blocks = ", ".join(axis_name(mesh, axis) for axis in range(len(mesh.shape) - 2))
    return f"{told}, blocks {blocks}" if blocks else told
