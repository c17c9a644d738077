"""Streams that share a step do not affect each other, even if they are cancelled or fail."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cosyserve.errors import InternalFault, InvalidRequest
from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.vocoder import Vocoder, load_vocoder

TINY = Path(__file__).parents[2] / "golden" / "tiny"
with np.load(TINY / "flow_mel.npz") as arrays:
    MEL = torch.from_numpy(arrays["mel_offline"][0])
CUTS = [[32, 50, 38], [50, 50, 20], [2, 48, 70], [120, 0, 0]]


@pytest.fixture(scope="module")
def vocoder() -> Vocoder:
    return load_vocoder(ModelDirectory(TINY), torch.device("cpu"))


def mel_of(stream: int) -> Tensor:
    return MEL[:, 20 * stream : 20 * stream + 120]


def together(vocoder: Vocoder, streams: list[int]) -> list[Tensor]:
    """Every stream in each step, each with its own cuts."""
    states = [vocoder.start(stream, 0, CUTS[stream][0]) for stream in streams]
    made: list[list[Tensor]] = [[] for _ in streams]
    for step in range(3):
        begins = [sum(CUTS[stream][:step]) for stream in streams]
        mels = [mel_of(s)[:, begin : begin + CUTS[s][step]] for s, begin in zip(streams, begins, strict=True)]
        for pieces, samples in zip(made, vocoder.step(states, mels, [step == 2] * len(streams)), strict=True):
            assert samples is not None
            pieces.append(samples)
    return [torch.cat(pieces) for pieces in made]


def test_a_batch_is_its_singles_bit_for_bit(vocoder: Vocoder) -> None:
    for stream, samples in enumerate(together(vocoder, [0, 1, 2, 3])):
        assert torch.equal(samples, together(vocoder, [stream])[0])


def test_windows_in_one_batch_agree_up_to_rounding() -> None:
    """How devices other than the CPU render."""
    batching = load_vocoder(ModelDirectory(TINY), torch.device("cpu"))
    batching.batch_invariant = False
    singles = load_vocoder(ModelDirectory(TINY), torch.device("cpu"))
    for stream, samples in enumerate(together(batching, [0, 1, 2, 3])):
        torch.testing.assert_close(samples, together(singles, [stream])[0], rtol=0, atol=2e-5)
    assert batching.windows == singles.windows > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_batch_is_its_singles_and_the_cpu() -> None:
    cuda, cpu = (load_vocoder(ModelDirectory(TINY), torch.device(name)) for name in ("cuda", "cpu"))
    reference = together(cpu, [0, 1, 2, 3])
    for stream, samples in enumerate(together(cuda, [0, 1, 2, 3])):
        torch.testing.assert_close(samples, together(cuda, [stream])[0], rtol=0, atol=2e-5)
        torch.testing.assert_close(samples.cpu(), reference[stream], rtol=0, atol=2e-4)


def test_a_cancelled_stream_starts_no_window_and_frees_its_memory(vocoder: Vocoder) -> None:
    states = [vocoder.start(stream, 0) for stream in (0, 1)]
    vocoder.step(states, [mel_of(0)[:, :50], mel_of(1)[:, :50]], [False, False])
    before, held = vocoder.windows, states[1].bytes
    states[0].cancelled = True
    samples = vocoder.step(states, [mel_of(0)[:, 50:100], mel_of(1)[:, 50:100]], [False, False])
    assert samples[0] is None
    assert states[0].bytes == 0 < held
    assert samples[1] is not None
    assert vocoder.windows == before + 5


def test_cancelling_inside_a_step_stops_it_before_the_next_window(
    vocoder: Vocoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = vocoder.start(0, 0)
    render, windows = vocoder._render, 0

    def cancel_in_the_second(*arguments: object) -> list[Tensor]:
        nonlocal windows
        windows += 1
        state.cancelled = windows == 2
        return render(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(vocoder, "_render", cancel_in_the_second)
    assert vocoder.step([state], [mel_of(0)], [True]) == [None]
    assert windows == 2
    assert state.bytes == 0


def test_memory_does_not_grow_with_the_sentence(vocoder: Vocoder) -> None:
    state, held = vocoder.start(0, 0), []
    for begin in range(0, 200, 10):
        vocoder.step([state], [MEL[:, begin : begin + 10]], [False])
        held.append(state.bytes)
    assert max(held[6:]) == max(held[12:])


def test_numbers_that_are_none_end_that_stream_alone(vocoder: Vocoder) -> None:
    states = [vocoder.start(stream, 0) for stream in (0, 1)]
    bad = torch.full((80, 50), torch.nan)
    samples = vocoder.step(states, [bad, mel_of(1)[:, :50]], [False, False])
    assert samples[0] is None
    assert isinstance(states[0].fault, InternalFault)
    assert "not finite" in states[0].fault.message
    assert states[0].bytes == 0
    alone = vocoder.start(1, 0)
    assert samples[1] is not None
    assert torch.equal(samples[1], vocoder.step([alone], [mel_of(1)[:, :50]], [False])[0])  # type: ignore[arg-type]
    with pytest.raises(InternalFault, match="not finite"):
        vocoder.offline(bad, 0, 0)
    with pytest.raises(InternalFault, match="not finite"):
        vocoder.step_upstream(vocoder.start_upstream(0, 0), bad, final=True)


def test_misuse_is_told_before_anything_changes(vocoder: Vocoder) -> None:
    over, fresh = vocoder.start(0, 0), vocoder.start(1, 0)
    assert vocoder.step([over], [MEL[:, :0]], [True])[0].shape == (0,)  # type: ignore[union-attr]
    with pytest.raises(InternalFault, match="stream 1 got a step after its final one"):
        vocoder.step([fresh, over], [MEL[:, :30], MEL[:, :1]], [False, False])
    with pytest.raises(InternalFault, match=r"stream 0 has shape \[79, 3\]"):
        vocoder.step([fresh], [MEL[:79, :3]], [False])
    assert fresh.received == 0


def test_the_upstream_schedule_holds_back_and_then_gives_everything(vocoder: Vocoder) -> None:
    state = vocoder.start_upstream(3, 0)
    assert vocoder.step_upstream(state, MEL[:, :60], final=False).shape == (480 * 52,)
    assert state.bytes == 4 * (80 * 8 + 3840 + 3840)
    assert vocoder.step_upstream(state, MEL[:, 60:60], final=False).shape == (0,)
    assert vocoder.step_upstream(state, MEL[:, 60:100], final=True).shape == (480 * 48,)
    with pytest.raises(InternalFault, match="after the final one"):
        vocoder.step_upstream(state, MEL[:, :10], final=False)
    assert vocoder.step_upstream(vocoder.start_upstream(3, 0), MEL[:, :0], final=True).shape == (0,)


def test_the_upstream_schedule_needs_eight_frames_first(vocoder: Vocoder) -> None:
    state = vocoder.start_upstream(3, 0)
    with pytest.raises(InvalidRequest, match="7 mel frames; profile upstream needs 8"):
        vocoder.step_upstream(state, MEL[:, :7], final=False)
    assert vocoder.step_upstream(state, MEL[:, :7], final=True).shape == (480 * 7,)
