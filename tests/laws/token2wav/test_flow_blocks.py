"""Law: blocks computed from stored state, concatenated, equal the whole sentence under streaming
masks, and earlier output never changes.
"""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.flow import Flow, VoicePrompt, load_flow
from services.token2wav.flow.stream_cache import FlowState

TINY = Path(__file__).parents[2] / "golden" / "tiny"


@pytest.fixture(scope="module")
def flow() -> Flow:
    return load_flow(ModelDirectory(TINY), torch.device("cpu"))


def voice_of(prompt: int, seed: int = 7) -> VoicePrompt:
    generator = torch.Generator().manual_seed(seed)
    return VoicePrompt(
        torch.randint(0, 6561, (prompt,), generator=generator),
        torch.randn(2 * prompt, 80, generator=generator),
        torch.randn(192, generator=generator),
    )


def tokens_of(count: int, seed: int = 11) -> Tensor:
    return torch.randint(0, 6561, (count,), generator=torch.Generator().manual_seed(seed))


def walk(flow: Flow, state: FlowState, ids: Tensor, until: int | None = None) -> Tensor:
    made = []
    while state.position < (ids.numel() if until is None else until):
        first = state.position
        mel = flow.blocks([state], [ids[first : first + 25]], [ids[first + 25 : first + 28]])[0]
        assert mel is not None
        made.append(mel)
    return torch.cat(made, dim=1)


@pytest.mark.parametrize("count", [1, 24, 25, 26, 27, 28, 50, 101])
@pytest.mark.parametrize("prompt", [0, 1, 20, 25, 30])
def test_joined_blocks_are_the_whole(flow: Flow, prompt: int, count: int) -> None:
    voice, tokens = voice_of(prompt), tokens_of(count)
    joined = walk(flow, flow.start(voice), torch.cat((voice.tokens, tokens)))
    whole = flow.prefix(voice, tokens, streaming=True, final=True)
    assert joined.shape == (80, 2 * (prompt + count))
    torch.testing.assert_close(joined[:, 2 * prompt :], whole, atol=5e-5, rtol=0)


@pytest.mark.parametrize("prompt", [0, 20])
def test_a_call_that_is_not_the_last_is_the_head_of_the_whole(flow: Flow, prompt: int) -> None:
    """Ends on the grid of 25 tokens that starts at the prompt's first."""
    voice, tokens = voice_of(prompt), tokens_of(60)
    head = flow.prefix(voice, tokens[: 50 - prompt + 3], streaming=True, final=False)
    assert head.shape == (80, 2 * (50 - prompt))
    whole = flow.prefix(voice, tokens, streaming=True, final=True)
    torch.testing.assert_close(head, whole[:, : head.shape[1]], atol=5e-5, rtol=0)


def test_what_was_made_does_not_depend_on_what_follows(flow: Flow) -> None:
    voice, tokens, other = voice_of(20), tokens_of(80), tokens_of(80, seed=12)
    other[: 30 + 3] = tokens[: 30 + 3]
    made = [walk(flow, flow.start(voice), torch.cat((voice.tokens, some)), until=50) for some in (tokens, other)]
    assert torch.equal(made[0], made[1])


def test_full_attention_is_another_mel(flow: Flow) -> None:
    """Shows that the law above is not trivial."""
    voice, tokens = voice_of(20), tokens_of(60)
    whole = flow.prefix(voice, tokens, streaming=True, final=True)
    assert (flow.offline(voice, tokens) - whole).abs().max() > 1e-2


def test_a_forks_progress_leaves_the_other_alone(flow: Flow) -> None:
    voice, tokens, other = voice_of(30), tokens_of(70), tokens_of(70, seed=12)
    ids, others = torch.cat((voice.tokens, tokens)), torch.cat((voice.tokens, other))
    alone = walk(flow, flow.start(voice), ids)
    prompt = flow.start(voice)
    walk(flow, prompt, ids, until=25)
    held = prompt.bytes
    first, second = flow.fork(prompt), flow.fork(prompt)
    # The two streams alternate, with different tokens after the prompt.
    made = [walk(flow, first, ids, until=50), walk(flow, second, others, until=75), walk(flow, first, ids)]
    second.cancelled = True
    assert flow.blocks([second], [others[75:100]], [others[100:]]) == [None]
    assert torch.equal(torch.cat((made[0], made[2]), dim=1), alone[:, 50:])
    assert (prompt.position, prompt.bytes) == (25, held)
    assert torch.equal(walk(flow, prompt, ids), alone[:, 50:])


def test_the_mel_does_not_depend_on_where_tensors_lie_in_memory(flow: Flow) -> None:
    voice, tokens = voice_of(20), tokens_of(55)
    want = walk(flow, flow.start(voice), torch.cat((voice.tokens, tokens)))
    for shift in range(1, 8):
        junk = [torch.empty(4096 * shift + 4 * at + shift) for at in range(32)]
        mel = torch.cat((torch.zeros(shift), voice.mel.flatten()))[shift:].view(-1, 80)
        embedding = torch.cat((torch.zeros(shift), voice.embedding))[shift:]
        moved = VoicePrompt(voice.tokens, mel, embedding)
        del junk[::2]
        assert torch.equal(walk(flow, flow.start(moved), torch.cat((voice.tokens, tokens))), want)
