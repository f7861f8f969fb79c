"""Settings for every test, and one rule for all of them: reading never writes, runs or connects to anything."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tensormorph.readers import READERS

pytest.register_assert_rewrite("tests.readers.contract")

# The same examples in every run: a test that fails, fails for everybody.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=80)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may see or touch the settings of the person who runs it."""
    monkeypatch.setenv("TENSORMORPH_CONFIG_DIR", str(tmp_path / "config-of-the-test"))


# ---------------------------------------------------------------- nothing may be run, written or reached by reading

_watching = threading.local()
# What reading may import lazily: our own modules, element types, and parts of the standard library that run nothing.
_MAY_IMPORT = re.compile(
    r"(tensormorph|ml_dtypes|numpy|concurrent|gc|copy|encodings|unicodedata|zlib|struct|array|queue|signal|resource"
    r"|subprocess|select|selectors|_posixsubprocess|fcntl|errno|threading|logging|traceback|collections|weakref"
    r"|_winapi|msvcrt|difflib|functools|linecache|tokenize|token|textwrap|contextlib|string|hypothesis|_hypothesis)\b"
)
_FORBIDDEN = frozenset({
    "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.symlink", "os.link", "os.truncate", "os.system",
    "os.exec", "os.posix_spawn", "os.fork", "os.startfile", "pty.spawn", "socket.connect", "socket.bind",
    "pickle.find_class", "marshal.load", "marshal.loads", "code.__new__", "ctypes.dlopen",
})  # fmt: skip


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    seen = getattr(_watching, "seen", None)
    if seen is None:
        return
    if event == "open":
        path, _mode, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        # Python itself writes the compiled form of a module that it imports for the first time.
        if writes and not isinstance(path, int) and path != os.devnull and "__pycache__" not in str(path):
            seen.append(f"open for writing: {path!r}")
    elif event == "import":
        if not _MAY_IMPORT.match(str(arguments[0]).lstrip("_")) and not _MAY_IMPORT.match(str(arguments[0])):
            seen.append(f"import of {arguments[0]}")
    elif event == "subprocess.Popen":
        if "tensormorph.readers._process" not in str(arguments[1]):
            seen.append(f"subprocess {arguments[1]}")
    elif event in _FORBIDDEN and not (event == "marshal.loads" and _is_import_of_a_module()):
        seen.append(event)


def _is_import_of_a_module() -> bool:
    """Python itself loads the compiled form of a module so; which modules, the event "import" has judged before."""
    return sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap_external"


sys.addaudithook(_audit)


@pytest.fixture(autouse=True)
def _readers_only_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In every test, whatever a reader does while it opens is watched: anything but reading fails the test."""
    seen: list[str] = []

    def watched(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            outer = getattr(_watching, "seen", None)
            _watching.seen = seen
            try:
                return read(*arguments, **options)
            finally:
                _watching.seen = outer

        return call

    for module in READERS:
        monkeypatch.setattr(module, "read", watched(module.read))
    yield
    assert not seen


@pytest.fixture
def nothing_done() -> Iterator[list[str]]:
    """While the test runs, nothing in this thread may write, rename, remove, run, import or connect; else it fails."""
    seen: list[str] = []
    _watching.seen = seen
    try:
        yield seen
    finally:
        _watching.seen = None
    assert not seen
