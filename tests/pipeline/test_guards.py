"""What is no speech is never passed off as speech: each guard, the second attempt, and that resumed
audio fits.
"""

import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest

from cosyserve.errors import SpeechFault, Unavailable
from cosyserve.rpc.calls import as_error
from cosyserve.v1 import synthesis_pb2
from services.llm.backends.fake_backend import FakeBackend
from services.llm.generation.request import Generation, Hop
from services.orchestrator.retries import attempt_seed
from tests.pipeline.misbehaving import fake_settings, misbehaving
from tests.stacks.calls import refusal

TEXT = "one two three four"
LLM_FAULTS = {
    "runaway": "RUNAWAY",
    "short": "TOO_SHORT",
    "prompt": "PROMPT_SPOKEN",
    "non_finite": "NON_FINITE",
    "constant": "ABSURD",
    "left_out": "LEFT_OUT",
}
SOUND_FAULTS = {"silence": "SILENCE", "non_finite": "NON_FINITE", "saturated": "ABSURD"}
FAULTS = [("llm", *fault) for fault in LLM_FAULTS.items()] + [("token2wav", *fault) for fault in SOUND_FAULTS.items()]


async def heard(stub: Any, text: str = TEXT, **fields: Any) -> tuple[bytes, list[int]]:
    """The audio, and the sentences that were spoken again."""
    audio, retried = b"", []
    async for response in stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=text, **fields), timeout=20):
        audio += response.audio
        retried += response.retried_sentences
    return audio, retried


async def sentences_of(stub: Any, **fields: Any) -> int:
    """How many sentences the summary counts."""
    return [
        response async for response in stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT, **fields), timeout=20)
    ][-1].summary.sentences


async def fault_of(stub: Any, text: str = TEXT, **fields: Any) -> SpeechFault:
    error = as_error(await refusal(heard(stub, text, **fields), grpc.StatusCode.INTERNAL), "server at here")
    assert isinstance(error, SpeechFault)
    return error


async def retried(stub: Any, text: str = TEXT) -> tuple[int, bytes, list[int]]:
    """The first seed with which a sentence is spoken again, the audio, and those sentences."""
    for seed in range(30):
        with contextlib.suppress(grpc.aio.AioRpcError):
            audio, again = await heard(stub, text, seed=seed, retry=True)
            if again:
                return seed, audio, again
    raise AssertionError("with none of 30 seeds a sentence is spoken again")


def settings(stage: str, fault: str, share: float) -> dict[str, Any]:
    """A sound that is slower than the tokens: what they give away is known before any of it has
    left.
    """
    told: dict[str, dict[str, Any]] = {"llm": {}, "token2wav": {"fake_token_seconds": 0.0005}}
    told[stage].update({"fake_fault": fault, "fake_fault_share": share})
    return told


@pytest.mark.parametrize(("stage", "fault", "guard"), FAULTS)
async def test_each_fault_is_an_error_that_names_its_guard(stage: str, fault: str, guard: str) -> None:
    async with misbehaving(**settings(stage, fault, 1.0)) as stub:
        for retry in (False, True):
            error = await fault_of(stub, seed=3, retry=retry)
            assert error.guard == guard
            assert stage in error.message
        request = synthesis_pb2.SynthesizeUnaryRequest(text=TEXT, retry=True)
        assert (await refusal(stub.SynthesizeUnary(request, timeout=20))).code() == grpc.StatusCode.INTERNAL


@pytest.mark.parametrize(
    ("stage", "fault"), [("llm", "short"), ("llm", "non_finite"), ("llm", "left_out"), ("token2wav", "silence")]
)
async def test_a_second_attempt_replaces_what_was_not_heard(stage: str, fault: str) -> None:
    seeds, repaired = range(12), 0
    async with misbehaving() as stub:
        sound = {seed: await heard(stub, seed=seed) for seed in seeds}
        sentences = await sentences_of(stub, seed=0)
    async with misbehaving(**settings(stage, fault, 0.3)) as stub:
        for seed in seeds:
            try:
                audio, retried = await heard(stub, seed=seed, retry=True)
            except grpc.aio.AioRpcError:
                await fault_of(stub, seed=seed, retry=True)
                continue
            again, as_before = await heard(stub, seed=seed, retry=True)
            assert (again, as_before) == (audio, retried)
            assert len(audio) == len(sound[seed][0])
            assert (audio == sound[seed][0]) is not bool(retried)
            if retried:
                repaired += 1
                assert await sentences_of(stub, seed=seed, retry=True) == sentences
                assert isinstance(await fault_of(stub, seed=seed), SpeechFault)
    assert repaired >= 3


async def test_what_was_spoken_again_counts_toward_the_longest_unary_answer() -> None:
    faulty = settings("llm", "short", 0.3)
    async with misbehaving(**faulty) as stub:
        seed, _, _ = await retried(stub)
        request = synthesis_pb2.SynthesizeUnaryRequest(text=TEXT, seed=seed, retry=True, sentence_pause_milliseconds=0)
        spoken = await stub.SynthesizeUnary(request, timeout=20)
    async with misbehaving(**faulty, max_unary_seconds=spoken.summary.audio_seconds - 0.1) as stub:
        await refusal(stub.SynthesizeUnary(request, timeout=20), grpc.StatusCode.INVALID_ARGUMENT, "are given at once")


async def test_a_request_that_was_retried_resumes_to_the_same_samples() -> None:
    async with misbehaving(**settings("llm", "short", 0.3)) as stub:
        resumed = 0
        for seed in range(12):
            try:
                audio, retried = await heard(stub, seed=seed, retry=True)
            except grpc.aio.AioRpcError:
                continue
            for start in (1, 20_000, len(audio) // 2 - 1):
                tail, _ = await heard(stub, seed=seed, retry=True, start_sample=start, retried_sentences=retried)
                assert tail == audio[2 * start :]
            resumed += bool(retried)
            if 0 in retried:
                # Without the list the first sentence would be said with the first seed, to whom has
                # heard the second: no audio that fits.
                await fault_of(stub, seed=seed, retry=True, start_sample=20_000)
    assert resumed >= 3


class DiesInTheSecondAttempt(FakeBackend):
    """Gone once, behind the first tokens that another seed than `first_seed` makes."""

    first_seed = 0
    died = 0

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        async for hop in super().generate(generation):
            yield hop
            if hop.tokens and not self.died and generation.sampling.seed != self.first_seed:
                self.died = len(hop.tokens)
                raise Unavailable("gone")


async def test_a_second_attempt_that_is_taken_over_says_the_same() -> None:
    faulty = settings("llm", "short", 0.3)
    async with misbehaving(**faulty) as stub:
        seed, audio, again = await retried(stub, "word")
    assert again == [0]
    dying = DiesInTheSecondAttempt(fake_settings(**faulty["llm"]))
    dying.first_seed = seed
    async with misbehaving(dying, faulty["token2wav"], recovery_seconds=5.0) as stub:
        assert await heard(stub, "word", seed=seed, retry=True) == (audio, again)
    assert dying.died > 0


async def test_what_was_heard_in_part_is_not_spoken_again() -> None:
    async with misbehaving(**settings("token2wav", "non_finite", 1.0)) as stub:
        call, got, retried = (
            stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT, seed=1, retry=True), timeout=20),
            b"",
            [],
        )
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in call:
                got += response.audio
                retried += response.retried_sentences
        status = await call.code()
    assert (status, retried) == (grpc.StatusCode.INTERNAL, [])
    assert got


async def first_message_with_sound(stub: Any, **fields: Any) -> float:
    """Seconds from the call to the first message that has audio."""
    begin = time.monotonic()
    async for response in stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="word", **fields), timeout=20):
        if response.audio:
            return time.monotonic() - begin
    raise AssertionError("nothing was heard")


async def test_with_retry_nothing_of_a_sentence_leaves_before_all_its_words_are_there() -> None:
    """Sound is made faster than tokens: without waiting for the last of them the first second would
    be out.
    """
    slow = {"fake_token_milliseconds": 50.0, "fake_fault": "left_out"}
    async with misbehaving(slow | {"fake_fault_share": 0.0}) as stub:
        assert (
            await first_message_with_sound(stub, seed=1)
            < 40 * 0.050
            <= await first_message_with_sound(stub, seed=1, retry=True)
        )
    async with misbehaving(slow | {"fake_fault_share": 0.5}) as stub:
        await retried(stub, "word")
        got = b""
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in stub.Synthesize(
                synthesis_pb2.SynthesizeRequest(text="word", seed=await failing(stub)), timeout=20
            ):
                got += response.audio
        assert got, "without retry the sentence is on its way when its words are counted"


async def failing(stub: Any) -> int:
    """A seed that fails without retry."""
    for seed in range(12):
        try:
            await heard(stub, "word", seed=seed)
        except grpc.aio.AioRpcError:
            return seed
    raise AssertionError("none of 12 seeds fails")


async def test_models_without_word_times_do_not_wait() -> None:
    async with misbehaving({"fake_token_milliseconds": 50.0}) as stub:
        assert await first_message_with_sound(stub, seed=1, retry=True) < 40 * 0.050


async def test_guards_can_be_switched_off_but_for_numbers() -> None:
    async with misbehaving({"fake_fault": "runaway"}, guards=False) as stub:
        audio, _ = await heard(stub, "word", seed=1)
        assert len(audio) == 2 * 960 * 200
    async with misbehaving(None, {"fake_fault": "non_finite"}, guards=False) as stub:
        assert (await fault_of(stub, seed=1)).guard == "NON_FINITE"


@pytest.mark.parametrize("numbers", [[-1], [0] * 20_001])
async def test_a_list_of_retried_sentences_is_checked(numbers: list[int]) -> None:
    async with misbehaving() as stub:
        await refusal(
            heard(stub, seed=1, retried_sentences=numbers), grpc.StatusCode.INVALID_ARGUMENT, "retried_sentences"
        )


def test_seeds_of_attempts_follow_from_seed_and_sentence() -> None:
    assert attempt_seed(7, 3, 0) == 7
    assert len({attempt_seed(seed, sentence, 1) for seed in range(20) for sentence in range(20)}) == 400
    assert all(0 <= attempt_seed(7, sentence, 1) < 1 << 64 for sentence in range(100))
