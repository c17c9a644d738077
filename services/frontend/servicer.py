"""The gRPC face of the frontend. Text never reaches a log or a trace, only its length and language."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from typing import Any, TypeVar

import grpc

from cosyserve import telemetry
from cosyserve.errors import InvalidRequest
from cosyserve.timing import Timing
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import frontend_pb2_grpc
from services.frontend.analysis import Analyzer, Sentence
from services.frontend.language import require_tag
from services.frontend.units import Units
from services.frontend.voice_library import VoiceLibrary
from services.frontend.voice_maker import VoiceMaker
from services.frontend.voice_servicer import VoiceMethods

Context = grpc.aio.ServicerContext[Any, Any]
LONGEST_UNIT = 400
"""Characters after which running text without a sentence end is cut anyway."""
T = TypeVar("T")


class FrontendServicer(VoiceMethods, frontend_pb2_grpc.FrontendServiceServicer):
    """FrontendService.

    worker: runs the text work, a sentence at a time, so that calls take turns and the event loop stays free; hanging up stops a call's
    work at the next sentence.
    """

    def __init__(self, analyzer: Analyzer, library: VoiceLibrary, maker: VoiceMaker | None, worker: Executor, most_characters: int) -> None:
        super().__init__(library, maker)
        self._analyzer = analyzer
        self._worker = worker
        self._most_characters = most_characters

    async def Analyze(self, request: pb.AnalyzeRequest, context: Context) -> AsyncIterator[pb.AnalyzeResponse]:
        call = _Call(request.setup.language_code)
        try:
            call.count(request.text, self._most_characters)
            async for sentence in self._analyze(request.text, call):
                yield pb.AnalyzeResponse(sentence=sentence)
            call.require_speech()
        finally:
            call.record()

    async def AnalyzeStream(
        self, requests: AsyncIterator[pb.AnalyzeStreamRequest], context: Context
    ) -> AsyncIterator[pb.AnalyzeStreamResponse]:
        """The sentences are those of Analyze for each unit of the text (see `services.frontend.units`), in order: they depend on the text
        alone, not on how it was cut into fragments. Analyze joins short units of a whole text into longer sentences, this does not wait
        for them; and an empty language code is decided by script unit by unit."""
        call = _Call(await _setup_of(requests))
        # Tells the caller that its setup is accepted: text written before may hide the status of a refusal.
        await context.send_initial_metadata(())
        units = Units(LONGEST_UNIT)
        try:
            async for request in requests:
                if request.WhichOneof("part") != "text":
                    raise InvalidRequest(f"a message behind the first carries {request.WhichOneof('part') or 'nothing'}, expected text")
                call.count(request.text, self._most_characters, streamed=True)
                for unit in units.feed(request.text):
                    async for sentence in self._analyze(unit, call):
                        yield pb.AnalyzeStreamResponse(sentence=sentence)
            call.require_text()
            async for sentence in self._analyze(units.finish(), call):
                yield pb.AnalyzeStreamResponse(sentence=sentence)
            call.require_speech()
        finally:
            call.record()

    async def _analyze(self, text: str, call: "_Call") -> AsyncIterator[pb.Sentence]:
        sentences = self._analyzer.sentences(text, call.language_code)
        while (sentence := await self._work(_next, sentences)) is not None:
            yield call.message(sentence)

    async def _work(self, function: Callable[[Iterator[Sentence]], T], argument: Iterator[Sentence]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, argument)


class _Call:
    """What one call has come to so far."""

    def __init__(self, language_code: str) -> None:
        require_tag(language_code)
        self.language_code = language_code
        self._start = time.time_ns()
        self._characters = 0
        self._sentences = 0
        self._language = language_code

    def count(self, text: str, most: int, *, streamed: bool = False) -> None:
        """Take note of text that has come. Raises InvalidRequest when it is empty (unless streamed) or too much by now."""
        self._characters += len(text)
        if not streamed:
            self.require_text()
        if self._characters > most:
            raise InvalidRequest(f"text has {self._characters} characters, allowed 1 to {most}")

    def require_text(self) -> None:
        if self._characters == 0:
            raise InvalidRequest("text is empty; there is nothing to speak")

    def require_speech(self) -> None:
        if self._sentences == 0:
            raise InvalidRequest("text holds only punctuation, blanks or what this model cannot read; there is nothing to speak")

    def message(self, sentence: Sentence) -> pb.Sentence:
        self._language = sentence.language
        self._sentences += 1
        return pb.Sentence(index=self._sentences - 1, text=sentence.text, token_ids=sentence.token_ids, language=sentence.language)

    def record(self) -> None:
        attributes: dict[str, int | float | str] = {
            "text.characters": self._characters, "text.language": self._language, "text.sentences": self._sentences,
        }  # fmt: skip
        telemetry.record(Timing("frontend.analyze", self._start, time.time_ns(), attributes))


def _next(sentences: Iterator[Sentence]) -> Sentence | None:
    return next(sentences, None)


async def _setup_of(requests: AsyncIterator[pb.AnalyzeStreamRequest]) -> str:
    first = await anext(aiter(requests), None)
    if first is None or first.WhichOneof("part") != "setup":
        found = "no message came" if first is None else f"the first message carries {first.WhichOneof('part') or 'nothing'}"
        raise InvalidRequest(f"{found}, expected the setup")
    return first.setup.language_code
