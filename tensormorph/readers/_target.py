"""One look at the disk for all readers: what a path is, what lies in it, and how its content begins.

Also the rules of what may be opened: nothing outside the checkpoint's root by a link or a stored name, nothing that is
no regular file, and no link loops.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any, Literal

from tensormorph.errors import CannotOpenError, NotRegularFileError, OutsideRootError
from tensormorph.mesh import DeviceMesh
from tensormorph.text import printable

HEAD_BYTES = 4096
EntryKind = Literal["file", "folder", "other", "unreadable", "outside"]
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder.

    `link` tells that it is a symbolic link; `kind` is then that of its end. `mtime_ns` is when a file was last
    written. `locked` tells that its permission bits let nobody read it (an administrator still can). `leads_to` is
    set for a link of the Hugging Face cache that a copy turned into a text file: the file that the text names.
    """

    name: str
    kind: EntryKind
    n_bytes: int
    link: bool = False
    detail: str = ""
    locked: bool = False
    leads_to: Path | None = None
    mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A reader's word that it can read a target, with its evidence. `parsed` is for the reader alone.

    `before` names readers of the container that this format is written in: of equal files this claim holds.
    """

    reader: str
    evidence: str
    files: frozenset[str]
    parsed: Any = None
    before: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Stated:
    """What the person says because no file does.

    Fields
    ------
    parameter_order
        Names of the parameters in the order in which the optimizer was given them.
    mesh
        How the ranks are arranged.
    joins
        Name of a tensor -> axis along which the ranks' plain pieces are joined, in rank order.
    scan
        Look through data files for whole items where the index that names them is missing.
    """

    parameter_order: tuple[str, ...] = ()
    mesh: DeviceMesh | None = None
    joins: Mapping[str, int] = field(default_factory=dict)
    scan: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A path as every reader sees it.

    Fields
    ------
    path
        Absolute; as given, links not resolved.
    root
        The folder that names are relative to: the path itself, or the folder of a file.
    boundary
        Resolved folder that no link may leave.
    is_folder
        Whether the path is a folder.
    entries
        What the folder holds, in natural order; for a file just its own entry.
    """

    path: Path
    root: Path
    boundary: Path
    is_folder: bool
    entries: tuple[Entry, ...]
    _heads: dict[str, bytes] = field(default_factory=dict)
    _by_name: dict[str, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update((e.name, e) for e in self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the regular files."""
        return tuple(e.name for e in self.entries if e.kind == "file")

    def entry(self, name: str) -> Entry | None:
        """Return the entry of that name."""
        return self._by_name.get(name)

    def head(self, name: str) -> bytes:
        """Return the first 4 kB of a regular file of the target; read once. Empty if it cannot be read."""
        if name not in self._heads:
            try:
                fd = open_regular(self.resolve(name))
                try:
                    self._heads[name] = os.read(fd, HEAD_BYTES)
                finally:
                    os.close(fd)
            except (CannotOpenError, OSError):
                self._heads[name] = b""
        return self._heads[name]

    def resolve(self, name: str) -> Path:
        """Return where a stored name leads.

        Raises
        ------
        OutsideRootError
            If the name is not in the folder's listing and is absolute, holds NUL, a drive, a backslash or ``..``; or
            if a link leaves the boundary.
        CannotOpenError
            If nothing is there or links form a loop.
        """
        if not self.is_folder and name == self.path.name:
            return self.path  # the very file that the person named: wherever its link leads
        why = "" if self.entry(name) is not None else unsafe_name(name)  # what the folder lists is in it
        if why:
            raise OutsideRootError(printable(name), f"the name {why}; it is not followed")
        entry = self.entry(name)
        path = entry.leads_to if entry is not None and entry.leads_to is not None else self.root / name
        try:
            end = path.resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise CannotOpenError(printable(name), os_words(error)) from error
        if not end.is_relative_to(self.boundary):
            raise OutsideRootError(printable(name), "a link leads out of the checkpoint's folder; it is not followed")
        return path


def unsafe_name(name: str) -> str:
    """Return why a file name stored in a checkpoint must not be followed, or an empty text."""
    if not name:
        return "is empty"
    if "\0" in name:
        return "holds a NUL"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", name):
        return "is an address or holds a drive"
    if name.startswith(("/", "\\")) or PureWindowsPath(name).is_absolute():
        return "is absolute"
    if "\\" in name:
        return "holds a backslash"
    if any(part in ("..", "") for part in name.split("/")):
        return "leaves its folder by '..'" if ".." in name.split("/") else "holds an empty part"
    return ""


def look(path: str | os.PathLike[str]) -> Target:
    """Look at a path once.

    Raises
    ------
    CannotOpenError
        If it is absent, forbidden, a link loop, or no file and no folder.
    """
    given = Path(os.path.abspath(os.fspath(path)))
    try:
        state = given.stat()
    except (OSError, ValueError, RuntimeError) as error:
        raise CannotOpenError(str(given), os_words(error)) from error
    if stat.S_ISDIR(state.st_mode):
        boundary = _boundary(given.resolve())
        try:
            entries = _list(given, boundary)
        except OSError as error:
            raise CannotOpenError(str(given), os_words(error)) from error
        return Target(given, given, boundary, True, entries)
    if not stat.S_ISREG(state.st_mode):
        raise NotRegularFileError(str(given), f"it is {kind_words(state.st_mode)}, not a regular file")
    entry = Entry(given.name, "file", state.st_size, given.is_symlink(), "", _locked(state))
    return Target(given, given.parent, _boundary(given.parent.resolve()), False, (entry,))


def _boundary(folder: Path) -> Path:
    """Return the folder that links may not leave: in the Hugging Face cache the whole ``models--*`` folder.

    Source: huggingface_hub, file_download.py: ``snapshots/<revision>/*`` are links to ``../../blobs/<hash>``.
    """
    for part in (folder, *folder.parents):
        if re.match(r"(models|datasets|spaces)--", part.name):
            return part
    return folder


def _list(folder: Path, boundary: Path) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    with os.scandir(folder) as listing:
        for item in listing:
            link = item.is_symlink()
            try:
                state = item.stat()
            except (OSError, ValueError) as error:
                entries.append(Entry(item.name, "unreadable", 0, link, os_words(error)))
                continue
            if stat.S_ISREG(state.st_mode):
                inside = not link or Path(item.path).resolve().is_relative_to(boundary)
                kind: EntryKind = "file" if inside else "outside"
                plain = Entry(item.name, kind, state.st_size, link, "", _locked(state), None, state.st_mtime_ns)
                entries.append(_written_link(item, state, boundary) or plain)
            elif stat.S_ISDIR(state.st_mode):
                entries.append(Entry(item.name, "folder", 0, link, "", _locked(state)))
            else:
                entries.append(Entry(item.name, "other", 0, link, kind_words(state.st_mode)))
    return tuple(sorted(entries, key=lambda e: natural(e.name)))


def _written_link(item: os.DirEntry[str], state: os.stat_result, boundary: Path) -> Entry | None:
    """Return the entry of a cache link that became a text file, as archives and systems without links leave it."""
    if boundary.name == Path(item.path).parent.name or not boundary.name.startswith("models--") or state.st_size > 200:
        return None
    try:
        fd = open_regular(Path(item.path))
        try:
            text = os.read(fd, 200)
        finally:
            os.close(fd)
    except (CannotOpenError, OSError):
        return None
    if not re.fullmatch(rb"(\.\./)+blobs/[0-9a-f]{40,64}\n?", text):
        return None
    end = Path(os.path.normpath(Path(item.path).parent / text.decode("ascii").strip()))
    if not end.is_relative_to(boundary) or end.is_symlink() or not end.is_file():
        return None
    return Entry(item.name, "file", end.stat().st_size, True, "its link is written as text", leads_to=end)


def _locked(state: os.stat_result) -> bool:
    return os.name == "posix" and not state.st_mode & 0o444


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts ``layer.2`` before ``layer.10``."""
    return tuple(
        (0, int(part), part) if part.isdecimal() and part.isascii() and len(part) < 19 else (1, 0, part)
        for part in re.split(r"(\d+)", name)
    )


def open_regular(path: Path) -> int:
    """Open a regular file for reading only and return its descriptor.

    A pipe without writer would block an ordinary open for ever: the open does not block, and what is no regular file
    is refused.

    Raises
    ------
    CannotOpenError, NotRegularFileError
    """
    flags = os.O_RDONLY
    for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        fd = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise CannotOpenError(str(path), os_words(error)) from error
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise NotRegularFileError(str(path), f"it is {kind_words(mode)}, not a regular file")
    return fd


def kind_words(mode: int) -> str:
    """Return what a file mode is, with its article: ``a pipe``."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def os_words(error: BaseException) -> str:
    """Return an operating system error in plain words, without its path."""
    number = error.errno if isinstance(error, OSError) else None
    words = {
        errno.ENOENT: "there is nothing at that path",
        errno.EACCES: "you have no permission to read it",
        errno.EPERM: "you have no permission to read it",
        errno.ELOOP: "its links form a loop",
        errno.ENXIO: "it is not a regular file",
        errno.ENAMETOOLONG: "the name is too long",
        errno.EIO: "the storage reported an input/output error",
        errno.ESTALE: "the network file system lost track of it (stale handle)",
        errno.ETIMEDOUT: "the storage did not answer in time",
        errno.EMFILE: "too many files are open in this process",
        errno.ENOTDIR: "part of the path is not a folder",
    }
    if number in words:
        return words[number]
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if isinstance(error, RuntimeError):
        return words[errno.ELOOP]  # pathlib before 3.13 reports a loop so
    return printable(str(error)) or type(error).__name__
