"""Every error that a person can meet, and Problem: something wrong that did not stop us.

An error carries its facts as fields and composes its own sentence: what, where, expected against found, what to do;
the path last. Names from files are made printable before they enter a sentence. `code` is stable: scripts and the
JSON of the command line use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormorph.region import Region
from tensormorph.text import count, listing, printable, size

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong or worth knowing that did not stop us.

    Fields
    ------
    code
        Stable name of the kind, lower case with hyphens.
    severity
        ``error`` (a value is missing or doubtful), ``warning`` (a reader elsewhere may fail or refuse) or ``info``.
    sentence
        What, where, expected against found; already printable.
    tensor, file
        Name of the tensor and path relative to the checkpoint's root, as stored; None where it is about neither.
    byte_range
        Half-open range in `file`.
    region
        Part of the tensor concerned.
    hint
        What to do about it.
    """

    code: str
    severity: Severity
    sentence: str
    tensor: str | None = None
    file: str | None = None
    byte_range: tuple[int, int] | None = None
    region: Region | None = None
    hint: str = ""


class TensormorphError(Exception):
    """Root of all errors that are the file's or the user's doing. Anything else that escapes is a bug of ours."""

    code: ClassVar[str] = "error"

    def __init__(self, sentence: str, *, path: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.path = path
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return f"{self.sentence} ({printable(self.path)})" if self.path else self.sentence

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders; the default would call __init__ of the subclass with the sentence alone.
        return (restore, (type(self), self.sentence, self.__dict__.copy()))


def restore(cls: type[TensormorphError], sentence: str, fields: dict[str, object]) -> TensormorphError:
    """Return an error that was raised in another process, from its class, sentence and fields."""
    error = cls.__new__(cls)
    Exception.__init__(error, sentence)
    error.__dict__.update(fields)
    return error


# ---------------------------------------------------------------- opening


class CannotOpenError(TensormorphError):
    """The path cannot be opened: it is absent, forbidden, no regular file, a link that leaves, ..."""

    code = "cannot-open"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"Cannot open it: {why}", path=path)
        self.why = why


class NotRegularFileError(CannotOpenError):
    """The path is a pipe, a socket, a device or a folder where a file is needed."""

    code = "not-a-regular-file"


class OutsideRootError(CannotOpenError):
    """A name or link inside a checkpoint leads out of its folder; it was not followed."""

    code = "outside-root"


class UnknownFormatError(TensormorphError):
    """No reader recognises the path. `reasons` maps each reader's name to its sentence."""

    code = "unknown-format"

    def __init__(self, path: str, reasons: dict[str, str], stranger: str = "") -> None:
        first = stranger or "No reader recognises it"
        super().__init__(f"{first}. Readers tried: {listing(sorted(reasons), 12) or 'none'}", path=path)
        self.reasons = reasons
        self.stranger = stranger


class AmbiguousFormatError(TensormorphError):
    """Several readers claim the path. `claims` maps each reader's name to its evidence."""

    code = "ambiguous-format"

    def __init__(self, path: str, claims: dict[str, str]) -> None:
        told = "; ".join(f"{name}: {evidence}" for name, evidence in claims.items())
        super().__init__(f"Several formats fit ({told}). Choose one with --reader", path=path)
        self.claims = claims


class ChooseCheckpointError(TensormorphError):
    """The folder holds several checkpoints. `children` are their paths relative to it, in natural order."""

    code = "choose-checkpoint"

    def __init__(self, path: str, children: Sequence[str]) -> None:
        super().__init__(f"The folder holds {len(children)} checkpoints: {listing(children, 6)}. Open one of them",
                         path=path)  # fmt: skip
        self.children = tuple(children)


class CorruptFileError(TensormorphError):
    """A file breaks its format's rules so that nothing in it can be read."""

    code = "corrupt-file"

    def __init__(self, path: str, what: str, offset: int | None = None) -> None:
        at = "" if offset is None else f" at byte {count(offset)}"
        super().__init__(f"{what}{at}", path=path)
        self.offset = offset


class TruncatedFileError(CorruptFileError):
    """A file ends before the bytes that are needed."""

    code = "truncated-file"

    def __init__(self, path: str, needed: int, found: int, what: str = "the bytes asked for") -> None:
        super().__init__(path, f"The file ends at byte {count(found)}; {what} end at byte {count(needed)}")
        self.needed = needed
        self.found = found


class LimitError(TensormorphError):
    """A stated limit was reached. `name` is the setting that raises it."""

    code = "over-limit"

    def __init__(self, path: str, what: str, found: int, limit: int, name: str) -> None:
        super().__init__(f"{what} has {size(found)}; the limit is {size(limit)} (setting {name})", path=path)
        self.found, self.limit, self.name = found, limit, name


class HelperError(TensormorphError):
    """The helper process that parses big metadata ended without an answer."""

    code = "helper-died"

    def __init__(self, path: str, how: str) -> None:
        super().__init__(f"The process that reads the metadata stopped: {how}", path=path)
        self.how = how


# ---------------------------------------------------------------- reading


class ReadError(TensormorphError):
    """The operating system refused or broke off a read."""

    code = "read-failed"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"Reading failed: {why}", path=path)
        self.why = why


class ChangedOnDiskError(TensormorphError):
    """A file is no longer the one that was opened. Old and new are never mixed: open the checkpoint again."""

    code = "changed-on-disk"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"The file changed on disk while it was open ({what}). Open the checkpoint again", path=path)
        self.what = what


class MissingRegionError(TensormorphError):
    """Part of a tensor is stored nowhere that can be read."""

    code = "missing-region"

    def __init__(self, tensor: str, region: Region | None, why: str) -> None:
        where = f", region {region}" if region is not None else ""
        super().__init__(f"{printable(tensor)}{where} cannot be read: {why}")
        self.tensor, self.region, self.why = tensor, region, why


class UnreadableTensorError(TensormorphError):
    """The tensor is listed, but none of its values can be read. `problems` say why."""

    code = "unreadable-tensor"

    def __init__(self, tensor: str, why: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(f"{printable(tensor)} cannot be read: {why}", problems=problems)
        self.tensor, self.why = tensor, why


class UnsupportedDtypeError(TensormorphError):
    """The element type has no decoding that we can cite; the raw bytes are there."""

    code = "unsupported-dtype"

    def __init__(self, dtype: str) -> None:
        super().__init__(f"Values of dtype {printable(dtype)} cannot be decoded: no published packing is known to us")
        self.dtype = dtype


class LayoutError(TensormorphError):
    """A layout is unknown, not stated, or contradicts what is stored."""

    code = "layout"


# ---------------------------------------------------------------- asking


class NoSuchNameError(TensormorphError, KeyError):
    """A name that the checkpoint does not hold. `similar` are the nearest names."""

    code = "no-such-name"

    def __init__(self, name: str, similar: Sequence[str], path: str = "") -> None:
        near = f". Nearest: {listing(similar)}" if similar else ""
        super().__init__(f"No tensor is called '{printable(name)}'{near}", path=path)
        self.name, self.similar = name, tuple(similar)


class BadIndexError(TensormorphError, IndexError):
    """An index or region that does not fit the tensor, or cannot be parsed."""

    code = "bad-index"

    def __init__(self, index: str, why: str) -> None:
        super().__init__(f"Index [{printable(index)}] does not fit: {why}")
        self.index, self.why = index, why


class UsageError(TensormorphError):
    """The request itself makes no sense: options that exclude one another, a target that is the source, ..."""

    code = "usage"


class CancelledError(TensormorphError):
    """The person asked to stop."""

    code = "cancelled"

    def __init__(self) -> None:
        super().__init__("Cancelled")
