"""The gRPC servicer of the frontend. Text never reaches a log or a trace; only its length and
language do.
"""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, TypeVar

import grpc

from cosyserve.errors import InvalidRequest
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import frontend_pb2_grpc
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.prepared_text import languages
from services.frontend.analysis.streaming import Piece, StreamingInput
from services.frontend.analysis.whole_input import parts_of
from services.frontend.prompts.recording_reader import RecordingReader
from services.frontend.segmentation.pauses import LONGEST_TOGETHER, Pause
from services.frontend.segmentation.text_units import LONGEST_UNIT
from services.frontend.text.language import language_of, require_tag
from services.frontend.text.text_scheduler import Caller, TextScheduler
from services.frontend.text_call import TextCall
from services.frontend.voice_servicer import PromptMethods, VoiceMethods
from services.frontend.voices.voice_library import VoiceLibrary

Context = grpc.aio.ServicerContext[Any, Any]
MOST_FLUSHED_WORDS = 100
T = TypeVar("T")


class FrontendServicer(VoiceMethods, PromptMethods, frontend_pb2_grpc.FrontendServiceServicer):
    """FrontendService.

    scheduler: runs the text work outside the event loop in short steps. A cancelled call stops at
    its next step.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        library: VoiceLibrary,
        reader: RecordingReader | None,
        scheduler: TextScheduler,
        most_characters: int,
        most_stream_characters: int,
        recordings_cache_bytes: int,
    ) -> None:
        VoiceMethods.__init__(self, library, reader)
        PromptMethods.__init__(self, reader, recordings_cache_bytes, analyzer.tokenizer, scheduler)
        self._analyzer = analyzer
        self._scheduler = scheduler
        self._most_characters = most_characters
        self._most_stream_characters = most_stream_characters

    async def Analyze(self, request: pb.AnalyzeRequest, context: Context) -> AsyncIterator[pb.AnalyzeResponse]:
        call = self._call(request.setup)
        try:
            call.count(request.text, self._most_characters)
            async for sentence in self._analyze(request.text, call):
                yield pb.AnalyzeResponse(sentence=sentence, warnings=call.warnings(sentence.index))
            call.require_speech()
            warnings = call.warnings(call.sentences)
            if call.pause or warnings:
                yield pb.AnalyzeResponse(closing_pause_milliseconds=call.pause, warnings=warnings)
        finally:
            call.record()

    async def AnalyzeStream(
        self, requests: AsyncIterator[pb.AnalyzeStreamRequest], context: Context
    ) -> AsyncIterator[pb.AnalyzeStreamResponse]:
        """Streams the sentences that Analyze gives for each unit of the text
        (`services.frontend.segmentation.text_units`), in order. They depend only on the text and
        its flushes, not on the fragments in which it arrived. Two differences: where Analyze joins
        short units into longer sentences, this call does not wait for them; and with an empty
        language code the language is chosen per unit by script, where a unit without letters keeps
        the previous language.
        """
        setup = await _setup_of(requests)
        call = self._call(setup, setup.first_index, setup.first_pause_milliseconds)
        require_tag(setup.last_language_code, "last_language_code")
        last_language = language_of(setup.last_language_code, "") if setup.last_language_code else ""
        # An earlier call may have consumed only text without speech.
        goes_on = setup.goes_on or bool(setup.first_index or setup.first_pause_milliseconds or last_language)
        by_part = setup.partial_sentences
        text = StreamingInput(
            self._analyzer, call.reading, LONGEST_UNIT, partial=by_part, last_language=last_language, goes_on=goes_on
        )
        # The metadata reports that the setup was accepted. Otherwise text that the caller has
        # already sent would hide the status of a refusal.
        await context.send_initial_metadata(())
        try:
            async for request in requests:
                if request.WhichOneof("part") == "text":
                    call.count(request.text, self._most_stream_characters, streamed=True)
                    # Text without speech yields no item, so the worker is released only between
                    # steps.
                    steps = [
                        text.feed(request.text[at : at + LONGEST_UNIT])
                        for at in range(0, len(request.text), LONGEST_UNIT)
                    ]
                else:
                    steps = [text.flush(_least_words(request))]
                for pieces in steps:
                    async for message in self._streamed(pieces, call):
                        yield message
                if setup.reports_progress:
                    yield pb.AnalyzeStreamResponse(progress=call.progress(text))
            call.require_text()
            async for message in self._streamed(text.finish(), call):
                yield message
            call.require_speech()
            warnings = call.warnings(call.sentences)
            if call.pause or warnings:
                yield pb.AnalyzeStreamResponse(closing_pause_milliseconds=call.pause, warnings=warnings)
        finally:
            call.record()

    async def _analyze(self, text: str, call: "TextCall") -> AsyncIterator[pb.Sentence]:
        async for part in self._each(parts_of(self._analyzer, text, call.reading), call.caller):
            if isinstance(part, Pause):
                call.wait(part)
            else:
                yield call.message(part)

    async def _streamed(self, pieces: Iterator[Piece], call: "TextCall") -> AsyncIterator[pb.AnalyzeStreamResponse]:
        async for piece in self._each(pieces, call.caller):
            if isinstance(piece, Pause):
                call.wait(piece)
            else:
                yield call.streamed(piece)

    async def _each(self, work: Iterator[T], caller: Caller) -> AsyncIterator[T]:
        """Yield the items of `work`, each computed while `caller` is scheduled."""
        while (piece := await self._scheduler.run(caller, partial(next, work, None))) is not None:
            yield piece

    def _call(self, setup: pb.AnalyzeSetup, first_index: int = 0, first_pause: int = 0) -> "TextCall":
        require_tag(setup.language_code)
        if first_index < 0:
            raise InvalidRequest(f"setup.first_index is {first_index}, it must not be negative")
        if not 0 <= first_pause <= LONGEST_TOGETHER:
            raise InvalidRequest(f"setup.first_pause_milliseconds is {first_pause}, allowed 0 to {LONGEST_TOGETHER}")
        reading = self._analyzer.reading(
            setup.language_code,
            allow_control_tokens=setup.allow_control_tokens,
            pronunciations=dict(setup.pronunciations),
            joined=setup.joined_sentences,
            own_readings=not setup.reference_readings,
            speed=setup.speed or 1.0,
        )
        return TextCall(reading, first_index, first_pause, languages(self._analyzer.tokenizer))


async def _setup_of(requests: AsyncIterator[pb.AnalyzeStreamRequest]) -> pb.AnalyzeSetup:
    first = await anext(aiter(requests), None)
    if first is None or first.WhichOneof("part") != "setup":
        problem = (
            "no message came" if first is None else f"the first message carries {first.WhichOneof('part') or 'nothing'}"
        )
        raise InvalidRequest(f"{problem}, expected the setup")
    return first.setup


def _least_words(request: pb.AnalyzeStreamRequest) -> int:
    part = request.WhichOneof("part")
    if part != "flush":
        raise InvalidRequest(f"a message behind the first carries {part or 'nothing'}, expected text or a flush")
    least: int = request.flush.least_words
    if not 0 <= least <= MOST_FLUSHED_WORDS:
        raise InvalidRequest(f"flush.least_words is {least}, allowed 0 to {MOST_FLUSHED_WORDS}")
    return least
