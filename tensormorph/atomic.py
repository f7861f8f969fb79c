"""Files of our own, written whole or not at all, and never over a file of what is open."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tensormorph.errors import CannotOpenError, TensormorphError, UsageError
from tensormorph.text import printable, size

Write = Callable[[bytes | memoryview], None]


class WriteError(TensormorphError):
    """The operating system refused or broke off a write.

    `replaced` tells whether the new file, whole, stands at the target all the same: then only its survival of a power
    cut is in doubt. Otherwise what lay there before is untouched.
    """

    code = "write-failed"

    def __init__(self, path: str, why: str, replaced: bool = False) -> None:
        state = "The new file is in place, but may not survive a power cut" if replaced else "Nothing was written"
        super().__init__(f"{state}: {why}", path=path)
        self.why = why
        self.replaced = replaced


def write_atomically(target: Path, body: Callable[[Write], None]) -> None:
    """Let `body` write a file that takes the place of `target` at once and durably, or leaves it untouched.

    The new file grows under another name in the same folder, is forced to disk, and is then renamed.

    Raises
    ------
    WriteError
        For any failure of the file system. Whatever `body` raises passes; no stray file stays behind.
    """
    partial = target.parent / f".tensormorph-{os.urandom(8).hex()}.partial"
    fd = -1
    ours, renaming = True, False
    try:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
            fd = os.open(partial, flags, 0o666)
        except FileExistsError:
            ours = False  # another's file, though two random names are never equal
            raise
        written = 0

        def write(data: bytes | memoryview) -> None:
            nonlocal written
            left = memoryview(data).cast("B")
            while left:
                done = os.write(fd, left)  # may be short: a signal, a quota, or the 2 GiB limit of one call
                written += done
                left = left[done:]

        body(write)
        os.fsync(fd)
        found = os.fstat(fd).st_size
        if found != written:
            raise OSError(errno.EIO, f"the new file has {found:,} of {written:,} bytes")
        # A network file system may report a full disk only here: `fd` counts as closed even if this raises.
        closing, fd = fd, -1
        os.close(closing)
        renaming = True
        os.replace(partial, target)
        _sync_folder(target.parent)
    except OSError as error:
        # A share may carry a rename out and report a failure all the same: what is on disk decides.
        replaced = renaming and not os.path.lexists(partial)
        raise WriteError(str(target), error.strerror or str(error), replaced) from error
    finally:
        if fd >= 0:
            _quietly(os.close, fd)
        if ours:
            _quietly(os.unlink, partial)


def _quietly(call: Callable[[Any], None], argument: Any) -> None:
    """Clean up without hiding the error that made it necessary."""
    try:
        call(argument)
    except OSError:
        return


def _sync_folder(folder: Path) -> None:
    """Force a rename to disk. Where a folder cannot be opened or synced (Windows, some shares) the system does it."""
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


# ---------------------------------------------------------------- what is refused


def real_target(target: Path, forbidden: Iterable[Path]) -> Path:
    """Return the target with links followed.

    Raises
    ------
    UsageError
        If it is one of the `forbidden` files, lies in a forbidden folder, is another name of one, or cannot be a file.
    """
    try:
        real = target.resolve()
        there = _identity(real)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
        raise CannotOpenError(str(target), getattr(error, "strerror", None) or str(error)) from None
    if not real.parent.is_dir():
        raise UsageError(f"The folder {printable(str(real.parent))} does not exist", path=str(target))
    if real.is_dir():
        raise UsageError("The file to write is a folder", path=str(target))
    for source in forbidden:
        inside = source.resolve()
        if inside in (real, *real.parents) or source.absolute() == target.absolute():
            raise UsageError("The file to write is part of what is open: choose another", path=str(target))
        if there is not None and there == _identity(inside):
            raise UsageError(
                f"The file to write is another name of {printable(str(source))}, which is open: choose another",
                path=str(target),
            )
    return real


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    return found.st_dev, found.st_ino


def refuse_full_disk(target: Path, needed: int) -> None:
    """Say beforehand that a file cannot fit, where the file system tells; the write itself is the judge."""
    if not hasattr(os, "statvfs"):
        return
    try:
        found = os.statvfs(target.parent)
    except OSError:
        return
    free = found.f_bavail * found.f_frsize
    if found.f_blocks and needed > free:
        raise WriteError(str(target), f"{size(needed)} are needed and {size(free)} are free on that disk")
