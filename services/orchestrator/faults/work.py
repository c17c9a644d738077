"""Names for the work of a request by its content: the same text in the same voice is the same work,
whatever its seed and whenever it is sent.
"""

import hashlib
from dataclasses import dataclass

from services.orchestrator.speech.conditioning import Conditioning
from services.orchestrator.speech.token_stream import TokenStream
from services.orchestrator.speech.utterance import Utterance


@dataclass(frozen=True)
class Work:
    """A piece of work of one stage. key: of its content. request: of the content of the request
    that it is a part of; empty if that is not known, as of a text that is still being written.
    """

    key: str
    request: str = ""


def request_key(utterance: Utterance) -> str:
    """Of a request whose text is known; empty for another one."""
    if not utterance.text:
        return ""
    prompting = utterance.prompting
    recording = "" if prompting.recording is None else prompting.recording.digest
    return _key(
        "request",
        utterance.text,
        prompting.voice,
        recording,
        prompting.mode,
        prompting.instruction,
        utterance.language_code,
        sorted(utterance.pronunciations.items()),
        utterance.speed,
        utterance.profile,
    )


def text_work(utterance: Utterance) -> Work:
    """The work of the frontend for a text that is known."""
    return Work(_key("frontend", request_key(utterance)), request_key(utterance))


def sentence_work(stage: str, utterance: Utterance, conditioning: Conditioning, stream: TokenStream) -> Work:
    """The work of `stage` for a sentence. Of one that is still being written, what has arrived when
    its first call begins.
    """
    sentence = stream.sentence
    content = [*sentence.pieces] or [tuple(stream.tokens)]
    voice = hashlib.sha256(conditioning.speaker_embedding).hexdigest(), conditioning.key, conditioning.text_ids
    key = _key(stage, content, voice, utterance.speed_of(sentence), utterance.profile)
    return Work(key, request_key(utterance))


def _key(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
