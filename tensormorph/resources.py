"""Where the files that come with the program are: fonts, icons and their licences."""

from __future__ import annotations

import importlib.resources
from pathlib import Path


def resource(name: str) -> Path:
    """Return the path of a shipped file or folder, named relative to `resources`, for example `icons/check.svg`.

    The installed wheel holds them inside the package, a checkout beside it. FileNotFoundError names both places
    when the resource is in neither, which means a broken installation.
    """
    # A plain path, not `as_file`: nothing here runs from a zip archive, and Qt wants real files.
    package = Path(str(importlib.resources.files("tensormorph")))
    places = (package / "resources" / name, package.parent / "resources" / name)
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"resource {name!r} is missing; looked for {places[0]} and {places[1]}")
