"""State and messages of one frontend call. Text never reaches a trace; only its length and language
do.
"""

import time
from collections.abc import Iterable

from cosyserve import telemetry
from cosyserve.errors import InvalidRequest
from cosyserve.telemetry import Timing
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1.warning_pb2 import TextWarning
from services.frontend.analysis.analyzer import Sentence
from services.frontend.analysis.incremental_sentences import SentencePart
from services.frontend.analysis.prepared_text import Reading
from services.frontend.analysis.streaming import StreamingInput
from services.frontend.segmentation.pauses import Pause, added
from services.frontend.text.characters import scripts_of
from services.frontend.text.language import traced_language
from services.frontend.text.text_scheduler import Caller
from services.frontend.text.text_warnings import Kind, WarningLog

_KINDS = {
    Kind.UNREADABLE: TextWarning.KIND_UNREADABLE,
    Kind.UNSUPPORTED_MARKUP: TextWarning.KIND_UNSUPPORTED_MARKUP,
    Kind.UNUSABLE_PRONUNCIATION: TextWarning.KIND_UNUSABLE_PRONUNCIATION,
    Kind.MORE: TextWarning.KIND_MORE,
}


class TextCall:
    """State of one call."""

    def __init__(self, reading: Reading, first_index: int, first_pause: int, languages: str) -> None:
        self.reading = reading
        self.caller = Caller()
        """The scheduling identity of the call's text work."""
        self._log = reading.log or WarningLog()
        self._languages = languages
        self.sentences = first_index
        """Sentences of the whole text so far, including those of earlier calls."""
        self.pause = first_pause
        """Milliseconds of pause requested since the last sentence."""
        self._start = time.time_ns()
        self._characters = 0
        self._language = reading.language_code

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

    def require_speech(self) -> None:
        if self.sentences == 0:
            scripts = scripts_of(tuple(stretch for warning in self._log.take() for stretch in warning.left_out))
            script_names = f" ({', '.join(scripts)})" if scripts else ""
            problem = (
                f"text holds only punctuation, blanks or what this model cannot read{script_names}; "
                "there is nothing to speak"
            )
            raise InvalidRequest(problem + self._languages)

    def wait(self, pause: Pause) -> None:
        """Add a pause. Raises InvalidRequest when consecutive pauses are too long in total."""
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
            rate=_rate(sentence.rate),
            continues=sentence.continues,
        )

    def streamed(self, piece: Sentence | SentencePart) -> pb.AnalyzeStreamResponse:
        if isinstance(piece, Sentence):
            whole = self.message(piece)
            return pb.AnalyzeStreamResponse(sentence=whole, warnings=self.warnings(whole.index))
        self._language = piece.language
        sentence = pb.Sentence(
            index=self.sentences,
            token_ids=piece.token_ids,
            language=piece.language,
            pause_before_milliseconds=self._take_pause(),
            words=_words(piece.words),
            rate=_rate(piece.rate),
            continues=piece.continues,
        )
        self.sentences += not piece.unfinished
        return pb.AnalyzeStreamResponse(
            sentence=sentence, unfinished=piece.unfinished, warnings=self.warnings(sentence.index)
        )

    def warnings(self, sentence: int) -> list[TextWarning]:
        """The warnings since the last message that carried some, attributed to `sentence`."""
        return [
            TextWarning(
                kind=_KINDS[warning.kind], message=warning.message, left_out=warning.left_out, sentence=sentence
            )
            for warning in self._log.take()
        ]

    def progress(self, text: StreamingInput) -> pb.AnalyzeProgress:
        """How much of `text` has been consumed."""
        if text.is_document:
            return pb.AnalyzeProgress(document=True)
        return pb.AnalyzeProgress(
            characters=text.settled,
            sentences=self.sentences - text.unsettled_sentences,
            pause_milliseconds=self.pause,
            last_language_code=text.last_language,
        )

    def _take_pause(self) -> int:
        pause, self.pause = self.pause, 0
        return pause

    def record(self) -> None:
        attributes: dict[str, int | float | str] = {
            "text.characters": self._characters, "text.language": traced_language(self._language),
            "text.sentences": self.sentences,
        }  # fmt: skip
        telemetry.record(Timing("frontend.analyze", self._start, time.time_ns(), attributes))


def _words(words: Iterable[tuple[str, int, int]]) -> list[pb.SpokenWord]:
    return [pb.SpokenWord(text=text, first_id=first, ids=count) for text, first, count in words]


def _rate(rate: float) -> float:
    """The value of Sentence.rate: 1.0 is the default and is not sent."""
    return 0.0 if rate == 1.0 else rate
