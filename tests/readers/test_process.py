"""The helper process: its answers, its progress, cancelling it at any moment, and its death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensormorph.errors import CancelledError, CorruptFileError, HelperError
from tensormorph.readers import _process, open_checkpoint
from tensormorph.readers._process import call, silent
from tests.readers.oracle import container, entry

# The helper runs functions of our package only; these tests add one such module to its path.
HELPED = """
import os, time
import numpy as np
from tensormorph.errors import CorruptFileError

def echo(argument, report):
    report("half", 1, 2)
    return {"said": argument["say"], "numbers": np.arange(argument["n"]), "empty": np.empty(0, np.int16)}

def corrupt(argument, report):
    raise CorruptFileError("some.file", "It is odd", 12)

def bug(argument, report):
    raise ZeroDivisionError("ours")

def die(argument, report):
    os.kill(os.getpid(), argument["signal"])

def leave(argument, report):
    os._exit(3)

def hoard(argument, report):
    kept = []
    while True:
        kept.append(bytearray(64 << 20))

def wait(argument, report):
    open(argument["flag"], "w").write(str(os.getpid()))
    while True:
        time.sleep(60)

def chatter(argument, report):
    print("this must not break the frames")
    return {"ok": 1}
"""


@pytest.fixture
def helped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensormorph.readers

    (tmp_path / "helped.py").write_text(HELPED)
    monkeypatch.setattr(tensormorph.readers, "__path__", [*tensormorph.readers.__path__, str(tmp_path)])
    real = subprocess.Popen

    def with_module(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        code = f"import tensormorph.readers; tensormorph.readers.__path__.append({str(tmp_path)!r}); "
        return real([command[0], command[1], command[2].replace("from tensormorph", code + "from tensormorph"),
                     *command[3:]], **options)  # fmt: skip

    monkeypatch.setattr(subprocess, "Popen", with_module)


@pytest.mark.usefixtures("helped")
def test_values_and_arrays_come_back_as_they_went_and_progress_is_heard() -> None:
    heard: list[tuple[str, int, int]] = []
    answer = call("helped:echo", {"say": "é\ud800", "n": 100_000}, lambda *state: heard.append(state), "x")
    assert answer["said"] == "é\ud800"
    np.testing.assert_array_equal(answer["numbers"], np.arange(100_000))
    assert answer["empty"].dtype == np.int16
    assert ("half", 1, 2) in heard


@pytest.mark.usefixtures("helped")
def test_an_error_of_ours_arrives_whole_and_a_bug_as_a_message() -> None:
    with pytest.raises(CorruptFileError, match="It is odd at byte 12") as raised:
        call("helped:corrupt", {}, silent, "x")
    assert (raised.value.path, raised.value.offset) == ("some.file", 12)
    with pytest.raises(HelperError, match="ZeroDivisionError: ours"):
        call("helped:bug", {}, silent, "x")


@pytest.mark.usefixtures("helped")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_its_death_is_a_message(number: signal.Signals) -> None:
    with pytest.raises(HelperError, match=number.name):
        call("helped:die", {"signal": int(number)}, silent, "x")


@pytest.mark.usefixtures("helped")
def test_an_exit_without_answer_is_a_message_and_printing_breaks_nothing() -> None:
    with pytest.raises(HelperError, match="status 3"):
        call("helped:leave", {}, silent, "x")
    assert call("helped:chatter", {}, silent, "x") == {"ok": 1}


@pytest.mark.usefixtures("helped")
def test_its_memory_limit_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORMORPH_HELPER_BYTES", str(2 << 30))
    with pytest.raises(HelperError, match="memory limit"):
        call("helped:hoard", {}, silent, "x")


@pytest.mark.usefixtures("helped")
def test_cancelling_kills_it_at_once_whatever_it_does(tmp_path: Path) -> None:
    flag = tmp_path / "running"
    asked: list[float] = []

    def report(what: str, done: int, total: int) -> None:
        if flag.exists() and flag.read_text():
            asked.append(time.monotonic())
            raise CancelledError

    with pytest.raises(CancelledError):
        call("helped:wait", {"flag": str(flag)}, report, "x")
    # Heard between two polls: the killing itself is all that comes after it was asked for.
    assert time.monotonic() - asked[0] < 5
    with pytest.raises(ProcessLookupError):
        os.kill(int(flag.read_text()), 0)


@pytest.fixture
def big(tmp_path: Path) -> Path:
    n = 60_000
    path = tmp_path / "model.safetensors"
    path.write_bytes(container({f"layer.{i}.weight": entry(4 * i, 4 * i + 4, (1,)) for i in range(n)}, bytes(4 * n)))
    assert path.stat().st_size > _process.THRESHOLD_BYTES
    return path


def test_a_big_header_reads_the_same_in_the_helper_and_here(big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_checkpoint(big) as helped, monkeypatch.context() as here:
        here.setattr("tensormorph.readers._header_files.THRESHOLD_BYTES", 1 << 40)
        here.setattr("tensormorph.readers._header_files.call", None)
        with open_checkpoint(big) as plain:
            assert list(helped) == list(plain)
            for name in ("dims", "offset", "length", "n_elements", "encoding", "complete"):
                np.testing.assert_array_equal(getattr(helped.table, name), getattr(plain.table, name))


def test_opening_can_be_cancelled_at_any_report(big: Path) -> None:
    """Cancel at the first, second, ... report until one opening comes to its end."""
    for stop_at in range(400):
        heard = 0

        def report(what: str, done: int, total: int, limit: int = stop_at) -> None:
            nonlocal heard
            heard += 1
            if heard > limit:
                raise CancelledError

        try:
            open_checkpoint(big, report=report).close()
        except CancelledError:
            assert threading.active_count() < 20
            continue
        assert stop_at > 1
        return
    pytest.fail("opening never came to its end")


def test_a_script_without_main_guard_may_open_big_files(big: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import tensormorph as tm\nprint(len(tm.open({str(big)!r})))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("60000", "")
