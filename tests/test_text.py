"""Text from strangers becomes visible and stays told apart; numbers take the forms that people read."""

from __future__ import annotations

import itertools
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormorph.text import count, listing, plural, printable, shape, size

NASTY = {
    "html": "<img src='file:///etc/hostname'><b>bold</b>",
    "ansi": "w\x1b[31mRED\x1b[0m\x1b]0;title\x07\x1b]52;c;cHduZWQ=\x07\x1b[2J\r\n\x9b31m",
    "bidi": "weight\u202egnp.exe\u2066\u200b\ufeff\u0430dmin",
    "nul": "a\x00b",
    "surrogate": "a\ud800b",
    "pair": "\ud83d\ude00",
    "blank": "a\u00a0b\u3000c\u3164d\u2800e\ufe0ff\U000e0101g\u034f",
    "tag": "w\U000e0041\U000e007f",
    "lines": "a\nb\rc\td\x0be\x0cf\x85g\u2028h\u2029i",
    "backslash": "a\\nb\\x1b",
    "empty": "",
    "long": "x" * 70_000,
    "long escapes": "\x1b" * 70_000,
}
# Categories that must never reach a screen as themselves; of the spaces only the common one may.
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}


def is_harmless(shown: str) -> bool:
    return all(c == " " or unicodedata.category(c) not in UNSEEN for c in shown)


@pytest.mark.parametrize("name", NASTY.values(), ids=NASTY)
def test_nasty_names_become_one_short_harmless_line(name: str) -> None:
    shown = printable(name)
    assert is_harmless(shown)
    assert len(shown) <= 400
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


def test_every_character_that_cannot_be_seen_is_escaped_and_every_other_one_stays() -> None:
    blank = {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), 0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C,
             0x180D, 0x180E, 0x180F, 0x2800, 0x3164, 0xFFA0}  # fmt: skip
    # All of the first plane's blocks densely, the rest by sample: each category occurs.
    codes = itertools.chain(range(0x3100), range(0x3100, 0x10000, 7), range(0x10000, sys.maxunicode + 1, 97), blank)
    seen: set[str] = set()
    for code in codes:
        character = chr(code)
        category = unicodedata.category(character)
        seen.add(category)
        shown = printable(character)
        if character != " " and (category in UNSEEN or code in blank):
            assert shown != character, hex(code)
            assert shown.isascii()
        elif character != "\\":
            assert shown == character, hex(code)
    assert len(seen) == 30, "each category of Unicode occurs"


def test_names_of_the_world_are_left_alone() -> None:
    for name in ("model.layers.0.weight", "Größe", "权重", "वज़न", "веса", "וזן", "τ × σ²", "e\u0301", "😀"):
        assert printable(name) == name


def test_the_short_escapes() -> None:
    assert printable("\n\r\t\\") == "\\n\\r\\t\\\\"
    assert printable("\x1b\x9b") == "\\x1b\\x9b"
    assert printable("\u061c\u0fff") == "\\u061c\\u0fff"
    assert printable("\u202e\ud800\U000e0041") == "\\u202e\\ud800\\U000e0041"


def test_different_short_texts_never_look_the_same() -> None:
    alphabet = ["\\", "n", "x", "0", "a", "\n", "\x0a", "\x0f", "\u00a0", "u", "U", "…"]
    shown: dict[str, str] = {}
    for length in range(5):
        for characters in itertools.product(sorted(set(alphabet)), repeat=length):
            name = "".join(characters)
            assert shown.setdefault(printable(name), name) == name


@settings(deadline=None, max_examples=300)
@given(st.text(st.characters(), max_size=20))
def test_a_short_text_can_be_told_from_its_printable_form(name: str) -> None:
    # An independent reader of the escapes finds the text again, so that no two texts share a form.
    shown, found, i = printable(name), "", 0
    while i < len(shown):
        if shown[i] != "\\":
            found, i = found + shown[i], i + 1
            continue
        kind = shown[i + 1]
        digits = {"x": 2, "u": 4, "U": 8}.get(kind, 0)
        known = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
        found += chr(int(shown[i + 2 : i + 2 + digits], 16)) if digits else known[kind]
        i += 2 + digits
    assert found == name


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from(["a", "b", "\x1b", "\n", "\U000e0041", "é"]), max_size=60), st.integers(1, 40))
def test_no_text_is_longer_than_its_limit_and_no_escape_is_cut(name: str, limit: int) -> None:
    shown = printable(name, limit)
    whole = printable(name, 10_000)
    assert len(shown) <= limit
    if len(whole) <= limit:
        assert shown == whole
        return
    head, _, tail = shown.partition("…")
    assert whole.startswith(head)
    assert whole.endswith(tail)
    forms = [printable(character) for character in name]
    assert head in itertools.accumulate(["", *forms])
    assert tail in itertools.accumulate(["", *reversed(forms)], lambda end, form: form + end)


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    assert printable("abcdefghij", limit=5) == "ab…ij"
    assert printable("abcdefghij", limit=4) == "a…ij"
    assert printable("abcdefghij", limit=10) == "abcdefghij"
    assert printable("abcdefghij", limit=1) == "…"
    assert len(printable("x" * 70_000)) == 400


def test_numbers_have_thousands_commas() -> None:
    assert [count(n) for n in (0, 999, 1000, 12_288, -1234, 1 << 64)] == [
        "0", "999", "1,000", "12,288", "-1,234", "18,446,744,073,709,551,616",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1.00 kB"), (9_990, "9.99 kB"), (9_996, "10.0 kB"),
        (99_940, "99.9 kB"), (99_960, "100 kB"), (999_499, "999 kB"), (999_500, "1.00 MB"), (999_999, "1.00 MB"),
        (1_000_000, "1.00 MB"), (2_359_296, "2.36 MB"), (123_456_789, "123 MB"), (10**9 - 1, "1.00 GB"),
        (10**12, "1.00 TB"), (2**63 - 1, "9.22 EB"), (1_234 * 10**18, "1,234 EB"),
    ],
)  # fmt: skip
def test_sizes_have_three_digits_that_matter(n_bytes: int, shown: str) -> None:
    assert size(n_bytes) == shown


def test_the_size_of_a_shape_beyond_all_floats_can_be_told() -> None:
    assert size(10**400) == f"{10**382:,} EB"


@settings(deadline=None, max_examples=300)
@given(st.integers(1000, 10**21))
def test_a_size_is_within_half_of_its_last_digit(n_bytes: int) -> None:
    number, unit = size(n_bytes).replace(",", "").split()
    digits = len(number.partition(".")[2])
    scale = 1000 ** (["kB", "MB", "GB", "TB", "PB", "EB"].index(unit) + 1)
    assert abs(float(number) - n_bytes / scale) <= 0.5001 * 10**-digits
    assert len(number.replace(".", "")) == 3 or n_bytes >= 999.5 * 10**18


def test_plurals() -> None:
    assert plural(1, "tensor") == "1 tensor"
    assert plural(0, "tensor") == "0 tensors"
    assert plural(1204, "tensor") == "1,204 tensors"
    assert plural(2, "copy", "copies") == "2 copies"
    assert plural(1, "copy", "copies") == "1 copy"


def test_lists_name_the_first_and_count_the_rest() -> None:
    assert listing([]) == ""
    assert listing(["a", "b", "c"]) == "a, b, c"
    assert listing(["a", "b", "c", "d"]) == "a, b, c and 1 more"
    assert listing(["a"] * 2000, most=1) == "a and 1,999 more"
    assert is_harmless(listing(list(NASTY.values()), 99))
    assert len(listing(["x" * 70_000])) <= 120


def test_shapes_as_people_write_them() -> None:
    assert shape((384, 1536)) == "384 × 1536"
    assert shape((7,)) == "7"
    assert shape(()) == "scalar"
    assert shape((2, 0), "x") == "2 x 0"
