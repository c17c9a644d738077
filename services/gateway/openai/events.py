"""Speech as server-sent events: OpenAI's two kinds, and the words of each sentence as a third for
clients that asked for them.
"""

import base64
import json
from collections.abc import AsyncGenerator, Mapping

from services.gateway.openai.error_object import error_object
from services.gateway.speech.failures import failure_of
from services.gateway.speech.speaking import Utterance

MEDIA_TYPE = "text/event-stream"
_DONE = b"data: [DONE]\n\n"


async def events(utterance: Utterance, pieces: AsyncGenerator[bytes], *, word_times: bool) -> AsyncGenerator[bytes]:
    """`speech.audio.delta` for each piece of the file, `speech.audio.words` when words became known
    (word_times), `speech.audio.done`, and `[DONE]`, for which some clients wait. A failure before
    the first piece is raised; a later one is an event `error`, after which the stream is cut.
    """
    known = 0
    begun = False

    def words() -> bytes:
        nonlocal known
        first, known = known, len(utterance.speech.words)
        new = word_times and known > first
        return event({"type": "speech.audio.words", "words": _words(utterance, first)}) if new else b""

    try:
        async for piece in pieces:
            begun = True
            yield event({"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()})
            if spoken := words():
                yield spoken
    except Exception as error:
        if begun:
            yield event({"type": "error", **error_object(failure_of(error))})
        raise
    if spoken := words():
        yield spoken
    tokens = utterance.speech.summary.speech_tokens if utterance.speech.summary else 0
    usage = {"input_tokens": 0, "output_tokens": tokens, "total_tokens": tokens}
    yield event({"type": "speech.audio.done", "usage": usage})
    yield _DONE


def event(value: Mapping[str, object]) -> bytes:
    """One event: a line of JSON, then an empty line."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _words(utterance: Utterance, first: int) -> list[dict[str, object]]:
    return [{"word": word.text, "start": word.start, "end": word.end} for word in utterance.speech.words[first:]]
