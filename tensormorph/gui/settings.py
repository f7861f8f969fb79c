"""What the program remembers between runs: one JSON file, written whole or not at all, read with distrust."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import platformdirs

from tensormorph.atomic import WriteError, write_atomically
from tensormorph.text import count

MOST_BYTES = 1_000_000
MOST_RECENT = 20
COSTLY_BYTES = 2_000_000_000
"""From more bytes on, a read is costly: what it takes is said before, unless another limit is chosen."""
_NAME = "settings.json"
Theme = Literal["system", "light", "dark"]


@dataclass(frozen=True, slots=True)
class Recent:
    """A checkpoint that was opened.

    Fields
    ------
    path
        As the system gave it; bytes that are no UTF-8 are kept as lone surrogates.
    detail
        Format and size in words.
    errors, warnings
        Problems found when it was opened.
    opened_at
        Seconds since 1970.
    """

    path: str
    detail: str = ""
    errors: int = 0
    warnings: int = 0
    opened_at: float = 0.0


@dataclass(slots=True)
class Values:
    """All that is remembered. Sizes are logical pixels; `geometry` is Qt's own text of the window's place.

    `shard_borders` says whether they are drawn over the heatmap, `costly_bytes` from how many on a read is costly.
    """

    theme: Theme = "system"
    recent: list[Recent] = field(default_factory=list)
    geometry: str = ""
    panels: dict[str, int] = field(default_factory=dict)
    hidden_panels: list[str] = field(default_factory=list)
    shard_borders: bool = True
    costly_bytes: int = COSTLY_BYTES


class Settings:
    """The values, and the file that they come from and go to.

    Reading never fails: what cannot be used falls back alone, and `trouble` says what happened. A file that is no
    settings file at all is moved aside before anything is written, never overwritten.
    """

    def __init__(self, folder: Path | None = None) -> None:
        named = os.environ.get("TENSORMORPH_CONFIG_DIR")
        self.folder = folder or (Path(named) if named else Path(platformdirs.user_config_dir("tensormorph")))
        self.file = self.folder / _NAME
        self.trouble = ""
        self._move_aside = False
        self._unknown: dict[str, Any] = {}
        self.values = self._load()

    def _load(self) -> Values:
        try:
            with self.file.open("rb") as stream:
                raw = stream.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return Values()
        except OSError as error:
            self.trouble = f"The settings cannot be read ({error.strerror}); the defaults are used"
            self._move_aside = not self.file.is_dir()
            return Values()
        if len(raw) > MOST_BYTES:
            return self._unusable(f"it has more than {count(MOST_BYTES)} bytes")
        try:
            stored = json.loads(raw)
        except (ValueError, RecursionError):
            return self._unusable("it is no JSON")
        if not isinstance(stored, dict):
            return self._unusable("it is no JSON object")
        return self._validated(stored)

    def _unusable(self, why: str) -> Values:
        self.trouble = f"The settings file cannot be used: {why}. It is kept as {_NAME}.bad, the defaults are used"
        self._move_aside = True
        return Values()

    def _validated(self, stored: Mapping[str, Any]) -> Values:
        values = Values()
        theme = stored.get("theme")
        if theme in ("system", "light", "dark"):
            values.theme = cast("Theme", theme)
        recent = stored.get("recent")
        if isinstance(recent, list):
            values.recent = [found for entry in recent[:1000] if (found := _recent(entry)) is not None][:MOST_RECENT]
        geometry = stored.get("geometry")
        if isinstance(geometry, str) and geometry.isascii() and len(geometry) < 10_000:
            values.geometry = geometry
        panels = stored.get("panels")
        if isinstance(panels, dict):
            values.panels = {
                name: size
                for name, size in panels.items()
                if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 20_000
            }
        hidden = stored.get("hidden_panels")
        if isinstance(hidden, list):
            values.hidden_panels = [name for name in hidden if isinstance(name, str)][:10]
        if isinstance(stored.get("shard_borders"), bool):
            values.shard_borders = stored["shard_borders"]
        costly = stored.get("costly_bytes")
        if isinstance(costly, int) and not isinstance(costly, bool) and 0 < costly < 1 << 62:
            values.costly_bytes = costly
        known = asdict(values)
        # Keys of a later version survive a run of this one.
        self._unknown = {key: value for key, value in stored.items() if key not in known}
        return values

    def remember(self, entry: Recent) -> None:
        """Put a checkpoint at the head of the recent list."""
        rest = [other for other in self.values.recent if other.path != entry.path]
        self.values.recent = [entry, *rest][:MOST_RECENT]

    def save(self) -> bool:
        """Write the file; return whether it is on disk. When not, `trouble` says why and the old file is whole."""
        text = json.dumps({**self._unknown, **asdict(self.values)}, indent=1)  # ASCII: surrogates become escapes
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._move_aside:
                os.replace(self.file, self.file.with_name(_NAME + ".bad"))
                self._move_aside = False
            write_atomically(self.file, lambda write: write(text.encode("ascii")))
        except (OSError, WriteError) as error:
            why = error.why if isinstance(error, WriteError) else error.strerror or str(error)
            self.trouble = f"The settings cannot be saved: {why}"
            return False
        return True


def _recent(entry: object) -> Recent | None:
    """Return an entry of the recent list, or None where it is none; single bad values fall back alone."""
    if not isinstance(entry, dict):
        return None
    path = entry.get("path")
    if not isinstance(path, str) or not path or len(path) > 10_000 or "\0" in path:
        return None
    detail, opened_at = entry.get("detail"), entry.get("opened_at")
    when = float(opened_at) if isinstance(opened_at, (int, float)) and abs(opened_at) < 1e11 else 0.0
    return Recent(
        path,
        detail[:200] if isinstance(detail, str) else "",
        _whole(entry.get("errors")),
        _whole(entry.get("warnings")),
        when if math.isfinite(when) else 0.0,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else 0


def when(opened_at: float, now: float | None = None) -> str:
    """Return a moment as people say it: ``today 16:48``, ``yesterday``, ``20 November``."""
    if opened_at <= 0:
        return ""
    then, today = time.localtime(opened_at), time.localtime(time.time() if now is None else now)
    days = (time.mktime((*today[:3], 12, 0, 0, 0, 0, -1)) - time.mktime((*then[:3], 12, 0, 0, 0, 0, -1))) / 86400
    if round(days) == 0:
        return time.strftime("today %H:%M", then)
    if round(days) == 1:
        return "yesterday"
    months = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
              "November", "December")  # fmt: skip
    date = f"{then.tm_mday} {months[then.tm_mon - 1]}"
    return date if then.tm_year == today.tm_year else f"{date} {then.tm_year}"
