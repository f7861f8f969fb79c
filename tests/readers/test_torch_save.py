"""torch.save files: the contract, the corpus, the bug reports R100 to R106, and torch itself as the oracle."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tensormorph.checks import check
from tensormorph.errors import CorruptFileError, TensormorphError
from tensormorph.model import Checkpoint
from tensormorph.readers import open_checkpoint, torch_save
from tests.readers.contract import Arrays, ReaderContract
from tests.readers.oracle import read_stored

CORPUS = Path(__file__).parent.parent / "data" / "torch"


def codes(checkpoint: Checkpoint) -> list[str]:
    return sorted(p.code for p in checkpoint.problems if p.severity != "info")


def as_tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(a.copy()) for name, a in arrays.items()}


class TestZip(ReaderContract):
    reader: ClassVar[Any] = torch_save
    legacy: ClassVar[bool] = False
    most_bytes_a_tensor: ClassVar[int] = 260
    most_memory: ClassVar[int] = 400 << 20  # its pickle becomes nodes, and every tensor keeps where it lies

    def write(self, folder: Path, arrays: Arrays) -> Path:
        path = folder / "model.pt"
        torch.save(as_tensors(arrays), path, _use_new_zipfile_serialization=not self.legacy)
        return path

    def write_many(self, folder: Path, n: int) -> Path:
        """Views of one storage: the pickle of 100,000 tensors, with one record beside it."""
        base = torch.zeros(n)
        path = folder / "many.pt"
        torch.save({f"model.layers.{i // 100}.block.{i % 100}.weight": base[i : i + 1] for i in range(n)}, path,
                   _use_new_zipfile_serialization=not self.legacy)  # fmt: skip
        return path

    def siblings(self, folder: Path) -> list[Path]:
        save_file({"w": np.zeros(3, np.float32)}, folder / "model.safetensors")
        np.savez(folder / "arrays.npz", w=np.zeros(3))
        with zipfile.ZipFile(folder / "book.docx", "w") as stream:
            stream.writestr("word/document.xml", "x")
        (folder / "notes.txt").write_text("nothing here")
        # A header of 640 bytes begins like a pickle of protocol 2.
        header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).ljust(640).encode()
        (folder / "like_a_pickle.bin").write_bytes(struct.pack("<Q", 640) + header + bytes(16))
        return [p for p in folder.iterdir() if p.is_file()]


class TestStream(TestZip):
    legacy: ClassVar[bool] = True


# ---------------------------------------------------------------- the corpus

GOOD = sorted(p.name for p in CORPUS.iterdir() if p.name.startswith(("pt_", "bin_")))
BAD = ("bad_bin_", "bad_evil_bin", "bad_evil_pt", "bad_legacy_", "bad_pt_")
# What the oracle holds and the file does not record: skip_data wrote no values, so zeros are right.
NOT_RECORDED = {"pt_skip_data"}


def _found(checkpoint: Checkpoint) -> dict[str, tuple[tuple[int, ...], bytes]]:
    """Return shape and bytes of what reads, under the unique name and under the parameter's own."""
    out: dict[str, tuple[tuple[int, ...], bytes]] = {}
    for name, tensor in checkpoint.tensors.items():
        try:
            values = np.ascontiguousarray(tensor.full()[...])
        except TensormorphError:
            continue
        for key in (name, tensor.key.param):
            out.setdefault(key, (tensor.shape, values.tobytes()))
    for alias, name in checkpoint.aliases.items():
        if name in out:
            out.setdefault(alias, out[name])
            out.setdefault(alias.rpartition("/")[2], out[name])
    return out


@pytest.mark.parametrize("case", GOOD)
def test_a_good_case_reads_bit_for_bit_as_its_oracle(case: str) -> None:
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        assert [p for p in checkpoint.problems if p.severity == "error"] == []
        found = _found(checkpoint)
        for name, (_, shape, data) in read_stored(CORPUS / case / "oracle.safetensors").items():
            if case in NOT_RECORDED:
                assert not any(found[name][1]), name
                continue
            assert found[name][1] == data, name
            assert found[name][0] in (shape, shape[:-1]), name  # complex stands in the oracle as pairs
        assert [p for p in check(checkpoint).problems if p.severity == "error"] == []


BIN = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
# case: (severity, code, tensor, file) of each problem; tensors that read as the oracle; those that give no value
READINGS: dict[str, tuple[set[tuple[str, str, str | None, str | None]], set[str], set[str]]] = {
    "bad_bin_index_missing_shard": ({("error", "missing-file", None, BIN[1])}, {"emb", "l0.w"}, {"l1.w", "head"}),
    "bad_bin_index_traversal": (
        {("error", "outside-root", None, "../../../etc/passwd")}, {"emb", "l0.w", "l1.w", "head"}, set()),
    "bad_bin_index_wrong_map": (
        {("warning", "index-wrong-file", None, BIN[0]), ("error", "index-absent-tensor", "ghost", BIN[0])},
        {"emb", "l0.w", "l1.w", "head"}, {"ghost"}),
    "bad_evil_bin": ({("warning", "code-reference", None, BIN[1])}, {"emb", "l0.w", "l1.w", "head"}, set()),
    "bad_evil_pt": (
        {("warning", "code-reference", None, "v.pt")}, {"base", "channels_last", "expanded", "head", "emb"}, set()),
    "bad_legacy_truncated": (
        {("error", "truncated", None, "model.pt"), ("error", "truncated", "w_complex64", "model.pt")},
        {"w_f32", "w_f64", "w_i64", "zero_d", "one"}, {"w_complex64"}),
    "bad_pt_missing_record": (
        {("error", "missing-record", "model.pt/w_f64", "model.pt")}, {"w_f32", "w_i64", "zero"}, {"model.pt/w_f64"}),
    "bad_pt_short_record": (
        {("error", "truncated", "model.pt/w_f32", "model.pt")}, {"w_f64", "w_i64", "zero"}, {"model.pt/w_f32"}),
    "bad_pt_truncated": ({("error", "corrupt-file", None, "model.pt")}, {"w_f32", "w_f64", "w_bool"}, set()),
}  # fmt: skip


def test_the_table_has_every_damaged_case() -> None:
    assert sorted(READINGS) == sorted(p.name for p in CORPUS.iterdir() if p.name.startswith(BAD))


@pytest.mark.parametrize("case", READINGS)
def test_a_damaged_case_says_what_is_wrong_and_the_rest_reads(case: str, nothing_done: list[str]) -> None:
    problems, reads, unreadable = READINGS[case]
    with open_checkpoint(CORPUS / case / "ckpt") as checkpoint:
        told = {(p.severity, p.code, p.tensor, p.file) for p in checkpoint.problems if p.severity != "info"}
        assert told == problems
        found = _found(checkpoint)
        oracle = read_stored(CORPUS / case / "oracle.safetensors")
        for name in reads:
            assert found[name][1] == oracle[name][2], name
        for name in unreadable:
            with pytest.raises(TensormorphError):
                checkpoint[name].full()[...]
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("corpus_PWNED_*"))


# ---------------------------------------------------------------- R100 to R106


def test_r100_strides_are_honoured(tmp_path: Path) -> None:
    values = torch.arange(54.0).reshape(2, 3, 3, 3).contiguous(memory_format=torch.channels_last)
    torch.save({"w": values, "t": torch.arange(6.0).reshape(2, 3).T}, tmp_path / "m.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        np.testing.assert_array_equal(checkpoint["w"].full()[...], values.numpy())
        np.testing.assert_array_equal(checkpoint["t"].full()[...], [[0, 3], [1, 4], [2, 5]])


def test_r101_the_older_stream_opens_and_reads_only_what_is_asked(tmp_path: Path) -> None:
    state = {"a": torch.arange(300_000.0), "b": torch.arange(5)}
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with open_checkpoint(tmp_path / "old.pt") as checkpoint:
        assert "older stream" in checkpoint.format_detail
        assert checkpoint["a"].full()[299_998:].tolist() == [299_998.0, 299_999.0]
        assert checkpoint["b"].full()[...].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("order", ["little", "big", None])
def test_r102_the_byteorder_record_decides_and_little_is_the_default(tmp_path: Path, order: str | None) -> None:
    torch.save({"w": torch.arange(3, dtype=torch.int32)}, tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt") as source, zipfile.ZipFile(tmp_path / "n.pt", "w") as target:
        for item in source.infolist():
            data = source.read(item)
            if item.filename.endswith("byteorder"):
                if order is None:
                    continue
                data = order.encode()
            if item.filename.endswith("data/0") and order == "big":
                data = np.frombuffer(data, "<i4").astype(">i4").tobytes()
            target.writestr(item.filename, data)
    with open_checkpoint(tmp_path / "n.pt") as checkpoint:
        assert checkpoint["w"].full()[...].tolist() == [0, 1, 2]


def test_r104_a_sparse_file_of_ten_gigabytes_opens_by_its_directory_and_pickle(tmp_path: Path) -> None:
    n = 10 << 30
    path = tmp_path / "large.pt"
    _write_large(path, n)
    script = (
        "import sys, json\nfrom tensormorph.readers import open_checkpoint, _bytes\npools = []\n"
        "make = _bytes.FilePool.__init__\n"
        "def watched(self, *a):\n    make(self, *a)\n    pools.append(self)\n"
        "_bytes.FilePool.__init__ = watched\n"
        "ck = open_checkpoint(sys.argv[1])\nopening = sum(p.bytes_read for p in pools)\n"
        "last = ck['w'].full()[-3:].tolist()\n"
        "print(json.dumps([opening, last, ck['w'].n_elements]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    opening, last, n_elements = json.loads(done.stdout)
    assert opening < 100_000
    assert (last, n_elements) == ([0.0, 0.0, 7.0], n // 4)


def _write_large(path: Path, n: int) -> None:
    """Write torch's container around a sparse storage: the pickle by torch, the zip by struct."""
    small = path.with_name("one.pt")
    torch.save({"w": torch.zeros(1)}, small)
    with zipfile.ZipFile(small) as source:
        data = source.read(next(i for i in source.infolist() if i.filename.endswith("data.pkl")))
    # One element becomes n / 4: the two BININT1 1 of storage and shape as BININT8-like LONG1.
    count = n // 4
    long1 = b"\x8a" + bytes([8]) + count.to_bytes(8, "little")
    assert data.count(b"K\x01") == 3  # elements of the storage, the extent, the stride
    first, second, third, fourth = data.split(b"K\x01")
    data = first + long1 + second + long1 + third + b"K\x01" + fourth
    records = [(b"large/data.pkl", data, len(data)), (b"large/data/0", b"", n), (b"large/version", b"3\n", 2)]
    directory = b""
    with path.open("wb") as stream:
        for name, content, size in records:
            at = stream.tell()
            stream.write(struct.pack("<4s5H3L2H", b"PK\3\4", 45, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name + content)
            if not content:
                stream.truncate(stream.tell() + size)
                stream.seek(size - 4, os.SEEK_CUR)
                stream.write(struct.pack("<f", 7.0))
            extra = struct.pack("<2H3Q", 1, 24, size, size, at)
            ones = 0xFFFFFFFF
            fields = (45, 45, 0, 0, 0, 0, 0, ones, ones, len(name), len(extra), 0, 0, 0, 0, ones)
            directory += struct.pack("<4s6H3L5H2L", b"PK\1\2", *fields) + name + extra
        at = stream.tell()
        end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 3, 3, len(directory), at)
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, at + len(directory), 1)
        stream.write(directory + end64 + locator)
        stream.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))


def test_r106_a_payload_is_told_and_the_other_tensors_are_listed(tmp_path: Path, nothing_done: list[str]) -> None:
    with open_checkpoint(CORPUS / "bad_evil_pt" / "ckpt") as checkpoint:
        told = next(p for p in checkpoint.problems if p.code == "code-reference")
        assert "posix.system" in told.sentence
        assert "not run here" in told.sentence
        assert "safe" not in told.sentence
        assert len(checkpoint) == 11


def test_r76_a_small_view_of_a_big_storage_reads_ten_elements_only(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(1_000_000.0)[500:510]}, tmp_path / "m.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        tensor = checkpoint["a"]
        assert tensor.full()[...].tolist() == list(range(500, 510))
        source: Any = tensor.fragments[0].source
        assert source.place().n_bytes == 40


# ---------------------------------------------------------------- trees, objects, optimizers


def _train(names: bool) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.named_parameters() if names else model.parameters(), lr=0.01)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_optimizer_state_is_named_where_the_groups_record_names(tmp_path: Path) -> None:
    model, optimizer = _train(names=True)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "global_step": 7}
    torch.save(saved, tmp_path / "m.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        keys = {n: checkpoint[n].key for n in checkpoint}
        assert keys["model.0.weight"].param == "0.weight"
        assert (keys["optimizer.state.0.exp_avg"].param, keys["optimizer.state.0.exp_avg"].slot) == (
            "0.weight",
            "exp_avg",
        )
        assert keys["optimizer.state.3.exp_avg_sq"].param == "1.bias"
        assert checkpoint.facts.step == 7
        assert checkpoint.facts.states["moments"].present == "yes"
        groups = checkpoint.objects["optimizer.param_groups"].load()
        assert groups[0]["lr"] == 0.01


def test_optimizer_state_without_names_stays_unnamed_and_is_never_matched_by_shape(tmp_path: Path) -> None:
    model, optimizer = _train(names=False)
    torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "m.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        key = checkpoint["optimizer.state.0.exp_avg"].key
        assert (key.named, key.slot, key.param) == (False, "exp_avg", "optimizer.state.0")
        assert "by number" in checkpoint.facts.states["moments"].evidence


def test_a_stated_order_names_optimizer_state_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    model, optimizer = _train(names=False)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "m.pt")
    order = [name for name, _ in model.named_parameters()]
    with open_checkpoint(tmp_path, parameter_order=order) as checkpoint:
        key = checkpoint["optimizer.state.3.exp_avg"].key
        assert (key.param, key.slot, key.named) == ("1.bias", "exp_avg", True)
        assert "parameter-order" in [p.code for p in checkpoint.problems]
    with open_checkpoint(tmp_path, parameter_order=order[:-1]) as checkpoint:
        assert not checkpoint["optimizer.state.3.exp_avg"].key.named
        assert codes(checkpoint) == ["parameter-order"]


def test_r63_a_dotted_key_and_a_nested_one_are_two_tensors(tmp_path: Path) -> None:
    torch.save({"a.b": torch.ones(1), "a": {"b": torch.full((1,), 2.0)}, 0: torch.zeros(2), "0": torch.ones(3)},
               tmp_path / "m.pt")  # fmt: skip
    with open_checkpoint(tmp_path) as checkpoint:
        assert sorted(checkpoint) == ["0", "0 [2]", "a.b", "a.b [2]"]
        assert {float(checkpoint[n].full()[0]) for n in ("a.b", "a.b [2]")} == {1.0, 2.0}


class Foreign:
    """A class that whoever opens the file does not have."""

    def __init__(self) -> None:
        self.weight = torch.arange(3.0)
        self.note = "kept"


def test_an_unknown_class_is_opaque_and_its_fields_and_tensors_stay_reachable(tmp_path: Path) -> None:
    torch.save({"thing": Foreign(), "w": torch.ones(2)}, tmp_path / "m.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint["thing.weight"].full()[...].tolist() == [0, 1, 2]
        assert checkpoint.objects["thing.note"].load() == "kept"
        told = next(p.sentence for p in checkpoint.problems if p.code == "objects-not-loaded")
        assert "Foreign" in told


def test_a_foreign_device_opens_and_is_shown(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(3.0)}, tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt") as source, zipfile.ZipFile(tmp_path / "n.pt", "w") as target:
        for item in source.infolist():
            data = source.read(item).replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:3")
            target.writestr(item.filename, data)
    with open_checkpoint(tmp_path / "n.pt") as checkpoint:
        assert checkpoint["w"].full()[...].tolist() == [0, 1, 2]
        assert [local.device for local in checkpoint["w"].locals] == ["cuda:3"]


def test_hash_finds_a_flipped_byte_that_torch_does_not_see(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(64.0)}, tmp_path / "m.pt")
    data = bytearray((tmp_path / "m.pt").read_bytes())
    data[data.find(torch.arange(64.0).numpy().tobytes()) + 5] ^= 1
    (tmp_path / "m.pt").write_bytes(data)
    torch.load(tmp_path / "m.pt")
    with open_checkpoint(tmp_path) as checkpoint:
        assert "crc" in [p.code for p in check(checkpoint, hashes=True).problems]


def test_a_cut_zip_says_that_its_directory_is_missing(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(64.0)}, tmp_path / "m.pt")
    os.truncate(tmp_path / "m.pt", 900)
    with pytest.raises(CorruptFileError, match="cut short, or is still being written"):
        open_checkpoint(tmp_path / "m.pt")


# ---------------------------------------------------------------- torch as the oracle

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip
LEGACY_LACKS = {torch.uint16, torch.uint32, torch.uint64}


@st.composite
def saved_tensors(draw: st.DrawFn) -> tuple[dict[str, torch.Tensor], bool, int]:
    legacy = draw(st.booleans())
    kinds = [d for d in DTYPES if not (legacy and (d in LEGACY_LACKS or "float8" in str(d)))]
    out: dict[str, torch.Tensor] = {}
    base: torch.Tensor | None = None
    for i in range(draw(st.integers(1, 5))):
        if base is not None and draw(st.booleans()):
            tensor = base  # shares its storage with one before
        else:
            shape = draw(st.lists(st.integers(0, 4), max_size=4))
            n = int(np.prod(shape, dtype=np.int64)) if shape else 1
            dtype = draw(st.sampled_from(kinds))
            width = torch.empty(0, dtype=dtype).element_size()
            raw = torch.arange(n * width, dtype=torch.int64).mul(37).add(draw(st.integers(0, 255))).remainder(256)
            raw = raw.to(torch.uint8) if dtype != torch.bool else raw.remainder(2).to(torch.uint8)
            tensor = raw.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)
            base = tensor
        for _ in range(draw(st.integers(0, 2))):
            if tensor.dim() > 1 and draw(st.booleans()):
                tensor = tensor.transpose(0, draw(st.integers(1, tensor.dim() - 1)))
            if tensor.dim() and tensor.shape[0] > 1:
                step = draw(st.integers(1, 2))
                tensor = tensor[draw(st.integers(0, tensor.shape[0] - 1)) :: step]
        out[f"t{i}"] = tensor
    return out, legacy, draw(st.sampled_from([2, 3, 4, 5]))


@given(saved_tensors())
def test_any_file_of_torch_reads_as_torch_reads_it(case: tuple[dict[str, torch.Tensor], bool, int]) -> None:
    tensors, legacy, protocol = case
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"tensormorph-torch-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    path = folder / "m.pt"
    torch.save(tensors, path, _use_new_zipfile_serialization=not legacy, pickle_protocol=protocol)
    with open_checkpoint(path) as checkpoint:
        assert set(checkpoint) | set(checkpoint.aliases) == set(tensors)
        for name, expected in tensors.items():
            found = checkpoint[name].full()[...]
            assert found.shape == tuple(expected.shape)
            flat = torch.empty(expected.numel(), dtype=expected.dtype)
            flat.copy_(expected.reshape(-1))
            assert found.tobytes() == flat.view(torch.uint8).numpy().tobytes()
