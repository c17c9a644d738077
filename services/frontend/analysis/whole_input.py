"""Sentences and pauses of a whole text, plain or an SSML document."""

from collections.abc import Iterator
from dataclasses import replace

from services.frontend.analysis.analyzer import Analyzer, Sentence
from services.frontend.analysis.prepared_text import Reading
from services.frontend.analysis.reading_context import ReadingContext
from services.frontend.segmentation.language_spans import language_by_script
from services.frontend.segmentation.pauses import Pause
from services.frontend.ssml.events import Boundary, ContinuationTracker, Event, Notice, SpokenText, Style
from services.frontend.ssml.reader import Reader, is_document
from services.frontend.text.text_scheduler import yield_turn


def parts_of(analyzer: Analyzer, text: str, reading: Reading) -> Iterator[Sentence | Pause]:
    """As `Analyzer.parts`. A document is parsed to its end first, so that a malformed one is
    refused before any of it is spoken.

    Raises InvalidRequest also for a document that is malformed or has a value out of range, with
    its position.
    """
    if is_document(text):
        yield from _document(analyzer, text, reading)
    else:
        yield from analyzer.parts(text, reading)


def _document(analyzer: Analyzer, text: str, reading: Reading) -> Iterator[Sentence | Pause]:
    reader = Reader(reading.speed, analyzer.tokenizer.is_phonemes)
    events = _joined([*reader.feed(text), *reader.finish()])
    context = ReadingContext(
        language_by_script(" ".join(event.text for event in events if isinstance(event, SpokenText)))
    )
    continuations, style, own = ContinuationTracker(), Style(), replace(reading, inserted=reader.inserted)
    for event in events:
        yield_turn()
        if isinstance(event, Boundary):
            continuations.add_boundary(event)
            style = event.style
            own = replace(own, language_code=style.language or reading.language_code)
        elif isinstance(event, Notice):
            if reading.log is not None:
                reading.log.add(*event)
        elif isinstance(event, Pause):
            continuations.add_pause()
            yield event
        else:
            for part in analyzer.parts(event.text, own, context):
                if isinstance(part, Pause):
                    continuations.add_text_pause()
                    yield part
                else:
                    yield replace(part, rate=style.rate, continues=continuations.begin_sentence())
            continuations.add_text(event.text)


def _joined(events: list[Event]) -> list[Event]:
    """`events` with adjacent text merged and the notices inside that text before it."""
    merged, texts = list[Event](), list[str]()
    for event in events:
        if isinstance(event, SpokenText):
            texts.append(event.text)
            continue
        if isinstance(event, Notice):
            merged.append(event)
            continue
        if texts:
            merged.append(SpokenText("".join(texts)))
            texts = []
        merged.append(event)
    return [*merged, SpokenText("".join(texts))] if texts else merged
