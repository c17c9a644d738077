"""Names by which other services' clients ask for a voice, as voices of this server."""

import time
from collections.abc import Awaitable, Callable, Sequence

from cosyserve.client.types import VoiceLine

FEMALE, MALE = "female", "male"
OPENAI_VOICES = {
    "alloy": FEMALE,
    "ash": MALE,
    "ballad": MALE,
    "cedar": MALE,
    "coral": FEMALE,
    "echo": MALE,
    "fable": FEMALE,
    "marin": FEMALE,
    "nova": FEMALE,
    "onyx": MALE,
    "sage": FEMALE,
    "shimmer": FEMALE,
    "verse": MALE,
}
"""Names of OpenAI's voices, and the sex that its listeners hear."""
_FRESH_SECONDS = 5.0


class VoiceNames:
    """voices: asks the server for its voices; the answer is used for 5 seconds."""

    def __init__(self, voices: Callable[[], Awaitable[Sequence[VoiceLine]]]) -> None:
        self._ask = voices
        self._known: Sequence[VoiceLine] = ()
        self._asked = -_FRESH_SECONDS

    async def voice_of(self, name: str) -> str:
        """The id of a voice. A name of OpenAI that no voice has is the first voice of that sex
        (label `sex` or `gender`), else the default one; an empty name and `default` are the default
        voice. Any other name stays as it is: the server knows whether there is such a voice.
        """
        if name in ("", "default"):
            return ""
        sex = OPENAI_VOICES.get(name.lower())
        if sex is None:
            return name
        voices = await self._voices()
        if any(voice.id == name for voice in voices):
            return name
        return next((voice.id for voice in voices if voice.sex == sex), "")

    async def _voices(self) -> Sequence[VoiceLine]:
        now = time.monotonic()
        if now - self._asked >= _FRESH_SECONDS:
            self._known, self._asked = await self._ask(), now
        return self._known

    async def known(self) -> Sequence[VoiceLine]:
        """All voices, as they were at most 5 seconds ago."""
        return await self._voices()

    async def voice_speaking(self, language: str) -> str:
        """The id of a voice of this language (BCP-47): the default one, else the first; if there is
        none, the default voice of whatever language.
        """
        wanted = _primary(language)
        speaking = [voice for voice in await self.known() if _primary(voice.language_code) == wanted]
        if any(voice.is_default for voice in speaking):
            return ""
        return speaking[0].id if speaking else ""


def _primary(language: str) -> str:
    """The primary subtag: en of en-US and of en_US."""
    return language.replace("_", "-").partition("-")[0].lower()
