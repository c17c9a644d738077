"""The gRPC servicer of the frontend. Text never reaches a log or a trace; only its length and
language do.
"""

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from cosyserve import telemetry
from cosyserve.errors import InvalidRequest
from cosyserve.metrics import names
from cosyserve.metrics.first_result import FirstResult
from cosyserve.metrics.instruments import gauge
from cosyserve.rpc.first_message import setup_of
from cosyserve.telemetry import Timing
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import frontend_pb2_grpc
from cosyserve.v1.warning_pb2 import TextWarning
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.incremental_sentences import Sentence
from services.frontend.analysis.input_text import Piece, StreamingInput, parts_of
from services.frontend.analysis.prepared_text import Reading, languages
from services.frontend.prompts.recording_reader import RecordingReader
from services.frontend.segmentation.caller_limit import require_limit
from services.frontend.segmentation.pauses import LONGEST_TOGETHER, Pause, added
from services.frontend.segmentation.text_units import LONGEST_UNIT
from services.frontend.settings import FrontendSettings
from services.frontend.text.characters import scripts_of
from services.frontend.text.language import language_of, require_tag, traced_language
from services.frontend.text.text_scheduler import MOST_CALLS, Caller, TextScheduler
from services.frontend.text.text_warnings import Kind, WarningLog
from services.frontend.voice_servicer import VoiceMethods
from services.frontend.voices.system_part import SystemPart
from services.frontend.voices.voice_library import VoiceLibrary

Context = grpc.aio.ServicerContext[Any, Any]
MOST_FLUSHED_WORDS = 100


_KINDS = {
    Kind.UNREADABLE: TextWarning.KIND_UNREADABLE,
    Kind.UNSUPPORTED_MARKUP: TextWarning.KIND_UNSUPPORTED_MARKUP,
    Kind.UNUSABLE_PRONUNCIATION: TextWarning.KIND_UNUSABLE_PRONUNCIATION,
    Kind.MORE: TextWarning.KIND_MORE,
}


@dataclass
class TextCall:
    """State and messages of one call."""

    reading: Reading
    log: WarningLog
    sentences: int
    """Sentences of the whole text so far, including those of earlier calls."""
    pause: int
    """Milliseconds of pause requested since the last sentence."""
    languages: str
    """As `prepared_text.languages`."""
    caller: Caller = field(default_factory=Caller)
    """The scheduling identity of the call's text work."""
    _start: int = field(default_factory=time.time_ns)
    _characters: int = 0
    _language: str = ""
    """Of the last sentence; empty before the first."""

    def count(self, text: str, most: int, *, streamed: bool = False) -> None:
        """Count received text. Raises InvalidRequest when it is empty (unless streamed) or the
        total exceeds `most`.
        """
        self._characters += len(text)
        if not streamed:
            self.require_text()
        if self._characters > most:
            raise InvalidRequest(f"text has {self._characters} characters, allowed 1 to {most}")

    def require_text(self) -> None:
        if self._characters == 0 and self.sentences == 0:
            raise InvalidRequest("text is empty; there is nothing to speak")

    def message(self, sentence: Sentence) -> pb.Sentence:
        self._language = sentence.language
        message = pb.Sentence(
            index=self.sentences,
            text=sentence.text,
            token_ids=sentence.token_ids,
            language=sentence.language,
            pause_before_milliseconds=self.pause,
            words=[pb.SpokenWord(text=text, first_id=first, ids=count) for text, first, count in sentence.words],
            # 1.0 is the default and is not sent.
            rate=0.0 if sentence.rate == 1.0 else sentence.rate,
            continues=sentence.continues,
            max_sentence_characters=self.reading.most_characters,
        )
        self.pause = 0
        self.sentences += not sentence.unfinished
        return message

    def streamed(self, piece: Sentence) -> pb.AnalyzeStreamResponse:
        sentence = self.message(piece)
        return pb.AnalyzeStreamResponse(
            sentence=sentence, unfinished=piece.unfinished, warnings=self.warnings(sentence.index)
        )

    def closing(self) -> dict[str, Any]:
        """The fields of a last response without a sentence; empty when there is nothing to send.
        Raises InvalidRequest when the text had no speech.
        """
        if self.sentences == 0:
            scripts = scripts_of(tuple(stretch for warning in self.log.take() for stretch in warning.left_out))
            script_names = f" ({', '.join(scripts)})" if scripts else ""
            raise InvalidRequest(
                f"text holds only punctuation, blanks or what this model cannot read{script_names}; "
                f"there is nothing to speak{self.languages}"
            )
        warnings = self.warnings(self.sentences)
        closing = {"closing_pause_milliseconds": self.pause, "warnings": warnings}
        return closing if self.pause or warnings else {}

    def warnings(self, sentence: int) -> list[TextWarning]:
        """The warnings since the last message that carried some, attributed to `sentence`."""
        return [
            TextWarning(
                kind=_KINDS[warning.kind], message=warning.message, left_out=warning.left_out, sentence=sentence
            )
            for warning in self.log.take()
        ]

    def progress(self, text: StreamingInput) -> pb.AnalyzeProgress:
        """How much of `text` has been consumed."""
        if text.is_document:
            return pb.AnalyzeProgress(document=True)
        return pb.AnalyzeProgress(
            characters=text.plain.settled,
            sentences=self.sentences - text.plain.unsettled_sentences,
            pause_milliseconds=self.pause,
            last_language_code=text.plain.last_language,
        )

    def record(self) -> None:
        telemetry.record(
            Timing(
                "frontend.analyze",
                self._start,
                time.time_ns(),
                {
                    "text.characters": self._characters,
                    "text.language": traced_language(self._language or self.reading.language_code),
                    "text.sentences": self.sentences,
                },
            )
        )


class FrontendServicer(VoiceMethods, frontend_pb2_grpc.FrontendServiceServicer):
    """FrontendService.

    scheduler: runs the text work outside the event loop in short steps. A cancelled call stops at
    its next step. system: of the model; None: it needs none.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        library: VoiceLibrary,
        reader: RecordingReader | None,
        scheduler: TextScheduler,
        settings: FrontendSettings,
        system: SystemPart | None = None,
    ) -> None:
        super().__init__(library, reader, settings.recordings_cache_bytes, analyzer.tokenizer, scheduler, system)
        self._active = 0
        gauge(names.STREAMS_ACTIVE).watch(self, lambda servicer: servicer._active)
        gauge(names.STREAMS_LIMIT).watch(self, lambda _: MOST_CALLS)
        self._analyzer, self._settings = analyzer, settings

    async def Analyze(self, request: pb.AnalyzeRequest, context: Context) -> AsyncIterator[pb.AnalyzeResponse]:
        call, first = self._call(request.setup), FirstResult()
        first.given()
        self._active += 1
        try:
            call.count(request.text, self._settings.max_characters)
            text = request.text if self._system is None else self._system.removed_from(request.text)
            with self._shown_beside(request) as voice:
                async for sentence in self._sentences(parts_of(self._analyzer, text, call.reading), call):
                    first.made()
                    message = call.message(sentence)
                    shown = None if voice is None else await voice
                    yield pb.AnalyzeResponse(sentence=message, warnings=call.warnings(message.index), voice=shown)
                    voice = None
            if closing := call.closing():
                yield pb.AnalyzeResponse(**closing)
        finally:
            self._active -= 1
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
        setup = await setup_of(requests)
        call = self._call(setup, setup.first_index, setup.first_pause_milliseconds)
        require_tag(setup.last_language_code, "last_language_code")
        last_language = language_of(setup.last_language_code, "") if setup.last_language_code else ""
        # An earlier call may have consumed only text without speech.
        goes_on = setup.goes_on or bool(setup.first_index or setup.first_pause_milliseconds or last_language)
        text = StreamingInput(
            self._analyzer,
            call.reading,
            LONGEST_UNIT,
            partial=setup.partial_sentences,
            last_language=last_language,
            goes_on=goes_on,
        )
        # The metadata reports that the setup was accepted. Otherwise text that the caller has
        # already sent would hide the status of a refusal.
        await context.send_initial_metadata(())
        first = FirstResult()
        self._active += 1
        try:
            async for request in requests:
                # A sentence cannot be found before it is written.
                first.given(latest=True)
                if request.WhichOneof("part") == "text":
                    call.count(request.text, self._settings.max_stream_characters, streamed=True)
                    # Text without speech yields no item, so the worker is released only between
                    # steps.
                    steps = [
                        text.feed(request.text[at : at + LONGEST_UNIT])
                        for at in range(0, len(request.text), LONGEST_UNIT)
                    ]
                else:
                    steps = [text.flush(_least_words(request))]
                for pieces in steps:
                    async for sentence in self._sentences(pieces, call):
                        first.made()
                        yield call.streamed(sentence)
                if setup.reports_progress:
                    yield pb.AnalyzeStreamResponse(progress=call.progress(text))
            call.require_text()
            async for sentence in self._sentences(text.finish(), call):
                first.made()
                yield call.streamed(sentence)
            if closing := call.closing():
                yield pb.AnalyzeStreamResponse(**closing)
        finally:
            self._active -= 1
            call.record()

    async def _sentences(self, pieces: Iterator[Piece], call: TextCall) -> AsyncIterator[Sentence]:
        """Yield the sentences among `pieces`, each computed while the call is scheduled."""
        while (piece := await self._scheduler.run(call.caller, partial(next, pieces, None))) is not None:
            if isinstance(piece, Pause):
                call.pause = added(call.pause, piece)
            else:
                yield piece

    def _call(self, setup: pb.AnalyzeSetup, first_index: int = 0, first_pause: int = 0) -> TextCall:
        require_tag(setup.language_code)
        if first_index < 0:
            raise InvalidRequest(f"setup.first_index is {first_index}, it must not be negative")
        if not 0 <= first_pause <= LONGEST_TOGETHER:
            raise InvalidRequest(f"setup.first_pause_milliseconds is {first_pause}, allowed 0 to {LONGEST_TOGETHER}")
        most_characters = require_limit(setup.max_sentence_characters, "setup.max_sentence_characters")
        if most_characters and setup.partial_sentences:
            raise InvalidRequest(
                "setup.max_sentence_characters is set with partial_sentences, which begin before their length is known"
            )
        reading = self._analyzer.reading(
            setup.language_code,
            allow_control_tokens=setup.allow_control_tokens,
            pronunciations=dict(setup.pronunciations),
            joined=setup.joined_sentences,
            own_readings=not setup.reference_readings,
            most_characters=most_characters,
            speed=setup.speed or 1.0,
        )
        return TextCall(
            reading, reading.log or WarningLog(), first_index, first_pause, languages(self._analyzer.tokenizer)
        )


def _least_words(request: pb.AnalyzeStreamRequest) -> int:
    part = request.WhichOneof("part")
    if part != "flush":
        raise InvalidRequest(f"a message behind the first carries {part or 'nothing'}, expected text or a flush")
    least: int = request.flush.least_words
    if not 0 <= least <= MOST_FLUSHED_WORDS:
        raise InvalidRequest(f"flush.least_words is {least}, allowed 0 to {MOST_FLUSHED_WORDS}")
    return least
