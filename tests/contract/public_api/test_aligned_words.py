"""The words of a model without an alignment table: found in its sound, near where a table puts
them, however the request is cut or resumed; none, and the reason, where the sound does not fit.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from cosyserve.client.types import MissingWordTimes, WordTime
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from services.orchestrator.aligning import workers
from tests.stacks.calls import heard, one_by_one
from tests.stacks.up_process import TINY, TINY3
from tests.stacks.whole_stack import WholeStack, whole_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "One small step, then another. It costs 42 dollars."
ALIGNED = {"word_aligners": 1, "word_wait_seconds": 60}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[WholeStack]:
    async with whole_stack(Path("models/demo"), **ALIGNED) as running:
        yield running


@pytest.fixture
def untabled(stack: WholeStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[WholeStack]:
    """The same without its table."""
    monkeypatch.setattr(stack.llm, "alignment", None)
    return stack


async def spoken(stack: WholeStack, text: str = TEXT, **options: Any) -> tuple[list[WordTime], Any]:
    speech = stack.client.synthesize(text, seed=3, **options)
    _, _, summary = await heard(speech)
    return speech.words, summary


async def test_words_are_found_where_the_table_has_them(stack: WholeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.delattr(workers, "_Worker")  # a model with a table has no use for one
        tabled, summary = await spoken(stack)
    assert summary.missing_word_times == ()
    monkeypatch.setattr(stack.llm, "alignment", None)
    found, summary = await spoken(stack)
    assert summary.missing_word_times == ()
    assert [(word.text, word.sentence) for word in found] == [(word.text, word.sentence) for word in tabled]
    for word, other in zip(found, tabled, strict=True):
        assert (word.start, word.end) == pytest.approx((other.start, other.end), abs=0.12)
    natural, summary = await spoken(stack, onset="natural")
    removed = summary.audio_seconds - (await spoken(stack))[1].audio_seconds
    assert 0.1 < natural[5].start - found[5].start < removed


@pytest.mark.parametrize(
    "options", [{"start_sample": 60_000}, {"first_hop_tokens": 100, "max_hop_tokens": 400}], ids=["resumed", "hops"]
)
async def test_times_depend_neither_on_hops_nor_on_a_resumption(untabled: WholeStack, options: dict[str, int]) -> None:
    assert (await spoken(untabled, **options))[0] == (await spoken(untabled))[0]


async def test_arriving_text_has_the_words_of_the_whole(untabled: WholeStack) -> None:
    whole, _ = await spoken(untabled)
    fragments = [TEXT[:13], TEXT[13:40], TEXT[40:]]
    async with untabled.client.streaming_synthesize(one_by_one(fragments), seed=3) as speech:
        await speech.read()
        assert speech.words == whole
    for cut in (fragments, list(TEXT)):
        async with untabled.client.streaming_synthesize(one_by_one(cut), seed=3, mode="tokens") as speech:
            await speech.read()
            by_token = speech.words
        assert [word.text.lower() for word in by_token] == [word.text.lower() for word in whole]


async def test_a_whole_answer_waits_for_its_words(untabled: WholeStack) -> None:
    streamed, _ = await spoken(untabled, onset="natural")
    async with grpc.aio.insecure_channel(untabled.address) as channel:
        request = synthesis_pb2.SynthesizeUnaryRequest(text=TEXT, seed=3, onset=synthesis_pb2.ONSET_NATURAL)
        whole = await synthesis_pb2_grpc.SynthesisServiceStub(channel).SynthesizeUnary(request, timeout=120)  # type: ignore[misc]
    assert [(word.text, word.sentence) for word in whole.words] == [(word.text, word.sentence) for word in streamed]
    # Its samples are those of its own arithmetic.
    for word, other in zip(whole.words, streamed, strict=True):
        assert (word.start_seconds, word.end_seconds) == pytest.approx((other.start, other.end), abs=0.06)


async def test_another_language_has_no_times_and_says_so(untabled: WholeStack) -> None:
    words, summary = await spoken(untabled, "Guten Tag. Danke.", language_code="de")
    assert words == []
    assert summary.missing_word_times == (MissingWordTimes("language", 2, 0),)


@pytest.mark.parametrize("model", [TINY, TINY3], ids=["tiny", "tiny3"])
async def test_sound_that_is_no_speech_has_no_times_in_either_generation(model: Path) -> None:
    async with whole_stack(model, guards=False, **ALIGNED) as stack:
        for text, reason in (("Hi.", "not_aligned"), ("你。", "language")):
            words, summary = await spoken(stack, text, voice="zs_a")
            assert words == []
            assert summary.missing_word_times == (MissingWordTimes(reason, 1, 0),)
        if model == TINY3:
            words, summary = await spoken(stack, "[n][ǐ]", voice="zs_a")
            assert (words, summary.missing_word_times) == ([], (MissingWordTimes("language", 1, 0),))
