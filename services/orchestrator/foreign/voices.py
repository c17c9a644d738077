"""Voices of this server for the names by which clients of other servers ask."""

import time
from collections import OrderedDict
from collections.abc import Sequence

from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import voice_pb2
from services.orchestrator.access.caller import current_call
from services.orchestrator.foreign.native_call import Context, NativeService

FEMALE, MALE = "female", "male"
_PAGE = 1_000
FRESH_SECONDS = 5.0
_MOST_SCOPES = 256
Voices = Sequence[voice_pb2.VoiceSummary]


class KnownVoices:
    """The voices among which a name is looked up. What was listed for one caller is used for all
    that see the same voices, for 5 seconds, so that a request costs no list of its own.
    """

    def __init__(self, service: NativeService) -> None:
        self._service = service
        self._listed: OrderedDict[str | None, tuple[Voices, float]] = OrderedDict()

    async def seen(self, context: Context) -> Voices:
        """All voices that the caller of this call may use, ordered by id. Raises what listing them
        raises.
        """
        scope = current_call().caller.scope
        voices, until = self._listed.get(scope, ((), 0.0))
        if time.monotonic() < until:
            return voices
        begun = time.monotonic()
        voices = await all_voices(self._service, context)
        self._listed[scope] = voices, begun + FRESH_SECONDS
        self._listed.move_to_end(scope)
        if len(self._listed) > _MOST_SCOPES:
            self._listed.popitem(last=False)
        return voices


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
