"""`stats` keeps the contract of the command line: its fields, names, statuses, and text of 80 columns."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from tensormorph import cli_common, cli_text
from tensormorph.cli import run
from tensormorph.cli_output import Progress
from tensormorph.columns import TensorKey
from tensormorph.dtypes import encoding
from tensormorph.errors import CancelledError, Problem, ReadError
from tensormorph.model import StoredObject, UnreadableTensor
from tensormorph.region import Region
from tests.checkpoints import checkpoint
from tests.memory_source import MemoryFile, cut, tensor

FIELDS = ["name", "exact", "min", "max", "mean", "std", "rms", "abs_max", "n_nan", "n_posinf", "n_neginf", "n_zero",
          "first_bad"]  # fmt: skip
NUMBERS = ["min", "max", "mean", "std", "rms", "abs_max"]


def ask(capsys: pytest.CaptureFixture[str], *arguments: Any, status: int = 0) -> Any:
    """Run stats with --json; return its one document."""
    capsys.readouterr()
    assert run(["stats", "--json", *map(str, arguments)]) == status
    out, errors = capsys.readouterr()
    assert out.isascii()
    assert out.count("\n") == 1
    assert errors == ""
    return json.loads(out, parse_constant=pytest.fail)


def tell(capsys: pytest.CaptureFixture[str], *arguments: Any, status: int = 0) -> tuple[list[str], str]:
    """Run stats; return the lines of its text, each of 80 columns at most, and what it said on standard error."""
    capsys.readouterr()
    assert run(["stats", *map(str, arguments)]) == status
    out, errors = capsys.readouterr()
    assert all(cli_text.columns(line) <= 80 for line in out.splitlines())
    return out.splitlines(), errors


def names(told: Any) -> list[str]:
    return [row["name"] for row in told["tensors"]]


@pytest.fixture(scope="module")
def values() -> dict[str, torch.Tensor]:
    weight = (torch.arange(48).reshape(6, 8) * 37 % 101).to(torch.float32) / 7 - 5
    weight[0, 0] = -0.0
    norm = torch.tensor([1.5, 0.0, float("inf"), float("nan"), -float("inf"), float("nan")], dtype=torch.bfloat16)
    return {
        "layers.0.weight": weight,
        "layers.0.norm": norm,
        "ids": torch.tensor([[2**62, -1], [0, 7]]),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "all_nan": torch.full((3,), float("nan")),
        "phase": torch.tensor([3 + 4j, 0]),
        "-dash": torch.tensor([True, False]),
    }


@pytest.fixture(scope="module")
def path(values: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("stats") / "m.safetensors"
    safetensors.torch.save_file(values, file)
    return file


def damaged(root: Path) -> Any:
    """A tensor in three files of which the second cannot be read, one with a gap, one that is only a name."""
    whole = np.arange(12, dtype=np.float32).reshape(4, 3)
    whole[3, 0] = np.nan
    files = [MemoryFile(f"shard-{i}.bin") for i in range(3)]
    boxes = [Region((0, i), (4, i + 1)) for i in range(3)]
    broken = tensor((4, 3), cut(whole, boxes, file_of=lambda i: files[i]), encoding("float32"), name="broken")
    files[1].failure = ReadError("shard-1.bin", "the storage reported an input/output error")
    gap = tensor((4, 3), cut(whole, boxes[:1]), encoding("float32"), name="gap")
    why = Problem("short-file", "error", "lost is cut off", "lost")
    lost = UnreadableTensor("lost", TensorKey("", "lost"), "float32", (4,), "shard-9.bin", (why,))
    known = Problem("missing-file", "error", "gap lacks a file", "gap")
    run_object = StoredObject("step", "int", "7", 1, "m.bin", 0, lambda: 7)
    return checkpoint(root, [broken, gap], unreadable=[lost], problems=[known], objects=[run_object])


def use(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    """Let every path open as this checkpoint."""
    monkeypatch.setattr(cli_common, "open_checkpoint", lambda path, **options: made)


# ---------------------------------------------------------------- JSON


def test_fields_and_values(path: Path, values: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]) -> None:
    told = ask(capsys, path)
    assert list(told) == ["tensors", "problems"]
    assert told["problems"] == []
    assert sorted(names(told)) == sorted(values)
    for row in told["tensors"]:
        assert list(row) == FIELDS
        assert row["exact"] is True
        value = values[row["name"]]
        size = value.abs().numpy() if value.is_complex() else value.to(torch.float64).numpy()
        finite = size[np.isfinite(size)].astype(np.float64)
        assert row["n_nan"] == int(np.isnan(size).sum())
        assert row["n_posinf"] == int((size == np.inf).sum())
        assert row["n_neginf"] == int((size == -np.inf).sum())
        assert row["n_zero"] == int((finite == 0).sum())
        if not finite.size:
            assert [row[key] for key in NUMBERS] == [None] * 6
            continue
        square = math.sqrt(float((finite**2).mean()))
        expected = [finite.min(), finite.max(), finite.mean(), finite.std(), square, np.abs(finite).max()]
        assert [row[key] for key in NUMBERS] == pytest.approx(expected)


def test_whole_numbers_are_whole(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = ask(capsys, path, "ids")["tensors"]
    assert (row["min"], row["max"], row["abs_max"]) == (-1, 2**62, 2**62)
    assert type(row["max"]) is int
    (row,) = ask(capsys, "--", path, "-dash")["tensors"]
    assert (row["min"], row["max"], row["mean"], row["n_zero"]) == (0, 1, 0.5, 1)
    assert type(row["max"]) is int


def test_the_first_that_is_not_finite_has_its_place(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = ask(capsys, path, "layers.0.norm")["tensors"]
    first = row["first_bad"]
    assert list(first) == ["index", "kind", "rank", "file", "offset"]
    assert (first["index"], first["kind"], first["rank"], first["file"]) == ([2], "+inf", None, "m.safetensors")
    raw = path.read_bytes()
    assert raw[first["offset"] : first["offset"] + 4] == struct.pack("<HH", 0x7F80, 0x7FC0)
    assert ask(capsys, path, "layers.0.weight")["tensors"][0]["first_bad"] is None


def test_names_rows_and_filters(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["ls", "--json", str(path)])
    listed = [row["name"] for row in json.loads(capsys.readouterr().out)["tensors"]]
    assert names(ask(capsys, path)) == listed
    assert names(ask(capsys, path, "scalar", "@0", "ids", "scalar")) == ["scalar", listed[0], "ids"]
    assert names(ask(capsys, path, "--filter", "layers dtype:bf16")) == ["layers.0.norm"]
    assert ask(capsys, path, "--filter", "nothing-like-it") == {"tensors": [], "problems": []}
    both = ask(capsys, path, "scalar", "--filter", "x", status=2)
    assert both["error"]["code"] == "usage"
    assert ask(capsys, path, "scalarr", status=2)["error"]["code"] == "no-such-name"
    assert ask(capsys, path, "@99", status=2)["error"]["code"] == "usage"


def test_an_alias_stands_for_its_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = np.arange(3, dtype=np.float32)
    tied = tensor((3,), cut(whole, [Region((0,), (3,))]), encoding("float32"), name="embed")
    use(monkeypatch, checkpoint(tmp_path, [tied], aliases={"head": "embed"}))
    assert names(ask(capsys, tmp_path, "head", "embed")) == ["embed"]
    assert names(ask(capsys, tmp_path)) == ["embed"]


def test_what_is_damaged_has_its_row_and_its_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, damaged(tmp_path))
    told = ask(capsys, tmp_path)
    broken, gap, lost = told["tensors"]
    assert names(told) == ["broken", "gap", "lost"]
    assert [row["exact"] for row in told["tensors"]] == [False] * 3
    assert (broken["min"], broken["max"], broken["n_zero"], broken["n_nan"]) == (0.0, 11.0, 1, 1)
    assert broken["mean"] == pytest.approx((0 + 3 + 6 + 2 + 5 + 8 + 11) / 7)
    assert broken["first_bad"] == {"index": [3, 0], "kind": "nan", "rank": 0, "file": "shard-0.bin", "offset": 12}
    assert (gap["min"], gap["max"]) == (0.0, 6.0)
    assert list(lost) == FIELDS
    assert [lost[key] for key in NUMBERS] == [None] * 6
    assert [lost[key] for key in ("n_nan", "n_posinf", "n_neginf", "n_zero", "first_bad")] == [0, 0, 0, 0, None]
    assert [(p["code"], p["tensor"]) for p in told["problems"]] == [
        ("read-failed", "broken"), ("missing-file", "gap"), ("short-file", "lost"),
    ]  # fmt: skip
    assert told["problems"][0]["region"] == [[0, 4], [1, 2]]
    assert "input/output" in told["problems"][0]["sentence"]
    assert [p["tensor"] for p in ask(capsys, tmp_path, "@2", "gap")["problems"]] == ["lost", "gap"]
    assert names(ask(capsys, tmp_path, "--filter", "lost")) == ["lost"]
    assert ask(capsys, tmp_path, "step", status=2)["error"]["code"] == "usage"


def test_a_file_that_is_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the disk says, end to end: the tensors before the cut are whole, the one behind it has no numbers."""
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file({"a": torch.ones(4), "b": torch.ones(64)}, path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 16)
    told = ask(capsys, path)
    rows = {row["name"]: row for row in told["tensors"]}
    assert (rows["a"]["exact"], rows["a"]["mean"]) == (True, 1.0)
    assert rows["b"]["exact"] is False
    assert any(p["tensor"] == "b" and p["severity"] == "error" for p in told["problems"])


# ---------------------------------------------------------------- text


def test_the_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, errors = tell(capsys, path)
    assert errors == ""
    assert lines[0].split() == ["min", "max", "mean", "std", "zeros"]
    below = dict(zip(lines, [*lines[1:], ""], strict=True))
    row = {line.split()[0]: line for line in lines[1:] if not line.startswith(" ")}
    assert row["scalar"].split() == ["scalar", "3.5", "3.5", "3.5", "0", "0"]
    assert row["ids"].split()[1:3] == ["-1", "4.61e+18"]
    assert row["ids"].split()[-2:] == ["25.0", "%"]
    assert row["all_nan"].split() == ["all_nan", "-", "-", "-", "-", "0"]
    assert below[row["all_nan"]].strip().startswith("3 NaN; the first is NaN at [0], m.safetensors byte ")
    assert below[row["layers.0.norm"]].strip().startswith("2 NaN, 1 Inf, 1 -Inf; the first is Inf at [2], m.safete")
    assert below[row["empty"]].strip() == "no elements"
    assert not any("not exact" in line for line in lines)


def test_the_text_says_what_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, damaged(tmp_path))
    lines, errors = tell(capsys, tmp_path)
    assert sum("not exact" in line for line in lines) == 3
    assert any(line.strip() == "1 NaN; the first is NaN at [3, 0], shard-0.bin byte 12, rank 0" for line in lines)
    for words in ("input/output", "gap lacks a file", "lost is cut off"):
        assert words in " ".join(errors.split())
    lines, errors = tell(capsys, tmp_path, "--filter", "no-such")
    assert errors == "No tensor matches the filter\n"


def test_zeros_are_shares_that_never_say_more_than_is_so() -> None:
    def zeros(n_zero: int, n: int) -> str:
        row = dict.fromkeys(FIELDS) | {"name": "w", "n_zero": n_zero, "exact": True}
        filled = dict.fromkeys(FIELDS) | {"name": "v", "n_zero": 1, "exact": True}
        return list(cli_text.stats_lines([(0, n, row), (1, 2, filled)]))[1].split("-")[-1].strip()

    assert zeros(0, 10) == "0"
    assert zeros(1, 10**9) == "<0.1 %"
    assert zeros(10**9 - 1, 10**9) == "99.9 %"
    assert zeros(10**9, 10**9) == "100.0 %"
    assert zeros(1, 3) == "33.3 %"


def test_the_widest_numbers_and_oddest_names_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = np.array([-1.2345e-308, 1.2345e-300, 0.0, -1.2345e-310])
    name = "model.layers.0.\x1b[31m" + "very_" * 30 + "long.weight"
    made = [
        tensor((4,), cut(wide * scale, [Region((0,), (4,))]), encoding("float64"), name=label)
        for label, scale in ((name, 1), ("x" * 70, -1), ("", 1e150))
    ]
    use(monkeypatch, checkpoint(tmp_path, made))
    lines, _ = tell(capsys, tmp_path)
    assert len(lines) == 4
    assert not any("\x1b" in line for line in lines)
    assert lines[1].startswith("@0 ")
    assert lines[3].startswith("@2 (empty name)")


def test_a_checkpoint_without_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, checkpoint(tmp_path, []))
    assert ask(capsys, tmp_path) == {"tensors": [], "problems": []}
    assert tell(capsys, tmp_path)[1] == ""


# ---------------------------------------------------------------- progress and cancel


def test_progress_counts_bytes_over_all_tensors(
    path: Path, values: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(Progress, "__call__", lambda self, *heard: told.append(heard))
    ask(capsys, path)
    reading = [(done, total) for what, done, total in told if what == "Reading values"]
    total = sum(value.numel() * value.element_size() for value in values.values())
    assert {t for _, t in reading} == {total}
    done = [d for d, _ in reading]
    assert done == sorted(done)
    assert done[0] == 0 < done[-1] < total


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_cancel_ends_with_130(
    path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(self: Any, what: str, done: int, total: int) -> None:
        if done:
            raise CancelledError

    monkeypatch.setattr(Progress, "__call__", stop)
    assert run(["stats", *options, str(path)]) == 130
    out, errors = capsys.readouterr()
    if options:
        assert json.loads(out)["error"]["code"] == "cancelled"
    else:
        assert (out, errors) == ("", "Cancelled\n")


def wait_until_open(pid: int, path: Path) -> None:
    """Return when a process has a file open."""
    handles = Path(f"/proc/{pid}/fd")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(OSError):  # a handle may be gone again
            if any(os.readlink(handle) == str(path) for handle in handles.iterdir()):
                return
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at the files that a process has open")
def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    """Threads are reading when it comes."""
    path = tmp_path / "m.safetensors"
    n = 1 << 37
    header = json.dumps({"w": {"dtype": "F32", "shape": [n // 4], "data_offsets": [0, n]}}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + n)
    child = subprocess.Popen(
        [sys.executable, "-m", "tensormorph", "stats", "--json", str(path)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until_open(child.pid, path)
    time.sleep(0.3)
    begin = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=30)
    assert time.monotonic() - begin < 2
    assert child.returncode == 130
    assert errors.strip() == ""
    assert json.loads(out)["error"]["code"] == "cancelled"
