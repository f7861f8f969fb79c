"""Text for people: the one escaping function that every text from a file passes, and the forms of numbers.

A name stored in a checkpoint is data from a stranger: it may hold terminal escapes, bidirectional overrides, line
breaks or half a megabyte. `printable` makes each of them visible and harmless on one line, for the terminal, Qt (as
plain text), CSV, logs and sentences alike. JSON output does not need it: there the text is data.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

# Categories that draw nothing or change how their neighbours are drawn: controls, formats (bidi, zero width),
# surrogates, private use, unassigned, line and paragraph separators, spaces other than the common one.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Letters and marks that draw nothing: the rest of Unicode's Default_Ignorable_Code_Point, and the empty Braille cell.
_BLANK = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, *range(0xFE00, 0xFE10),
              0xFFA0, *range(0xE0100, 0xE01F0)))
)  # fmt: skip
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def printable(text: str, limit: int = 400) -> str:
    r"""Return `text` on one line with every character that cannot be seen written as an escape.

    Parameters
    ----------
    limit
        Most characters returned; a longer text keeps its beginning and its end around an ellipsis.

    Examples
    --------
    >>> printable("w\x1b[31mRED")
    'w\\x1b[31mRED'
    >>> printable("x" * 10, limit=5)
    'xx…xx'
    """
    if len(text) <= limit:
        harmless = text.isascii() and text.isprintable() and "\\" not in text
        whole = text if harmless else "".join(map(_visible, text))
        if len(whole) <= limit:
            return whole
    head = (limit - 1) // 2
    end = _fitting(reversed(text), limit - 1 - head)
    return f"{''.join(_fitting(text, head))}…{''.join(reversed(end))}"


def _fitting(characters: Iterable[str], room: int) -> list[str]:
    """Return the visible forms of the first characters, as many as take at most `room`; no escape is cut."""
    shown: list[str] = []
    for character in characters:
        form = _visible(character)
        room -= len(form)
        if room < 0:
            break
        shown.append(form)
    return shown


def _visible(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character == " " or (unicodedata.category(character) not in _UNSEEN and character not in _BLANK):
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def count(number: int) -> str:
    """Return a whole number with thousands commas: ``12,288``."""
    return f"{number:,}"


def size(n_bytes: int) -> str:
    """Return a number of bytes in decimal units with three digits that matter: ``2.36 MB``; exact below 1,000."""
    if n_bytes < 1000:
        return f"{n_bytes} B"
    below = 1000
    for unit in ("kB", "MB", "GB", "TB", "PB", "EB"):
        value = n_bytes / below if n_bytes < 1000 * below else 1000.0
        if value < 999.5:
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
        below *= 1000
    return f"{(2 * n_bytes + 10**18) // (2 * 10**18):,} EB"  # whole numbers: a declared shape may exceed any float


def plural(number: int, noun: str, many: str | None = None) -> str:
    """Return ``1 tensor``, ``1,204 tensors``; `many` where adding an s is wrong."""
    return f"{count(number)} {noun if number == 1 else many or noun + 's'}"


def listing(words: Sequence[str], most: int = 3) -> str:
    """Return ``a, b, c and 5 more``: the first `most` of `words`, each made printable."""
    shown = ", ".join(printable(word, 120) for word in words[:most])
    return shown if len(words) <= most else f"{shown} and {count(len(words) - most)} more"


def shape(dims: Sequence[int], times: str = "×") -> str:
    """Return a shape as people write it: ``384 × 1536``; a 0-d shape is ``scalar``."""
    return f" {times} ".join(str(n) for n in dims) if dims else "scalar"
