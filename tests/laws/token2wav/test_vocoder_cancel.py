"""Law: the vocoder abandons a whole sentence between two units of work, and polling changes no
sample.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve import philox
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.interface import StepInput
from services.token2wav.decoders.whole_hop import OfflineDecoder, UpstreamDecoder
from services.token2wav.flow.flow import load_flow
from services.token2wav.inputs.cancellation import Cancelled
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.vocoder.vocoder import Vocoder, load_vocoder
from tests.unit.token2wav.speaking import tokens, voice

TINY = ModelDirectory(Path(__file__).parents[2] / "golden" / "tiny")
CPU = torch.device("cpu")
MEL = torch.linspace(-4, 1, 80)[:, None] + torch.sin(torch.arange(60) / 5.0)


class Asked:
    """Returns False until it was called `after` times; counts the calls."""

    def __init__(self, after: int | None = None) -> None:
        self.times = 0
        self._after = after

    def __call__(self) -> bool:
        self.times += 1
        return self._after is not None and self.times > self._after


@pytest.fixture(scope="module")
def vocoder() -> Vocoder:
    return load_vocoder(TINY, CPU)


def test_a_whole_sentence_can_be_stopped_at_many_places(vocoder: Vocoder) -> None:
    asked = Asked()
    assert torch.equal(vocoder.offline(MEL, 1, 0, stop=asked), vocoder.offline(MEL, 1, 0))
    assert asked.times > 30
    for after in (0, 1, 2, asked.times // 2, asked.times - 1):
        stopping = Asked(after)
        with pytest.raises(Cancelled):
            vocoder.offline(MEL, 1, 0, stop=stopping)
        assert stopping.times == after + 1


def test_noise_drawn_by_the_second_is_the_same_noise(vocoder: Vocoder) -> None:
    count = 2 * 24_000 + 777
    assert np.array_equal(vocoder.noise(5, 2, 480, 480 + count)[0].numpy(), philox.normal(5, 2, 480, count, 9))


def test_a_call_of_the_reference_schedule_can_be_stopped(vocoder: Vocoder) -> None:
    with pytest.raises(Cancelled):
        vocoder.step_upstream(vocoder.start_upstream(1, 0), MEL, True, stop=Asked(10))


@pytest.mark.parametrize("profile", [Profile.OFFLINE, Profile.UPSTREAM])
def test_a_stream_cancelled_behind_the_flow_makes_no_sound(
    vocoder: Vocoder, monkeypatch: pytest.MonkeyPatch, profile: Profile
) -> None:
    flow = load_flow(TINY, CPU)
    decoder = OfflineDecoder(flow, vocoder) if profile is Profile.OFFLINE else UpstreamDecoder(flow, vocoder)
    state = decoder.start(Sentence(voice(0), profile=profile))
    prefix = flow.prefix

    def cancelled_at_the_end(*arguments: object, **named: object) -> torch.Tensor:
        mel = prefix(*arguments, **named)  # type: ignore[arg-type]
        state.cancel()
        return mel

    monkeypatch.setattr(flow, "prefix", cancelled_at_the_end)
    monkeypatch.setattr(vocoder, "filter", None)
    assert decoder.step([StepInput(state, np.asarray(tokens(30)), 30, final=True)]) == [None]  # type: ignore[arg-type]
