"""Settings for every test, and one rule for all of them: reading never writes, runs or connects to anything."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.readers.contract")

# The same examples in every run: a test that fails, fails for everybody.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=80)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may see or touch the settings of the person who runs it."""
    monkeypatch.setenv("TENSORMORPH_CONFIG_DIR", str(tmp_path / "config-of-the-test"))


_watching = threading.local()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    where = getattr(_watching, "folder", None)
    if where is None:
        return
    if event == "open":
        path, _mode, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if writes and isinstance(path, str) and path != os.devnull:
            _watching.seen.append(f"open for writing: {path}")
    elif event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.symlink", "os.link", "os.truncate",
                   "socket.connect", "os.system", "os.exec", "pty.spawn"):  # fmt: skip
        _watching.seen.append(event)


sys.addaudithook(_audit)


@pytest.fixture
def nothing_done(tmp_path: Path) -> Iterator[list[str]]:
    """While the test runs, nothing in this thread may write, rename, remove, run or connect; else it fails."""
    seen: list[str] = []
    _watching.seen = seen
    _watching.folder = tmp_path
    try:
        yield seen
    finally:
        _watching.folder = None
    assert not seen
