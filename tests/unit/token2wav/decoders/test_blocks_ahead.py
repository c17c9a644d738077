"""A block that the flow computes while the vocoder renders the previous one gives the same samples,
and nothing remains after the stream.
"""

import gc
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.continuous_state import BlocksAhead, ContinuousState, core_to_spare
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.flow_state import FlowState
from services.token2wav.flow.loading import load_flow
from services.token2wav.inputs.request import Sentence
from services.token2wav.vocoder.loading import load_vocoder
from tests.stacks.up_process import TINY, TINY3
from tests.unit.token2wav.speaking import tokens, voice

CPU = torch.device("cpu")
PROMPT, SPOKEN = 30, 120
KNOWN = np.asarray(tokens(SPOKEN))


@pytest.fixture(scope="module")
def flow() -> Flow:
    return load_flow(ModelDirectory(TINY), CPU)


def decoder(flow: Flow, *, ahead: bool, bundle: Path = TINY) -> ContinuousDecoder:
    vocoder = load_vocoder(ModelDirectory(bundle), CPU)
    return ContinuousDecoder(
        flow, vocoder, widest_step=1, prompt_cache_bytes=0, ahead=BlocksAhead(flow) if ahead else None
    )


def block(decoder: ContinuousDecoder, state: ContinuousState, known: int = SPOKEN) -> Decoded:
    """The next block of the stream, with so many generated tokens known."""
    until = state.reach(PROMPT + SPOKEN)
    (made,) = decoder.step([StepInput(state, KNOWN[:known], until, final=until == PROMPT + SPOKEN)])
    return made


def started(decoder: ContinuousDecoder, seed: int = 0) -> ContinuousState:
    return decoder.start(Sentence(voice(PROMPT), seed=seed))


def heard(decoder: ContinuousDecoder, seed: int = 0) -> ContinuousState:
    """A stream behind its first audio, during which no block is begun early."""
    state = started(decoder, seed)
    while not block(decoder, state).samples.size:
        assert state.ahead is None
    assert state.ahead is None
    return state


def spoken(decoder: ContinuousDecoder, known: int = SPOKEN) -> np.ndarray:
    state, samples = started(decoder), []
    while state.position < PROMPT + SPOKEN:
        needed = state.reach(PROMPT + SPOKEN) + 3 - PROMPT
        samples.append(block(decoder, state, max(known, needed)).samples)
    return np.concatenate(samples)


@pytest.mark.parametrize(("bundle", "known"), [(TINY, 0), (TINY, 60), (TINY, SPOKEN), (TINY3, 60)])
def test_the_samples_are_those_of_one_block_after_the_other(bundle: Path, known: int) -> None:
    flow = load_flow(ModelDirectory(bundle), CPU)
    plain, ahead = (decoder(flow, ahead=early, bundle=bundle) for early in (False, True))
    assert np.array_equal(spoken(ahead, known), spoken(plain))


def test_the_next_block_begins_early_after_the_first_audio_if_its_tokens_are_known(flow: Flow) -> None:
    ahead = decoder(flow, ahead=True)
    state = heard(ahead)
    block(ahead, state, known=state.reach(PROMPT + SPOKEN) + 25 + 2 - PROMPT)
    assert state.ahead is None, "one token of the look-ahead is missing"
    block(ahead, state)
    early = state.ahead
    _, span = early.future.result()
    steps = flow.euler_steps
    made = block(ahead, state, known=state.reach(PROMPT + SPOKEN) + 3 - PROMPT)
    assert (state.flow, state.ahead) == (early.flow, None)
    assert (flow.euler_steps, made.flow_ns) == (steps, span)
    assert made.flow_ns[1] <= made.vocoder_ns[0]


def test_one_block_is_under_way_whatever_the_number_of_streams(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = decoder(flow, ahead=True)
    states = [heard(ahead, seed) for seed in range(2)]
    began, go_on, blocks = threading.Event(), threading.Event(), flow.blocks

    def waiting(forks: list[FlowState], *rest: list[torch.Tensor]) -> list[torch.Tensor | None]:
        if threading.current_thread().name.startswith("token2wav-ahead"):
            began.set()
            assert go_on.wait(30)
        return blocks(forks, *rest)

    monkeypatch.setattr(flow, "blocks", waiting)
    block(ahead, states[0])
    assert began.wait(30)
    block(ahead, states[1])
    assert states[1].ahead is None
    go_on.set()
    states[0].ahead.future.result()


def test_a_cancelled_stream_stops_what_was_begun_and_frees_it(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = decoder(flow, ahead=True)
    state = heard(ahead)
    step, begun, cancelled = flow._solver.step, threading.Event(), threading.Event()

    def slow(*arguments: object, **named: object) -> torch.Tensor:
        if threading.current_thread().name.startswith("token2wav-ahead"):
            begun.set()
            assert cancelled.wait(30)
        return step(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(flow._solver, "step", slow)
    block(ahead, state)
    early = state.ahead
    assert begun.wait(30)
    steps = flow.euler_steps
    state.cancel()
    cancelled.set()
    assert (early.future.result()[0], early.flow.encoder.bytes) == (None, 0)
    assert flow.euler_steps == steps + 1, "the step that was just beginning"
    assert ahead.step([StepInput(state, KNOWN, state.reach(PROMPT + SPOKEN), final=False)]) == [None]
    left = weakref.ref(early.flow)
    del state, early
    # The thread that made it may still be on its way out of the call.
    for _ in range(100):
        gc.collect()
        if left() is None:
            return
        time.sleep(0.01)
    pytest.fail("the state is still held")


def test_two_threads_of_an_operation_each_need_four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads, spare in (({0, 1, 2}, 1, True), ({0, 1, 2}, 2, False), ({3}, 1, False)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores)
        assert core_to_spare(threads) == spare
