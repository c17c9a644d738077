"""A caller of Riva's contract at the scripted stack."""

from collections.abc import Iterable
from typing import Any

from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.foreign import riva_tts_pb2_grpc
from tests.pipeline.calling import TEXT
from tests.stacks.scripted_stages import Stack

AS_SPOKEN = {"onset": "natural", "sentence_pause_milliseconds": "0"}
"""With these options the scripted sound is sent as it is."""


def stub(running: Stack) -> Any:
    return riva_tts_pb2_grpc.RivaSpeechSynthesisStub(running.channel)


def asked(text: str = TEXT, configuration: dict[str, str] | None = None, **fields: Any) -> riva.SynthesizeSpeechRequest:
    return riva.SynthesizeSpeechRequest(
        text=text, custom_configuration={**AS_SPOKEN, **(configuration or {})}, **{"sample_rate_hz": 24_000, **fields}
    )


async def online(running: Stack, requests: Iterable[riva.SynthesizeSpeechRequest]) -> list[Any]:
    """The responses to requests that are sent at once."""
    return [response async for response in stub(running).SynthesizeOnline(iter(requests), timeout=20)]


def audio_of(responses: Iterable[riva.SynthesizeSpeechResponse]) -> bytes:
    return b"".join(response.audio for response in responses)
