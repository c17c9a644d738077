"""A block that the flow computes while the vocoder renders the previous one gives the same samples,
and nothing remains after the stream.
"""

import gc
import threading
import weakref

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.continuous_state import BlocksAhead, ContinuousState, core_to_spare
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.flow.flow import Flow, load_flow
from services.token2wav.flow.stream_cache import FlowState
from services.token2wav.inputs.request import Sentence
from services.token2wav.vocoder.vocoder import load_vocoder
from tests.unit.token2wav.speaking import GOLDEN, tokens, voice

CPU = torch.device("cpu")
PROMPT, SPOKEN = 30, 120
KNOWN = np.asarray(tokens(SPOKEN))


@pytest.fixture(scope="module")
def flow() -> Flow:
    return load_flow(ModelDirectory(GOLDEN), CPU)


def decoder(flow: Flow, *, ahead: bool) -> ContinuousDecoder:
    vocoder = load_vocoder(ModelDirectory(GOLDEN), CPU)
    return ContinuousDecoder(
        flow, vocoder, widest_step=1, prompt_cache_bytes=0, ahead=BlocksAhead(flow) if ahead else None
    )


def block(decoder: ContinuousDecoder, state: ContinuousState, known: int = SPOKEN) -> Decoded:
    """The next block of the stream, with so many generated tokens known."""
    until = state.reach(PROMPT + SPOKEN)
    (made,) = decoder.step([StepInput(state, KNOWN[:known], until, final=until == PROMPT + SPOKEN)])
    assert isinstance(made, Decoded)
    return made


def started(decoder: ContinuousDecoder, seed: int = 0) -> ContinuousState:
    return decoder.start(Sentence(voice(PROMPT), seed=seed))


def spoken(decoder: ContinuousDecoder, known: int = SPOKEN) -> np.ndarray:
    state, samples = started(decoder), []
    while state.position < PROMPT + SPOKEN:
        needed = state.reach(PROMPT + SPOKEN) + 3 - PROMPT
        samples.append(block(decoder, state, max(known, needed)).samples)
    return np.concatenate(samples)


@pytest.mark.parametrize("known", [0, 60, SPOKEN])
def test_the_samples_are_those_of_one_block_after_the_other(flow: Flow, known: int) -> None:
    assert np.array_equal(spoken(decoder(flow, ahead=True), known), spoken(decoder(flow, ahead=False)))


def test_the_next_block_is_begun_behind_the_first_sound_when_its_tokens_are_known(flow: Flow) -> None:
    ahead = decoder(flow, ahead=True)
    state = started(ahead)
    while not block(ahead, state).samples.size:
        assert state.ahead is None
    assert state.ahead is None, "no early block during the first audio"
    block(ahead, state, known=state.reach(PROMPT + SPOKEN) + 25 + 2 - PROMPT)
    assert state.ahead is None, "one token of the look-ahead is missing"
    block(ahead, state)
    assert state.ahead is not None
    early = state.ahead
    early.future.result()
    steps = flow.stats.euler_steps
    made = block(ahead, state, known=state.reach(PROMPT + SPOKEN) + 3 - PROMPT)
    assert state.flow is early.flow
    assert state.ahead is None
    assert flow.stats.euler_steps == steps
    assert made.flow_ns == early.future.result()[1]
    assert made.vocoder_ns is not None
    assert made.flow_ns[1] <= made.vocoder_ns[0]


def test_one_block_is_under_way_whatever_the_number_of_streams(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = decoder(flow, ahead=True)
    states = [started(ahead, seed) for seed in range(2)]
    for state in states:
        while not block(ahead, state).samples.size:
            pass
    began, go_on = threading.Event(), threading.Event()
    blocks = flow.blocks

    def waiting(forks: list[FlowState], *rest: list[torch.Tensor]) -> list[torch.Tensor | None]:
        if threading.current_thread().name.startswith("token2wav-ahead"):
            began.set()
            assert go_on.wait(30)
        return blocks(forks, *rest)

    monkeypatch.setattr(flow, "blocks", waiting)
    block(ahead, states[0])
    assert began.wait(30)
    assert states[0].ahead is not None
    block(ahead, states[1])
    assert states[1].ahead is None
    go_on.set()
    states[0].ahead.future.result()


def test_a_cancelled_stream_stops_what_was_begun_and_frees_it(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = decoder(flow, ahead=True)
    state = started(ahead)
    while not block(ahead, state).samples.size:
        pass
    step, begun = flow._solver.step, threading.Event()
    cancelled = threading.Event()

    def slow(*arguments: object, **named: object) -> torch.Tensor:
        if threading.current_thread().name.startswith("token2wav-ahead"):
            begun.set()
            assert cancelled.wait(30)
        return step(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(flow._solver, "step", slow)
    block(ahead, state)
    early = state.ahead
    assert early is not None
    assert begun.wait(30)
    steps = flow.stats.euler_steps
    state.cancel()
    cancelled.set()
    assert early.future.result()[0] is None
    assert flow.stats.euler_steps == steps + 1, "the step that was just beginning"
    assert early.flow.encoder.bytes == 0
    (made,) = ahead.step([StepInput(state, KNOWN, state.reach(PROMPT + SPOKEN), final=False)])
    assert made is None
    left = weakref.ref(early.flow)
    del state, early
    gc.collect()
    assert left() is None


def test_two_threads_of_an_operation_each_need_four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    assert core_to_spare(1)
    assert not core_to_spare(2)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3})
    assert not core_to_spare(1)
