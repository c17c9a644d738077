"""A hosted engine generates the tokens of the torch backend for the same request: with whole text,
a replay, text that arrives over time, and other requests.

The fake runs the model in transformers, so log-probabilities differ by up to 4e-6. The seeds are
chosen so that no two candidates are that close: in 8 seeds of 260 tokens one had two, 2e-7 apart.
"""

import asyncio
from pathlib import Path

import pytest

from services.llm.generation.request import Grouping, Hop, Profile, Prompt, Sampling
from tests.stacks.up_process import TINY3
from tests.unit.llm.hosted.hosts import KINDS, SEAMS, conversions, engine_of, host, hosted
from tests.unit.llm.tiny_llm import PROMPT, arriving, backend, for_both, hops, sentence, tokens

TEXT = list(range(20, 33))


def contents(received: list[Hop]) -> list[tuple[list[int], list[str]]]:
    """Tokens and names of the timings of each hop."""
    return [(hop.tokens, [timing.name for timing in hop.timings]) for hop in received]


@pytest.mark.parametrize("kind", KINDS)
async def test_tokens_are_those_of_torch_for_the_same_seeds(
    kind: str, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    async with backend() as torch, hosted(kind, monkeypatch, converted) as ours:
        for seed in range(4):
            for profile in Profile:
                wanted = sentence(
                    seed, words=2 + seed % 3, sampling=Sampling(seed=seed << 30, sentence_index=seed, profile=profile)
                )
                received, theirs = await hops(ours, wanted), await hops(torch, wanted)
                assert contents(received) == contents(theirs)
                assert (received[-1].outcome.reason, received[-1].outcome.tokens) == (
                    theirs[-1].outcome.reason,
                    theirs[-1].outcome.tokens,
                )


@pytest.mark.parametrize("kind", KINDS)
async def test_tokens_of_cosyvoice3_are_those_of_torch(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its export for vLLM is a plain Qwen2; whole text in both profiles, and text that arrives."""
    converted = conversions(tmp_path, TINY3)
    wanted = [
        for_both(sentence(seed, sampling=Sampling(seed=seed, profile=profile))) for seed, profile in enumerate(Profile)
    ]
    async with backend(model=TINY3) as torch, hosted(kind, monkeypatch, converted, model=TINY3) as ours:
        for one in wanted:
            assert await tokens(ours, one) == await tokens(torch, one) != []
        streamed = [await tokens(on, for_both(sentence(2, text=arriving(TEXT), prompt=PROMPT))) for on in (ours, torch)]
        assert streamed[0] == streamed[1] != []


@pytest.mark.parametrize("kind", SEAMS)
async def test_tokens_of_a_batch_are_those_of_torch(
    kind: str, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    async with backend() as torch, hosted(kind, monkeypatch, converted, max_sequences=3, max_waiting=8) as ours:
        wanted = [sentence(seed, words=3) for seed in range(8)]
        together = await asyncio.gather(*(tokens(ours, one) for one in wanted))
        assert 1 < engine_of(ours).most_at_once <= 3
        assert together == [await tokens(torch, one) for one in wanted]
        assert ours.admission.admitted == 0


@pytest.mark.parametrize("kind", SEAMS)
@pytest.mark.parametrize("prompt", [PROMPT, Prompt()])
async def test_text_that_arrives_makes_the_tokens_of_torch(
    kind: str, prompt: Prompt, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    async with backend() as torch, hosted(kind, monkeypatch, converted) as ours:
        for seed, cut in ((1, 1), (2, 13)):
            pieces = [TEXT[at : at + cut] for at in range(0, len(TEXT), cut)]
            results = [await tokens(on, sentence(seed, text=arriving(*pieces), prompt=prompt)) for on in (ours, torch)]
            assert results[0] == results[1] != []


@pytest.mark.parametrize("kind", SEAMS)
async def test_a_replay_continues_as_the_uninterrupted_sentence(
    kind: str, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    async with backend() as torch, hosted(kind, monkeypatch, converted) as ours:
        whole = await tokens(torch, sentence(9, prompt=PROMPT))
        streamed = await tokens(torch, sentence(9, prompt=PROMPT, text=arriving(TEXT)))
        for replayed in (1, len(whole) // 2, len(whole)):
            wanted = sentence(9, prompt=PROMPT, replay=tuple(whole[:replayed]), grouping=Grouping(first=400, rest=5))
            received = await hops(ours, wanted)
            assert contents(received) == contents(await hops(torch, wanted))
            assert received[-1].outcome.tokens == len(whole)
        for replayed in (1, 16, len(streamed)):
            taken_over = sentence(9, prompt=PROMPT, text=arriving(TEXT), replay=tuple(streamed[:replayed]))
            assert await tokens(ours, taken_over) == streamed[replayed:]


async def test_an_end_that_is_left_out_of_the_output_is_an_end(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    """Releases differ in whether the id that ends a sequence is among those that are returned."""
    async with backend() as torch, hosted("tensorrt_llm", monkeypatch, converted) as ours:
        host(ours).end_in_output = False
        for seed in (1, 2):
            for changes in (dict, lambda: {"text": arriving(TEXT)}):
                received, theirs = [await hops(on, sentence(seed, **changes())) for on in (ours, torch)]
                assert contents(received) == contents(theirs)


VLLM_KINDS = [kind for kind in KINDS if kind != "tensorrt_llm"]


@pytest.mark.parametrize("kind", VLLM_KINDS)
@pytest.mark.parametrize("what", ["set_aside_after", "left_out_after"])
async def test_a_request_that_vllm_adds_again_continues_with_the_same_draws(
    kind: str, what: str, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    async with backend() as torch, hosted(kind, monkeypatch, converted) as ours:
        setattr(host(ours), what, 4)
        wanted = sentence(3, words=4)
        assert await tokens(ours, wanted) == await tokens(torch, wanted)


@pytest.mark.parametrize("kind", VLLM_KINDS)
async def test_what_vllm_samples_after_a_part_of_a_prompt_is_discarded(
    kind: str, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    async with backend() as torch, hosted(kind, monkeypatch, converted) as ours:
        engine_of(ours).part = 6
        for wanted in (sentence(5, prompt=PROMPT), sentence(9, prompt=PROMPT, replay=(7, 8, 9))):
            assert await tokens(ours, wanted) == await tokens(torch, wanted)
        streamed = [await tokens(on, sentence(4, text=arriving(TEXT), prompt=PROMPT)) for on in (ours, torch)]
        assert streamed[0] == streamed[1] != []
