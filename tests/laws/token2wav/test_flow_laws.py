"""Laws of the flow, whichever network it has: blocks computed from stored state, concatenated,
equal the whole sentence under streaming masks, and earlier output never changes. After a
cancellation no further Euler step begins, and the stream's memory is freed. A stream's mel does
not depend on the other streams of a batch: bit-identical where batch_invariant, within 2e-5
where batched.
"""

import itertools
import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from cosyserve.errors import NonFinite
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import EULER_STEPS
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.flow_state import FlowState
from services.token2wav.flow.loading import load_flow
from services.token2wav.inputs.request import Cancelled
from tests.stacks.up_process import TINY, TINY3
from tests.unit.token2wav.gpu.small_flow import random_voice

VOICE = VoicePrompt(torch.arange(20), torch.zeros(40, 80), torch.ones(192))
IDS = torch.arange(100)
STORIES = ((20, 61), (0, 40), (30, 5), (25, 75), (1, 25))
"""Prompt and generated tokens of streams that are at different places and end at different
times.
"""


@pytest.fixture(scope="module", params=[TINY, TINY3], ids=["unet", "dit"])
def model(request: pytest.FixtureRequest) -> ModelDirectory:
    return ModelDirectory(request.param)


@pytest.fixture
def fresh(model: ModelDirectory) -> Flow:
    return load_flow(model, torch.device("cpu"))


@pytest.fixture(scope="module")
def flow(model: ModelDirectory) -> Flow:
    return load_flow(model, torch.device("cpu"))


@pytest.fixture(params=[True, False], ids=["invariant", "batched"])
def either(fresh: Flow, request: pytest.FixtureRequest) -> Flow:
    assert fresh.batch_invariant, "the default on the CPU"
    fresh.batch_invariant = request.param
    return fresh


def tokens_of(count: int, seed: int = 11) -> Tensor:
    return torch.randint(0, 6561, (count,), generator=torch.Generator().manual_seed(seed))


def advance(flow: Flow, streams: list[tuple[FlowState, Tensor]]) -> list[Any]:
    """The next block of each."""
    behind = [ids[state.position :] for state, ids in streams]
    return flow.blocks([state for state, _ in streams], [ids[:25] for ids in behind], [ids[25:28] for ids in behind])


def walk(flow: Flow, state: FlowState, ids: Tensor, until: int | None = None) -> Tensor:
    made: list[Any] = []
    while state.position < (ids.numel() if until is None else until):
        made += advance(flow, [(state, ids)])
    return torch.cat(made, dim=1)


@pytest.mark.parametrize("count", [1, 24, 25, 26, 27, 28, 50, 101])
@pytest.mark.parametrize("prompt", [0, 1, 20, 25, 30])
def test_joined_blocks_are_the_whole(flow: Flow, prompt: int, count: int) -> None:
    voice, tokens = random_voice(prompt, 7), tokens_of(count)
    joined = walk(flow, flow.start(voice), torch.cat((voice.tokens, tokens)))
    whole = flow.prefix(voice, tokens, streaming=True, final=True)
    assert joined.shape == (80, 2 * (prompt + count))
    torch.testing.assert_close(joined[:, 2 * prompt :], whole, atol=5e-5, rtol=0)


@pytest.mark.parametrize("prompt", [0, 20])
def test_a_call_that_is_not_the_last_is_the_head_of_the_whole(flow: Flow, prompt: int) -> None:
    """Ends on the grid of 25 tokens that starts at the prompt's first."""
    voice, tokens = random_voice(prompt, 7), tokens_of(60)
    head = flow.prefix(voice, tokens[: 50 - prompt + 3], streaming=True, final=False)
    assert head.shape == (80, 2 * (50 - prompt))
    whole = flow.prefix(voice, tokens, streaming=True, final=True)
    torch.testing.assert_close(head, whole[:, : head.shape[1]], atol=5e-5, rtol=0)


def test_what_was_made_does_not_depend_on_what_follows(flow: Flow) -> None:
    voice, tokens, other = random_voice(20, 7), tokens_of(80), tokens_of(80, seed=12)
    other[: 30 + 3] = tokens[: 30 + 3]
    made = [walk(flow, flow.start(voice), torch.cat((voice.tokens, some)), until=50) for some in (tokens, other)]
    assert torch.equal(made[0], made[1])


def test_full_attention_is_another_mel(flow: Flow) -> None:
    """Shows that the law above is not trivial."""
    voice, tokens = random_voice(20, 7), tokens_of(60)
    whole = flow.prefix(voice, tokens, streaming=True, final=True)
    assert (flow.prefix(voice, tokens, streaming=False, final=True) - whole).abs().max() > 1e-2


def test_a_forks_progress_leaves_the_other_alone(flow: Flow) -> None:
    voice, tokens, other = random_voice(30, 7), tokens_of(70), tokens_of(70, seed=12)
    ids, others = torch.cat((voice.tokens, tokens)), torch.cat((voice.tokens, other))
    alone = walk(flow, flow.start(voice), ids)
    prompt = flow.start(voice)
    walk(flow, prompt, ids, until=25)
    held = prompt.bytes
    first, second = flow.fork(prompt), flow.fork(prompt)
    # The two streams alternate, with different tokens after the prompt.
    made = [walk(flow, first, ids, until=50), walk(flow, second, others, until=75), walk(flow, first, ids)]
    second.cancelled = True
    assert advance(flow, [(second, others)]) == [None]
    assert torch.equal(torch.cat((made[0], made[2]), dim=1), alone[:, 50:])
    assert (prompt.position, prompt.bytes) == (25, held)
    assert torch.equal(walk(flow, prompt, ids), alone[:, 50:])


def test_the_mel_does_not_depend_on_where_tensors_lie_in_memory(flow: Flow) -> None:
    voice = random_voice(20, 7)
    ids = torch.cat((voice.tokens, tokens_of(55)))
    want = walk(flow, flow.start(voice), ids)
    for shift in range(1, 8):
        junk = [torch.empty(4096 * shift + 4 * at + shift) for at in range(32)]
        mel = torch.cat((torch.zeros(shift), voice.mel.flatten()))[shift:].view(-1, 80)
        embedding = torch.cat((torch.zeros(shift), voice.embedding))[shift:]
        del junk[::2]
        assert torch.equal(walk(flow, flow.start(VoicePrompt(voice.tokens, mel, embedding)), ids), want)


@pytest.mark.parametrize("during", [0, 4, EULER_STEPS - 2])
def test_no_step_begins_after_a_cancellation(fresh: Flow, monkeypatch: pytest.MonkeyPatch, during: int) -> None:
    state = fresh.start(VOICE)
    advance(fresh, [(state, IDS)])
    before, held = fresh.euler_steps, state.bytes
    reached, set_, step = threading.Event(), threading.Event(), fresh._solver.step

    def hang_up() -> None:
        assert reached.wait(10)
        state.cancelled = True
        set_.set()

    def watched(at: int, *rest: object) -> Tensor:
        made = step(at, *rest)  # type: ignore[arg-type]
        if at == during:
            reached.set()
            assert set_.wait(10)
        return made

    monkeypatch.setattr(fresh._solver, "step", watched)
    caller = threading.Thread(target=hang_up)
    caller.start()
    assert advance(fresh, [(state, IDS)]) == [None]
    caller.join()
    assert (fresh.euler_steps - before, state.position) == (during + 1, 25)
    assert state.bytes == VOICE.mel.nbytes + 80 * 4 < held
    # And none for a stream that is offered again.
    assert advance(fresh, [(state, IDS)]) == [None]
    assert fresh.euler_steps - before == during + 1


@pytest.mark.parametrize("during", [0, 3])
def test_a_whole_pass_stops_between_two_steps(fresh: Flow, during: int) -> None:
    asked = iter([False] * during + [True])
    with pytest.raises(Cancelled):
        fresh.prefix(VOICE, IDS[:30], streaming=False, final=True, stop=lambda: next(asked))
    assert fresh.euler_steps == during


def test_steps_are_counted_for_each_stream(fresh: Flow) -> None:
    fresh.batch_invariant = False
    advance(fresh, [(fresh.start(VOICE), IDS), (fresh.start(VOICE), IDS)])
    fresh.prefix(VOICE, IDS[:30], streaming=False, final=True)
    assert fresh.euler_steps == 3 * EULER_STEPS


def begun(flow: Flow, index: int) -> tuple[FlowState, Tensor]:
    voice, ids = story(index)
    return flow.start(voice), ids


def story(index: int) -> tuple[VoicePrompt, Tensor]:
    prompt, count = STORIES[index]
    voice = random_voice(prompt, seed=index)
    return voice, torch.cat((voice.tokens, tokens_of(count, seed=index)))


def together(flow: Flow, late: int) -> dict[int, Tensor]:
    """All stories at once, stream i joining in round i * late."""
    made: dict[int, list[Any]] = {index: [] for index in range(len(STORIES))}
    streams = {index: begun(flow, index) for index in range(len(STORIES))}
    for current in itertools.count():
        going = {i for i, (state, ids) in streams.items() if state.position < ids.numel()}
        if not going:
            break
        running = [index for index in sorted(going) if index * late <= current]
        for index, mel in zip(running, advance(flow, [streams[i] for i in running]), strict=True):
            made[index].append(mel)
    return {index: torch.cat(parts, dim=1) for index, parts in made.items()}


def alone(flow: Flow, index: int) -> Tensor:
    return walk(flow, *begun(flow, index))


@pytest.mark.parametrize("late", [0, 1])
def test_a_batch_is_its_singles(either: Flow, late: int) -> None:
    for index, mel in together(either, late).items():
        torch.testing.assert_close(mel, alone(either, index), atol=0 if either.batch_invariant else 2e-5, rtol=0)


def test_a_fault_stays_with_its_stream(either: Flow) -> None:
    voice, ids = story(0)
    broken = VoicePrompt(voice.tokens, voice.mel, torch.full((192,), torch.nan))
    good, bad = (either.start(voice), ids), (either.start(broken), ids)
    want, faulty = advance(either, [good, bad])
    assert (faulty, type(bad[0].fault)) == (None, NonFinite)
    assert "not finite" in bad[0].fault.message
    assert advance(either, [good, bad])[1] is None
    assert (good[0].position, bad[0].position, good[0].fault) == (50, 0, None)
    torch.testing.assert_close(want, alone(either, 0)[:, :50], atol=0 if either.batch_invariant else 2e-5, rtol=0)


def test_a_stream_that_leaves_in_mid_block_changes_nothing_for_the_rest(
    either: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [begun(either, index) for index in (0, 1, 3)]
    step, steps = either._solver.step, []

    def leaving(at: int, x: Tensor, *rest: object) -> Tensor:
        steps.append(x.shape[0])
        streams[1][0].cancelled = streams[1][0].cancelled or at == 4
        return step(at, x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(either._solver, "step", leaving)
    made = advance(either, streams)
    monkeypatch.undo()
    assert (made[1], streams[1][0].position, streams[1][0].encoder.bytes) == (None, 0, 0)
    # One by one, the second is seen cancelled before its first step; batched, all three run until
    # the step that sets the flag is over.
    assert steps == ([1] * 20 if either.batch_invariant else [3] * 5 + [2] * 5)
    for mel, index in ((made[0], 0), (made[2], 3)):
        torch.testing.assert_close(
            mel, alone(either, index)[:, :50], atol=0 if either.batch_invariant else 2e-5, rtol=0
        )
