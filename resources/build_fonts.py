"""How the fonts in `resources/fonts` were cut. A record, run by hand; no build step and no test runs it.

Sources, as npm packages unpacked side by side below one folder:

    inter-ui 4.1.1                  variable/InterVariable.woff2 and LICENSE.txt (Inter 4.001, OFL-1.1)
    jetbrains-mono 1.0.6            fonts/webfonts/JetBrainsMono-*.woff2 (JetBrains Mono 2.242, OFL-1.1)
    @fontsource/jetbrains-mono 5.3.0  LICENSE, only for the text of JetBrains Mono's licence

Needs fontTools 4.60 or later with brotli. Usage, from the root of the checkout:

    python resources/build_fonts.py FOLDER

where FOLDER holds `inter-ui/`, `jetbrains-mono/` and `fontsource-jetbrains-mono/`. The TTFs and licences in
`resources/fonts` are overwritten. A missing source is a FileNotFoundError.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from fontTools.varLib.instancer import instantiateVariableFont

OUT = Path(__file__).parent / "fonts"

# What the screens, shapes, names and reports can hold; other scripts come from the system's fonts.
KEPT = (
    (0x0020, 0x017F),  # Latin, Latin-1, Latin Extended-A
    (0x02C6, 0x02DD),  # spacing accents
    (0x0370, 0x03FF),  # Greek
    (0x2000, 0x206F),  # punctuation and spaces, thin space among them
    (0x2070, 0x209F),  # superscripts and subscripts, for powers of ten
    (0x20AC, 0x20AC),
    (0x2100, 0x214F),  # letterlike signs
    (0x2190, 0x21FF),  # arrows
    (0x2200, 0x22FF),  # mathematics
    (0x2300, 0x23FF),  # the signs of keys on macOS
    (0x2500, 0x25FF),  # boxes, blocks, geometric shapes
    (0x2713, 0x2717),
)
INTER_WEIGHTS = {400: "Regular", 500: "Medium", 600: "SemiBold"}
# JetBrains Mono's `calt` holds nothing but ligatures. They are cut here and not only switched off in QFont,
# because a font set by a style sheet or by another widget would bring them back.
INTER_FEATURES = ["kern", "tnum", "calt", "zero", "case", "ccmp", "locl"]
MONO_FEATURES = ["zero", "case", "ccmp", "locl"]


def cut(font: TTFont, features: list[str]) -> None:
    """Keep the characters of `KEPT` and the named features, drop hints (the program draws without hinting)."""
    options = Options(
        layout_features=features,
        hinting=False,
        glyph_names=False,
        name_IDs=[0, 1, 2, 3, 4, 5, 6, 7, 13, 14, 16, 17],
        notdef_outline=True,
        drop_tables=[*Options().drop_tables, "DSIG", "STAT", "MVAR", "HVAR", "avar"],
    )
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=[code for first, last in KEPT for code in range(first, last + 1)])
    subsetter.subset(font)


def rename(font: TTFont, family: str, style: str, weight: int) -> None:
    """Name `font` so that every system finds it as `family` at `weight`.

    Windows GDI knows only regular and bold in a family (names 1 and 2); the plain family stands in names 16 and 17,
    which fontconfig, DirectWrite, CoreText and FreeType prefer.
    """
    linked = style in ("Regular", "Bold")
    postscript = f"{family.replace(' ', '')}-{style}"
    names = {
        1: family if linked else f"{family} {style}",
        2: style if linked else "Regular",
        3: f"{postscript};tensormorph subset",
        4: f"{family} {style}",
        6: postscript,
        16: None if linked else family,
        17: None if linked else style,
    }
    table = font["name"]
    for number, text in names.items():
        table.removeNames(nameID=number)
        if text is not None:
            table.setName(text, number, 3, 1, 0x409)
    os2, head = font["OS/2"], font["head"]
    os2.usWeightClass = weight
    os2.fsSelection = (os2.fsSelection & ~0b1100001) | (0b100000 if style == "Bold" else 0b1000000)
    head.macStyle = 1 if style == "Bold" else 0


def main(sources: Path) -> None:
    """Write the five TTFs and the two licences."""
    for weight, style in INTER_WEIGHTS.items():
        font = TTFont(sources / "inter-ui/variable/InterVariable.woff2", recalcTimestamp=False)
        # opsz 14 is the drawing for text; the few titles are 24 px at most and look the same with it.
        font = instantiateVariableFont(font, {"opsz": 14, "wght": weight})
        cut(font, INTER_FEATURES)
        rename(font, "Inter", style, weight)
        font.flavor = None
        font.save(OUT / f"Inter-{style}.ttf")
    for weight, style in {400: "Regular", 700: "Bold"}.items():
        font = TTFont(sources / f"jetbrains-mono/fonts/webfonts/JetBrainsMono-{style}.woff2", recalcTimestamp=False)
        cut(font, MONO_FEATURES)
        rename(font, "JetBrains Mono", style, weight)
        font.flavor = None
        font.save(OUT / f"JetBrainsMono-{style}.ttf")
    for source, name in {"inter-ui/LICENSE.txt": "Inter", "fontsource-jetbrains-mono/LICENSE": "JetBrainsMono"}.items():
        text = (sources / source).read_text(encoding="utf-8")
        (OUT / f"OFL-{name}.txt").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
