"""Voices of this server for the names by which clients of other servers ask."""

from collections.abc import Sequence

from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import voice_pb2
from services.orchestrator.foreign.native_call import Context, NativeService

FEMALE, MALE = "female", "male"
_PAGE = 1_000
Voices = Sequence[voice_pb2.VoiceSummary]


async def all_voices(service: NativeService, context: Context) -> list[voice_pb2.VoiceSummary]:
    """All voices that the caller may use, ordered by id."""
    voices: list[voice_pb2.VoiceSummary] = []
    token = ""
    while True:
        page = await service.ListVoices(pb.ListVoicesRequest(page_size=_PAGE, page_token=token), context)
        voices += page.voices
        token = page.next_page_token
        if not token:
            return voices


def first_of(voices: Voices, sex: str) -> str:
    """The id of the first voice whose label `sex` or `gender` says so; empty, the default voice, if
    there is none.
    """
    return next((voice.id for voice in voices if _sex(voice) == sex), "")


def speaking(voices: Voices, language: str) -> list[voice_pb2.VoiceSummary]:
    """The voices of this language (BCP-47 tag), the default one first; none for an empty tag."""
    wanted = primary(language)
    found = [voice for voice in voices if wanted and primary(voice.language_code) == wanted]
    return sorted(found, key=lambda voice: not voice.is_default)


def _sex(voice: voice_pb2.VoiceSummary) -> str:
    return voice.labels.get("sex", "") or voice.labels.get("gender", "")


def primary(language: str) -> str:
    """The primary subtag: en of en-US and of en_US."""
    return language.replace("_", "-").partition("-")[0].lower()
