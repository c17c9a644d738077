"""The contents of voices that were spoken lately. The frontend is asked for a voice each time: it
may have been deleted or made again. It leaves out of its answer what is here already.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from cosyserve.errors import InternalFault
from cosyserve.v1 import frontend_pb2 as pb
from services.orchestrator.speech.conditioning import Voice

_ID_BYTES = 40
"""Of an id, as a Python integer in a tuple."""
_ENTRY_BYTES = 1024
"""Of names, hashes and the objects around them."""
_Key = tuple[str | None, str]


@dataclass
class VoiceQuestion:
    """One question for a voice. request: what the frontend is asked. known: the content that the
    last answer had; None: there is none.
    """

    request: pb.GetVoiceRequest
    known: Voice | None
    _answer: "asyncio.Future[pb.GetVoiceResponse | None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def answered(self, response: pb.GetVoiceResponse | None) -> None:
        """What the frontend that was asked together with a text says; None: it does not know the
        question. The first answer counts.
        """
        if not self._answer.done():
            self._answer.set_result(response)

    def key(self) -> tuple[str | None, str]:
        """The tenant that asks, None for everyone's, and the name."""
        return self.request.tenant if self.request.HasField("tenant") else None, self.request.id

    async def answer(self) -> pb.GetVoiceResponse | None:
        """Wait for `answered`."""
        return await self._answer


class VoiceContents:
    """By the names and tenants that asked for them; the least recently used are dropped above
    `most_bytes`; 0 keeps none. For one event loop.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._kept: OrderedDict[_Key, Voice] = OrderedDict()

    def question(self, name: str, tenant: str | None) -> VoiceQuestion:
        """Ask for the voice `name` as `tenant` sees it."""
        known = self._kept.get((tenant, name))
        request = pb.GetVoiceRequest(
            id=name, tenant=tenant, known_content_hash="" if known is None else known.content_hash
        )
        return VoiceQuestion(request, known)

    def voice(self, question: VoiceQuestion, response: pb.GetVoiceResponse) -> Voice:
        """The voice of an answer, whose content is kept. Raises InternalFault for one that leaves
        out a content that was not named.
        """
        known = question.known
        if not response.content_known:
            voice = read_voice(response)
        elif known is None or response.voice.content_hash != known.content_hash:
            raise InternalFault("the frontend left out the content of a voice that was not named to it")
        else:
            voice = replace(known, id=response.voice.id, system_text_ids=tuple(response.system_text_ids))
        self._keep(question.key(), voice)
        return voice

    def missing(self, question: VoiceQuestion) -> None:
        """The frontend has no such voice: nothing of it is kept."""
        self._drop(question.key())

    def deleted(self, voice_id: str) -> None:
        """Nothing is kept of the voice, for any caller and under any name; of another
        tenant's voice with the same id neither, which is then sent again.
        """
        for key in [key for key, voice in self._kept.items() if voice_id in (key[1], voice.id)]:
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        if (before := self._kept.pop(key, None)) is not None:
            self._bytes -= _size(before)

    def _keep(self, key: _Key, voice: Voice) -> None:
        self._drop(key)
        self._kept[key] = voice
        self._bytes += _size(voice)
        while self._bytes > self._most_bytes:
            self._bytes -= _size(self._kept.popitem(last=False)[1])


def read_voice(response: pb.GetVoiceResponse | pb.ReadRecordingResponse) -> Voice:
    """The voice of an answer that has its content."""
    message = response.voice
    return Voice(
        id=message.id,
        content_hash=message.content_hash,
        prompt_text_ids=tuple(message.prompt_text_ids),
        prompt_speech_tokens=tuple(message.prompt_speech_tokens),
        prompt_mel=message.prompt_mel,
        speaker_embedding=message.speaker_embedding,
        system_text_ids=tuple(response.system_text_ids),
    )


def _size(voice: Voice) -> int:
    ids = len(voice.prompt_text_ids) + len(voice.prompt_speech_tokens) + len(voice.system_text_ids)
    return _ENTRY_BYTES + len(voice.prompt_mel) + len(voice.speaker_embedding) + _ID_BYTES * ids
