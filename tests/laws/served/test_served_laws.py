"""The laws, heard by a client through all four services and real gRPC: what is spoken depends on
the request alone.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cosyserve.audio.encoding import Encoding
from cosyserve.errors import Overloaded
from services.token2wav.flow.solver import EULER_STEPS
from tests.stacks.calls import heard, until
from tests.stacks.up_process import DEMO
from tests.stacks.whole_stack import WholeStack, whole_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")
VOICES = ("af_heart", "am_michael")
TEXT = "A few words, then silence."
TWO_SENTENCES = "The first one goes on just long enough to be spoken all alone. Then a second one follows it."


async def say(stack: WholeStack, text: str = TEXT, **options: Any) -> bytes:
    return await stack.client.synthesize(text, **{"seed": 11, **options}).read()


@pytest.mark.parametrize(
    "schedule",
    [
        {"first_hop_tokens": 1, "growth": "fixed"},
        {"first_hop_tokens": 20, "growth": "exponential"},
        {"first_hop_tokens": 60, "growth": "exponential", "max_hop_tokens": 400},
        {"first_hop_tokens": 100, "growth": "fixed"},
    ],
)
async def test_hops_move_the_cuts_and_never_a_sample(stack: WholeStack, schedule: dict[str, Any]) -> None:
    whole = await say(stack, first_hop_tokens=100, growth="exponential", max_hop_tokens=400)
    assert await say(stack, **schedule) == whole
    assert len(whole) > 24_000


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
async def test_hops_do_not_show_after_resampling(stack: WholeStack, rate: int) -> None:
    fixed = await say(stack, sample_rate=rate, growth="fixed")
    assert await say(stack, sample_rate=rate, first_hop_tokens=60, growth="exponential", max_hop_tokens=400) == fixed


async def test_hops_do_not_show_at_another_speed(stack: WholeStack) -> None:
    fast = await say(stack, speed=1.3)
    assert await say(stack, speed=1.3, first_hop_tokens=60, growth="exponential", max_hop_tokens=400) == fast
    assert len(fast) / len(await say(stack)) == pytest.approx(1 / 1.3, rel=0.02)


async def test_request_n_is_request_1(stack: WholeStack) -> None:
    first = await say(stack)
    for seed in range(3):
        await say(stack, "Something else in between.", seed=seed, voice=VOICES[1])
    assert await say(stack) == first
    others = [asyncio.create_task(say(stack, seed=seed, voice=voice)) for seed, voice in enumerate(VOICES * 2)]
    assert await say(stack) == first
    await asyncio.gather(*others)


async def test_eight_at_once_are_the_same_eight_one_by_one(stack: WholeStack) -> None:
    words = ["stands", "quietly", "behind", "the", "old", "garden", "wall"]
    requests = [
        {"text": f"Number {number} {' '.join(words[:number])}.", "seed": number, "voice": VOICES[number % 2]}
        for number in range(8)
    ]
    single = [await say(stack, **request) for request in requests]
    before = stack.llm.engine.stats
    assert list(await asyncio.gather(*(say(stack, **request) for request in requests))) == single
    assert len(set(single)) == 8
    after = stack.llm.engine.stats
    assert after.decode_rows - before.decode_rows > after.decode_steps - before.decode_steps, (
        "no two sentences shared a step"
    )


async def test_two_sentences_are_joined_with_a_pause_and_nothing_else(stack: WholeStack) -> None:
    whole = await say(
        stack, TWO_SENTENCES, first_hop_tokens=100, growth="exponential", max_hop_tokens=400, onset="natural"
    )
    audio, _, summary = await heard(stack.client.synthesize(TWO_SENTENCES, seed=11, onset="natural"))
    assert (audio, summary.sentences) == (whole, 2)
    pause = 2 * 4_800
    assert len(whole) == 2 * 960 * summary.speech_tokens + pause
    assert len(await say(stack, TWO_SENTENCES, sentence_pause_milliseconds=0, onset="natural")) == len(whole) - pause


async def test_another_seed_is_another_utterance(stack: WholeStack) -> None:
    assert await say(stack, seed=1) != await say(stack, seed=2)


@pytest.mark.parametrize("start", [1, 30_001])
async def test_a_lost_connection_is_resumed_at_its_sample(stack: WholeStack, start: int) -> None:
    assert await say(stack, start_sample=start) == (await say(stack))[2 * start :]
    mulaw = {"encoding": Encoding.MULAW, "sample_rate": 8_000}
    assert await say(stack, start_sample=start // 3, **mulaw) == (await say(stack, **mulaw))[start // 3 :]


async def test_unary_and_upstream_speak_the_same_tokens(stack: WholeStack) -> None:
    """Another arithmetic, the same number of samples: 960 for each of the same speech tokens."""
    text = "These words are more than a first hop of either profile holds."
    streamed = await say(stack, text, onset="natural")
    whole, _, _ = await stack.client.synthesize_unary(text, seed=11, onset="natural")
    upstream = await say(stack, text, profile="upstream")
    assert len(whole) == len(streamed) == len(upstream)
    assert len({whole, streamed, upstream}) == 3


async def test_hanging_up_stops_the_engines(stack: WholeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """No block begins in the flow and no decode pass in the LLM once a stage has seen the hang-up,
    but the pass beginning just then. What is in progress is stopped between Euler steps: on a busy
    machine a thread may begin another before it sees the request. Memory is free again."""
    loop = asyncio.get_running_loop()
    text = "word " * 38
    seen: dict[str, list[int]] = {"llm": [], "token2wav": []}

    def watch(owner: Any, stage: str, count: Callable[[], int]) -> None:
        cancel = owner.cancel

        def watched(stream: Any) -> None:
            cancel(stream)
            seen[stage].append(count())

        monkeypatch.setattr(owner, "cancel", watched)

    watch(stack.llm.engine, "llm", lambda: stack.llm.engine.stats.passes)
    watch(stack.batcher, "token2wav", stack.token2wav.euler_steps)
    for _ in range(3):
        async with stack.client.synthesize(text, seed=3) as speech:
            async for _ in speech:
                break
        hung_up = loop.time()
        await until(lambda: not (stack.llm.engine.stats.running or stack.batcher.stats().streams), 10)
        idle = loop.time() - hung_up
        await asyncio.sleep(0.3)
        assert stack.llm.engine.stats.passes - seen["llm"][-1] <= 1
        assert stack.token2wav.euler_steps() - seen["token2wav"][-1] < EULER_STEPS
        assert (stack.llm.engine.stats.reserved_kv_bytes, stack.batcher.stats().state_bytes) == (0, 0)
        longest = stack.llm.engine.stats.longest_step_seconds, stack.batcher.stats().longest_step_seconds
        print(
            f"idle after {idle * 1000:.0f} ms; longest decode step {longest[0] * 1000:.1f} ms, longest step "
            f"{longest[1] * 1000:.1f} ms"
        )


async def test_of_twelve_at_once_four_are_served_and_eight_get_a_retry_hint() -> None:
    """Real engines, limit 4: no call hangs, none is lost in mid-stream."""
    async with whole_stack(DEMO, max_streams=4) as stack:
        alone = await say(stack)
        loop, refused_after = asyncio.get_running_loop(), list[float]()

        async def client() -> bytes | Overloaded:
            began = loop.time()
            try:
                return await say(stack)
            except Overloaded as error:
                refused_after.append(loop.time() - began)
                return error

        answers = await asyncio.gather(*(client() for _ in range(12)))
        refusals = [answer for answer in answers if isinstance(answer, Overloaded)]
        assert [answer for answer in answers if isinstance(answer, bytes)] == [alone] * 4
        assert len(refusals) == 8
        assert all(refusal.retry_after is not None and refusal.retry_after > 0 for refusal in refusals)
        assert await say(stack) == alone
    print(f"8 refusals, the last after {max(refused_after) * 1000:.0f} ms")
