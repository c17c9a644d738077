"""A backend without a model or a tensor library, for tests of the wiring: four tokens for each text
id, the same for the same request.

Token i of a sentence is a pure function of (seed, sentence, i, text id i // 4), so it does not
depend on how text or messages are cut, and a replay continues as in a real engine.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

import numpy as np

from cosyserve import philox
from cosyserve.engines.compatibility import Identity
from cosyserve.errors import InvalidRequest, NonFinite, Unavailable
from cosyserve.spec import MAX_TOKENS_PER_TEXT_TOKEN, MIN_TOKENS_PER_TEXT_TOKEN, SPEECH_VOCABULARY
from services.llm.backends.backend import Admission, generate_first_hop
from services.llm.generation.config import PUBLISHED_LENGTHS
from services.llm.generation.occupancy import Occupancy
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import MOST_TOKENS, FinishReason, Generation, Hop, Prompt, Sampling, TextStream
from services.llm.guards.alignment import DIGITS, LEVELS, AlignmentTable
from services.llm.settings import LlmSettings

TOKENS_PER_TEXT_ID = 4
_TOKENS_WHEN = {
    "runaway": MAX_TOKENS_PER_TEXT_TOKEN,
    "short": MIN_TOKENS_PER_TEXT_TOKEN,
    "constant": MAX_TOKENS_PER_TEXT_TOKEN - 1,
    "left_out": TOKENS_PER_TEXT_ID - 1,
}
_FINITE_TOKENS = 10
_FAULT_DRAW = 1 << 20
"""Draw number that decides about a fault; larger than any text id, so that no token uses it."""


class FakeBackend:
    """Accepts as many sentences at once as the settings allow, and takes `fake_token_milliseconds`
    for each token.
    """

    def __init__(self, settings: LlmSettings) -> None:
        self.identity = Identity(model_hash="fake", backend="fake", precision="none", device="cpu")
        self.text_vocabulary = 151_936
        self.lengths = PUBLISHED_LENGTHS
        self.shortest_prompt = Prompt()
        self.alignment: AlignmentTable | None = (
            _FixedAlignment(self.text_vocabulary) if settings.fake_fault == "left_out" else None
        )
        self._settings = settings
        self._admission = Admission(settings)
        self._closed = False

    @property
    def occupancy(self) -> Occupancy:
        return self._admission.running.occupancy

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """As `Backend.generate`. A sentence holds a slot for the tokens of one text id at a time,
        and none while it waits for text.
        """
        hops: list[Hop] = []
        outbox = Outbox(
            lambda item: hops.append(item) if isinstance(item, Hop) else None, generation.grouping, generation.replay
        )
        count = 0
        with self._admission.admit(text_arrives=not isinstance(generation.text, tuple)):
            yield Hop([])
            async for text_id in _ids(generation.text):
                async with self._admission.running:
                    if not outbox.started:
                        outbox.prefilled(
                            time.time_ns(), len(generation.prompt.text_ids) + len(generation.prompt.speech_tokens)
                        )
                    for token in self._tokens(generation, text_id, count):
                        count += 1
                        if count <= len(generation.replay):
                            outbox.replayed()
                        else:
                            await asyncio.sleep(self._settings.fake_token_milliseconds / 1000)
                            outbox.add(token, last=False)
                        while hops:
                            yield hops.pop()
                if count == MOST_TOKENS:
                    break
            if not count:
                raise InvalidRequest("text has 0 ids; at least 1 has to arrive before the stream is closed")
            endless = count == MOST_TOKENS or self._fault_of(generation.sampling) == "runaway"
            outbox.finish(FinishReason.LENGTH if endless else FinishReason.END_OF_SPEECH, count)
            yield hops.pop()

    async def warm_up(self) -> None:
        await generate_first_hop(self.generate, self.shortest_prompt, text_ids=1, tokens=TOKENS_PER_TEXT_ID)

    async def close(self) -> None:
        self._closed = True

    def _fault_of(self, sampling: Sampling) -> str:
        """The fault of this sentence, one of FAKE_FAULTS; empty: none."""
        chance = philox.uniform(sampling.seed, sampling.sentence_index, 0, _FAULT_DRAW)
        return self._settings.fake_fault if chance < self._settings.fake_fault_share else ""

    def _tokens(self, generation: Generation, text_id: int, first: int) -> Iterator[int]:
        """The tokens of one text id: tokens `first` and following of the sentence."""
        sampling, prompt, fault = (
            generation.sampling,
            generation.prompt.speech_tokens,
            self._fault_of(generation.sampling),
        )
        for count in range(first, min(first + _TOKENS_WHEN.get(fault, TOKENS_PER_TEXT_ID), MOST_TOKENS)):
            if self._closed:
                raise Unavailable("the speech-token engine is shutting down")
            if fault == "non_finite" and count == _FINITE_TOKENS:
                raise NonFinite(f"the fake engine is set to produce non-finite numbers at token {count}")
            if fault == "constant":
                yield 17
            elif fault == "prompt" and prompt:
                yield prompt[count % len(prompt)]
            else:
                yield int(philox.uniform(sampling.seed, sampling.sentence_index, count, text_id) * SPEECH_VOCABULARY)


class _FixedAlignment(AlignmentTable):
    """Aligns four tokens to each id; the last ids get the rest, which is nothing in a sentence that
    ended too soon.
    """

    def __init__(self, vocabulary: int) -> None:
        # Broadcast arrays need no memory; all ids are equal.
        each, nothing = (
            np.broadcast_to(np.float32(0), (vocabulary, DIGITS, LEVELS)),
            np.broadcast_to(np.float32(0), vocabulary),
        )
        super().__init__(each, nothing, nothing, nothing)

    def starts(self, text_ids: tuple[int, ...], tokens: list[int]) -> list[int]:
        return [min(TOKENS_PER_TEXT_ID * place, len(tokens)) for place in range(len(text_ids))]


async def _ids(text: tuple[int, ...] | TextStream) -> AsyncIterator[int]:
    if isinstance(text, tuple):
        for text_id in text:
            yield text_id
        return
    async for piece in text:
        for text_id in piece:
            yield text_id
