"""Safetensors written in blocks are what the library reads, rounded as torch rounds."""

import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from cosyserve.errors import ModelError
from tools.model.checkpoints import tensor_file
from tools.model.checkpoints.tensor_file import Precision, Source, read_safetensors, read_sources, rounded, write, zeros


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "BLOCK_VALUES", 70)


def values(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("precision", list(Precision))
def test_what_was_written_is_read_by_the_library_and_in_blocks(tmp_path: Path, precision: Precision) -> None:
    a, b = values(31, 9), values(5)
    counted: list[int] = []
    write(tmp_path / "f", {"a": Source(a), "b": Source(b), "none": Source(zeros(3, 4))}, precision, counted.append)
    tensors, ours = load_file(tmp_path / "f"), read_sources(tmp_path / "f")
    assert tensors.keys() == {"a", "b", "none"}
    for name, wanted in (("a", a), ("b", b), ("none", torch.zeros(3, 4))):
        torch.testing.assert_close(tensors[name], wanted.to(precision.dtype), atol=0, rtol=0)
        torch.testing.assert_close(ours[name].tensor(), wanted.to(precision.dtype).float(), atol=0, rtol=0)
    assert len(list(ours["a"].blocks())) == 5
    assert sum(counted) == (31 * 9 + 5 + 12) * precision.dtype.itemsize


def test_ties_go_to_the_even_neighbour() -> None:
    wide = torch.tensor([0x3F808000, 0x3F818000, 0xBF808001 - (1 << 32)], dtype=torch.int32).view(torch.float32)
    wanted = torch.tensor([0x3F80, 0x3F82, 0xBF81 - (1 << 16)], dtype=torch.int16)
    assert torch.equal(rounded(wide, Precision.BFLOAT16).view(torch.int16), wanted)


@pytest.mark.parametrize(
    ("precision", "value", "said"),
    [
        (Precision.FLOAT16, -7e4, "a value of size 70000 is more than float16 can hold .*; take bfloat16"),
        *(
            (precision, value, "it holds values that are not finite")
            for precision in Precision
            for value in (torch.nan, torch.inf, -torch.inf)
        ),
    ],
)
def test_what_a_type_cannot_hold_is_refused_by_name(
    tmp_path: Path, precision: Precision, value: float, said: str
) -> None:
    """A NaN, rounded by its bits, would have become a number."""
    tensors = {"good": Source(values(3, 3)), "bad": Source(torch.tensor([1.0, value]))}
    with pytest.raises(ModelError, match=f"tensor bad: {said}"):
        write(tmp_path / "f", tensors, precision)


def test_another_number_type_is_refused_by_name(tmp_path: Path) -> None:
    save_file({"wide": values(3).double()}, tmp_path / "f")
    with pytest.raises(ModelError, match=r"tensor wide is torch\.float64 of shape \[3\]; readable are"):
        read_sources(tmp_path / "f")


def test_rows_and_stacks_are_those_of_tensors() -> None:
    a, b = values(23, 7), values(4, 7)
    joined = Source.stacked([Source(a), Source(zeros(2, 7), b)])
    whole = torch.cat([a, torch.zeros(2, 7), b])
    assert torch.equal(joined.tensor(), whole)
    for start, stop in ((0, 29), (9, 10), (10, 20), (21, 27), (22, 29)):
        assert torch.equal(joined.rows(start, stop).tensor(), whole[start:stop])
    with pytest.raises(ValueError, match="cannot be stacked"):
        Source(a, values(3, 6))


@pytest.mark.parametrize("damage", ["cut", "header", "size", "empty", "json"])
def test_damaged_files_are_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "f"
    write(path, {"a": Source(values(10, 10))}, Precision.FLOAT32)
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
        read_safetensors(path)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_files_are_read_or_refused(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    path = tmp_path / "f"
    write(path, {"a": Source(values(4, 5)), "b": Source(values(3))}, Precision.BFLOAT16)
    data = bytearray(path.read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    path.write_bytes(data)
    refusal = ""
    try:
        for source in read_sources(path).values():
            assert source.tensor().shape == source.shape
    except ModelError as error:
        refusal = str(error)
    assert not refusal or str(path) in refusal
