"""Laws of the vocoder. In the continuous profile samples are bit-identical however mel was cut, and
agree with the whole sentence rendered at once. Streams that share a step do not affect each other,
even if they are cancelled or fail. A whole sentence is abandoned between two units of work, and
polling changes no sample.
"""

import itertools
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosyserve import philox
from cosyserve.errors import InternalFault, InvalidRequest, NonFinite
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.interface import StepInput
from services.token2wav.decoders.whole_hop import WholeHopDecoder
from services.token2wav.flow.loading import load_flow
from services.token2wav.inputs.request import Cancelled, Profile, Sentence
from services.token2wav.vocoder.causal.vocoder import load_causal_hift
from services.token2wav.vocoder.hift_vocoder import load_hift
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.state import UpstreamVocoderState
from services.token2wav.vocoder.vocoder import Vocoder
from tests.stacks.up_process import TINY
from tests.unit.token2wav.speaking import tokens, voice

TINY3 = TINY.parent / "tiny3"
CPU = torch.device("cpu")
with np.load(TINY / "flow_mel.npz") as arrays:
    MEL = torch.from_numpy(arrays["mel_offline"][0])
WAVE = torch.linspace(-4, 1, 80)[:, None] + torch.sin(torch.arange(60) / 5.0)
CUTS = [[32, 50, 38], [50, 50, 20], [2, 48, 70], [120, 0, 0]]
SEED, SENTENCE = 11, 2
HIFT = load_hift(ModelDirectory(TINY), CPU)
VOCODERS: dict[str, Vocoder] = {"hift": HIFT, "causal-hift": load_causal_hift(ModelDirectory(TINY3), CPU)}
LATE = {"hift": 0, "causal-hift": 3}
"""Samples of the last rendered frame that wait for the next one."""


@pytest.fixture(params=VOCODERS, scope="module")
def vocoder(request: pytest.FixtureRequest) -> Vocoder:
    """Every law holds for each network."""
    return VOCODERS[request.param]


def spoken(vocoder: Vocoder, cuts: list[int], frames: int, chunk_phase: int = 0) -> list[Tensor]:
    """What each step hands out when `frames` frames arrive in pieces of these lengths and a last
    one with the rest.
    """
    state = vocoder.start(SEED, SENTENCE, chunk_phase)
    borders = [0, *np.minimum(np.cumsum(cuts), frames).tolist(), frames]
    pieces: list[Any] = []
    for last, (begin, end) in enumerate(itertools.pairwise(borders), start=2):
        pieces += vocoder.step([state], [MEL[:, begin:end]], [last == len(borders)])
    assert state.bytes == 0
    return pieces


@pytest.mark.parametrize("frames", [1, 2, 5, 20, 29, 30, 31, 50, 101])
def test_one_frame_at_a_time_is_the_whole(vocoder: Vocoder, frames: int) -> None:
    whole = torch.cat(spoken(vocoder, [], frames))
    assert whole.shape == (480 * frames,)
    assert torch.equal(torch.cat(spoken(vocoder, [1] * frames, frames)), whole)


@pytest.mark.parametrize("cuts", [[30, 50, 50, 50], [202], [0, 2, 0, 199], [10] * 20, [21, 1, 9, 1, 100]])
def test_cutting_changes_nothing(vocoder: Vocoder, cuts: list[int]) -> None:
    assert torch.equal(torch.cat(spoken(vocoder, cuts, 202)), torch.cat(spoken(vocoder, [], 202)))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    frames=st.integers(1, 120), cuts=st.lists(st.integers(0, 60), max_size=8), chunk_phase=st.sampled_from([0, 7, 30])
)
def test_any_cutting_changes_nothing(vocoder: Vocoder, frames: int, cuts: list[int], chunk_phase: int) -> None:
    assert torch.equal(
        torch.cat(spoken(vocoder, cuts, frames, chunk_phase)), torch.cat(spoken(vocoder, [], frames, chunk_phase))
    )


@pytest.mark.parametrize("frames", [1, 2, 5, 31, 101, 202])
def test_whole_at_once_up_to_rounding(vocoder: Vocoder, frames: int) -> None:
    error = 2e-6 if vocoder is HIFT else 2e-5
    offline = vocoder.offline(MEL[:, :frames], SEED, SENTENCE)
    for chunk_phase in (0, 13):
        torch.testing.assert_close(
            torch.cat(spoken(vocoder, [50] * 4, frames, chunk_phase)), offline, rtol=0, atol=error
        )


def test_earlier_output_never_changes(vocoder: Vocoder) -> None:
    """What has been returned does not depend on what follows."""
    state, other = vocoder.start(SEED, SENTENCE), vocoder.start(SEED, SENTENCE)
    first: Any = vocoder.step([state], [MEL[:, :60]], [False])[0]
    again: Any = vocoder.step([other], [torch.cat([MEL[:, :60], -MEL[:, 60:120]], dim=1)], [True])[0]
    assert 0 < first.shape[0] < again.shape[0]
    assert torch.equal(first, again[: first.shape[0]])


@pytest.mark.parametrize("network", VOCODERS)
def test_what_is_settled_is_handed_out_at_once(network: str) -> None:
    """With a known phase, chunks of 50 frames leave nothing unrendered except the hold-back."""
    vocoder, late = VOCODERS[network], LATE[network]
    lengths = [piece.shape[0] for piece in spoken(vocoder, [32, 50, 50, 50], 202, chunk_phase=32)]
    held = vocoder.hold_back_frames
    assert lengths == [480 * (32 - held) - late, *[480 * 50] * 3, 480 * (20 + held) + late]


def test_seed_and_sentence_name_the_noise(vocoder: Vocoder) -> None:
    mel = MEL[:, :5]
    same, other, next_sentence = (vocoder.offline(mel, seed, sentence) for seed, sentence in ((1, 0), (2, 0), (1, 1)))
    assert torch.equal(same, vocoder.offline(mel, 1, 0))
    assert not torch.equal(same, other)
    assert not torch.equal(same, next_sentence)


@pytest.mark.parametrize("hold_back", [6, 9, 14])
def test_a_smaller_hold_back_is_still_independent_of_cuts(hold_back: int) -> None:
    vocoder = load_hift(ModelDirectory(TINY), CPU, hold_back_frames=hold_back)
    whole = torch.cat(spoken(vocoder, [], 101))
    for cuts in ([1] * 101, [7, 50, 0, 3]):
        assert torch.equal(torch.cat(spoken(vocoder, cuts, 101)), whole)


@pytest.mark.parametrize(
    ("model", "hold_back", "allowed"), [(TINY, 5, "6 to 20"), (TINY, 21, "6 to 20"), (TINY3, 3, "4"), (TINY3, 8, "4")]
)
def test_a_hold_back_without_meaning_is_refused(model: Path, hold_back: int, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"is {hold_back}, allowed {allowed}$"):
        load_vocoder(ModelDirectory(model), CPU, hold_back_frames=hold_back)


def test_a_pruned_window_is_a_slice_of_the_whole() -> None:
    """Fast path against slow path: computing only the necessary columns changes at most
    rounding.
    """
    with torch.inference_mode():
        mel, source = MEL[None, :, :60], 0.1 * HIFT.noise(0, 0, 0, 28800)[..., 0]
        whole = HIFT.filter(mel, source, 0, 60)
        for first, last in ((0, 1), (0, 60), (25, 35), (59, 60), (3, 41)):
            part = HIFT.filter(mel, source, first, last)
            torch.testing.assert_close(part, whole[:, 480 * first : 480 * last], rtol=0, atol=5e-6)


def mel_of(stream: int) -> Tensor:
    return MEL[:, 20 * stream : 20 * stream + 120]


def together(vocoder: Vocoder, streams: list[int]) -> list[Tensor]:
    """Every stream in each step, each with its own cuts."""
    states = [vocoder.start(stream, 0, CUTS[stream][0]) for stream in streams]
    made: list[list[Any]] = [[] for _ in streams]
    for step in range(3):
        begins = [sum(CUTS[stream][:step]) for stream in streams]
        mels = [mel_of(s)[:, begin : begin + CUTS[s][step]] for s, begin in zip(streams, begins, strict=True)]
        for pieces, samples in zip(made, vocoder.step(states, mels, [step == 2] * len(streams)), strict=True):
            pieces.append(samples)
    return [torch.cat(pieces) for pieces in made]


def test_a_batch_is_its_singles_bit_for_bit(vocoder: Vocoder) -> None:
    for stream, samples in enumerate(together(vocoder, [0, 1, 2, 3])):
        assert torch.equal(samples, together(vocoder, [stream])[0])


@pytest.mark.parametrize("model", [TINY, TINY3])
def test_windows_in_one_batch_agree_up_to_rounding(model: Path) -> None:
    """How devices other than the CPU render."""
    batching, singles = (load_vocoder(ModelDirectory(model), CPU) for _ in range(2))
    batching.batch_invariant = False
    for stream, samples in enumerate(together(batching, [0, 1, 2, 3])):
        torch.testing.assert_close(samples, together(singles, [stream])[0], rtol=0, atol=2e-5)
    assert batching.windows == singles.windows > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("model", [TINY, TINY3])
def test_cuda_batch_is_its_singles_and_the_cpu(model: Path) -> None:
    cuda, cpu = (load_vocoder(ModelDirectory(model), torch.device(name)) for name in ("cuda", "cpu"))
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
    assert [made is None for made in samples] == [True, False]
    assert (states[0].bytes, held > 0, vocoder.windows) == (0, True, before + 5)


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
    assert (windows, state.bytes) == (2, 0)


def test_memory_does_not_grow_with_the_sentence(vocoder: Vocoder) -> None:
    state, held = vocoder.start(0, 0), []
    for begin in range(0, 200, 10):
        vocoder.step([state], [MEL[:, begin : begin + 10]], [False])
        held.append(state.bytes)
    assert max(held[6:]) == max(held[12:])


def test_numbers_that_are_none_end_that_stream_alone(vocoder: Vocoder) -> None:
    states = [vocoder.start(stream, 0) for stream in (0, 1)]
    bad = torch.full((80, 50), torch.nan)
    lost, kept = vocoder.step(states, [bad, mel_of(1)[:, :50]], [False, False])
    assert (lost, states[0].bytes, type(states[0].fault)) == (None, 0, NonFinite)
    assert "not finite" in states[0].fault.message
    assert torch.equal(kept, vocoder.step([vocoder.start(1, 0)], [mel_of(1)[:, :50]], [False])[0])  # type: ignore[arg-type]
    with pytest.raises(InternalFault, match="not finite"):
        vocoder.offline(bad, 0, 0)
    with pytest.raises(InternalFault, match="not finite"):
        vocoder.step_upstream(UpstreamVocoderState(seed=0, sentence=0), bad, final=True)


def test_misuse_is_an_error_before_anything_changes(vocoder: Vocoder) -> None:
    over, fresh = vocoder.start(0, 0), vocoder.start(1, 0)
    assert vocoder.step([over], [MEL[:, :0]], [True])[0].shape == (0,)  # type: ignore[union-attr]
    with pytest.raises(InternalFault, match="stream 1 got a step after its final one"):
        vocoder.step([fresh, over], [MEL[:, :30], MEL[:, :1]], [False, False])
    with pytest.raises(InternalFault, match=r"stream 0 has shape \[79, 3\]"):
        vocoder.step([fresh], [MEL[:79, :3]], [False])
    assert fresh.received == 0


def test_the_upstream_schedule_holds_back_and_then_gives_everything(vocoder: Vocoder) -> None:
    state = UpstreamVocoderState(seed=3, sentence=0)
    assert vocoder.step_upstream(state, MEL[:, :60], final=False).shape == (480 * 52,)
    assert state.bytes == 4 * (80 * 8 + 3840 + 3840 if vocoder is HIFT else 80 * 60)
    assert vocoder.step_upstream(state, MEL[:, 60:60], final=False).shape == (0,)
    assert vocoder.step_upstream(state, MEL[:, 60:100], final=True).shape == (480 * 48,)
    with pytest.raises(InternalFault, match="after the final one"):
        vocoder.step_upstream(state, MEL[:, :10], final=False)
    assert vocoder.step_upstream(UpstreamVocoderState(seed=3, sentence=0), MEL[:, :0], final=True).shape == (0,)


def test_the_upstream_schedule_needs_eight_frames_first(vocoder: Vocoder) -> None:
    state = UpstreamVocoderState(seed=3, sentence=0)
    with pytest.raises(InvalidRequest, match="7 mel frames; profile upstream needs 8"):
        vocoder.step_upstream(state, MEL[:, :7], final=False)
    assert vocoder.step_upstream(state, MEL[:, :7], final=True).shape == (480 * 7,)


def test_a_whole_sentence_can_be_stopped_at_many_places(vocoder: Vocoder) -> None:
    never = Mock(return_value=False)
    assert torch.equal(vocoder.offline(WAVE, 1, 0, stop=never), vocoder.offline(WAVE, 1, 0))
    asked = never.call_count
    assert asked > 30
    for after in (0, 1, 2, asked // 2, asked - 1):
        stopping = Mock(side_effect=[False] * after + [True])
        with pytest.raises(Cancelled):
            vocoder.offline(WAVE, 1, 0, stop=stopping)
        assert stopping.call_count == after + 1


def test_noise_drawn_by_the_second_is_the_same_noise(vocoder: Vocoder) -> None:
    count = 2 * 24_000 + 777
    draw = philox.normal if vocoder is HIFT else philox.uniforms
    assert np.array_equal(vocoder.noise(5, 2, 480, 480 + count)[0].numpy(), draw(5, 2, 480, count, 9))


def test_a_call_of_the_reference_schedule_can_be_stopped(vocoder: Vocoder) -> None:
    with pytest.raises(Cancelled):
        vocoder.step_upstream(
            UpstreamVocoderState(seed=1, sentence=0), WAVE, True, stop=Mock(side_effect=[False] * 10 + [True])
        )


@pytest.mark.parametrize("profile", [Profile.OFFLINE, Profile.UPSTREAM])
def test_a_stream_cancelled_after_the_flow_gives_no_samples(
    vocoder: Vocoder, monkeypatch: pytest.MonkeyPatch, profile: Profile
) -> None:
    flow = load_flow(ModelDirectory(TINY), CPU)
    decoder = WholeHopDecoder(flow, vocoder)
    state = decoder.start(Sentence(voice(0), profile=profile))
    prefix = flow.prefix

    def cancelled_at_the_end(*arguments: object, **named: object) -> torch.Tensor:
        mel = prefix(*arguments, **named)  # type: ignore[arg-type]
        state.cancel()
        return mel

    monkeypatch.setattr(flow, "prefix", cancelled_at_the_end)
    monkeypatch.setattr(vocoder, "filter", None)
    assert decoder.step([StepInput(state, np.asarray(tokens(30)), 30, final=True)]) == [None]
