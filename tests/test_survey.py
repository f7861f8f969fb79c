"""The first look at a plane: what it costs, whatever the tensor claims."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tensormorph as tm
from tensormorph.pyramid import LINE_BYTES, LevelOfDetail, Plane, keys, sampled_tiles
from tensormorph.survey import SURVEY_BYTES, survey


@pytest.mark.parametrize("shape", [(200, 2_000_000_000), (2_000_000_000, 200), (3, 1 << 40), (1 << 40,)])
def test_a_repeated_element_of_any_claimed_size_is_looked_at_in_bounds(tmp_path: Path, shape: tuple[int, ...]) -> None:
    torch.save({"w": torch.full((1,), 7.5).expand(shape)}, tmp_path / "w.pt")
    read: list[int] = []
    with tm.open(tmp_path / "w.pt") as checkpoint:
        plane = Plane(checkpoint["w"], (0,), (1,) if len(shape) == 2 else (), ())
        seen = survey(plane, lambda: False, read.append)
        assert (seen.low, seen.high, seen.exact) == (7.5, 7.5, False)
        assert max(read) <= LINE_BYTES
        assert sum(read) <= 4 * SURVEY_BYTES
        rows, cols = plane.shape
        level = LevelOfDetail(max(0, rows.bit_length() - 8), max(0, cols.bit_length() - 8))
        wanted = keys(0, level, (0, rows), (0, cols))
        read.clear()
        for tile in sampled_tiles(plane, wanted, lambda: False, read.append).values():
            assert (tile.low.min(), tile.high.max(), tile.exact) == (7.5, 7.5, False)
        assert max(read) <= 2 * LINE_BYTES
