"""Law: after a cancellation no further Euler step begins, and the stream's memory is freed."""

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import EULER_STEPS
from services.token2wav.flow.flow import Flow, VoicePrompt, load_flow
from services.token2wav.inputs.cancellation import Cancelled

TINY = Path(__file__).parents[2] / "golden" / "tiny"
VOICE = VoicePrompt(torch.arange(20), torch.zeros(40, 80), torch.ones(192))
IDS = torch.arange(100)


@pytest.fixture
def flow() -> Flow:
    return load_flow(ModelDirectory(TINY), torch.device("cpu"))


@pytest.mark.parametrize("during", [0, 4, EULER_STEPS - 2])
def test_no_step_begins_behind_a_cancellation(flow: Flow, monkeypatch: pytest.MonkeyPatch, during: int) -> None:
    state = flow.start(VOICE)
    flow.blocks([state], [IDS[:25]], [IDS[25:28]])
    before, held = flow.stats.euler_steps, state.bytes
    reached, set_ = threading.Event(), threading.Event()

    def hang_up() -> None:
        assert reached.wait(10)
        state.cancelled = True
        set_.set()

    step = flow._solver.step

    def watched(at: int, *rest: object) -> Tensor:
        made = step(at, *rest)  # type: ignore[arg-type]
        if at == during:
            reached.set()
            assert set_.wait(10)
        return made

    monkeypatch.setattr(flow._solver, "step", watched)
    caller = threading.Thread(target=hang_up)
    caller.start()
    assert flow.blocks([state], [IDS[25:50]], [IDS[50:53]]) == [None]
    caller.join()
    assert flow.stats.euler_steps - before == during + 1
    assert flow.stats.longest_step_seconds > 0
    assert state.position == 25
    assert state.bytes == VOICE.mel.nbytes + 80 * 4 < held
    # And none for a stream that is offered again.
    assert flow.blocks([state], [IDS[25:50]], [IDS[50:53]]) == [None]
    assert flow.stats.euler_steps - before == during + 1


@pytest.mark.parametrize("during", [0, 3])
def test_a_whole_pass_stops_between_two_steps(flow: Flow, during: int) -> None:
    asked = iter([False] * during + [True])
    with pytest.raises(Cancelled):
        flow.offline(VOICE, IDS[:30], stop=lambda: next(asked))
    assert flow.stats.euler_steps == during


def test_steps_are_counted_for_each_stream(flow: Flow) -> None:
    flow.batch_invariant = False
    flow.blocks([flow.start(VOICE), flow.start(VOICE)], [IDS[:25]] * 2, [IDS[25:28]] * 2)
    flow.offline(VOICE, IDS[:30])
    assert flow.stats.euler_steps == 3 * EULER_STEPS
