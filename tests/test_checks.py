"""What `check` says is what is on disk: files, places, values, copies, hashes, and no more than was looked at."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import tensormorph as tm
from tensormorph import audit
from tensormorph.array import Piece
from tensormorph.checks import CheckReport, check
from tensormorph.columns import TensorKey
from tensormorph.dtypes import encoding
from tensormorph.errors import CancelledError, Problem, ReadError
from tensormorph.model import STATES, Facts, FileInfo, LogicalTensor, Presence, StateFact, UnreadableTensor
from tensormorph.region import Region
from tests.checkpoints import checkpoint
from tests.memory_source import MemoryFile, MemorySource, Part, cut, store, tensor


def made(path: Path, tensors: dict[str, np.ndarray[Any, Any]]) -> Path:
    safetensors.numpy.save_file(tensors, path)
    return path


def checked(path: Path, **options: Any) -> CheckReport:
    with tm.open(path) as opened:
        return check(opened, **options)


def codes(report: CheckReport, severity: str = "") -> list[str]:
    return [problem.code for problem in report.problems if not severity or problem.severity == severity]


# ---------------------------------------------------------------- files


def test_a_whole_file_is_whole(tmp_path: Path) -> None:
    path = made(tmp_path / "m.safetensors", {"w": np.ones((2, 3), np.float32)})
    report = checked(path)
    assert report.complete is True
    assert report.clean
    assert report.verdict == "weights-only"
    assert report.committed is None
    assert [entry.state for entry in report.inventory] == list(STATES)
    assert any("values" in words for words in report.not_looked_at)


def test_quick_opens_no_file_and_claims_nothing_about_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "m.safetensors", {"w": np.ones((2, 3), np.float32)})
    with tm.open(path) as opened:
        monkeypatch.setattr(audit, "open_regular", lambda path: pytest.fail(f"{path} was opened"))
        report = check(opened, quick=True)
    assert report.complete is None
    assert report.verdict == "weights-only"
    assert any("--quick" in words for words in report.not_looked_at)


def test_a_file_that_became_short_is_named_with_both_lengths(tmp_path: Path) -> None:
    path = made(tmp_path / "m.safetensors", {"w": np.ones((2, 3), np.float32)})
    length = path.stat().st_size
    with tm.open(path) as opened:
        os.truncate(path, length - 5)
        report = check(opened)
        quick = check(opened, quick=True)
    short = next(problem for problem in report.problems if problem.code == "short-file")
    assert short.file == "m.safetensors"
    assert short.byte_range == (length - 5, length)
    assert f"byte {length - 5};" in short.sentence
    assert f"need {length} bytes" in short.sentence
    assert report.complete is False
    assert report.verdict == "incomplete"
    assert "changed-on-disk" in codes(report, "error")
    assert codes(quick) == []


def test_a_file_that_went_away_or_is_no_file_is_an_error(tmp_path: Path) -> None:
    path = made(tmp_path / "m.safetensors", {"w": np.ones(3, np.float32)})
    with tm.open(path) as opened:
        path.unlink()
        report = check(opened)
        os.mkfifo(path)
        pipe = check(opened)  # an ordinary open of a pipe would wait for ever
    assert "cannot-open" in codes(report, "error")
    assert "not-a-regular-file" in codes(pipe, "error")
    assert report.verdict == pipe.verdict == "incomplete"


def test_a_problem_of_the_reader_is_not_told_twice(tmp_path: Path) -> None:
    path = made(tmp_path / "m.safetensors", {"w": np.arange(8, dtype=np.float32)})
    os.truncate(path, path.stat().st_size - 8)
    report = checked(path, values=True)
    errors = [problem for problem in report.problems if problem.severity == "error"]
    assert len(errors) == 1
    assert errors[0].tensor == "w"
    assert report.verdict == "incomplete"


def test_every_incomplete_tensor_has_an_error(tmp_path: Path) -> None:
    """R51: rows 2 to 3 of 4 are stored nowhere."""
    kind = encoding("float32")
    half = store(MemoryFile("a.bin"), np.zeros((2, 2), np.float32), kind)
    gap = tensor((4, 2), [Part(Region((0, 0), (2, 2)), half)], kind, name="gap")
    report = check(checkpoint(tmp_path, [gap]), quick=True)
    error = next(problem for problem in report.problems if problem.severity == "error")
    assert error.tensor == "gap"
    assert error.region == Region((2, 0), (4, 2))
    assert "4 of 8 elements" in error.sentence
    assert report.complete is False
    own = replace(gap, problems=(Problem("lost", "error", "told by the reader", tensor="gap"),))
    assert codes(check(checkpoint(tmp_path, [own]), quick=True)) == ["lost"]


def test_a_tensor_without_shape_makes_it_incomplete(tmp_path: Path) -> None:
    why = Problem("bad-shape", "error", "w has no shape", tensor="w")
    lost = UnreadableTensor("w", TensorKey("", "w"), None, None, "m.bin", (why,))
    report = check(checkpoint(tmp_path, [], unreadable=[lost], problems=[why]), quick=True)
    assert report.problems == (why,)
    assert report.complete is False


# ---------------------------------------------------------------- places that only the item tells


def unresolved(parts: Iterable[Part]) -> list[LogicalTensor]:
    """Tensors whose items hide their place, as in DCP: the offset column says -1."""
    found = []
    for i, part in enumerate(parts):
        one = tensor(part.region.shape, [part], part.source.encoding, name=f"t{i}")
        found.append(replace(one, fragments=replace(one.fragments, offset=np.array([-1]), length=np.array([-1]))))
    return found


class Hidden(MemorySource):
    """A source that looks into its file for its place, as an item of a DCP file does."""

    def place(self) -> Any:
        if self.file.failure is not None:
            raise self.file.failure
        return super().place()


def hidden(file: MemoryFile) -> Part:
    values = np.zeros(2, np.float32)
    return Part(Region((0,), (2,)), Hidden(file, encoding("float32"), file.append(values), (2,), (1,)))


def test_the_default_looks_up_every_hidden_place_and_quick_none(tmp_path: Path) -> None:
    (tmp_path / "good").touch()
    (tmp_path / "bad").touch()
    bad = MemoryFile("bad", failure=ReadError("bad", "no zip item here"))
    made = checkpoint(tmp_path, unresolved([hidden(MemoryFile("good")), hidden(bad), hidden(MemoryFile("good"))]))
    told: list[tuple[int, int]] = []
    report = check(made, report=lambda what, done, total: told.append((done, total)))
    problem = next(problem for problem in report.problems if problem.severity == "error")
    assert (problem.tensor, problem.file, problem.region) == ("t1", "bad", Region((0,), (2,)))
    assert "no zip item here" in problem.sentence
    assert (2, 3) in told
    assert codes(check(made, quick=True)) == []


def test_looking_up_places_can_be_cancelled(tmp_path: Path) -> None:
    (tmp_path / "good").touch()
    made = checkpoint(tmp_path, unresolved(hidden(MemoryFile("good")) for _ in range(50)))

    def stop(what: str, done: int, total: int) -> None:
        if "items" in what and done == 3:
            raise CancelledError

    with pytest.raises(CancelledError):
        check(made, report=stop)


# ---------------------------------------------------------------- values


def three_shards(values: np.ndarray[Any, Any], kind: str) -> tuple[LogicalTensor, list[MemoryFile]]:
    """One matrix in three files, cut along its columns."""
    files = [MemoryFile(f"shard-{i}.bin", bytearray(b"h" * (10 + i))) for i in range(3)]
    edges = [0, 3, 6, values.shape[1]]
    boxes = [Region((0, edges[i]), (values.shape[0], edges[i + 1])) for i in range(3)]
    parts = cut(values, boxes, encoding(kind), file_of=lambda i: files[i])
    return tensor(values.shape, parts, encoding(kind)), files


def in_folder(tmp_path: Path, tensors: Sequence[LogicalTensor], files: Sequence[MemoryFile]) -> Any:
    for file in files:
        (tmp_path / file.name).write_bytes(file.data)
    infos = [FileInfo(file.name, len(file.data), "tensors") for file in files]
    return checkpoint(tmp_path, tensors, files=infos)


def test_one_nan_in_three_shards_is_found_where_it_is(tmp_path: Path) -> None:
    """R115: bfloat16 0x7FC0 at [5, 7]: the coordinate, the file and the byte."""
    bits = np.full((8, 9), 0x3F80, np.uint16)
    bits[5, 7] = 0x7FC0
    weight, files = three_shards(bits.view(ml_dtypes.bfloat16), "bfloat16")
    report = check(in_folder(tmp_path, [weight], files), values=True)
    (problem,) = report.problems
    assert (problem.code, problem.severity) == ("non-finite", "warning")
    assert problem.tensor == "w"
    assert problem.file == "shard-2.bin"
    assert problem.region == Region((5, 7), (6, 8))
    offset = 12 + (5 * 3 + 1) * 2
    assert problem.byte_range == (offset, offset + 2)
    assert files[2].data[offset : offset + 2] == b"\xc0\x7f"
    for words in ("1 NaN", "[5, 7]", "shard-2.bin", f"byte {offset}"):
        assert words in problem.sentence
    assert report.verdict == "weights-only"  # a NaN is stored and read: nothing is missing
    assert not report.clean
    assert check(in_folder(tmp_path, [weight], files)).clean  # values were not looked at


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64", "float8_e5m2", "float8_e4m3fn",
                                  "float8_e8m0fnu", "complex64"])  # fmt: skip
def test_counts_and_first_coordinate_equal_numpys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Whatever the pieces: the count over all of them, and the first in row-major order."""
    monkeypatch.setattr(audit, "PIECE_BYTES", 16)
    rng = np.random.default_rng(3)
    values = rng.standard_normal((8, 9)).astype(encoding(kind).dtype)
    values[rng.random((8, 9)) < 0.2] = np.nan
    if kind not in ("float8_e4m3fn", "float8_e8m0fnu"):
        values[rng.random((8, 9)) < 0.2] = np.inf
    weight, files = three_shards(values, kind)
    n_nan, bad = int(np.isnan(values).sum()), ~np.isfinite(values)
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    (problem,) = check(in_folder(tmp_path, [weight], files), values=True).problems
    assert f" {n_nan} NaN" in problem.sentence
    assert (f"{int(bad.sum()) - n_nan} Inf" in problem.sentence) == bool(bad.sum() - n_nan)
    assert problem.region is not None
    assert problem.region.start == first
    assert f"the first is {'NaN' if np.isnan(values[first]) else 'Inf'}" in problem.sentence


def test_the_first_is_first_in_rows_and_not_in_storage(tmp_path: Path) -> None:
    values = np.ones((8, 9), np.float32)
    values[3, 0], values[1, 8] = np.nan, np.inf  # in the first file and in the last
    weight, files = three_shards(values, "float32")
    (problem,) = check(in_folder(tmp_path, [weight], files), values=True).problems
    assert problem.region == Region((1, 8), (2, 9))
    assert problem.file == "shard-2.bin"
    assert "the first is Inf" in problem.sentence


def test_a_nan_in_a_scalar_and_none_in_integers(tmp_path: Path) -> None:
    """R8."""
    path = made(tmp_path / "m.safetensors", {
        "s": np.array(np.nan, np.float32), "i": np.array([-1, 2]), "e": np.zeros((0, 3), np.float32),
    })  # fmt: skip
    report = checked(path, values=True)
    assert [problem.tensor for problem in report.problems] == ["s"]
    assert "at []" not in report.problems[0].sentence
    assert report.problems[0].region == Region((), ())


def test_what_cannot_be_read_is_an_error_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    values = np.ones((8, 9), np.float32)
    values[0, 0] = np.nan
    weight, files = three_shards(values, "float32")
    files[1].failure = ReadError("shard-1.bin", "the storage reported an input/output error")
    report = check(in_folder(tmp_path, [weight], files), values=True)
    assert sorted(codes(report)) == sorted(["read-failed", "non-finite"])
    lost = next(problem for problem in report.problems if problem.severity == "error")
    assert lost.tensor == "w"
    assert "input/output" in lost.sentence
    assert report.verdict == "incomplete"


def test_values_are_read_in_bounded_pieces_with_progress_and_cancel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PIECE_BYTES", 64)
    values = np.ones((64, 64), np.float32)
    file = MemoryFile("m.bin")
    source = store(file, values, encoding("float32"))
    made = in_folder(tmp_path, [tensor((64, 64), [Part(Region.whole((64, 64)), source)], encoding("float32"))], [file])
    told: list[int] = []
    check(made, values=True, report=lambda what, done, total: told.append(done) if "values" in what else None)
    assert max(region.size * 4 for region in source.reads) <= 64
    assert sum(region.size for region in source.reads) == values.size
    assert told == sorted(told)
    assert len(told) == len(source.reads)
    source.reads.clear()

    def stop(what: str, done: int, total: int) -> None:
        if done >= 1024:
            raise CancelledError

    with pytest.raises(CancelledError):
        check(made, values=True, report=stop)
    assert len(source.reads) == 1024 / 64


class Tail(MemorySource):
    """A source of 2^31 + 8 elements of which only the last hundred are there to be read."""

    def pieces(self, region: Region, max_bytes: int, /) -> Iterator[Piece]:
        yield Piece(Region((region.stop[0] - 100,), region.stop), 100)

    def read_into(self, region: Region, out: np.ndarray[Any, Any], /) -> None:
        out[...] = 1
        out[-1] = np.nan


def test_the_last_of_two_billion_elements_has_its_place(tmp_path: Path) -> None:
    """R117: the coordinate and the byte of the last of 2^31 + 8 elements take more than 32 bits."""
    n = (1 << 31) + 8
    kind = encoding("float8_e4m3fn")
    long = tensor((n,), [Part(Region((0,), (n,)), Tail(MemoryFile("m.bin"), kind, 90, (n,), (1,)))], kind)
    (problem,) = check(checkpoint(tmp_path, [long]), values=True, quick=True).problems
    assert problem.region == Region((n - 1,), (n,))
    assert problem.byte_range == (90 + n - 1, 90 + n)
    assert str(n - 1) in problem.sentence


# ---------------------------------------------------------------- copies


def copies(tmp_path: Path, second: np.ndarray[Any, Any]) -> tuple[Any, list[MemoryFile]]:
    """R47: a buffer that two rank files hold."""
    first = np.arange(6, dtype=np.float32)
    files = [MemoryFile("rank0.bin"), MemoryFile("rank1.bin")]
    parts = [
        Part(Region((0,), (6,)), store(file, values, encoding("float32")), rank)
        for rank, (file, values) in enumerate(zip(files, (first, second), strict=True))
    ]
    return in_folder(tmp_path, [tensor((6,), parts, encoding("float32"), name="b")], files), files


def test_copies_that_differ_are_an_error(tmp_path: Path) -> None:
    other = np.arange(6, dtype=np.float32)
    equal, _ = copies(tmp_path, other)
    assert check(equal, values=True).clean
    other[4] += 1
    different, _ = copies(tmp_path, other)
    report = check(different, values=True)
    assert codes(report) == ["copies-differ"]
    assert "rank0.bin" in report.problems[0].sentence
    assert "rank1.bin" in report.problems[0].sentence
    assert report.verdict == "incomplete"
    assert check(different).clean


def test_equal_nan_in_copies_is_no_difference_and_signed_zero_is_one(tmp_path: Path) -> None:
    """R113, R114: copies are compared by their bits."""
    values = np.arange(6, dtype=np.float32)
    values[0] = np.nan
    made, files = copies(tmp_path, values)
    files[0].data[:4] = values[:1].tobytes()
    assert codes(check(made, values=True)) == ["non-finite"]
    zero = np.arange(6, dtype=np.float32)
    zero[0] = -0.0
    assert codes(check(copies(tmp_path, zero)[0], values=True)) == ["copies-differ"]


def test_a_copy_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    made, files = copies(tmp_path, np.arange(6, dtype=np.float32))
    files[1].failure = ReadError("rank1.bin", "gone")
    assert codes(check(made, values=True)) == ["unreadable-copy"]


# ---------------------------------------------------------------- hashes


def cache(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A Hugging Face cache: the weights named by their sha256, the config by its git blob sha1."""
    repo = tmp_path / "models--demo--tiny"
    (repo / "blobs").mkdir(parents=True)
    snapshot = repo / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    weights = safetensors.numpy.save({"w": np.arange(4, dtype=np.float32)})
    config = b'{"model_type": "llama"}'
    names = (
        hashlib.sha256(weights).hexdigest(),
        hashlib.sha1(b"blob %d\0" % len(config) + config, usedforsecurity=False).hexdigest(),
    )
    for name, data, link in zip(names, (weights, config), ("model.safetensors", "config.json"), strict=True):
        (repo / "blobs" / name).write_bytes(data)
        (snapshot / link).symlink_to(f"../../blobs/{name}")
    return snapshot, repo / "blobs" / names[0], repo / "blobs" / names[1]


def test_a_cache_whose_blobs_are_what_their_names_say(tmp_path: Path) -> None:
    snapshot, _, _ = cache(tmp_path)
    report = checked(snapshot, hashes=True)
    assert report.clean
    assert any("2 files as recorded" in words for words in report.looked_at)


@pytest.mark.parametrize("which", [1, 2], ids=["sha256", "git sha1"])
def test_a_blob_that_is_not_what_its_name_says(tmp_path: Path, which: int) -> None:
    made = cache(tmp_path)
    raw = bytearray(made[which].read_bytes())
    raw[-1] ^= 1 if which == 1 else ord("}") ^ ord(" ")
    made[which].write_bytes(raw)
    report = checked(made[0], hashes=True)
    problem = next(problem for problem in report.problems if problem.code == "hash-mismatch")
    assert problem.severity == "error"
    assert problem.file == ("model.safetensors", "config.json")[which - 1]
    assert made[which].name in problem.sentence
    assert checked(made[0]).verdict == ("weights-only" if which == 1 else checked(made[0]).verdict)
    assert "hash-mismatch" not in codes(checked(made[0]))


def test_where_nothing_records_a_hash_it_says_so(tmp_path: Path) -> None:
    path = made(tmp_path / ("a" * 64), {"w": np.ones(1, np.float32)})
    (tmp_path / "m.safetensors").symlink_to(path)  # named like a hash, but in no cache
    report = checked(tmp_path / "m.safetensors", hashes=True)
    assert codes(report) == ["no-recorded-hash"]
    assert report.clean


def test_hashing_can_be_cancelled(tmp_path: Path) -> None:
    snapshot, _, _ = cache(tmp_path)

    def stop(what: str, done: int, total: int) -> None:
        if "Hash" in what:
            raise CancelledError

    with pytest.raises(CancelledError):
        checked(snapshot, hashes=True, report=stop)


# ---------------------------------------------------------------- verdict and inventory


def verdict(present: dict[str, Presence], committed: bool | None = None) -> CheckReport:
    kind = encoding("float32")
    one = tensor((1,), [Part(Region((0,), (1,)), store(MemoryFile("m.bin"), np.ones(1, np.float32), kind))], kind)
    states = {state: StateFact(present.get(state, "no"), f"evidence of {state}") for state in STATES}
    facts = Facts(states=states, committed=committed, commit_evidence="no .metadata")
    return check(checkpoint(Path(), [one], facts=facts), quick=True)


CORE: dict[str, Presence] = {"weights": "yes", "moments": "yes", "hyperparameters": "yes", "step": "yes"}
REST: dict[str, Presence] = {"scheduler": "yes", "master": "by_design", "scaler": "by_design"}
EXACT: dict[str, Presence] = {**CORE, **REST, "rng": "yes", "data_position": "yes"}


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ({"weights": "yes"}, "weights-only"),
        ({"weights": "yes", "config": "yes", "step": "yes"}, "weights-only"),
        ({"weights": "yes", "moments": "yes"}, "partial"),
        ({"moments": "yes"}, "partial"),
        ({"weights": "yes", "rng": "yes"}, "partial"),
        ({**CORE, **REST}, "resumable-statistical"),
        ({**CORE, "scheduler": "unknown", "master": "unknown", "scaler": "unknown"}, "resumable-statistical"),
        ({**EXACT, "scheduler": "no"}, "partial"),
        ({**EXACT, "step": "no"}, "partial"),  # R61: without the step Adam's moments cannot go on
        ({**EXACT, "step": "unknown"}, "partial"),
        ({**EXACT, "moments": "by_design"}, "resumable-exact"),  # plain SGD has none
        (EXACT, "resumable-exact"),
        ({**EXACT, "scaler": "unknown"}, "resumable-statistical"),
        ({**EXACT, "data_position": "by_design"}, "resumable-statistical"),
        ({**EXACT, "rng": "unknown"}, "resumable-statistical"),
    ],
    ids=str,
)
def test_the_verdict_follows_from_what_is_recorded(present: dict[str, Presence], expected: str) -> None:
    report = verdict(present)
    assert report.verdict == expected
    assert {entry.state: entry.present for entry in report.inventory} == {s: present.get(s, "no") for s in STATES}
    assert verdict(present, False).verdict == "incomplete"


def test_an_unfinished_save_is_an_error_once() -> None:
    report = verdict(EXACT, False)
    assert [p.sentence for p in report.problems] == ["The save was not finished: no .metadata"]
    assert report.committed is False
    assert verdict(EXACT, True).clean


def test_nothing_is_said_to_restore_without_a_drill() -> None:
    for report in (verdict(EXACT), verdict({"weights": "yes"}), verdict(EXACT, False)):
        assert all(entry.status != "pass" for entry in report.portability)
        assert {entry.evidence for entry in report.portability} <= {"none", "limit"}
    assert {e.state for e in verdict({"weights": "yes"}).portability if e.status == "unproven"} == {"weights"}
    assert "scaler" not in {e.state for e in verdict(EXACT).portability}  # not needed: nothing to carry


def test_facts_that_say_nothing_are_unknown(tmp_path: Path) -> None:
    kind = encoding("float32")
    one = tensor((1,), [Part(Region((0,), (1,)), store(MemoryFile("m.bin"), np.ones(1, np.float32), kind))], kind)
    report = check(checkpoint(tmp_path, [one]), quick=True)
    assert {e.state: e.present for e in report.inventory} == {s: "yes" if s == "weights" else "unknown" for s in STATES}
    assert report.verdict == "weights-only"
    assert check(checkpoint(tmp_path, []), quick=True).verdict == "partial"


def test_errors_come_first_and_each_once(tmp_path: Path) -> None:
    told = [
        Problem("i", "info", "i"),
        Problem("w", "warning", "w"),
        Problem("e", "error", "e"),
        Problem("w", "warning", "w"),
    ]
    assert codes(check(checkpoint(tmp_path, [], problems=told), quick=True)) == ["e", "w", "i"]
