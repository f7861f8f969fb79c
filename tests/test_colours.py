"""The default maps: zero is the canvas, and no colour of a map can be taken for a mark, in any colour vision."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from tensormorph import colours

Floats = npt.NDArray[np.float64]
Kind = Literal["diverging", "sequential"]

MAPS: list[tuple[Kind, bool]] = [("diverging", False), ("diverging", True), ("sequential", False), ("sequential", True)]
MARKS = {"NaN": colours.NAN, "+Inf": colours.POSITIVE_INFINITY, "-Inf": colours.NEGATIVE_INFINITY}

# Machado, Oliveira and Fernandes (2009), severity 1.0, for linear RGB.
VISION = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# Ottosson (2020): linear sRGB to cone responses, their cube roots to OKLab.
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def rgb(colour: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytes.fromhex(colour[1:]), dtype=np.uint8)


def seen(srgb: npt.NDArray[np.uint8], vision: str = "normal") -> Floats:
    """OKLab of sRGB 0 to 255, rows of three, as a person of that vision sees it."""
    share = srgb / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    simulated = np.clip(linear @ VISION[vision].T, 0, 1)
    result: Floats = np.cbrt(simulated @ TO_CONES.T) @ TO_OKLAB.T
    return result


def test_oklab_of_known_colours() -> None:
    assert seen(rgb("#FFFFFF")) == pytest.approx([1, 0, 0], abs=1e-4)
    assert seen(rgb("#FF0000")) == pytest.approx([0.62796, 0.22486, 0.12585], abs=1e-4)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(("kind", "dark"), MAPS)
def test_marks_stand_apart_from_the_default_maps(kind: Kind, dark: bool, mark: str, vision: str) -> None:
    table = seen(colours.colour_map(kind, dark), vision)
    distance = np.linalg.norm(table - seen(rgb(MARKS[mark]), vision), axis=1)
    assert distance.min() >= 0.06


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("pair", list(combinations(MARKS, 2)))
def test_marks_stand_apart_from_one_another(vision: str, pair: tuple[str, str]) -> None:
    one, other = (seen(rgb(MARKS[mark]), vision) for mark in pair)
    assert np.linalg.norm(one - other) >= 0.11


@pytest.mark.parametrize("dark", [False, True])
def test_zero_is_the_canvas(dark: bool) -> None:
    canvas = rgb(colours.CANVAS["dark" if dark else "light"]).tolist()
    diverging = colours.colour_map("diverging", dark)
    assert diverging[127].tolist() == canvas
    assert diverging[128].tolist() == canvas
    assert colours.colour_map("sequential", dark)[0].tolist() == canvas


@pytest.mark.parametrize(("kind", "dark"), MAPS)
def test_far_half_of_a_default_map_is_as_published(kind: Kind, dark: bool) -> None:
    names = colours.DIVERGING if kind == "diverging" else colours.SEQUENTIAL
    published = colours.table(names["dark" if dark else "light"]).astype(int)
    ends = [0, 255] if kind == "diverging" else [255]
    ours = colours.colour_map(kind, dark).astype(int)
    assert ours[ends].tolist() == published[ends].tolist()
    far = np.r_[:64, 192:256] if kind == "diverging" else np.r_[128:256]
    assert np.abs(ours - published)[far].max() <= 10


@pytest.mark.parametrize("dark", [False, True])
def test_negative_is_blue_and_positive_red(dark: bool) -> None:
    table = colours.colour_map("diverging", dark).astype(int)
    assert (table[:112, 2] > table[:112, 0]).all()
    assert (table[144:, 0] > table[144:, 2]).all()


@pytest.mark.parametrize(("kind", "dark"), MAPS)
def test_each_step_from_zero_leads_away_from_it(kind: Kind, dark: bool) -> None:
    table = seen(colours.colour_map(kind, dark))
    halves = [table[127::-1], table[128:]] if kind == "diverging" else [table]
    for half in halves:
        distance = np.linalg.norm(half - half[0], axis=1)[::8]
        assert (np.diff(distance) > 0).all()


@pytest.mark.parametrize("name", [*colours.OFFERED, *colours.DIVERGING.values(), *colours.SEQUENTIAL.values()])
def test_table_is_256_read_only_colours(name: str) -> None:
    table = colours.table(name)
    assert table.shape == (256, 3)
    assert table.dtype == np.uint8
    assert len(np.unique(table, axis=0)) > 200
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 0


def test_unknown_map_is_refused() -> None:
    with pytest.raises(ValueError, match="no-such-map"):
        colours.table("no-such-map")
