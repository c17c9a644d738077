"""What a stream keeps of its blocks lies outside malloc, and is used again behind the stream."""

import ctypes
import mmap
from pathlib import Path

import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.kept_memory import BlockMemory, Mappings
from services.token2wav.flow.loading import load_flow

BUNDLED = ModelDirectory(Path("models/demo"))
MEGABYTE = 1 << 20


class Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`: in bytes [4] what is in mappings, [7] what is handed out of the
    rest.
    """

    _fields_ = (("values", ctypes.c_size_t * 10),)


def handed_out() -> int:
    """Bytes that malloc has handed out and not got back. Skips where there is no glibc."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("this C library does not say what malloc has handed out")
    mallinfo2.restype = Mallinfo
    values = mallinfo2().values
    return int(values[4] + values[7])


def mapped() -> int:
    """Bytes of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_copies_are_equal_contiguous_aligned_and_apart(dtype: torch.dtype) -> None:
    memory, strided = BlockMemory(Mappings(MEGABYTE)), torch.randn(7, 5, 3).to(dtype).transpose(0, 2)
    copies = [memory.copy(strided + number) for number in range(5)]
    for number, copy in enumerate(copies):
        assert torch.equal(copy, strided + number)
        assert (copy.dtype, copy.shape, copy.is_contiguous()) == (dtype, strided.shape, True)
        assert copy.data_ptr() % 64 == 0


def test_more_than_a_mapping_has_room_for() -> None:
    memory, large = BlockMemory(Mappings(MEGABYTE)), torch.arange(MEGABYTE)
    copies = [memory.copy(large[: 50_000 * number]) for number in (1, 2, 20, 1)]
    assert [torch.equal(copy, large[: copy.numel()]) for copy in copies] == [True] * 4


def test_a_mapping_is_used_again_when_its_last_tensor_is_gone() -> None:
    mappings = Mappings(MEGABYTE)
    memory = BlockMemory(mappings)
    first, second = (memory.copy(torch.ones(9)) for _ in range(2))
    place = first.data_ptr()
    del memory, first
    other = BlockMemory(mappings).copy(torch.zeros(9))
    assert second.sum() == 9
    del second
    assert BlockMemory(mappings).copy(torch.zeros(9)).data_ptr() == place
    assert other.data_ptr() != place


@pytest.mark.parametrize(("megabytes", "spare"), [(16, 4), (65, 0)])
def test_the_system_has_back_what_is_more_than_a_few_blocks(megabytes: int, spare: int) -> None:
    mappings = Mappings(megabytes * MEGABYTE)
    taken = [mappings.take(1) for _ in range(6)]
    before = mapped()
    del taken
    # Python maps a megabyte now and then.
    assert before - mapped() == pytest.approx((6 - spare) * megabytes * MEGABYTE, abs=4 * MEGABYTE)


@torch.inference_mode()
def test_of_a_stream_malloc_has_next_to_nothing() -> None:
    """Pieces of states between temporary tensors are what made the process grow."""
    flow = load_flow(BUNDLED, torch.device("cpu"))
    state = flow.start(VoicePrompt(torch.zeros(0, dtype=torch.long), torch.zeros(0, 80), torch.ones(192)))
    tokens = torch.arange(28)
    flow.blocks([state], [tokens[:25]], [tokens[25:]])
    before, held = handed_out(), state.bytes
    for _ in range(4):
        flow.blocks([state], [tokens[:25]], [tokens[25:]])
    grown = state.bytes - held
    assert grown > 20 * MEGABYTE
    assert handed_out() - before < 0.1 * grown
