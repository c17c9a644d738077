"""Law: a stream's mel does not depend on the other streams of a batch: bit-identical where
batch_invariant, within 2e-5 where batched.
"""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyserve.errors import InternalFault
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.flow import Flow, VoicePrompt, load_flow
from services.token2wav.flow.stream_cache import FlowState

TINY = Path(__file__).parents[2] / "golden" / "tiny"
STORIES = ((20, 61), (0, 40), (30, 5), (25, 75), (1, 25))
"""Prompt and generated tokens of streams that are at different places and end at different
times.
"""


@pytest.fixture(params=[True, False], ids=["invariant", "batched"])
def flow(request: pytest.FixtureRequest) -> Flow:
    flow = load_flow(ModelDirectory(TINY), torch.device("cpu"))
    assert flow.batch_invariant, "the default on the CPU"
    flow.batch_invariant = request.param
    return flow


def story(index: int) -> tuple[VoicePrompt, Tensor]:
    generator = torch.Generator().manual_seed(index)
    prompt, count = STORIES[index]
    ids = torch.randint(0, 6561, (prompt + count,), generator=generator)
    return VoicePrompt(
        ids[:prompt], torch.randn(2 * prompt, 80, generator=generator), torch.randn(192, generator=generator)
    ), ids


def advance(flow: Flow, streams: list[tuple[FlowState, Tensor]]) -> list[Tensor | None]:
    at = [state.position for state, _ in streams]
    blocks = [ids[first : first + 25] for first, (_, ids) in zip(at, streams, strict=True)]
    ahead = [ids[first + 25 : first + 28] for first, (_, ids) in zip(at, streams, strict=True)]
    return flow.blocks([state for state, _ in streams], blocks, ahead)


def together(flow: Flow, late: int) -> dict[int, Tensor]:
    """All stories at once, stream i joining in round i * late."""
    made: dict[int, list[Tensor]] = {index: [] for index in range(len(STORIES))}
    streams = {index: (flow.start(story(index)[0]), story(index)[1]) for index in range(len(STORIES))}
    current = 0
    while any(state.position < ids.numel() for state, ids in streams.values()):
        running = [i for i, (state, ids) in streams.items() if i * late <= current and state.position < ids.numel()]
        for index, mel in zip(running, advance(flow, [streams[i] for i in running]), strict=True):
            assert mel is not None
            made[index].append(mel)
        current += 1
    return {index: torch.cat(parts, dim=1) for index, parts in made.items()}


def alone(flow: Flow, index: int) -> Tensor:
    voice, ids = story(index)
    state, made = flow.start(voice), []
    while state.position < ids.numel():
        mel = advance(flow, [(state, ids)])[0]
        assert mel is not None
        made.append(mel)
    return torch.cat(made, dim=1)


@pytest.mark.parametrize("late", [0, 1])
def test_a_batch_is_its_singles(flow: Flow, late: int) -> None:
    for index, mel in together(flow, late).items():
        torch.testing.assert_close(mel, alone(flow, index), atol=0 if flow.batch_invariant else 2e-5, rtol=0)


def test_a_fault_stays_with_its_stream(flow: Flow) -> None:
    voice, ids = story(0)
    broken = VoicePrompt(voice.tokens, voice.mel, torch.full((192,), torch.nan))
    good, bad = (flow.start(voice), ids), (flow.start(broken), ids)
    want, faulty = advance(flow, [good, bad])
    assert want is not None
    assert faulty is None
    assert isinstance(bad[0].fault, InternalFault)
    assert "not finite" in bad[0].fault.message
    assert advance(flow, [good, bad])[1] is None
    assert (good[0].position, bad[0].position, good[0].fault) == (50, 0, None)
    torch.testing.assert_close(want, alone(flow, 0)[:, :50], atol=0 if flow.batch_invariant else 2e-5, rtol=0)


def test_a_stream_that_leaves_in_mid_block_changes_nothing_for_the_rest(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [(flow.start(story(index)[0]), story(index)[1]) for index in (0, 1, 3)]
    step, steps = flow._solver.step, []

    def leaving(at: int, x: Tensor, *rest: object) -> Tensor:
        steps.append(x.shape[0])
        streams[1][0].cancelled = streams[1][0].cancelled or at == 4
        return step(at, x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(flow._solver, "step", leaving)
    made = advance(flow, streams)
    monkeypatch.undo()
    assert made[1] is None
    assert streams[1][0].position == 0
    assert streams[1][0].encoder.bytes == 0
    # One by one, the second is seen cancelled before its first step; batched, all three run until
    # the step that sets the flag is over.
    assert steps == ([1] * 20 if flow.batch_invariant else [3] * 5 + [2] * 5)
    for mel, index in ((made[0], 0), (made[2], 3)):
        assert mel is not None
        torch.testing.assert_close(mel, alone(flow, index)[:, :50], atol=0 if flow.batch_invariant else 2e-5, rtol=0)
