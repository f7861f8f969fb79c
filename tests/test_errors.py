"""Errors carry their facts, say them in one harmless sentence, and survive the way between processes."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest

from tensormorph import errors
from tensormorph.errors import Problem, TensormorphError
from tensormorph.region import Region

EVIL = "w\x1b[31m\u202e\x00\n\\" + "y" * 70_000
REGION = Region((0, 5), (3, 7))
PROBLEM = Problem("gap", "error", "rows 0 to 2 are lost", "w", "a.bin", (3, 9), REGION, "save again")

EXAMPLES: list[TensormorphError] = [
    TensormorphError("It went wrong", path="a/b.bin", problems=[PROBLEM]),
    errors.CannotOpenError("a.bin", "no such file"),
    errors.NotRegularFileError("a.bin", "it is a pipe"),
    errors.OutsideRootError("../a.bin", "a link leads out"),
    errors.UnknownFormatError("a.bin", {"gguf": "no magic", "dcp": "no .metadata"}, "It is a Git-LFS pointer"),
    errors.AmbiguousFormatError("a", {"dcp": "has .metadata", "safetensors": "has an index"}),
    errors.ChooseCheckpointError("a", ["step-1", "step-10"]),
    errors.CorruptFileError("a.bin", "The header is no JSON", 8),
    errors.TruncatedFileError("a.bin", 1000, 999, "tensor 'w'"),
    errors.LimitError("a.bin", "The header", 200_000_000, 100_000_000, "max-header"),
    errors.HelperError("a.bin", "signal 9"),
    errors.ReadError("a.bin", "input/output error"),
    errors.ChangedOnDiskError("a.bin", "size 3, was 4"),
    errors.MissingRegionError("w", REGION, "no file stores it"),
    errors.UnreadableTensorError("w", "its file is missing", [PROBLEM]),
    errors.UnsupportedDtypeError("F6_E2M3"),
    errors.LayoutError("No layout is recorded"),
    errors.NoSuchNameError("w", ["w1", "w2"], "a"),
    errors.BadIndexError("0, 9", "9 is out of range on axis 1 of 5 elements"),
    errors.UsageError("Give one path"),
    errors.CancelledError(),
]


def every_class(root: type[TensormorphError] = TensormorphError) -> set[type[TensormorphError]]:
    """The root and all that is made from it."""
    found = {root}
    for kind in root.__subclasses__():
        found |= every_class(kind)
    return {kind for kind in found if kind.__module__ == errors.__name__}


def test_there_is_an_example_of_every_class() -> None:
    assert {type(error) for error in EXAMPLES} == every_class()


def test_every_class_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in every_class()]
    assert len(set(codes)) == len(codes)
    assert all(code and code == code.lower() and " " not in code and "_" not in code for code in codes)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_crosses_to_another_process_with_all_it_knows(error: TensormorphError) -> None:
    back = pickle.loads(bytes(ForkingPickler.dumps(error)))
    assert type(back) is type(error)
    assert vars(back) == vars(error)
    assert (str(back), back.args, back.code) == (str(error), error.args, error.code)
    again = pickle.loads(pickle.dumps(back))
    assert vars(again) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_sentence_ends_with_the_path_and_has_no_full_stop(error: TensormorphError) -> None:
    told = str(error)
    assert told.startswith(error.sentence)
    assert told == (f"{error.sentence} ({error.path})" if error.path else error.sentence)
    assert not error.sentence.endswith(".")
    assert error.args == (error.sentence,)


def test_notes_survive_the_crossing() -> None:
    error = errors.ReadError("a.bin", "gone")
    error.add_note("while drawing")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while drawing"]


@pytest.mark.parametrize(
    "error",
    [
        errors.CannotOpenError(EVIL, "no such file"),
        errors.UnknownFormatError(EVIL, {}),
        errors.ChooseCheckpointError("a", [EVIL, EVIL]),
        errors.MissingRegionError(EVIL, None, "no file stores it"),
        errors.UnreadableTensorError(EVIL, "its file is missing"),
        errors.UnsupportedDtypeError(EVIL),
        errors.NoSuchNameError(EVIL, [EVIL], EVIL),
        errors.BadIndexError(EVIL, "it is no number"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_names_from_files_cannot_act_in_a_sentence(error: TensormorphError) -> None:
    told = str(error)
    assert told.isprintable()
    assert "\\x1b[31m\\u202e\\x00\\n\\\\yyy" in told
    assert len(told) < 1500


def test_the_sentences() -> None:
    told = {type(error).__name__: str(error) for error in EXAMPLES}
    assert told["UnknownFormatError"] == "It is a Git-LFS pointer. Readers tried: dcp, gguf (a.bin)"
    assert told["ChooseCheckpointError"] == "The folder holds 2 checkpoints: step-1, step-10. Open one of them (a)"
    assert told["CorruptFileError"] == "The header is no JSON at byte 8 (a.bin)"
    assert told["TruncatedFileError"] == "The file ends at byte 999; tensor 'w' end at byte 1,000 (a.bin)"
    assert told["LimitError"] == "The header has 200 MB; the limit is 100 MB (setting max-header) (a.bin)"
    assert told["MissingRegionError"] == "w, region 0:3, 5:7 cannot be read: no file stores it"
    assert told["NoSuchNameError"] == "No tensor is called 'w'. Nearest: w1, w2 (a)"
    assert told["BadIndexError"] == "Index [0, 9] does not fit: 9 is out of range on axis 1 of 5 elements"
    assert str(errors.UnknownFormatError("a", {})) == "No reader recognises it. Readers tried: none (a)"
    assert str(errors.MissingRegionError("w", None, "lost")) == "w cannot be read: lost"
    assert str(errors.NoSuchNameError("a\nb", [])) == "No tensor is called 'a\\nb'"


def test_errors_of_asking_are_also_what_python_expects() -> None:
    assert isinstance(errors.NoSuchNameError("w", []), KeyError)
    assert isinstance(errors.BadIndexError("9", "too far"), IndexError)
    assert isinstance(errors.TruncatedFileError("a", 2, 1), errors.CorruptFileError)


def test_problems_are_values() -> None:
    assert pickle.loads(pickle.dumps(PROBLEM)) == PROBLEM
    assert len({PROBLEM, pickle.loads(pickle.dumps(PROBLEM))}) == 1
