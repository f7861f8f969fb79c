"""The command line on DCP checkpoints: the JSON fields that only sharded formats fill, against the corpus' oracles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensormorph.cli import run
from tests.readers.dcp_cases import CORPUS, oracle

SHARDED = CORPUS / "dcp_shard0_uneven_4r" / "ckpt"
TRAINED = CORPUS / "fsdp2_adamw_4r" / "ckpt"
LOST = CORPUS / "bad_missing_distcp" / "ckpt"
VALUES = oracle("dcp_shard0_uneven_4r")
W10 = [(0, 3), (3, 6), (6, 9), (9, 10)]


def call(capfd: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> Any:
    """Run the command line with --json and return the one document on standard output."""
    assert run([*map(str, arguments), "--json"]) == status
    return json.loads(capfd.readouterr().out)


def text(capfd: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    assert run([*map(str, arguments)]) == status
    return capfd.readouterr().out


def test_info_counts_files_ranks_and_the_step(capfd: pytest.CaptureFixture[str]) -> None:
    told = call(capfd, "info", TRAINED)
    values = oracle("fsdp2_adamw_4r")
    assert (told["format"], told["world_size"], told["n_files"], told["step"]) == ("dcp", 4, 5, 1234)
    assert told["n_tensors"] == len(values)
    assert told["n_elements"] == sum(array.size for _, array in values.values())
    assert told["n_bytes"] == sum(array.nbytes for _, array in values.values())
    assert told["software"] == "torch DCP, 2.9 or later"
    assert told["n_problems"]["error"] == told["n_problems"]["warning"] == 0


def test_ls_lists_tensors_with_their_parameters_and_objects(capfd: pytest.CaptureFixture[str]) -> None:
    told = call(capfd, "ls", TRAINED)
    rows = {row["name"]: row for row in told["tensors"]}
    for name, (kind, values) in oracle("fsdp2_adamw_4r").items():
        row = rows.pop(name)
        assert (row["dtype"], row["shape"], row["n_bytes"], row["complete"]) == (
            kind, list(values.shape), values.nbytes, True,
        )  # fmt: skip
    assert rows == {}
    moment = next(row for row in told["tensors"] if row["name"] == "optim.state.tok.weight.exp_avg")
    assert (moment["param"], moment["slot"], moment["named"]) == ("tok.weight", "exp_avg", True)
    assert {"train.step", "scheduler.last_epoch", "loader.epoch"} <= {row["name"] for row in told["objects"]}
    slots = call(capfd, "ls", TRAINED, "--slot", "exp_avg_sq")["tensors"]
    assert {row["slot"] for row in slots} == {"exp_avg_sq"}


def test_show_gives_each_fragment_its_file_byte_and_rank(capfd: pytest.CaptureFixture[str]) -> None:
    told = call(capfd, "show", SHARDED, "w10")
    assert [f["region"] for f in told["fragments"]] == [[[low, high], [0, 6]] for low, high in W10]
    for rank, fragment in enumerate(told["fragments"]):
        assert (fragment["file"], fragment["rank"], fragment["rank_provenance"]) == (
            f"__{rank}_0.distcp", rank, "inferred",
        )  # fmt: skip
        low, high = W10[rank]
        raw = (SHARDED / fragment["file"]).read_bytes()
        found = raw[fragment["offset"] : fragment["offset"] + fragment["n_bytes"]]
        assert found == VALUES["w10"][1][low:high].tobytes()
        assert (fragment["dtype"], fragment["compression"], fragment["complete"]) == ("float32", None, True)


def test_show_gives_the_pieces_and_that_none_is_padded(capfd: pytest.CaptureFixture[str]) -> None:
    told = call(capfd, "show", SHARDED, "w10")
    assert [(piece["rank"], piece["shape"]) for piece in told["locals"]] == [
        (rank, [high - low, 6]) for rank, (low, high) in enumerate(W10)
    ]
    assert {piece["n_padding"] for piece in told["locals"]} == {0}
    assert [piece["file"] for piece in told["locals"]] == [f["file"] for f in told["fragments"]]
    assert [piece["offset"] for piece in told["locals"]] == [f["offset"] for f in told["fragments"]]


def test_show_reads_an_object(capfd: pytest.CaptureFixture[str]) -> None:
    told = call(capfd, "show", TRAINED, "loader.sampler.pos")
    assert told["value"] == [5, 6, 7]
    raw = (TRAINED / told["file"]).read_bytes()
    assert raw[told["offset"] : told["offset"] + 4] == b"PK\x03\x04"


@pytest.mark.parametrize("index", [(0, 0), (4, 5), (8, 1), (9, 5)])
def test_where_names_the_byte_of_an_element(capfd: pytest.CaptureFixture[str], index: tuple[int, int]) -> None:
    told = call(capfd, "where", SHARDED, "w10", f"{index[0]},{index[1]}")
    (holder,) = told["holders"]
    assert (holder["rank"], holder["rank_provenance"]) == (min(index[0] // 3, 3), "inferred")
    raw = (SHARDED / holder["file"]).read_bytes()
    assert np.frombuffer(raw, np.float32, 1, holder["offset"])[0] == told["value"] == VALUES["w10"][1][index]


def test_where_in_a_file_that_is_gone_names_it_and_no_byte(capfd: pytest.CaptureFixture[str]) -> None:
    told = call(capfd, "where", LOST, "w10", "7,2")
    assert told["value"] is None
    (holder,) = told["holders"]
    assert (holder["file"], holder["rank"], holder["offset"]) == ("__2_0.distcp", 2, None)


def test_where_in_a_compressed_item_names_the_item_and_no_byte_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    case = CORPUS / "dcp_zstd_1r"
    name, (_, values) = next((n, v) for n, v in oracle(case.name).items() if v[1].ndim == 2)
    told = call(capfd, "show", case / "ckpt", name)
    assert {f["compression"] for f in told["fragments"]} == {"zstd"}
    assert call(capfd, "read", case / "ckpt", name, "--region", "0")["shape"] == [values.shape[1]]


@pytest.mark.parametrize("rank", range(4))
def test_read_local_is_the_stored_piece(capfd: pytest.CaptureFixture[str], rank: int) -> None:
    low, high = W10[rank]
    told = call(capfd, "read", SHARDED, "w10", "--local", f"{rank}:0")
    assert told["shape"] == [high - low, 6]
    assert told["values"] == VALUES["w10"][1][low:high].tolist()


def test_read_shows_a_piece_as_stored_where_the_whole_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    case = CORPUS / "bad_dtype" / "ckpt"
    assert "error" in call(capfd, "read", case, "w10", status=2)
    told = call(capfd, "read", case, "w10", "--local", "1:0")
    assert (told["dtype"], told["values"]) == ("float32", VALUES["w10"][1][3:6].tolist())


def test_read_across_ranks_and_around_a_gap(capfd: pytest.CaptureFixture[str]) -> None:
    assert call(capfd, "read", SHARDED, "w10", "--region", "2:8,1")["values"] == VALUES["w10"][1][2:8, 1].tolist()
    assert call(capfd, "read", LOST, "w10", "--region", ":6")["values"] == VALUES["w10"][1][:6].tolist()
    told = call(capfd, "read", LOST, "w10", status=2)
    assert "__2_0.distcp" in told["error"]["sentence"]


def test_check_of_a_good_case_is_clean_and_of_a_damaged_one_is_not(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = call(capfd, "check", TRAINED, "--hash")
    assert (told["complete"], told["committed"], told["step"]) == (True, True, 1234)
    assert told["verdict"] in ("resumable-statistical", "resumable-exact")
    assert {p["severity"] for p in told["problems"]} <= {"info"}
    told = call(capfd, "check", LOST, status=1)
    assert (told["complete"], told["verdict"]) == (False, "incomplete")
    lost = {(p["code"], p["tensor"], p["file"]) for p in told["problems"] if p["severity"] == "error"}
    assert ("missing-file", "w10", "__2_0.distcp") in lost
    told = call(capfd, "check", CORPUS / "bad_missing_metadata" / "ckpt", status=1)
    assert (told["committed"], told["verdict"]) == (False, "incomplete")


def test_check_quick_looks_into_no_item_and_check_into_all(capfd: pytest.CaptureFixture[str]) -> None:
    case = CORPUS / "bad_offset_shifted" / "ckpt"
    quick = call(capfd, "check", case, "--quick")
    assert {p["severity"] for p in quick["problems"]} <= {"info"}
    told = call(capfd, "check", case, status=1)
    assert [(p["code"], p["tensor"], p["region"]) for p in told["problems"] if p["severity"] == "error"] == [
        ("corrupt-file", "w10", [[3, 6], [0, 6]])
    ]


def test_text_output_names_files_and_ranks(capfd: pytest.CaptureFixture[str]) -> None:
    assert "__3_0.distcp" in text(capfd, "show", SHARDED, "w10")
    assert "__1_0.distcp" in text(capfd, "where", SHARDED, "w10", "4,0")
    assert "4 ranks" in text(capfd, "info", SHARDED)


def test_a_refused_metadata_is_an_error_in_json_and_status_2(capfd: pytest.CaptureFixture[str]) -> None:
    told = call(capfd, "ls", CORPUS / "bad_truncated_metadata" / "ckpt", status=2)
    assert told["error"]["code"] == "corrupt-file"
    assert "An index that is cut short is not read" in told["error"]["sentence"]
