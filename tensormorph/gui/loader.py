"""The threads that read: tiles and surveys in the background, single elements beside them, never on the GUI thread.

The GUI thread says what the screen shows now (`Loader.show`); that replaces the queue. Workers read, fold and colour,
and hand back values, which come out of one queued signal in the GUI thread. A read goes on as long as the screen wants
its tiles, however often the view moved meanwhile; what the screen no longer wants is broken off within a MB.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from tensormorph.errors import CancelledError, LimitError, Problem, TensormorphError
from tensormorph.gui.jobs import (
    CellsRequest,
    Drawn,
    ElementRequest,
    SurveyResult,
    TileResult,
    View,
    draw,
    read_cells,
    read_element,
)
from tensormorph.pyramid import EXACT_BYTES, Plane, Tile, TileKey, problem_of, sampled_tiles, tiles
from tensormorph.survey import survey

CACHE_BYTES = 256 << 20
"""Memory that finished tiles take at most."""
_DRAIN_SECONDS = 0.004
_FRAME_SECONDS = 0.025
_PROGRESS_SECONDS = 0.1


class TileCache:
    """Finished tiles, the ones not used for longest dropped first. For one thread."""

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most = most_bytes
        self._tiles: OrderedDict[TileKey, Tile] = OrderedDict()
        self._n_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Memory that the tiles take."""
        return self._n_bytes

    def get(self, key: TileKey) -> Tile | None:
        """Return a tile, which counts as a use."""
        tile = self._tiles.get(key)
        if tile is not None:
            self._tiles.move_to_end(key)
        return tile

    def put(self, key: TileKey, tile: Tile) -> None:
        """Keep a tile; a sample never replaces an exact one."""
        old = self._tiles.get(key)
        if old is not None:
            if old.exact and not tile.exact:
                return
            self._n_bytes -= old.n_bytes
        self._tiles[key] = tile
        self._tiles.move_to_end(key)
        self._n_bytes += tile.n_bytes
        while self._n_bytes > self._most and len(self._tiles) > 1:
            self._n_bytes -= self._tiles.popitem(last=False)[1].n_bytes

    def clear(self) -> None:
        """Drop all tiles."""
        self._tiles.clear()
        self._n_bytes = 0


@dataclass(slots=True)
class _Job:
    """Work for a tile thread: a survey, or neighbouring tiles to read, or finished tiles to colour."""

    kind: str
    keys: tuple[TileKey, ...] = ()
    tiles: dict[TileKey, Tile] = field(default_factory=dict)
    plane: Plane | None = None
    number: int = 0


class Loader(QObject):
    """Reads for one view. All methods are for the GUI thread, in which `arrived` gives the results one by one.

    Parameters
    ----------
    n_threads
        Tile threads; by default one less than the machine has cores, at least one.
    cache_bytes
        Memory for finished tiles.
    """

    arrived = Signal(object)
    """A SurveyResult, TileResult, ElementResult or CellsResult."""
    progressed = Signal()
    """A few results were given out, or `n_bytes_read` grew."""
    _rung = Signal()

    def __init__(
        self, parent: QObject | None = None, n_threads: int | None = None, cache_bytes: int = CACHE_BYTES
    ) -> None:
        super().__init__(parent)
        self.cache = TileCache(cache_bytes)
        self._condition = threading.Condition()
        self._closed = False
        # Below: only under the condition's lock.
        self._queue: deque[_Job] = deque()
        self._busy: set[TileKey] = set()
        self._surveyed = 0
        self._single: dict[str, ElementRequest | CellsRequest] = {}
        # Replaced as a whole, read by the workers without the lock.
        self._view: View | None = None
        # Appended to by the workers, emptied by the GUI thread.
        self._results: deque[object] = deque()
        self._armed = False
        self._last_ring = 0.0
        self._n_bytes: dict[int, int] = {}
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._drain)
        self._last_drain = 0.0
        self._rung.connect(self._pace, Qt.ConnectionType.QueuedConnection)
        self.destroyed.connect(lambda: self.close())  # with the window that holds it, if nobody closed it before
        if n_threads is None:
            n_threads = max(1, (os.cpu_count() or 2) - 1)
        for k in range(n_threads):
            threading.Thread(target=self._work, name=f"tiles-{k}", daemon=True).start()
        threading.Thread(target=self._work_single, name="elements", daemon=True).start()

    # ------------------------------------------------------------ GUI thread

    @property
    def n_bytes_read(self) -> int:
        """Bytes read from storage so far."""
        return sum(self._n_bytes.copy().values())

    def n_bytes_of(self, plane: int) -> int:
        """Bytes read so far for the plane of that number."""
        return self._n_bytes.get(plane, 0)

    def survey(self, number: int, plane: Plane) -> None:
        """Ask for the range of a plane, before its tiles; drops all that was asked of another plane."""
        with self._condition:
            self._view = None
            self._surveyed = number
            self._queue = deque([_Job("survey", plane=plane, number=number)])
            self._condition.notify_all()

    def show(self, view: View) -> None:
        """Ask for what the screen shows, instead of what it showed before."""
        ready: list[_Job] = []
        missing: list[TileKey] = []
        for key in view.keys:
            tile = self.cache.get(key)
            if tile is not None and tile.exact:
                if not view.drawn.get(key, False):
                    ready.append(_Job("paint", (key,), {key: tile}))
            else:
                missing.append(key)
        samples: list[TileKey] = []
        for key in view.sample_keys if missing else ():
            tile = self.cache.get(key)
            if tile is None:
                samples.append(key)
            elif key not in view.drawn:
                ready.append(_Job("paint", (key,), {key: tile}))
        with self._condition:
            self._view = view
            self._surveyed = 0
            self._queue = deque(ready)
            self._queue.extend(self._groups("sample", samples, view))
            if view.exact_bytes:
                self._queue.extend(self._groups("exact", missing, view))
            self._condition.notify_all()

    def forget(self) -> None:
        """Want nothing any more, and drop all finished tiles."""
        with self._condition:
            self._view = None
            self._surveyed = 0
            self._queue.clear()
            self._single.clear()
        self.cache.clear()

    def ask(self, request: ElementRequest | CellsRequest) -> None:
        """Ask for single elements; a newer question of one kind takes the place of one that waits."""
        with self._condition:
            self._single[type(request).__name__] = request
            self._condition.notify_all()

    def close(self) -> None:
        """Stop. Does not wait for a read that is stuck: its thread ends when the read does."""
        with self._condition:
            self._closed = True
            self._view = None
            self._surveyed = 0
            self._queue.clear()
            self._single.clear()
            self._condition.notify_all()
        self._results.clear()
        self.cache.clear()

    def _groups(self, kind: str, keys: Iterable[TileKey], view: View) -> list[_Job]:
        """Return jobs that read tiles side by side along the storage; tiles in work are left out."""
        groups: dict[int, list[TileKey]] = {}
        for key in keys:
            if key not in self._busy:
                groups.setdefault(key.row if view.along_rows else key.col, []).append(key)
        return [_Job(kind, tuple(sorted(g, key=lambda k: (k.row, k.col)))) for g in groups.values()]

    def _pace(self) -> None:
        """Give out results now, or together with others when the last were given out just before."""
        wait = self._last_drain + _FRAME_SECONDS - time.monotonic()
        if wait <= 0:
            self._drain()
        else:
            self._timer.start(max(1, round(wait * 1000)))

    def _drain(self) -> None:
        """Give out results for a few milliseconds, then let the GUI thread breathe."""
        self._armed = False
        self._last_drain = time.monotonic()
        end = self._last_drain + _DRAIN_SECONDS
        while self._results and not self._closed:
            result = self._results.popleft()
            if isinstance(result, TileResult):
                self._take(result)
            elif not isinstance(result, SurveyResult) or result.number == self._surveyed:
                self.arrived.emit(result)
            if time.monotonic() > end:
                break
        self.progressed.emit()
        if self._results:
            self._ring()

    def _take(self, result: TileResult) -> None:
        """Keep a tile, and give it out if the screen still wants it as it was coloured."""
        if result.tile is not None:
            self.cache.put(result.key, result.tile)
        with self._condition:
            view = self._view
            self._busy.discard(result.key)
            if view is None or result.key not in view.wanted:
                return
            current = result.drawn is not None and result.paint_number == view.paint_number
            if result.tile is not None and result.problem is None and not current:
                # The paint changed while this was on its way; the values are as good as ever.
                self._queue.appendleft(_Job("paint", (result.key,), {result.key: result.tile}))
                self._condition.notify_all()
                return
        self.arrived.emit(result)

    # ------------------------------------------------------------ worker threads

    def _ring(self) -> None:
        if self._armed or self._closed:
            return
        self._armed = True
        with contextlib.suppress(RuntimeError):  # Qt deleted the loader while this thread was reading
            self._rung.emit()

    def _give(self, *results: object) -> None:
        if not self._closed:
            self._results.extend(results)
            self._ring()

    def _counted(self, number: int) -> Callable[[int], None]:
        def on_read(n_bytes: int) -> None:
            with self._condition:
                self._n_bytes[number] = self._n_bytes.get(number, 0) + n_bytes
            if time.monotonic() - self._last_ring > _PROGRESS_SECONDS:
                self._last_ring = time.monotonic()
                self._ring()

        return on_read

    def _work(self) -> None:
        _be_nice()
        while True:
            with self._condition:
                while not self._queue and not self._closed:
                    self._condition.wait()
                if self._closed:
                    return
                job = self._queue.popleft()
                view = self._view
                if job.kind in ("sample", "exact"):
                    self._busy.update(job.keys)
            if job.kind == "survey" and job.plane is not None:
                self._survey(job.plane, job.number)
            elif view is not None:
                if job.kind == "paint":
                    self._paint(job.tiles)
                else:
                    self._read(job, view)

    def _survey(self, plane: Plane, number: int) -> None:
        try:
            found = survey(plane, lambda: self._surveyed != number, self._counted(number))
        except CancelledError:
            return
        except Exception as error:  # shown in place of the picture; a thread that died would show nothing, ever
            self._give(SurveyResult(number, None, _problem(error)))
        else:
            self._give(SurveyResult(number, found, None))

    def _read(self, job: _Job, view: View) -> None:
        number = job.keys[0].plane

        def unwanted() -> bool:
            now = self._view
            return now is None or now.wanted.isdisjoint(job.keys)

        try:
            made = self._read_tiles(job, view, unwanted, self._counted(number))
        except CancelledError:
            with self._condition:
                self._busy.difference_update(job.keys)
                again = self._view
                if again is not None and not again.wanted.isdisjoint(job.keys):
                    # The view came back after this read heard that it had gone.
                    self._queue.append(_Job(job.kind, tuple(k for k in job.keys if k in again.wanted)))
        except LimitError as error:
            self._give(*(TileResult(key, 0, None, None, _problem(error), error.found) for key in job.keys))
        except Exception as error:
            self._give(*(TileResult(key, 0, None, None, _problem(error)) for key in job.keys))
        else:
            self._paint(made)

    def _read_tiles(
        self, job: _Job, view: View, unwanted: Callable[[], bool], on_read: Callable[[int], None]
    ) -> dict[TileKey, Tile]:
        if job.kind == "sample":
            return sampled_tiles(view.plane, job.keys, unwanted, on_read)
        return tiles(view.plane, job.keys, unwanted, max(EXACT_BYTES, view.exact_bytes), on_read)

    def _paint(self, made: dict[TileKey, Tile]) -> None:
        """Colour tiles as the screen wants them now, which may not be how it wanted them when the read began."""
        view = self._view
        for key, tile in made.items():
            drawn: Drawn | None = None
            problem: Problem | None = None
            if view is not None and key in view.wanted:
                try:
                    drawn = draw(key, tile, view)
                except Exception as error:
                    problem = _problem(error)
            self._give(TileResult(key, view.paint_number if view is not None else 0, tile, drawn, problem))

    def _work_single(self) -> None:
        while True:
            with self._condition:
                while not self._single and not self._closed:
                    self._condition.wait()
                if self._closed:
                    return
                request = self._single.pop(min(self._single))
            on_read = self._counted(request.plane_number)
            if isinstance(request, ElementRequest):
                self._give(read_element(request, on_read))
            else:
                self._give(read_cells(request, on_read))


def _problem(error: Exception) -> Problem:
    return error.problems[0] if isinstance(error, TensormorphError) and error.problems else problem_of(error, None)


def _be_nice() -> None:
    """Lower the priority of this thread, so that the window keeps its frames when all cores are busy."""
    with contextlib.suppress(OSError, AttributeError):  # not every system has priorities of threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
