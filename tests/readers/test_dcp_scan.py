"""Items of a save whose metadata was never written: found by their ends, called by file and byte."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from tensormorph.errors import CancelledError
from tensormorph.readers import _dcp_scan, open_checkpoint


def item(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


# Bytes that look like an end record, and one that points far back: a tensor may hold anything.
LOOKALIKE = torch.frombuffer(
    bytearray(b"PK\x05\x06" + bytes(18) + b"PK\x05\x06\0\0\0\0" + b"\x01" * 12 + b"\0\0"), dtype=torch.uint8
)
VALUES = {
    "__0_0.distcp": [torch.arange(6.0).reshape(2, 3), LOOKALIKE, {"lr": 0.1}, torch.tensor(3, dtype=torch.int64)],
    "__1_0.distcp": [torch.arange(5000, dtype=torch.bfloat16)],
}


@pytest.fixture
def save(tmp_path: Path) -> Path:
    """A save of two ranks that broke off before the metadata was written."""
    for name, values in VALUES.items():
        (tmp_path / name).write_bytes(b"".join(map(item, values)))
    (tmp_path / "__2_0.distcp").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("step", [50, 64, 1000, 1 << 23])
def test_whole_items_are_found_wherever_the_reads_end(save: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """R53: what is whole in a save without metadata reads; names stay unknown."""
    monkeypatch.setattr(_dcp_scan, "_STEP", step)
    with open_checkpoint(save, scan=True) as checkpoint:
        found = {name: tensor.full()[...] for name, tensor in checkpoint.tensors.items()}
        expected: dict[str, torch.Tensor] = {}
        for name, values in VALUES.items():
            at = 0
            for value in values:
                if isinstance(value, torch.Tensor):
                    expected[f"{name} at {at}"] = value
                at += len(item(value))
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name].tobytes() == value.reshape(-1).view(torch.uint8).numpy().tobytes()
            assert found[name].shape == tuple(value.shape)
        assert not any(tensor.key.named for tensor in checkpoint.tensors.values())
        assert {(p.code, p.severity) for p in checkpoint.problems} == {
            ("uncommitted", "error"),
            ("names-unknown", "warning"),
        }
        assert checkpoint.facts.committed is False


def test_without_asking_nothing_of_the_data_is_read(save: Path) -> None:
    with open_checkpoint(save) as checkpoint:
        assert len(checkpoint) == 0
        [told] = checkpoint.problems
        assert told.code == "uncommitted"
        assert "--scan" in told.sentence
        assert sorted(info.name for info in checkpoint.files) == [*VALUES, "__2_0.distcp"]


def test_an_item_that_was_being_written_is_told(save: Path) -> None:
    raw = (save / "__0_0.distcp").read_bytes()
    (save / "__0_0.distcp").write_bytes(raw[:-100])
    with open_checkpoint(save, scan=True) as checkpoint:
        [told] = [p for p in checkpoint.problems if p.code == "item-cut-off"]
        end = len(raw) - len(item(VALUES["__0_0.distcp"][3]))
        assert (told.file, told.byte_range) == ("__0_0.distcp", (end, len(raw) - 100))
        assert np.array_equal(checkpoint["__0_0.distcp at 0"].full()[...], np.arange(6.0).reshape(2, 3))


def test_the_save_before_is_named(tmp_path: Path) -> None:
    """R53: the nearest earlier step that has its metadata."""
    for step, whole in ((90, True), (100, True), (200, False), (300, False)):
        folder = tmp_path / f"step-{step}"
        folder.mkdir()
        (folder / "__0_0.distcp").write_bytes(item(torch.zeros(2)))
        if whole:
            (folder / ".metadata").write_bytes(b"\x80\x04N.")
    with open_checkpoint(tmp_path / "step-300") as checkpoint:
        assert checkpoint.problems[0].hint == "The save before it is complete: step-100"


def test_looking_through_files_is_cancelled_at_once(save: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dcp_scan, "_STEP", 100)
    heard: list[str] = []

    def report(what: str, done: int, total: int) -> None:
        heard.append(what)
        if what == "Looking for items" and done > 500:
            raise CancelledError

    with pytest.raises(CancelledError):
        open_checkpoint(save, scan=True, report=report)
    assert heard.count("Looking for items") < 10
