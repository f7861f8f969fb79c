"""Objects that are taken in one step: the same nodes, memo and count as opcode by opcode, or not taken."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

from tensormorph.readers._dcp_metadata import _forms
from tensormorph.readers._pickle import Pickle, interpret
from tensormorph.readers._pickle_nodes import Call, Dict, Global, List, Loose, Tuple, Value
from tensormorph.readers._pickle_packed import Packed


def same(a: Value, b: Value) -> None:
    """Assert that two trees of nodes say the same; shared nodes are walked once."""
    waiting: list[tuple[Any, Any]] = [(a, b)]
    seen: set[tuple[int, int]] = set()
    while waiting:
        x, y = waiting.pop()
        if (id(x), id(y)) in seen:
            continue
        seen.add((id(x), id(y)))
        if isinstance(x, Call):
            assert isinstance(y, Call)
            waiting += [(x.function, y.function), (x.args, y.args), (x.state, y.state), (x.items, y.items),
                        (x.pairs, y.pairs)]  # fmt: skip
        elif isinstance(x, Dict):
            assert isinstance(y, Dict)
            assert len(x.flat) == len(y.flat)
            waiting += zip(x.flat, y.flat, strict=True)
        elif isinstance(x, Tuple | List | Loose):
            assert type(x) is type(y)
            assert len(x) == len(y)
            waiting += zip(x, y, strict=True)
        elif isinstance(x, Global):
            assert isinstance(y, Global)
            assert (x.module, x.name, x.count) == (y.module, y.name, y.count)
        else:
            assert type(x) is type(y)
            assert x == y or (x != x and y != y)


def both(data: bytes) -> tuple[Pickle, Pickle]:
    """Interpret a pickle in both ways and assert that they agree."""
    plain, packed = interpret(data), interpret(data, forms=_forms())
    assert (packed.complete, packed.truncated, packed.end) == (plain.complete, plain.truncated, plain.end)
    if plain.complete:
        same(plain.value, packed.value)
        assert packed.n_opcodes == plain.n_opcodes
    assert [(p.code, p.byte_range) for p in packed.problems] == [(p.code, p.byte_range) for p in plain.problems]
    return plain, packed


def n_packed(value: Value) -> int:
    waiting: list[Any] = [value]
    n = 0
    while waiting:
        node = waiting.pop()
        if type(node) is Packed:
            n += 1
        elif isinstance(node, Dict):
            waiting += node.flat
        elif isinstance(node, Tuple | List):
            waiting += node
    return n


SIZES = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**62)), max_size=5).map(torch.Size)
NAMES = st.one_of(st.text(max_size=12), st.sampled_from(["a" * 255, "b" * 256, "\x94", "ünï.重み 🙂", ""]))
CHUNKS = st.builds(lambda o, s: ChunkStorageMetadata(offsets=o, sizes=s), SIZES, SIZES)
INDEXES = st.builds(MetadataIndex, NAMES, st.none() | SIZES, st.none() | st.integers(0, 2**40))
PLACES = st.builds(_StorageInfo, NAMES, st.integers(0, 2**62), st.integers(0, 2**62))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(CHUNKS, INDEXES, PLACES, SIZES, NAMES), max_size=12), st.sampled_from([2, 3, 4, 5]))
def test_torchs_own_objects_say_the_same_in_both_ways(values: list[Any], protocol: int) -> None:
    doubled = [*values, *values[:3]]
    _, packed = both(pickle.dumps(doubled, protocol))
    if protocol < 4:
        assert n_packed(packed.value) == 0


def test_what_a_metadata_repeats_is_taken_in_one_step() -> None:
    chunks = [ChunkStorageMetadata(offsets=torch.Size((i, 0)), sizes=torch.Size((1, 8))) for i in range(300)]
    stored = {MetadataIndex(f"w{i}", torch.Size((i, 0))): _StorageInfo("__0_0.distcp", i, 5) for i in range(300)}
    _, packed = both(pickle.dumps([chunks, stored], 4))
    assert n_packed(packed.value) > 880  # all but those of which the names are met for the first time


def test_a_frame_may_end_inside_an_object() -> None:
    """Frames of 64 kB cut objects anywhere: those are read opcode by opcode."""
    chunks = [
        ChunkStorageMetadata(offsets=torch.Size((i * 99991, i)), sizes=torch.Size((i, 2**33))) for i in range(6000)
    ]
    data = pickle.dumps(chunks, 4)
    assert data.count(b"\x95") > 3
    _, packed = both(data)
    assert n_packed(packed.value) > 5900


def _spliced(chunk: ChunkStorageMetadata, tail: bytes) -> bytes:
    """Return a pickle of three chunks and of what `tail` then gets from the memo."""
    data = pickle.dumps([chunk, ChunkStorageMetadata(torch.Size((3, 4)), torch.Size((5, 6)))], 4)
    assert data[-2:] == b"e."
    return data[:-2] + tail + b"e."


def test_what_a_packed_object_is_made_of_can_be_got_from_the_memo() -> None:
    first = ChunkStorageMetadata(torch.Size((1, 2)), torch.Size((7, 8)))
    n = interpret(_spliced(first, b"")).n_opcodes
    assert n
    plain = interpret(_spliced(first, b""))
    assert plain.complete
    for number in range(40):
        both(_spliced(first, b"h" + bytes([number])))


@pytest.mark.parametrize("change", [(b"offsets", b"0ffsets"), (b"sizes", b"sizez"), (b"Size", b"Sise"),
                                    (b"ChunkStorageMetadata", b"ChunkStorageMetadatb")])  # fmt: skip
def test_other_names_are_other_forms(change: tuple[bytes, bytes]) -> None:
    chunks = [ChunkStorageMetadata(torch.Size((i, 2)), torch.Size((7, 8))) for i in range(5)]
    data = pickle.dumps(chunks, 4).replace(*change)
    _, packed = both(data)
    assert n_packed(packed.value) == 0


def test_a_pickle_cut_anywhere_breaks_off_at_the_same_byte() -> None:
    stored = {MetadataIndex(f"w{i}", torch.Size((i,))): _StorageInfo("__0_0.distcp", i, 70_000) for i in range(4)}
    data = pickle.dumps(stored, 4)
    for end in range(len(data)):
        both(data[:end])


def test_bytes_that_change_stay_the_same_in_both_ways() -> None:
    chunks = [ChunkStorageMetadata(torch.Size((i, 300)), torch.Size((7, 70_000))) for i in range(3)]
    data = pickle.dumps(chunks, 4)
    for at in range(len(data)):
        for value in (0, 0x28, 0x4B, 0x68, 0x85, 0x94, 0xFF):
            both(data[:at] + bytes([value]) + data[at + 1 :])


def test_a_memo_number_that_is_given_to_another_object_is_believed() -> None:
    """PUT may set a number again: what was known of the names is forgotten then."""
    size = b"ctorch\nSize\nq\x02"
    head = (
        b"\x80\x04]q\x00(cx\nChunkStorageMetadata\nq\x01"
        + size
        + b"X\x07\x00\x00\x00offsetsq\x03X\x05\x00\x00\x00sizesq\x04000"
    )
    one = b"h\x01)\x81\x94}\x94(h\x03h\x02K\x01K\x02\x86\x94\x85\x94R\x94h\x04h\x02K\x03K\x04\x86\x94\x85\x94R\x94ub"
    swapped = b"X\x05\x00\x00\x00wrongq\x030"
    data = head.replace(b"000", b"0000"[:3]) + one + swapped + one + b"e."
    _, packed = both(data)
    states = [node.state for node in packed.value if isinstance(node, Call)]  # type: ignore[union-attr]
    names = [state.flat[0] for state in states if isinstance(state, Dict)]
    assert names == ["offsets", "wrong"]


def test_many_spellings_do_not_take_quadratic_time() -> None:
    """A file that names the fields in a thousand ways is read opcode by opcode from some point on."""
    parts = [b"\x80\x04]\x94("]
    memo = 1
    for i in range(300):
        parts.append(b"cx\nChunkStorageMetadata\n\x94ctorch\nSize\n\x94\x8c\x07offsets\x94\x8c\x05sizes\x940000")
        cls, size, low, high = (b"j" + struct.pack("<I", memo + k) for k in range(4))
        parts.append(
            cls
            + b")\x81\x94}\x94("
            + low
            + size
            + b"K\x01\x85\x94\x85\x94R\x94"
            + high
            + size
            + b"K\x02\x85\x94\x85\x94R\x94ub"
        )
        memo += 4 + 8
        del i
    both(b"".join([*parts, b"e."]))
