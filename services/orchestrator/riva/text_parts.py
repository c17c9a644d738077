"""The requests of one `SynthesizeOnline` as the text of one utterance.

A client sends one text in one request, a list of texts in as many, or the sentences of a language
model as they are written, all of them with the same options. Their texts are whole words: a blank
joins them. What ends a sentence is spoken at once, since the next request may be seconds away.
"""

import re
from collections.abc import AsyncIterator

from cosyserve.errors import InvalidRequest
from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.v1 import synthesis_pb2 as pb

_OPTIONS = (
    "language_code",
    "encoding",
    "sample_rate_hz",
    "voice_name",
    "zero_shot_data",
    "custom_dictionary",
    "custom_configuration",
    "enable_word_time_offsets",
)
_SENTENCE_END = re.compile(r"""([!?…。！？]|\s\S+\.)["'”’»)\]」』）]*\s*\Z""")
"""A full stop behind a single word may be that of an abbreviation: `Dr.`"""
_DOCUMENT = re.compile(r"\s*<(\?xml|speak)")


async def text_parts(
    first: riva.SynthesizeSpeechRequest, further: AsyncIterator[riva.SynthesizeSpeechRequest]
) -> AsyncIterator[pb.StreamingSynthesizeRequest]:
    """The text of `first` and of those that follow, each with a flush where it ends a sentence.
    Raises InvalidRequest for one with other options than the first one.
    """
    # In a document its elements say where a sentence ends; a flush inside a tag would be an error.
    document = _DOCUMENT.match(first.text) is not None
    before = ""
    async for text in _texts(first, further):
        yield pb.StreamingSynthesizeRequest(text=_apart(before, text) + text)
        if not document and _SENTENCE_END.search(text):
            yield pb.StreamingSynthesizeRequest(flush=pb.Flush())
        before = text or before


async def _texts(
    first: riva.SynthesizeSpeechRequest, further: AsyncIterator[riva.SynthesizeSpeechRequest]
) -> AsyncIterator[str]:
    yield first.text
    number = 1
    async for request in further:
        number += 1
        _require_same_options(request, first, number)
        yield request.text


def _apart(before: str, text: str) -> str:
    joined = before and text and not (before[-1].isspace() or text[0].isspace())
    return " " if joined else ""


def _require_same_options(
    request: riva.SynthesizeSpeechRequest, first: riva.SynthesizeSpeechRequest, number: int
) -> None:
    """Options that are not set again are those of the first request."""
    unset = riva.SynthesizeSpeechRequest()
    for option in _OPTIONS:
        value = getattr(request, option)
        if value not in (getattr(unset, option), getattr(first, option)):
            raise InvalidRequest(
                f"{option} of request {number} differs from that of the first one; one stream speaks with one voice, "
                "in one format and with one configuration: open another one"
            )
