"""The command line keeps its contract: fields, statuses, one JSON document, text of 80 columns, quiet pipes.

The checkpoints are written by the safetensors library (or by struct, where it refuses); what is asked of the command
line is compared with numpy and with the bytes of the files.
"""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
import types
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import tensormorph
from tensormorph import cli_commands, cli_common, cli_text
from tensormorph.cli import run
from tensormorph.dtypes import encoding
from tensormorph.errors import ChooseCheckpointError, Problem, ReadError
from tensormorph.mesh import DeviceMesh, Layout, Partial, Replicate, Shard
from tensormorph.model import Facts, LocalTensor, StateFact, StoredObject
from tensormorph.region import Region
from tests.checkpoints import checkpoint
from tests.memory_source import MemoryFile, MemorySource, Part, cut, store, tensor

ROW = {"name", "part", "param", "slot", "named", "dtype", "shape", "n_elements", "n_bytes", "n_fragments", "files",
       "layout", "complete", "aliases"}  # fmt: skip
PROBLEM = {"code", "severity", "sentence", "tensor", "file", "region"}
ODD = "model.layers.0.\x1b[31mred\u202e.weight"


@pytest.fixture(scope="module")
def values() -> dict[str, torch.Tensor]:
    matrix = (torch.arange(48).reshape(6, 8) * 37 % 101).to(torch.float32) / 7
    return {
        "model.embed_tokens.weight": matrix.to(torch.bfloat16),
        "model.layers.0.self_attn.q_proj.weight": matrix,
        "model.norm.weight": torch.tensor([float("nan"), 1.5, float("inf"), -float("inf"), -0.0]),
        "scale": torch.tensor(3.5),
        "phase": torch.tensor([1 + 2j, -0.5j]),
        "ids": torch.tensor([[2**62, -1], [0, 7]]),
        "empty": torch.zeros(0, 4),
        "": torch.tensor([9], dtype=torch.uint8),
        "-dash": torch.tensor([True, False]),
        "@3": torch.tensor([1.0]),
        ODD: torch.tensor([2.0]),
    }


@pytest.fixture(scope="module")
def folder(values: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in two files with its index and a tied head, as Hugging Face writes."""
    root = tmp_path_factory.mktemp("ckpt")
    names = list(values)
    files = {"model-00001-of-00002.safetensors": names[:4], "model-00002-of-00002.safetensors": names[4:]}
    for file, held in files.items():
        safetensors.torch.save_file({name: values[name] for name in held}, root / file, {"format": "pt"})
    weight_map = {name: file for file, held in files.items() for name in held}
    total = sum(value.numel() * value.element_size() for value in values.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (root / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True}
    (root / "config.json").write_text(json.dumps(config))
    return root


def ask(capsys: pytest.CaptureFixture[str], *arguments: Any, status: int = 0) -> Any:
    """Run a command with --json in this process; return its one document."""
    capsys.readouterr()
    assert run([*map(str, arguments[:1]), "--json", *map(str, arguments[1:])]) == status
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.count("\n") == 1
    return json.loads(out)


def tell(capsys: pytest.CaptureFixture[str], *arguments: Any, status: int = 0) -> tuple[list[str], str]:
    """Run a command in this process; return the lines of its text and what it said on standard error."""
    capsys.readouterr()
    assert run([*map(str, arguments)]) == status
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err


def spawn(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command as a process whose output is piped."""
    return subprocess.run(
        [sys.executable, "-m", "tensormorph", *map(str, arguments)], capture_output=True, text=True, check=False,
        encoding="utf-8", **options,
    )  # fmt: skip


def use(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    """Let every path open as this checkpoint."""
    monkeypatch.setattr(cli_common, "open_checkpoint", lambda path, **options: made)


# ---------------------------------------------------------------- info and ls


def test_info(folder: Path, values: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]) -> None:
    """R25: elements are counted in what is stored, an alias once."""
    told = ask(capsys, "info", folder)
    assert list(told) == [
        "path", "format", "format_detail", "n_tensors", "n_elements", "n_bytes", "n_stored_bytes", "dtypes", "n_files",
        "world_size", "mesh", "mesh_provenance", "mesh_evidence", "step", "software", "n_problems",
    ]  # fmt: skip
    n_bytes = sum(value.numel() * value.element_size() for value in values.values())
    assert told["path"] == str(folder)
    assert told["format"] == "safetensors"
    assert told["n_tensors"] == len(values)
    assert told["n_elements"] == sum(value.numel() for value in values.values())
    assert told["n_bytes"] == told["n_stored_bytes"] == n_bytes
    assert told["dtypes"] == {
        "bfloat16": 1, "float32": 6, "complex64": 1, "int64": 1, "uint8": 1, "bool": 1,
    }  # fmt: skip
    assert told["n_files"] == 4
    assert told["mesh"] is told["mesh_provenance"] is told["world_size"] is told["step"] is None
    assert set(told["n_problems"]) == {"error", "warning", "info"}


def test_a_declared_total_that_disagrees_changes_no_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R25."""
    safetensors.numpy.save_file({"w": np.ones((4, 5), np.float32)}, tmp_path / "model-00001-of-00001.safetensors")
    index = {"metadata": {"total_size": 333_312}, "weight_map": {"w": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    told = ask(capsys, "info", tmp_path)
    assert (told["n_elements"], told["n_bytes"]) == (20, 80)
    assert told["n_problems"]["warning"] == 1
    assert any("333,312" in p["sentence"] for p in ask(capsys, "check", tmp_path, status=1)["problems"])


def test_ls(folder: Path, values: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]) -> None:
    told = ask(capsys, "ls", folder)
    assert list(told) == ["tensors", "objects"]
    assert {row["name"] for row in told["tensors"]} == set(values)
    for row in told["tensors"]:
        value = values[row["name"]]
        assert set(row) == ROW
        assert row["shape"] == list(value.shape)
        assert row["dtype"] == str(value.dtype).removeprefix("torch.")
        assert row["n_elements"] == value.numel()
        assert row["n_bytes"] == value.numel() * value.element_size()
        assert row["part"] == row["slot"] == ""
        assert row["complete"] is row["named"] is True
        assert row["n_fragments"] == 1
        assert row["layout"] is None
        assert len(row["files"]) == 1
        assert (folder / row["files"][0]).exists()
    aliases = {row["name"]: row["aliases"] for row in told["tensors"] if row["aliases"]}
    assert aliases == {"model.embed_tokens.weight": ["lm_head.weight"]}
    assert all(set(stored) == {"name", "type", "summary", "n_bytes"} for stored in told["objects"])
    assert "config.json" in {stored["name"] for stored in told["objects"]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--filter", "attn"], ["model.layers.0.self_attn.q_proj.weight"]),
        (["--filter", "lm_head"], ["model.embed_tokens.weight"]),
        (["--filter", "dtype:bf16 shape:*,8"], ["model.embed_tokens.weight"]),
        (["--filter", "file:00002 dtype:int64"], ["ids"]),
        (["--filter", "nothing"], []),
        (["--slot", "exp_avg"], []),
    ],
)
def test_ls_filtered(folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], expected: list[str]) -> None:
    told = ask(capsys, "ls", folder, *options)
    assert [row["name"] for row in told["tensors"]] == expected
    assert told["objects"] == []
    if not expected:
        assert "No tensor matches; 11 tensors are hidden" in tell(capsys, "ls", folder, *options)[1]


def test_ls_of_unreadable_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R21: what an absent file should hold is listed all the same."""
    safetensors.numpy.save_file({"a": np.ones(2, np.float32)}, tmp_path / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    rows = ask(capsys, "ls", tmp_path)["tensors"]
    assert [row["name"] for row in rows] == ["a", "b"]
    assert set(rows[1]) == ROW
    assert rows[1]["dtype"] is rows[1]["shape"] is rows[1]["n_elements"] is rows[1]["n_bytes"] is None
    assert rows[1]["complete"] is False
    assert rows[1]["n_fragments"] == 0
    shown = ask(capsys, "show", tmp_path, "@1")
    assert shown["name"] == "b"
    assert shown["fragments"] == shown["locals"] == []
    assert "model-00002-of-00002.safetensors" in shown["problems"][0]["sentence"]
    lines, errors = tell(capsys, "ls", tmp_path)
    assert [line.split() for line in lines[:2]] == [["a", "float32", "2", "8", "B"], ["b", "?", "?", "?", "unreadable"]]
    assert errors.startswith("error ")
    assert ask(capsys, "read", tmp_path, "b", status=2)["error"]["code"] == "unreadable-tensor"


def test_ls_makes_no_tensor_objects(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty thousand rows come from the columns."""
    from tensormorph.model import LazyTensors

    monkeypatch.setattr(LazyTensors, "at", lambda self, row: pytest.fail("a tensor was made"))
    monkeypatch.setattr(LazyTensors, "__getitem__", lambda self, name: pytest.fail("a tensor was made"))
    assert run(["ls", "--json", str(folder)]) == 0


# ---------------------------------------------------------------- show and where


def test_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    told = ask(capsys, "show", folder, name)
    assert set(told) == ROW | {"fragments", "locals", "problems"}
    (fragment,) = told["fragments"]
    assert list(fragment) == [
        "region", "file", "offset", "n_bytes", "dtype", "strides", "byteorder", "compression", "rank",
        "rank_provenance", "term", "rule", "complete",
    ]  # fmt: skip
    assert fragment["region"] == [[0, 6], [0, 8]]
    assert fragment["n_bytes"] == 192
    assert fragment["dtype"] == "float32"
    assert fragment["strides"] == [8, 1]
    assert fragment["byteorder"] == "little"
    assert fragment["complete"] is True
    assert fragment["rank"] is fragment["rank_provenance"] is fragment["compression"] is fragment["rule"] is None
    raw = (folder / fragment["file"]).read_bytes()[fragment["offset"] :][:192]
    assert safetensors.torch.load_file(folder / fragment["file"])[name].numpy().tobytes() == raw
    assert ask(capsys, "show", folder, "lm_head.weight")["name"] == "model.embed_tokens.weight"


def test_show_an_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = ask(capsys, "show", folder, "config.json")
    assert list(told) == ["name", "type", "value", "file", "offset", "n_bytes"]
    assert told["value"] == json.loads((folder / "config.json").read_text())
    assert any('"tie_word_embeddings": true' in line for line in tell(capsys, "show", folder, "config.json")[0])
    assert "no tensor" in tell(capsys, "read", folder, "config.json", status=2)[1]


def test_an_object_of_any_content_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    value = {"nan": float("nan"), "inf": [-float("inf")], 3: {1}, "deep": deep, "\ud800": b"x"}
    stored = StoredObject("o", "pickle", "", 4, "f.bin", 8, lambda: value)
    use(monkeypatch, checkpoint(Path(), [], objects=[stored]))
    told = ask(capsys, "show", "x", "o")
    assert told["value"]["nan"] == "NaN"
    assert told["value"]["inf"] == ["-Infinity"]
    assert told["value"]["3"] == [1]
    assert told["value"]["\ud800"] == "b'x'"


def test_where_gives_the_byte_of_the_element(
    folder: Path, values: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    for index, at in (("5,7", (5, 7)), ("0, 0", (0, 0)), ("2,-1", (2, 7))):
        told = ask(capsys, "where", folder, name, index)
        assert list(told) == ["name", "index", "value", "holders"]
        assert told["index"] == list(at)
        (holder,) = told["holders"]
        assert list(holder) == ["file", "offset", "bit", "n_bytes", "rank", "rank_provenance", "region", "term"]
        raw = (folder / holder["file"]).read_bytes()[holder["offset"] :][: holder["n_bytes"]]
        assert struct.unpack("<f", raw)[0] == values[name][at].item()
        assert np.float32(told["value"]) == values[name][at].item()
        assert holder["region"] == [[i, i + 1] for i in at]
    told = ask(capsys, "where", folder, name, "1:3, 4")
    assert told["index"] == [[1, 3], 4]
    assert told["value"] is None
    assert told["holders"][0]["region"] == [[1, 3], [4, 5]]
    raw = (folder / told["holders"][0]["file"]).read_bytes()[told["holders"][0]["offset"] :][:4]
    assert struct.unpack("<f", raw)[0] == values[name][1, 4].item()


def test_where_a_scalar(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R8."""
    told = ask(capsys, "where", folder, "scale", "")
    assert told["index"] == []
    assert told["value"] == 3.5
    assert told["holders"][0]["region"] == []
    assert tell(capsys, "where", folder, "scale", "")[0][0] == "scale = 3.5"


def test_where_refuses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    for index in ("6,0", "0,0,0", "a", "0,-9"):
        assert ask(capsys, "where", folder, name, index, status=2)["error"]["code"] == "bad-index"
    assert ask(capsys, "where", folder, name, "::2,0", status=2)["error"]["code"] == "usage"


# ---------------------------------------------------------------- read


@pytest.mark.parametrize(
    ("region", "key", "ranges"),
    [
        ("", ..., [[0, 6, 1], [0, 8, 1]]),
        ("...", ..., [[0, 6, 1], [0, 8, 1]]),
        ("0, :", (0, slice(None)), [[0, 1, 1], [0, 8, 1]]),
        ("-1", -1, [[5, 6, 1], [0, 8, 1]]),
        ("0:4, :, ", slice(0, 4), [[0, 4, 1], [0, 8, 1]]),
        ("5:1:-2, ::3", (slice(5, 1, -2), slice(None, None, 3)), [[5, 1, -2], [0, 9, 3]]),
        ("::-1, 2", (slice(None, None, -1), 2), [[5, -1, -1], [2, 3, 1]]),
        ("..., 3", (..., 3), [[0, 6, 1], [3, 4, 1]]),
        ("2:2", slice(2, 2), [[2, 2, 1], [0, 8, 1]]),
    ],
)
def test_read(
    folder: Path, values: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str], region: str, key: Any,
    ranges: list[list[int]],
) -> None:  # fmt: skip
    """R9: integers, negative numbers, steps and ... select as in numpy."""
    name = "model.layers.0.self_attn.q_proj.weight"
    expected = values[name].numpy()[key]
    told = ask(capsys, "read", folder, name, "--region", region)
    assert list(told) == ["name", "region", "shape", "dtype", "values"]
    assert told["shape"] == list(expected.shape)
    assert told["dtype"] == "float32"
    assert np.array_equal(np.array(told["values"], np.float32).reshape(expected.shape), expected)
    assert told["region"] == ranges
    whole = values[name].numpy()[np.ix_(*(list(range(*r)) for r in ranges))]
    assert np.array_equal(whole.reshape(expected.shape), expected)


def test_read_values_are_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "read", folder, "model.norm.weight")["values"] == ["NaN", 1.5, "Infinity", "-Infinity", -0.0]
    scalar = ask(capsys, "read", folder, "scale")
    assert (scalar["values"], scalar["shape"], scalar["region"]) == (3.5, [], [])
    assert ask(capsys, "read", folder, "phase")["values"] == [[1.0, 2.0], [-0.0, -0.5]]
    assert ask(capsys, "read", folder, "ids")["values"] == [[2**62, -1], [0, 7]]
    assert ask(capsys, "read", folder, "empty")["values"] == []
    embed = ask(capsys, "read", folder, "lm_head.weight", "--region", "0, :3")
    assert (embed["name"], embed["dtype"]) == ("model.embed_tokens.weight", "bfloat16")
    assert embed["values"] == [0.0, 5.28, 10.56]  # the shortest texts that read back in bfloat16


def test_read_prints_at_most_a_million(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.numpy.save_file({"w": np.zeros((1001, 1000), np.uint8)}, path)
    told = ask(capsys, "read", path, "w", status=2)
    assert told["error"]["code"] == "usage"
    assert "1,001,000 values" in told["error"]["sentence"]
    assert "--out" in told["error"]["sentence"]
    assert len(ask(capsys, "read", path, "w", "--region", ":1000")["values"]) == 1000
    written = ask(capsys, "read", path, "w", "--out", tmp_path / "w.npy")
    assert written["values"] is None
    assert written["file"] == str(tmp_path / "w.npy")
    assert np.load(tmp_path / "w.npy").shape == (1001, 1000)


def test_read_out_refuses_a_source_and_a_cast(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "link.safetensors").symlink_to(folder / "model-00001-of-00002.safetensors")
    for target in (folder / "model-00001-of-00002.safetensors", tmp_path / "link.safetensors"):
        told = ask(capsys, "read", folder, "scale", "--out", target, status=2)
        assert told["error"]["code"] == "usage"
    told = ask(capsys, "read", folder, "model.embed_tokens.weight", "--out", tmp_path / "w.npy", status=2)
    assert "safetensors" in told["error"]["sentence"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert os.listdir(tmp_path) == ["link.safetensors"]
    lines, _ = tell(capsys, "read", folder, "model.embed_tokens.weight", "--out", tmp_path / "w.safetensors")
    assert lines == [f"Wrote 48 values to {tmp_path / 'w.safetensors'}"]
    assert list(safetensors.torch.load_file(tmp_path / "w.safetensors")) == ["model.embed_tokens.weight"]


def test_read_out_refuses_the_place_of_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A shard that is absent must not be replaced by an export."""
    safetensors.numpy.save_file({"a": np.ones(2, np.float32)}, tmp_path / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    ask(capsys, "read", tmp_path, "a", "--out", tmp_path / "model-00002-of-00002.safetensors", status=2)
    assert not (tmp_path / "model-00002-of-00002.safetensors").exists()


def test_read_text_labels_each_line_with_its_index(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, _ = tell(capsys, "read", folder, "ids")
    assert [line.split() for line in lines] == [
        ["[0,", "0]", str(2**62), "-1"], ["[1,", "0]", "0", "7"],
    ]  # fmt: skip
    lines, _ = tell(capsys, "read", folder, "model.layers.0.self_attn.q_proj.weight", "--region", "4::-2, ::-3")
    assert [re.match(r"\[(.*?)\]", line)[1] for line in lines] == ["4, 7", "2, 7", "0, 7"]  # type: ignore[index]
    assert tell(capsys, "read", folder, "scale")[0] == ["3.5"]
    assert tell(capsys, "read", folder, "empty")[0] == ["no elements"]


def test_two_billion_elements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R117: the last of 2^31 + 8 float8 elements is read and found in a sparse file."""
    n = (1 << 31) + 8
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [n], "data_offsets": [0, n]}}).encode()
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + n)
        file.seek(8 + len(header) + n - 1)
        file.write(b"\x38")
    assert ask(capsys, "read", path, "w", "--region", "-2:")["values"] == [0.0, 1.0]
    told = ask(capsys, "where", path, "w", n - 1)
    assert told["value"] == 1.0
    assert told["holders"][0]["offset"] == 8 + len(header) + n - 1
    assert ask(capsys, "info", path)["n_elements"] == n


# ---------------------------------------------------------------- names


def test_names_that_cannot_be_typed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, row in enumerate(ask(capsys, "ls", folder)["tensors"]):
        expected = "@3" if number == 3 else row["name"]  # a name is literal first
        assert ask(capsys, "show", folder, f"@{number}")["name"] == expected
    assert ask(capsys, "show", folder, "")["name"] == ""
    assert json.loads(spawn("show", "--json", folder, "--", "-dash").stdout)["name"] == "-dash"
    assert json.loads(spawn("where", "--json", folder, "--", "ids", "-1,0").stdout)["value"] == 0
    assert "stands behind a '--'" in tell(capsys, "where", folder, "ids", "-1,0", status=2)[1]
    assert "no row of ls: it has 11" in tell(capsys, "show", folder, "@11", status=2)[1]
    told = ask(capsys, "show", folder, "model.norm.weigth", status=2)
    assert told["error"]["code"] == "no-such-name"
    assert "model.norm.weight" in told["error"]["sentence"]


def test_no_text_from_a_file_reaches_the_terminal_raw(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = [row["name"] for row in ask(capsys, "ls", folder)["tensors"]].index(ODD)
    for arguments in (["ls", folder], ["show", folder, ODD], ["where", folder, ODD, "0"], ["info", folder]):
        lines, errors = tell(capsys, *arguments)
        assert all(line.isprintable() for line in [*lines, *errors.splitlines()])
        assert "\x1b" not in "".join(lines)
    assert any(line.startswith(f"@{number} model.layers.0.\\x1b[31mred") for line in tell(capsys, "ls", folder)[0])


def test_a_lone_surrogate_ends_no_command(tmp_path: Path) -> None:
    name = "w\ud800.weight"
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<f", 2.5))
    for code in ("C", "C.UTF-8"):
        env = {**os.environ, "LC_ALL": code, "PYTHONIOENCODING": "ascii" if code == "C" else "utf-8"}
        listed = spawn("ls", "--json", path, env=env)
        assert listed.returncode == 0
        assert json.loads(listed.stdout)["tensors"][0]["name"] == name
        for arguments in (["ls", path], ["show", path, "@0"], ["read", path, "@0"], ["check", path]):
            done = spawn(*arguments, env=env)
            assert "Traceback" not in done.stderr
            assert done.returncode in (0, 1)


# ---------------------------------------------------------------- check


def test_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = ask(capsys, "check", folder)
    assert list(told) == [
        "verdict", "portability", "complete", "committed", "step", "inventory", "problems",
    ]  # fmt: skip
    assert told["verdict"] == "weights-only"
    assert told["complete"] is True
    assert told["committed"] is None
    assert [entry["state"] for entry in told["inventory"]] == [
        "weights", "master", "moments", "hyperparameters", "scheduler", "scaler", "step", "data_position", "rng",
        "config",
    ]  # fmt: skip
    assert all(set(entry) == {"state", "present", "evidence"} for entry in told["inventory"])
    assert told["inventory"][0]["present"] is True
    assert told["inventory"][2]["present"] is False
    assert all(
        set(entry) == {"state", "change", "status", "evidence", "reason", "source"} for entry in told["portability"]
    )
    assert all(set(problem) == PROBLEM for problem in told["problems"])
    assert ask(capsys, "check", folder, "--quick")["complete"] is None


def test_check_values_ends_with_status_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R115 on the command line."""
    told = ask(capsys, "check", folder, "--values", status=1)
    (problem,) = [problem for problem in told["problems"] if problem["severity"] == "warning"]
    assert problem["tensor"] == "model.norm.weight"
    assert problem["region"] == [[0, 1]]
    assert problem["file"] == ask(capsys, "where", folder, "model.norm.weight", "0")["holders"][0]["file"]
    lines, _ = tell(capsys, "check", folder, "--values", status=1)
    assert "1 NaN and 2 Inf among 5 values; the first is NaN at [0]" in " ".join(line.strip() for line in lines)
    assert lines[-1].startswith("1 warning")
    told = ask(capsys, "check", folder, "--hash")
    assert "no-recorded-hash" in {problem["code"] for problem in told["problems"]}
    assert ask(capsys, "check", folder, "--quick", "--values", status=2)["error"]["code"] == "usage"


def test_check_says_by_design_and_unknown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    facts = Facts(True, ".metadata is there", 40, "", 4, "torch 2.9", {"scaler": StateFact("by_design", "bf16 run")})
    use(monkeypatch, checkpoint(Path(), [], facts=facts))
    told = ask(capsys, "check", "x", "--quick")
    present = {entry["state"]: entry["present"] for entry in told["inventory"]}
    assert present["scaler"] == "by_design"
    assert present["rng"] == "unknown"
    assert (told["committed"], told["step"]) == (True, 40)
    lines, _ = tell(capsys, "check", "x", "--quick")
    assert "  not needed  scaler: bf16 run" in lines


def test_many_problems_of_a_kind_are_told_briefly_and_listed_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [Problem("gap", "error", f"t{i} has a gap", tensor=f"t{i}", file="f.bin") for i in range(400)]
    problems.append(Problem("odd", "warning", "something else"))
    use(monkeypatch, checkpoint(Path(), [], problems=problems))
    assert len(ask(capsys, "check", "x", "--quick", status=1)["problems"]) == 401
    lines, _ = tell(capsys, "check", "x", "--quick", status=1)
    assert sum("has a gap (f.bin)" in line for line in lines) == 8
    assert any("and 392 more of this kind (gap)" in line for line in lines)
    assert any("something else" in line for line in lines)
    assert lines[-1] == "400 errors, 1 warning"


# ---------------------------------------------------------------- ranks, layouts, terms


def two_ranks() -> Any:
    """A matrix cut by rows over two ranks, with padding in what rank 1 stores, and a Partial of two terms."""
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    files = [MemoryFile("r0.bin", bytearray(b"head")), MemoryFile("r1.bin", bytearray(b"h"))]
    kind = encoding("float32")
    parts = cut(values, [Region((0, 0), (2, 4)), Region((2, 0), (3, 4))], file_of=lambda i: files[i])
    files[1].append(np.zeros((1, 4), np.float32))
    mesh = DeviceMesh(("dp", "tp"), (2, 1), (0, 1))
    layout = Layout(mesh, (Shard(0), Replicate()), (0, 1), "inferred", "the boxes")
    padded = replace(parts[1].source, shape=(2, 4))
    locals_ = (
        LocalTensor("", 0, "cuda:0", "w", parts[0].source),
        LocalTensor("", 1, "cuda:1", "w", padded),
    )
    weight = replace(tensor((3, 4), parts, kind), layout=layout, locals=locals_)
    terms = [
        Part(Region((0,), (2,)), store(file, np.full(2, i + 1, np.float32), kind), rank=i, term=i)
        for i, file in enumerate(files)
    ]
    total = replace(
        tensor((2,), terms, kind, reduction="sum", name="p"),
        layout=Layout(mesh, (Partial("sum"), Replicate()), (0, 1), "recorded"),
    )
    return replace(checkpoint(Path(), [weight, total], mesh=mesh), mesh_candidates=(mesh,))


def test_layouts_ranks_and_terms(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(monkeypatch, two_ranks())
    mesh = {"names": ["dp", "tp"], "shape": [2, 1], "ranks": [0, 1]}
    told = ask(capsys, "show", "x", "w")
    assert told["layout"] == {
        "mesh": mesh, "placements": ["Shard(0)", "Replicate()"], "order": [0, 1], "provenance": "inferred",
        "evidence": "the boxes", "candidates": [mesh],
    }  # fmt: skip
    assert [(f["rank"], f["rank_provenance"], f["region"]) for f in told["fragments"]] == [
        (0, "inferred", [[0, 2], [0, 4]]), (1, "inferred", [[2, 3], [0, 4]]),
    ]  # fmt: skip
    assert all(
        list(local) == ["part", "rank", "device", "stored_name", "shape", "file", "offset", "n_padding", "written_by"]
        for local in told["locals"]
    )
    assert [(local["rank"], local["device"], local["shape"], local["n_padding"]) for local in told["locals"]] == [
        (0, "cuda:0", [2, 4], 0), (1, "cuda:1", [2, 4], 4),
    ]  # fmt: skip
    info = ask(capsys, "info", "x")
    assert (info["mesh"], info["mesh_provenance"]) == (mesh, "inferred")
    assert ask(capsys, "ls", "x")["tensors"][1]["layout"]["placements"] == ["Partial(sum)", "Replicate()"]
    told = ask(capsys, "where", "x", "p", "1")
    assert told["value"] == 3.0
    assert [(h["file"], h["rank"], h["term"]) for h in told["holders"]] == [("r0.bin", 0, 0), ("r1.bin", 1, 1)]
    assert any("Shard(0)" in line and "inferred" in line for line in tell(capsys, "show", "x", "w")[0])


def test_an_item_that_cannot_be_looked_into_is_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Hidden(MemorySource):
        def place(self) -> Any:
            raise ReadError("r0.bin", "no item here")

    whole = Region((0,), (2,))
    source = Hidden(MemoryFile("r0.bin"), encoding("float32"), 0, (2,), (1,))
    one = tensor((2,), [Part(whole, source)], encoding("float32"))
    hidden = replace(one, fragments=replace(one.fragments, offset=np.array([-1]), length=np.array([40])))
    use(monkeypatch, checkpoint(Path(), [hidden]))
    (fragment,) = ask(capsys, "show", "x", "w")["fragments"]
    assert fragment["complete"] is False
    assert fragment["offset"] is fragment["dtype"] is fragment["strides"] is None
    assert (fragment["n_bytes"], fragment["file"], fragment["region"]) == (40, "r0.bin", [[0, 2]])
    assert any("place not known" in line and "unreadable" in line for line in tell(capsys, "show", "x", "w")[0])


def test_local(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    told = ask(capsys, "read", folder, "scale", "--local", "0", status=2)
    assert told["error"]["code"] == "layout"
    use(monkeypatch, two_ranks())
    told = ask(capsys, "read", "x", "w", "--local", "1:0")
    assert told["values"] == [[8.0, 9.0, 10.0, 11.0], [0.0] * 4]  # as stored, padding and all
    assert told["shape"] == [2, 4]
    assert "stores 1 piece" in ask(capsys, "read", "x", "w", "--local", "1:1", status=2)["error"]["sentence"]
    assert ask(capsys, "read", "x", "w", "--local", "first", status=2)["error"]["code"] == "usage"


# ---------------------------------------------------------------- errors and statuses


def test_errors_are_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["info", tmp_path / "nothing"], ["ls", ""], ["ls"], ["ls", tmp_path, "--frob"], ["where", tmp_path, "w"],
        ["ls", tmp_path, "--filter", "shape:x"], ["info", tmp_path, "--reader", "nonsense"],
    ):  # fmt: skip
        told = ask(capsys, *arguments, status=2)
        assert set(told) == {"error", "problems"}
        assert set(told["error"]) == {"code", "sentence", "path"}
        assert tell(capsys, *arguments, status=2)[0] == []


def test_several_checkpoints_are_children(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in ("step-20", "step-100", "step-3"):
        (tmp_path / step).mkdir()
        safetensors.numpy.save_file({"w": np.ones(1, np.float32)}, tmp_path / step / "model.safetensors")
    told = ask(capsys, "info", tmp_path, status=2)
    assert told["error"]["code"] == ChooseCheckpointError.code
    assert told["error"]["children"] == ["step-3", "step-20", "step-100"]
    assert all(step in tell(capsys, "info", tmp_path, status=2)[1] for step in ("step-3", "step-20", "step-100"))


def test_a_defect_of_ours_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(path: Path, **options: Any) -> Any:
        raise RuntimeError("\x1b[31mboom")

    monkeypatch.setattr(cli_common, "open_checkpoint", broken)
    told = ask(capsys, "info", "x", status=2)
    assert told["error"]["code"] == "internal-error"
    assert "RuntimeError" in told["error"]["sentence"]
    assert "test_cli.py:" in told["error"]["sentence"]
    assert "\x1b" not in tell(capsys, "info", "x", status=2)[1]
    monkeypatch.setenv("TENSORMORPH_TRACEBACK", "1")
    assert "Traceback" in tell(capsys, "info", "x", status=2)[1]


def test_reader_and_version_and_help(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "info", folder, "--reader", "safetensors")["format"] == "safetensors"
    assert tell(capsys, "--version")[0] == [f"tensormorph {tensormorph.__version__}"]
    for command in ("info", "ls", "show", "where", "read", "check", "demo"):
        lines, _ = tell(capsys, command, "--help")
        assert any(line.strip() in ("Example:", "Examples:") for line in lines)
        assert any(line.strip().startswith(f"tensormorph {command}") for line in lines)
        assert max(map(len, lines)) <= 80
    lines, _ = tell(capsys, "--help")
    assert "Examples:" in "\n".join(lines)


# ---------------------------------------------------------------- streams


def big(path: Path, n: int = 3000) -> Path:
    """Very many tensors with long names: more text than a pipe holds."""
    safetensors.numpy.save_file({f"model.layers.{i}.{'x' * 60}.weight": np.ones(1, np.float32) for i in range(n)}, path)
    return path


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_pipe_is_quiet(tmp_path: Path, options: Sequence[str]) -> None:
    path = big(tmp_path / "m.safetensors")
    for command in (["ls", str(path)], ["show", str(path), "@0"], ["check", str(path), "--values"]):
        child = subprocess.Popen(
            [sys.executable, "-m", "tensormorph", *command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.read(1)
        child.stdout.close()
        errors = child.stderr.read()
        child.stderr.close()
        assert child.wait(30) == 0
        assert errors == b""


def test_head_of_a_shell(tmp_path: Path) -> None:
    path = big(tmp_path / "m.safetensors")
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"'{sys.executable}' -m tensormorph ls '{path}' | head -1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("model.layers.0.")


def test_check_keeps_its_status_when_nobody_reads(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.numpy.save_file({f"w{i}": np.full(1, np.nan, np.float32) for i in range(3000)}, path)
    child = subprocess.Popen(
        [sys.executable, "-m", "tensormorph", "check", "--values", "--json", str(path)], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.close()
    assert child.wait(30) == 1


def test_ctrl_c_inside_an_executed_string_ends_with_130(tmp_path: Path) -> None:
    """Modules make their dataclasses so while they are imported; the status is still ours, not the signal's."""
    (tmp_path / "click.py").write_text("exec('raise KeyboardInterrupt')\n")
    done = subprocess.run(
        [sys.executable, "-m", "tensormorph", "ls", "x"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def wait_until_open(process: int, path: Path) -> None:
    """Return once a process has opened a file, where the system tells; else after three seconds."""
    handles = Path(f"/proc/{process}/fd")
    end = time.monotonic() + 30 if handles.exists() else time.monotonic() + 3
    while time.monotonic() < end:
        with suppress(OSError):
            if any(os.readlink(handle) == str(path) for handle in handles.iterdir()):
                return
        time.sleep(0.02)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ctrl_c_ends_with_130(tmp_path: Path, options: Sequence[str]) -> None:
    """The cancel of a long check is heard at once."""
    path = tmp_path / "m.safetensors"
    n = 1 << 37
    header = json.dumps({"w": {"dtype": "F32", "shape": [n // 4], "data_offsets": [0, n]}}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + n)
    child = subprocess.Popen(
        [sys.executable, "-m", "tensormorph", "check", "--values", *options, str(path)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until_open(child.pid, path)
    begin = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=30)
    assert time.monotonic() - begin < 2
    assert child.returncode == 130
    assert "Traceback" not in errors
    if options:
        assert json.loads(out)["error"]["code"] == "cancelled"
    else:
        assert out == ""
        assert errors.strip() == "Cancelled"


def test_text_has_80_columns_and_no_colour(tmp_path: Path, folder: Path) -> None:
    """As a process and in a pipe; names give way in the middle, numbers never."""
    long = "model.language_model.layers.{}.block_sparse_moe.experts.{}.very_long_projection_name.weight"
    names = [long.format(i, j) for i in (0, 11) for j in (3, 127)] + ["日本語" * 30, "k" * 500]
    path = tmp_path / "m.safetensors"
    safetensors.numpy.save_file({name: np.ones((123, 45, 2), np.float32) for name in names}, path)
    env = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"}
    for arguments in (
        ["ls", path], ["ls", folder], ["info", path], ["info", folder], ["check", folder, "--values"],
        ["show", folder, "model.norm.weight"], ["where", folder, "ids", "0,:"], ["read", folder, "ids"],
        ["read", folder, "model.layers.0.self_attn.q_proj.weight"], ["check", path, "--hash"],
    ):  # fmt: skip
        done = spawn(*arguments, env=env)
        assert "\x1b" not in done.stdout + done.stderr
        for line in done.stdout.splitlines():
            assert cli_text.columns(line) <= 80 or str(path) in line or str(folder) in line, line
    listed = spawn("ls", path, env=env).stdout.splitlines()
    assert len({line.split("  ")[0] for line in listed}) == len(names)  # layer and expert tell them apart
    assert all("123 × 45 × 2" in line and "44.3 kB" in line for line in listed)


@pytest.mark.parametrize("width", range(5, 60, 7))
@pytest.mark.parametrize("text", ["model.layers.12.mlp.up_proj.weight", "層" * 40, "a" * 58 + "7", "7" * 60, "short"])
def test_elided_names_fit(text: str, width: int) -> None:
    shown = cli_text.elide(text, width)
    assert cli_text.columns(shown) <= width
    if cli_text.columns(text) <= width:
        assert shown == text
    else:
        parts = shown.split("…")
        assert len(parts) > 1
        assert text.startswith(parts[0])
        assert text.endswith(parts[-1])
        assert re.fullmatch(".+".join(map(re.escape, parts)), text)
        assert cli_text.columns(shown) >= width - len(parts)


def test_a_long_shape_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": "n" * 90, "dtype": "float32", "shape": [11, 22, 33, 44, 55, 66, 77, 88, 99, 10, 12], "n_bytes": 4,
           "complete": True, "n_fragments": 1, "aliases": []}  # fmt: skip
    (line,) = cli_text.ls_lines([(0, row)], [])
    assert "11 × 22 × 33 × 44 × 55 × 66 × 77 × 88 × 99 × 10 × 12" in line
    assert "float32" in line


def test_progress_is_for_terminals_and_late(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tensormorph.cli_output import Progress

    quiet = Progress()
    quiet("Reading", 1, 2)
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    quiet("Reading", 1, 2)
    assert capfd.readouterr().err == ""  # not before half a second
    monkeypatch.setattr(time, "monotonic", lambda: float("inf"))
    quiet("Reading", 1, 2)
    assert "Reading 50 %" in capfd.readouterr().err
    quiet.clear()
    assert capfd.readouterr().err == "\r\x1b[K"


# ---------------------------------------------------------------- the window


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], bool]]:
    """Stands for the window, which is not made here; collects what it was asked to open."""
    asked: list[tuple[list[str], bool]] = []
    module: Any = types.ModuleType("tensormorph.gui.app")

    def run_window(paths: Sequence[Path], demo: bool = False) -> int:
        asked.append(([str(path) for path in paths], demo))
        return 0

    module.run = run_window
    monkeypatch.setitem(sys.modules, "tensormorph.gui.app", module)
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    return asked


def test_a_path_opens_the_window_and_a_command_wins(
    windows: list[tuple[list[str], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "ls", "-odd"):
        (tmp_path / name).mkdir()
    assert run([]) == 0
    assert run(["a"]) == 0
    assert run(["a", "./ls"]) == 0
    assert run(["demo"]) == 0
    assert run(["--", "-odd"]) == 0
    assert run(["ls"]) == 2  # the command, without its path
    assert run(["a", "ls", "-odd"]) == 2
    assert windows == [([], False), (["a"], False), (["a", "ls"], False), ([], True), (["-odd"], False)]


def test_no_window_without_display_or_for_a_typing_slip(
    windows: list[tuple[list[str], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert "no file called 'inof'" in tell(capsys, "inof", status=2)[1]
    assert "no command" in tell(capsys, "inof", tmp_path, "w", status=2)[1]
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert "no display" in tell(capsys, tmp_path, status=2)[1]
    assert windows == []


def test_a_library_that_qt_misses_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    monkeypatch.setitem(sys.modules, "tensormorph.gui.app", None)  # so an import of it fails
    assert "The window cannot start: import of tensormorph.gui.app halted" in tell(capsys, tmp_path, status=2)[1]


# ---------------------------------------------------------------- lightness


def test_ls_loads_nothing_heavy(folder: Path) -> None:
    script = (
        "import sys\nfrom tensormorph.cli import run\nassert run(['ls', sys.argv[1]]) == 0\n"
        "heavy = {'PySide6', 'pyqtgraph', 'numba', 'torch', 'h5py', 'cmap', 'safetensors', 'rich', 'asyncio', 'email',"
        " 'http', 'hashlib', 'csv', 'multiprocessing', 'urllib.request'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_limit_of_printed_values_is_the_documented_one() -> None:
    assert cli_commands.MOST_ELEMENTS == 10**6
