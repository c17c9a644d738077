"""Safetensors written in blocks are what the library reads, rounded as torch rounds."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from cosyserve.errors import ModelError
from tools.model.checkpoints import tensor_file
from tools.model.checkpoints.tensor_file import (
    Precision,
    decode,
    encode,
    entries,
    held,
    rows,
    stacked,
    stored,
    write,
    zeros,
)

TORCH = {Precision.BFLOAT16: torch.bfloat16, Precision.FLOAT16: torch.float16, Precision.FLOAT32: torch.float32}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "BLOCK_VALUES", 70)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("precision", list(Precision))
def test_the_library_reads_what_was_written(tmp_path: Path, precision: Precision) -> None:
    a, b = values(23, 7), values(5)
    counted: list[int] = []
    write(tmp_path / "f", {"a": held(a), "b": held(b), "none": zeros((3, 4))}, precision, counted.append)
    tensors = load_file(tmp_path / "f")
    assert tensors.keys() == {"a", "b", "none"}
    torch.testing.assert_close(tensors["a"], torch.from_numpy(a).to(TORCH[precision]), atol=0, rtol=0)
    torch.testing.assert_close(tensors["b"], torch.from_numpy(b).to(TORCH[precision]), atol=0, rtol=0)
    assert not tensors["none"].any()
    assert sum(counted) == (23 * 7 + 5 + 12) * precision.size


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
@settings(max_examples=200, deadline=None)
def test_bfloat16_is_rounded_as_torch_rounds(numbers: list[float]) -> None:
    wide = np.array(numbers, np.float32)
    expected = torch.from_numpy(wide).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(decode(encode(wide, Precision.BFLOAT16), "BF16"), expected)


def test_ties_go_to_the_even_neighbour() -> None:
    wide = np.array([0x3F808000, 0x3F818000, 0xBF808001], np.uint32).view(np.float32)
    assert np.frombuffer(encode(wide, Precision.BFLOAT16), np.uint16).tolist() == [0x3F80, 0x3F82, 0xBF81]


def test_what_float16_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"tensor big: a value of size 70000 is more than float16 can hold .*; take bfloat16"
    ):
        write(tmp_path / "f", {"big": held(np.array([1.0, -7e4], np.float32))}, Precision.FLOAT16)


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_by_name(tmp_path: Path, precision: Precision, value: float) -> None:
    """A NaN, rounded by its bits, would have become a number."""
    with pytest.raises(ModelError, match="tensor bad: it holds values that are not finite"):
        write(tmp_path / "f", {"good": held(values(3, 3)), "bad": held(np.array([1.0, value], np.float32))}, precision)


@pytest.mark.parametrize("precision", list(Precision))
def test_what_the_library_wrote_is_read_in_blocks(tmp_path: Path, precision: Precision) -> None:
    a = torch.from_numpy(values(31, 9)).to(TORCH[precision])
    save_file({"a": a, "b": a[0].clone()}, tmp_path / "f")
    tensors = entries(tmp_path / "f")
    source = stored(tmp_path / "f", tensors["a"])
    assert len(list(source.blocks())) == 5
    np.testing.assert_array_equal(source.array(), a.float().numpy())
    np.testing.assert_array_equal(stored(tmp_path / "f", tensors["b"]).array(), a[0].float().numpy())


def test_rows_and_stacks_are_those_of_arrays() -> None:
    a, b = values(23, 7), values(4, 7)
    joined = stacked([held(a), zeros((2, 7)), held(b)])
    whole = np.concatenate([a, np.zeros((2, 7), np.float32), b])
    np.testing.assert_array_equal(joined.array(), whole)
    for start, stop in ((0, 29), (9, 10), (10, 20), (21, 27), (22, 29)):
        np.testing.assert_array_equal(rows(joined, start, stop).array(), whole[start:stop])
    with pytest.raises(ValueError, match="cannot be stacked"):
        stacked([held(a), held(values(3, 6))])


@pytest.mark.parametrize("damage", ["cut", "header", "size", "empty", "json"])
def test_damaged_files_are_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "f"
    write(path, {"a": held(values(10, 10))}, Precision.FLOAT32)
    data = path.read_bytes()
    path.write_bytes(
        {
            "cut": data[:-1],
            "header": data[:20],
            "size": struct.pack("<Q", 1 << 62) + data[8:],
            "empty": b"",
            "json": data[:8] + b"?" + data[9:],
        }[damage]
    )
    with pytest.raises(ModelError, match=r"cut short|malformed"):
        entries(path)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_files_are_read_or_refused(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    path = tmp_path / "f"
    write(path, {"a": held(values(4, 5)), "b": held(values(3))}, Precision.BFLOAT16)
    data = bytearray(path.read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    path.write_bytes(data)
    refusal = ""
    try:
        for entry in entries(path).values():
            assert stored(path, entry).array().shape == entry.shape
    except ModelError as error:
        refusal = str(error)
    assert not refusal or str(path) in refusal
