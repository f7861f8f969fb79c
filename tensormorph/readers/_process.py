"""The helper process: parses big metadata outside this process, and hands back columns.

``json.loads`` of 42 MB holds the interpreter lock for seconds and freezes every thread; in a process of its own it
freezes nothing, can be killed at any moment, has a memory limit, and its death is a message. It is an ordinary
subprocess that speaks in frames over a pipe, so a script that calls us needs no ``__main__`` guard, and nothing that
it sends can be more than numbers and text: JSON and raw arrays.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tensormorph import errors
from tensormorph.errors import HelperError, TensormorphError

Report = Callable[[str, int, int], None]
"""``report(what, done, total)``: called often while something is read; raises CancelledError to stop it."""

Message = dict[str, Any]
"""What crosses the border: JSON values, and numpy arrays at the top level."""

THRESHOLD_BYTES = 4 << 20
"""Metadata of more bytes than this is parsed by the helper."""
POLL_SECONDS = 0.05


def silent(what: str, done: int, total: int) -> None:
    """The Report of somebody who does not listen."""


def memory_limit() -> int:
    """Bytes of address space that the helper may take; TENSORMORPH_HELPER_BYTES overrides it."""
    try:
        return max(256 << 20, int(os.environ["TENSORMORPH_HELPER_BYTES"]))
    except (KeyError, ValueError):
        return 12 << 30


def call(task: str, argument: Message, report: Report, path: str) -> Message:
    """Run ``tensormorph.readers.<module>.<function>(argument, report)`` in a helper and return what it returns.

    Parameters
    ----------
    task
        ``module:function`` inside this package.
    path
        What is read, for errors.

    Raises
    ------
    TensormorphError
        Whatever the function raised.
    HelperError
        If the helper died, ran out of memory or failed in another way.
    """
    # The child finds the package where this process found it, and starts no site-wide surprises of the current folder.
    code = (
        "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
        "from tensormorph.readers._process import serve; serve()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps([p or os.getcwd() for p in sys.path])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    frames: queue.SimpleQueue[tuple[bytes, Message] | None] = queue.SimpleQueue()
    listener = threading.Thread(target=_listen, args=(child.stdout, frames), daemon=True)
    listener.start()
    try:
        try:
            _send(child.stdin, b"C", {"task": task, "argument": argument, "memory": memory_limit()})
            child.stdin.close()
        except OSError:
            pass  # it died at once: the listener's end of stream says so below
        state = ("Reading metadata", 0, 0)
        while True:
            try:
                frame = frames.get(timeout=POLL_SECONDS)
            except queue.Empty:
                report(*state)
                continue
            if frame is None:
                raise HelperError(path, _death(child.wait()))
            kind, message = frame
            if kind == b"P":
                state = (str(message["what"]), int(message["done"]), int(message["total"]))
                report(*state)
            elif kind == b"R":
                return message
            else:
                raise _error(message, path)
    finally:
        child.kill()
        child.wait()
        listener.join()
        child.stdout.close()


def _death(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return f"it was ended by {name}" + (", perhaps for want of memory" if name in ("SIGKILL", "SIGABRT") else "")
    return f"it ended with status {code}"


def _error(message: Message, path: str) -> TensormorphError:
    kind = getattr(errors, str(message["type"]), None)
    if isinstance(kind, type) and issubclass(kind, TensormorphError):
        return errors.restore(kind, str(message["sentence"]), dict(message["fields"]))
    return HelperError(path, str(message["sentence"]))


def _listen(stream: IO[bytes], frames: queue.SimpleQueue[tuple[bytes, Message] | None]) -> None:
    try:
        while (frame := _receive(stream)) is not None:
            frames.put(frame)
    except (OSError, ValueError):
        pass  # the stream was cut or closed: the same as its end
    frames.put(None)


# ---------------------------------------------------------------- frames


def _send(stream: IO[bytes], kind: bytes, message: Message) -> None:
    arrays = {key: value for key, value in message.items() if isinstance(value, np.ndarray)}
    manifest = {
        "values": {key: value for key, value in message.items() if key not in arrays},
        "arrays": [(key, array.dtype.str, len(array)) for key, array in arrays.items()],
    }
    text = json.dumps(manifest).encode()
    stream.write(kind + struct.pack("<Q", len(text)) + text)
    for array in arrays.values():
        stream.write(np.ascontiguousarray(array).view(np.uint8).data)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[bytes, Message] | None:
    start = stream.read(9)
    if len(start) < 9:
        return None
    manifest = json.loads(stream.read(struct.unpack("<Q", start[1:])[0]))
    message: Message = dict(manifest["values"])
    for key, dtype, n in manifest["arrays"]:
        array: NDArray[Any] = np.empty(n, np.dtype(dtype))
        view = array.view(np.uint8).data
        done = 0
        while done < len(view):
            got: int = stream.readinto(view[done:])  # type: ignore[attr-defined]
            if not got:
                return None
            done += got
        message[key] = array
    return start[:1], message


# ---------------------------------------------------------------- the child's side


def serve() -> None:
    """Answer the one call that stands on standard input, on standard output."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not break the frames
    received = _receive(sys.stdin.buffer)
    if received is None:
        return
    request = received[1]
    _limit_memory(int(request["memory"]))

    def report(what: str, done: int, total: int) -> None:
        _send(out, b"P", {"what": what, "done": done, "total": total})

    module, _, function = str(request["task"]).partition(":")
    try:
        answer = getattr(import_module(f"tensormorph.readers.{module}"), function)(request["argument"], report)
        _send(out, b"R", answer)
    except MemoryError:
        _send(out, b"E", {"type": "", "sentence": "it reached its memory limit (TENSORMORPH_HELPER_BYTES)"})
    except TensormorphError as error:
        fields: dict[str, Any] = {k: v for k, v in vars(error).items() if isinstance(v, str | int | type(None))}
        fields["problems"] = ()
        _send(out, b"E", {"type": type(error).__name__, "sentence": error.sentence, "fields": fields})
    except Exception as error:  # a bug of ours; the parent shows it as such
        _send(out, b"E", {"type": "", "sentence": f"{type(error).__name__}: {error}"})


def _limit_memory(n_bytes: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
