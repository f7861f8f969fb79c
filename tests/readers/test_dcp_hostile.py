"""Hostile DCP folders: beside the stated outcome, what exactly is told, and what still reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tensormorph.checks import check
from tensormorph.errors import CorruptFileError, TensormorphError, UnreadableTensorError
from tensormorph.readers import open_checkpoint
from tests import hostile_inputs
from tests.readers.test_hostile import made

# w of shape (4, 2) is two items that each hold [[0, 1], [2, 3]].
ROWS = [[0.0, 1.0], [2.0, 3.0], [0.0, 1.0], [2.0, 3.0]]


@dataclass(frozen=True)
class Outcome:
    """Codes of the errors that `check` tells about w, and the rows of w that read."""

    errors: list[str] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)


OUTCOMES = {
    "dcp_good": Outcome([], {0, 1, 2, 3}),
    "dcp_file_missing": Outcome(["missing-file"], {0, 1}),
    "dcp_relpath_traversal": Outcome(["outside-root", "outside-root"]),
    "dcp_offset_past_eof": Outcome(["short-file", "short-file"]),
    "dcp_chunk_gap": Outcome(["gap"], {0, 1}),
    "dcp_chunk_outside": Outcome(["chunk-outside", "chunk-outside", "gap"]),
    "dcp_chunk_size_differs": Outcome(["read-failed"], {2, 3}),
    "dcp_inner_payload": Outcome(["corrupt-file"], {0, 1}),
}
REFUSED = {
    "dcp_metadata_payload": "the object in it is not loaded: posix.system",
    "dcp_metadata_zero_bytes": "The file is empty",
    "dcp_metadata_cut": "An index that is cut short is not read",
}
APART = {"dcp_metadata_missing", "dcp_size_bomb"}


def test_every_hostile_folder_is_read_here() -> None:
    cases = {name for name, (group, _) in hostile_inputs.CASES.items() if group == "dcp"}
    assert cases == set(OUTCOMES) | set(REFUSED) | APART


@pytest.mark.parametrize("case", OUTCOMES)
def test_what_is_told_and_which_rows_read(case: str, tmp_path: Path) -> None:
    expected = OUTCOMES[case]
    path, _ = made(case, tmp_path)
    with open_checkpoint(path) as checkpoint:
        found = check(checkpoint, hashes=True)
        assert [p.code for p in found.problems if p.severity == "error"] == expected.errors
        assert {p.tensor for p in found.problems if p.severity == "error"} <= {"w"}
        tensor = checkpoint["w"]
        for row in range(tensor.shape[0]):
            if row in expected.rows:
                assert tensor.full()[row].tolist() == ROWS[row]
            else:
                with pytest.raises(TensormorphError):
                    tensor.full()[row]
    assert not hostile_inputs.EXECUTED(tmp_path)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_metadata_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    path, _ = made(case, tmp_path)
    with pytest.raises(CorruptFileError) as raised:
        open_checkpoint(path)
    assert REFUSED[case] in str(raised.value)
    assert not hostile_inputs.EXECUTED(tmp_path)


def test_a_folder_without_metadata_lists_its_files_and_no_tensor(tmp_path: Path) -> None:
    path, _ = made("dcp_metadata_missing", tmp_path)
    with open_checkpoint(path) as checkpoint:
        assert len(checkpoint) == 0
        assert [p.code for p in checkpoint.problems if p.severity == "error"] == ["uncommitted"]
        assert {f.name for f in checkpoint.files} == {"__0_0.distcp", "__1_0.distcp"}


def test_a_size_that_no_number_counts_is_named_and_nothing_is_made_of_it(tmp_path: Path) -> None:
    path, _ = made("dcp_size_bomb", tmp_path)
    with open_checkpoint(path) as checkpoint:
        assert [(p.code, p.tensor) for p in checkpoint.problems if p.severity == "error"] == [("bad-shape", "w")]
        with pytest.raises(UnreadableTensorError, match="1152921504606846976"):
            checkpoint["w"]
