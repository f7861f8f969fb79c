"""What stands between a picture and its loader: which plane is seen from where, in which paint, and how exactly."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from tensormorph.errors import Problem
from tensormorph.gui.badge import Exactness
from tensormorph.gui.camera import Camera, shows_marks, shows_numbers
from tensormorph.gui.jobs import CellsRequest, CellsResult, ElementResult, SurveyResult, TileResult, View
from tensormorph.gui.loader import Loader
from tensormorph.gui.picture_box import PictureBox
from tensormorph.gui.settings import COSTLY_BYTES
from tensormorph.picture import MAGNITUDES, Paint, Range, Reduction, levels
from tensormorph.pyramid import EXACT_BYTES, LevelOfDetail, Plane, Span, TileKey, keys, sampling
from tensormorph.region import Region
from tensormorph.survey import Survey

BACKGROUND_BYTES = 256 << 20
"""Most bytes that a view reads for an exact picture without being asked."""
LARGEST_FIT = 120
"""Logical pixels that an element takes at most when a whole plane is fitted."""
_ALL_BYTES = 1 << 62
_HELD_BYTES = 64 << 20
_CHARACTER = 7
"""Logical pixels of a character in a cell, rounded up."""


class Viewer(QObject):
    """Shows one plane at a time in a PictureBox.

    The first question about a plane is its survey; when that has come, the plane is fitted, and tiles are asked for
    whenever the camera or the paint changes.
    """

    changed = Signal()
    """The view moved or was painted anew: badge and captions may differ, as they may when the loader progressed."""
    failed = Signal(object)
    """A Problem why elements of the plane cannot be read."""
    refused = Signal(object)
    """A Problem why nothing of the plane can be shown."""
    element = Signal(object)
    """An ElementResult of the present plane."""

    def __init__(self, picture: PictureBox, loader: Loader, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.picture, self.loader = picture, loader
        self.number = 0
        self.plane: Plane | None = None
        self.survey: Survey | None = None
        self.camera: Camera | None = None
        self.paint: Paint | None = None
        self.numbers_rounded = False
        self.costly_bytes = COSTLY_BYTES
        self._sample_bytes = 0
        self._surveys: OrderedDict[int, Survey] = OrderedDict()
        self._waiting = False
        self._choice: tuple[Reduction, Range, bool] = ("mean", "zero-centred", False)
        self._paint_number = 0
        self._fitted = True
        self._all_at: LevelOfDetail | None = None
        self._goal: tuple[Span, Span] | None = None
        self._visible: list[TileKey] = []
        self._coarse: list[TileKey] = []
        loader.arrived.connect(self._on_arrived)
        picture.resized.connect(self._on_resized)

    # ------------------------------------------------------------ which plane

    def open(self, number: int, plane: Plane | None) -> None:
        """Show another plane, known by a number; nothing is read before `begin`."""
        self.number, self.plane = number, plane
        self.survey = self.camera = self.paint = self._all_at = None
        self._fitted, self._waiting, self.numbers_rounded, self._goal = True, plane is not None, False, None
        self._visible, self._coarse = [], []
        self.picture.open(plane.shape if plane is not None else (0, 0))

    def begin(self) -> None:
        """Read, if that has not begun."""
        if not self._waiting or self.plane is None or 0 in self.plane.shape:
            return
        self._waiting = False
        known = self._surveys.get(self.number)
        if known is not None:
            self._take_survey(known)
        else:
            self.loader.survey(self.number, self.plane)

    def forget(self) -> None:
        """Drop all that is known of all planes."""
        self.loader.forget()
        self._surveys.clear()
        self.open(0, None)

    def choose(self, reduction: Reduction, span: Range, dark: bool) -> None:
        """Colour by another rule or theme."""
        self._choice = (reduction, span, dark)
        survey = self.survey
        if survey is None:
            return
        self.paint = Paint.of(reduction, levels(survey, span, self.magnitudes), dark)
        self._paint_number += 1
        self.picture.tiles.repaint_all()
        self._request()

    @property
    def magnitudes(self) -> bool:
        """Whether what is shown cannot be negative."""
        kind = self.plane.source.dtype.kind if self.plane is not None else "f"
        return self._choice[0] in MAGNITUDES or kind in "ubc"

    def _take_survey(self, survey: Survey) -> None:
        self.survey = survey
        self._surveys[self.number] = survey
        self._surveys.move_to_end(self.number)
        while len(self._surveys) > 1 and sum(_memory(s) for s in self._surveys.values()) > _HELD_BYTES:
            self._surveys.popitem(last=False)
        for problem in survey.problems:
            self.failed.emit(problem)
        self.camera = self._fit_camera()
        self.choose(*self._choice)
        if self._goal is not None:
            self.show(*self._goal)

    # ------------------------------------------------------------ from where

    def fit(self) -> None:
        """Show the whole plane."""
        self._fitted = True
        self._look(self._fit_camera())

    def zoom(self, factor: float, at: tuple[int, int] | None = None) -> None:
        """Zoom about a device pixel ``(down, right)``, by default the middle."""
        if self.camera is not None:
            self._fitted = False
            self._look(self.camera.zoomed(factor, at or self._middle(), self._fit_camera()))

    def one_to_one(self, at: tuple[int, int] | None = None) -> None:
        """Show one element a device pixel, what is at a device pixel staying there."""
        if self.camera is not None:
            self._fitted = False
            self._look(self.camera.at_scale(1.0, at or self._middle()))

    def pan(self, down: int, right: int) -> None:
        """Look so many device pixels farther down and to the right."""
        if self.camera is not None:
            self._fitted = False
            self._look(self.camera.moved(-down, -right))

    def reveal(self, cell: tuple[int, int]) -> None:
        """Move the element of a row and column into sight, if it is not."""
        if self.camera is None:
            return
        down, right = self.camera.down, self.camera.right
        if not (down.visible[0] <= cell[0] < down.visible[1] and right.visible[0] <= cell[1] < right.visible[1]):
            self._fitted = False
            self._look(replace(self.camera, down=down.centred(cell[0]), right=right.centred(cell[1])))

    def show(self, rows: Span, cols: Span) -> None:
        """Move a rectangle of elements into the middle, as large as it fits; as soon as the plane is known."""
        if self.camera is None:
            self._goal = (rows, cols)
            return
        self._fitted = False
        self._look(self.camera.around(rows, cols, LARGEST_FIT))

    @property
    def sight(self) -> Region | None:
        """The elements in sight, as a region of the source."""
        plane, camera = self.plane, self.camera
        return None if plane is None or camera is None else plane.region(camera.down.visible, camera.right.visible)

    def _middle(self) -> tuple[int, int]:
        down, right = self.picture.pixels
        return down // 2, right // 2

    def _fit_camera(self) -> Camera:
        extent = self.plane.shape if self.plane is not None else (1, 1)
        return Camera.fit(extent, self.picture.pixels, self.picture.devicePixelRatioF(), LARGEST_FIT)

    def _on_resized(self) -> None:
        if self.camera is not None:
            ratio = self.picture.devicePixelRatioF()
            again = self._fitted or ratio != self.camera.ratio
            self._look(self._fit_camera() if again else self.camera.resized(self.picture.pixels, ratio))

    def _look(self, camera: Camera) -> None:
        if self.survey is None:
            return
        old, self.camera = self.camera, camera
        if old is None or not old.same_scale(camera):
            self._paint_number += 1
            self._all_at = None
            self.picture.tiles.repaint_all()
        self.picture.tiles.set_cells(None)
        self.numbers_rounded = False
        self._request()

    # ------------------------------------------------------------ reading

    @property
    def reads_all(self) -> bool:
        """Whether the exact picture is being read although it costs more than BACKGROUND_BYTES."""
        return self._all_at is not None and bool(self._missing())

    @property
    def cost(self) -> int:
        """Bytes that the exact picture in sight still takes to read."""
        if self.survey is None or self.survey.held:
            return 0
        plane, total = self.survey.plane, 0
        for key in self._missing():
            down, right = key.spans(plane.shape)
            total += plane.n_bytes((down[1] - down[0]) * (right[1] - right[0]))
        return total

    @property
    def affordable(self) -> bool:
        """Whether the exact picture in sight is read without being asked for."""
        return self.cost <= min(BACKGROUND_BYTES, self.costly_bytes)

    @property
    def costly(self) -> bool:
        """Whether the exact picture in sight takes more than `costly_bytes` to read."""
        return self.cost > self.costly_bytes

    @property
    def sample_cost(self) -> int:
        """Bytes that the sampled picture in sight takes to read; 0 where none is made."""
        return self._sample_bytes

    def set_costly_bytes(self, n_bytes: int) -> None:
        """Take another limit of what is costly."""
        self.costly_bytes = n_bytes
        self._request()

    def read_all(self) -> None:
        """Read the exact picture in sight whatever it costs."""
        if self.camera is not None:
            self._all_at = LevelOfDetail(self.camera.down.shift, self.camera.right.shift)
            self._request()

    def cancel(self) -> bool:
        """Stop reading all; return whether it was."""
        was = self.reads_all
        if self._all_at is not None:
            self._all_at = None
            self._request()
        return was

    def exactness(self) -> tuple[Exactness, int]:
        """Return what the badge must say of all that is in sight: one sampled tile makes the picture sampled."""
        if self.survey is None or not self._visible:
            return ("reading" if self.plane is not None else ""), 1
        if not self._missing():
            return "exact", 1
        current = self.picture.tiles.current
        steps = [current[key].step for key in (*self._visible, *self._coarse) if key in current]
        step = max(steps, default=1)
        return ("sampled", step) if step > 1 else ("reading", 1)

    def _missing(self) -> list[TileKey]:
        """Return the tiles in sight that are not drawn exactly."""
        current = self.picture.tiles.current
        return [key for key in self._visible if key not in current or not current[key].exact]

    def _request(self) -> None:
        """Say what the screen shows, to the picture and to the loader."""
        camera, survey, paint = self.camera, self.survey, self.paint
        if camera is None or survey is None or paint is None:
            return
        level = LevelOfDetail(camera.down.shift, camera.right.shift)
        rows, cols = camera.down.visible, camera.right.visible
        self._visible, self._coarse = keys(self.number, level, rows, cols), []
        self._sample_bytes = 0
        if self.cost > min(EXACT_BYTES, self.costly_bytes):
            coarse = _sample_level(survey, level, rows, cols)
            self._coarse = keys(self.number, coarse, rows, cols)
            self._sample_bytes = sampling(survey.plane, coarse, rows, cols, survey.along_rows).n_bytes
        affordable = self.affordable or self._all_at == level
        self.picture.look(camera, self._visible)
        view = View(
            survey.plane, tuple(_from_middle(self._visible)), tuple(self._coarse), _ALL_BYTES if affordable else 0,
            survey.along_rows, paint, self._paint_number, level, (camera.down.tile, camera.right.tile),
            shows_marks(camera), {key: tile.exact for key, tile in self.picture.tiles.current.items()},
        )  # fmt: skip
        self.loader.show(view)
        if shows_numbers(camera):
            room = int(camera.right.scale / camera.ratio - 4) // _CHARACTER
            self.loader.ask(CellsRequest(self.number, survey.plane, rows, cols, room))
        self.changed.emit()

    def _on_arrived(self, result: object) -> None:
        if isinstance(result, TileResult) and result.key.plane == self.number:
            problems: tuple[Problem, ...] = (result.problem,) if result.problem is not None else ()
            if result.drawn is not None:
                self.picture.tiles.put(result.key, result.drawn)
                problems = result.drawn.problems
            for problem in problems:
                self.failed.emit(problem)
        elif isinstance(result, SurveyResult) and result.number == self.number:
            if result.survey is not None:
                self._take_survey(result.survey)
            else:
                self.refused.emit(result.problem)
        elif isinstance(result, CellsResult) and result.request.plane_number == self.number:
            self.picture.tiles.set_cells(result)
            self.numbers_rounded = result.rounded
        elif isinstance(result, ElementResult) and result.plane_number == self.number:
            self.element.emit(result)


def _memory(survey: Survey) -> int:
    rows, cols = survey.plane.shape
    return rows * cols * survey.plane.source.dtype.itemsize if survey.held else 0


def _from_middle(wanted: list[TileKey]) -> list[TileKey]:
    """Return tiles in order of their distance from the middle one."""
    if not wanted:
        return []
    row, col = (wanted[0].row + wanted[-1].row) / 2, (wanted[0].col + wanted[-1].col) / 2
    return sorted(wanted, key=lambda key: (key.row - row) ** 2 + (key.col - col) ** 2)


def _sample_level(survey: Survey, level: LevelOfDetail, rows: Span, cols: Span) -> LevelOfDetail:
    """Return the finest level, from `level` on, that is sampled for 9 in 1000 of the plane's bytes or EXACT_BYTES."""
    plane = survey.plane
    most = max(EXACT_BYTES, plane.n_bytes(plane.shape[0] * plane.shape[1]) * 9 // 1000)
    coarsest = LevelOfDetail(plane.shape[0].bit_length(), plane.shape[1].bit_length())
    while level != coarsest:
        how = sampling(plane, level, rows, cols, survey.along_rows)
        if how.n_bytes <= most:
            break
        by_row, by_col = (1, 1) if how.run is not None else (1, 0) if how.along_rows else (0, 1)
        coarser = LevelOfDetail(min(level.rows + by_row, coarsest.rows), min(level.cols + by_col, coarsest.cols))
        if coarser == level:
            break
        level = coarser
    return level
