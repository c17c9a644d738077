"""Long silences of the speech-token model are not spoken: the sound is that of what remains, for
any hops, for a replica that takes over in a silence, and for a listener who resumes.
"""

from collections.abc import AsyncGenerator, Iterator
from itertools import cycle, islice
from typing import Any

import grpc

from cosyserve.errors import Unavailable
from cosyserve.generations.generation import SilentTokens
from cosyserve.spec import SAMPLES_PER_TOKEN
from cosyserve.v1 import profile_pb2, synthesis_pb2
from services.llm.backends.fake_backend import TOKENS_PER_TEXT_ID, FakeBackend
from services.llm.generation.request import Generation, Hop
from tests.pipeline.misbehaving import fake_settings, misbehaving
from tests.stacks.calls import all_of, refused

SILENT = SilentTokens(ids=frozenset({1, 2}), longest_run=5)
SAID = (50, 60, *[1, 2] * 5, 70, 80, 90, *[2] * 4)
"""Of the ten silent tokens in a row five stay; the four stay, and one of the next ten."""
TOKENS = 10 * TOKENS_PER_TEXT_ID


class Pauses(FakeBackend):
    """Generates `SAID` again and again. dies: once, behind so many tokens of a sentence."""

    def __init__(self, dies: int = 0) -> None:
        super().__init__(fake_settings(fake_token_milliseconds=1.0))
        self._dies = dies
        self.died = 0
        """Tokens of the sentence when it died."""

    def _tokens(self, generation: Generation, text_id: int, first: int) -> Iterator[int]:
        yield from islice(cycle(SAID), first, first + TOKENS_PER_TEXT_ID)

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        count = 0
        async for hop in super().generate(generation):
            yield hop
            count += len(hop.tokens)
            if self._dies and count >= self._dies:
                self._dies, self.died = 0, count
                raise Unavailable("gone")


def spoken(tokens: int) -> int:
    """How many of the first tokens of a sentence are spoken."""
    kept = run = 0
    for token in islice(cycle(SAID), tokens):
        run = run + 1 if token in SILENT.ids else 0
        kept += run <= SILENT.longest_run
    return kept


async def heard(stub: Any, **fields: Any) -> tuple[bytes, synthesis_pb2.SynthesisSummary]:
    request = synthesis_pb2.SynthesizeRequest(text="word", seed=3, onset=synthesis_pb2.ONSET_NATURAL, **fields)
    responses = [response async for response in stub.Synthesize(request, timeout=30)]
    return b"".join(response.audio for response in responses), responses[-1].summary


async def test_the_sound_is_that_of_what_is_spoken() -> None:
    async with misbehaving(Pauses(), silent=SILENT, guards=False) as stub:
        whole, summary = await heard(stub)
        assert spoken(TOKENS) < TOKENS
        assert len(whole) == 2 * SAMPLES_PER_TOKEN * spoken(TOKENS)
        assert summary.speech_tokens == spoken(TOKENS)
        hops = profile_pb2.HopSchedule(first_hop_tokens=30, max_hop_tokens=50)
        assert (await heard(stub, hops=hops))[0] == whole
        resumed, _ = await heard(stub, start_sample=7_000)
        assert resumed == whole[14_000:]
    async with misbehaving(Pauses(), guards=False) as stub:
        assert len((await heard(stub))[0]) == 2 * SAMPLES_PER_TOKEN * TOKENS


async def test_a_replica_that_takes_over_goes_on_with_the_silence() -> None:
    async with misbehaving(Pauses(), silent=SILENT, guards=False) as stub:
        whole, _ = await heard(stub)
    dying = Pauses(dies=25)
    async with misbehaving(dying, silent=SILENT, guards=False, recovery_seconds=5.0) as stub:
        assert (await heard(stub))[0] == whole
    assert dying.died


async def test_who_leaves_out_other_silences_does_not_resume_a_request() -> None:
    request = synthesis_pb2.SynthesizeRequest(text="word", seed=3, start_sample=7_000)
    async with misbehaving(Pauses(), silent=SILENT, guards=False) as stub:
        header = (await all_of(stub.Synthesize(request, timeout=30)))[0].header
    for other in (None, SilentTokens(ids=SILENT.ids, longest_run=6), SilentTokens(ids=frozenset({1}), longest_run=5)):
        async with misbehaving(Pauses(), silent=other, guards=False) as stub:
            request.engine = header.engine
            status, message = await refused(all_of(stub.Synthesize(request, timeout=30)))
            assert (status, "begun by engines" in message) == (grpc.StatusCode.FAILED_PRECONDITION, True)


async def test_a_speech_token_model_that_leaves_out_every_silence_is_an_error_of_it() -> None:
    silent = SilentTokens(ids=SILENT.ids, longest_run=0)
    async with misbehaving(Pauses(), silent=silent, guards=False, attempts=1) as stub:
        status, message = await refused(all_of(stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="word"))))
    assert status == grpc.StatusCode.INTERNAL
    assert message == "llm names 2 silent_tokens and a longest_silent_run of 0, which is at least 1"
