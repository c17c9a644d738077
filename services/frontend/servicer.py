"""The gRPC face of the frontend. Text never reaches a log or a trace, only its length and language."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import Executor
from typing import Any, TypeVar

import grpc

from cosyserve import telemetry
from cosyserve.errors import InvalidRequest
from cosyserve.timing import Timing
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import frontend_pb2_grpc
from services.frontend.analysis import Analyzer, Reading, Sentence
from services.frontend.language import language_of, require_tag
from services.frontend.partial import Part
from services.frontend.pauses import LONGEST_TOGETHER, Pause, added
from services.frontend.prompt_servicer import PromptMethods
from services.frontend.recording_reader import RecordingReader
from services.frontend.units import Units
from services.frontend.voice_library import VoiceLibrary
from services.frontend.voice_servicer import VoiceMethods
from services.frontend.written_text import Piece, WrittenText

Context = grpc.aio.ServicerContext[Any, Any]
LONGEST_UNIT = 400
"""Characters after which running text without a sentence end is cut anyway."""
MOST_FLUSHED_WORDS = 100
T = TypeVar("T")


class FrontendServicer(VoiceMethods, PromptMethods, frontend_pb2_grpc.FrontendServiceServicer):
    """FrontendService.

    worker: runs the text work, a sentence at a time, so that calls take turns and the event loop stays free; hanging up stops a call's
    work at the next sentence.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        library: VoiceLibrary,
        reader: RecordingReader | None,
        worker: Executor,
        most_characters: int,
        most_stream_characters: int,
        recordings_cache_bytes: int,
    ) -> None:
        VoiceMethods.__init__(self, library, reader)
        PromptMethods.__init__(self, reader, recordings_cache_bytes, analyzer.tokenizer, worker)
        self._analyzer = analyzer
        self._worker = worker
        self._most_characters = most_characters
        self._most_stream_characters = most_stream_characters

    async def Analyze(self, request: pb.AnalyzeRequest, context: Context) -> AsyncIterator[pb.AnalyzeResponse]:
        call = self._call(request.setup)
        try:
            call.count(request.text, self._most_characters)
            async for sentence in self._analyze(request.text, call):
                yield pb.AnalyzeResponse(sentence=sentence)
            call.require_speech()
            if call.pause:
                yield pb.AnalyzeResponse(closing_pause_milliseconds=call.pause)
        finally:
            call.record()

    async def AnalyzeStream(
        self, requests: AsyncIterator[pb.AnalyzeStreamRequest], context: Context
    ) -> AsyncIterator[pb.AnalyzeStreamResponse]:
        """The sentences are those of Analyze for each unit of the text (see `services.frontend.units`), in order: they depend on the text
        and its flushes alone, not on how it was cut into fragments. Analyze joins short units of a whole text into longer sentences, this
        does not wait for them; and an empty language code is decided by script unit by unit, what has no letters read in the language
        before it."""
        setup = await _setup_of(requests)
        call = self._call(setup, setup.first_index, setup.first_pause_milliseconds)
        require_tag(setup.last_language_code, "last_language_code")
        last_language = language_of(setup.last_language_code, "") if setup.last_language_code else ""
        text = WrittenText(self._analyzer, call.reading, Units(LONGEST_UNIT), partial=setup.partial_sentences, last_language=last_language)
        # Tells the caller that its setup is accepted: text written before may hide the status of a refusal.
        await context.send_initial_metadata(())
        try:
            async for request in requests:
                if request.WhichOneof("part") == "text":
                    call.count(request.text, self._most_stream_characters, streamed=True)
                    # Text of which nothing is spoken gives the worker up only between two steps.
                    steps = [text.feed(request.text[at : at + LONGEST_UNIT]) for at in range(0, len(request.text), LONGEST_UNIT)]
                else:
                    steps = [text.flush(_least_words(request))]
                for pieces in steps:
                    async for message in self._streamed(pieces, call):
                        yield message
                if setup.reports_progress:
                    progress = pb.AnalyzeProgress(
                        characters=text.settled,
                        sentences=call.sentences - text.unsettled_sentences,
                        pause_milliseconds=call.pause,
                        last_language_code=text.last_language,
                    )
                    yield pb.AnalyzeStreamResponse(progress=progress)
            call.require_text()
            async for message in self._streamed(text.finish(), call):
                yield message
            call.require_speech()
            if call.pause:
                yield pb.AnalyzeStreamResponse(closing_pause_milliseconds=call.pause)
        finally:
            call.record()

    async def _analyze(self, text: str, call: "_Call") -> AsyncIterator[pb.Sentence]:
        async for part in self._each(self._analyzer.parts(text, call.reading)):
            if isinstance(part, Pause):
                call.wait(part)
            else:
                yield call.message(part)

    async def _streamed(self, pieces: Iterator[Piece], call: "_Call") -> AsyncIterator[pb.AnalyzeStreamResponse]:
        async for piece in self._each(pieces):
            if isinstance(piece, Pause):
                call.wait(piece)
            else:
                yield call.streamed(piece)

    async def _each(self, work: Iterator[T]) -> AsyncIterator[T]:
        """What `work` gives, each piece made by the worker."""
        loop = asyncio.get_running_loop()
        while (piece := await loop.run_in_executor(self._worker, next, work, None)) is not None:
            yield piece

    def _call(self, setup: pb.AnalyzeSetup, first_index: int = 0, first_pause: int = 0) -> "_Call":
        require_tag(setup.language_code)
        if first_index < 0:
            raise InvalidRequest(f"setup.first_index is {first_index}, it must not be negative")
        if not 0 <= first_pause <= LONGEST_TOGETHER:
            raise InvalidRequest(f"setup.first_pause_milliseconds is {first_pause}, allowed 0 to {LONGEST_TOGETHER}")
        reading = self._analyzer.reading(
            setup.language_code, allow_control_tokens=setup.allow_control_tokens, pronunciations=dict(setup.pronunciations)
        )
        return _Call(reading, first_index, first_pause)


class _Call:
    """What one call has come to so far."""

    def __init__(self, reading: Reading, first_index: int, first_pause: int) -> None:
        self.reading = reading
        self.sentences = first_index
        """Of the whole text so far, those of earlier calls included."""
        self.pause = first_pause
        """Milliseconds that the text asked for since the last sentence."""
        self._start = time.time_ns()
        self._characters = 0
        self._language = reading.language_code

    def count(self, text: str, most: int, *, streamed: bool = False) -> None:
        """Take note of text that has come. Raises InvalidRequest when it is empty (unless streamed) or too much by now."""
        self._characters += len(text)
        if not streamed:
            self.require_text()
        if self._characters > most:
            raise InvalidRequest(f"text has {self._characters} characters, allowed 1 to {most}")

    def require_text(self) -> None:
        if self._characters == 0 and self.sentences == 0:
            raise InvalidRequest("text is empty; there is nothing to speak")

    def require_speech(self) -> None:
        if self.sentences == 0:
            raise InvalidRequest("text holds only punctuation, blanks or what this model cannot read; there is nothing to speak")

    def wait(self, pause: Pause) -> None:
        """Take note of a pause. Raises InvalidRequest when those in one place are too long together."""
        self.pause = added(self.pause, pause)

    def message(self, sentence: Sentence) -> pb.Sentence:
        self._language = sentence.language
        self.sentences += 1
        return pb.Sentence(
            index=self.sentences - 1,
            text=sentence.text,
            token_ids=sentence.token_ids,
            language=sentence.language,
            pause_before_milliseconds=self._take_pause(),
            words=_words(sentence.words),
        )

    def streamed(self, piece: Sentence | Part) -> pb.AnalyzeStreamResponse:
        if isinstance(piece, Sentence):
            return pb.AnalyzeStreamResponse(sentence=self.message(piece))
        self._language = piece.language
        sentence = pb.Sentence(
            index=self.sentences,
            token_ids=piece.token_ids,
            language=piece.language,
            pause_before_milliseconds=self._take_pause(),
            words=_words(piece.words),
        )
        self.sentences += not piece.unfinished
        return pb.AnalyzeStreamResponse(sentence=sentence, unfinished=piece.unfinished)

    def _take_pause(self) -> int:
        pause, self.pause = self.pause, 0
        return pause

    def record(self) -> None:
        attributes: dict[str, int | float | str] = {
            "text.characters": self._characters, "text.language": self._language, "text.sentences": self.sentences,
        }  # fmt: skip
        telemetry.record(Timing("frontend.analyze", self._start, time.time_ns(), attributes))


def _words(words: Iterable[tuple[str, int, int]]) -> list[pb.SpokenWord]:
    return [pb.SpokenWord(text=text, first_id=first, ids=count) for text, first, count in words]


async def _setup_of(requests: AsyncIterator[pb.AnalyzeStreamRequest]) -> pb.AnalyzeSetup:
    first = await anext(aiter(requests), None)
    if first is None or first.WhichOneof("part") != "setup":
        found = "no message came" if first is None else f"the first message carries {first.WhichOneof('part') or 'nothing'}"
        raise InvalidRequest(f"{found}, expected the setup")
    return first.setup


def _least_words(request: pb.AnalyzeStreamRequest) -> int:
    part = request.WhichOneof("part")
    if part != "flush":
        raise InvalidRequest(f"a message behind the first carries {part or 'nothing'}, expected text or a flush")
    least: int = request.flush.least_words
    if not 0 <= least <= MOST_FLUSHED_WORDS:
        raise InvalidRequest(f"flush.least_words is {least}, allowed 0 to {MOST_FLUSHED_WORDS}")
    return least
