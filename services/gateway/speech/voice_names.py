"""Names by which other services' clients ask for a voice, as voices of this server."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from cosyserve.client.types import VoiceLine
from cosyserve.keys.secret import digest

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
COSYVOICE_SPEAKERS = {
    "中文女": FEMALE,
    "中文男": MALE,
    "英文女": FEMALE,
    "英文男": MALE,
    "日语男": MALE,
    "粤语女": FEMALE,
    "韩语女": FEMALE,
}
"""Names of the speakers of CosyVoice-300M-SFT, which CosyVoice's own client asks for."""
_SEXES = OPENAI_VOICES | COSYVOICE_SPEAKERS
_FRESH_SECONDS = 5.0
_MOST_CALLERS = 256
Ask = Callable[[], Awaitable[Sequence[VoiceLine]]]


class VoiceNames:
    """voices: asks the server for its voices; the answer is used for 5 seconds."""

    def __init__(self, voices: Ask) -> None:
        self._ask = voices
        self._known: Sequence[VoiceLine] = ()
        self._asked = -_FRESH_SECONDS
        self._of_others: OrderedDict[str, VoiceNames] = OrderedDict()

    def seen_by(self, key: str, voices: Ask) -> "VoiceNames":
        """The names for a caller with this key, who may see other voices. voices: asks as that
        caller.
        """
        name = digest(key)
        found = self._of_others.setdefault(name, VoiceNames(voices))
        self._of_others.move_to_end(name)
        if len(self._of_others) > _MOST_CALLERS:
            self._of_others.popitem(last=False)
        return found

    async def voice_of(self, name: str) -> str:
        """The id of a voice. A name of those servers that no voice has is the first voice of that
        sex (label `sex` or `gender`), else the default one; an empty name and `default` are the
        default voice. Any other name stays as it is: the server knows whether it has such a voice.
        """
        if name in ("", "default"):
            return ""
        sex = _SEXES.get(name.lower())
        if sex is None:
            return name
        if any(voice.id == name for voice in await self.known()):
            return name
        return await self.first_of(sex)

    async def first_of(self, sex: str) -> str:
        """The id of the first voice of this sex; empty, the default voice, if no label says so."""
        return next((voice.id for voice in await self.known() if voice.sex == sex), "")

    async def voice_speaking(self, language: str) -> str:
        """The id of a voice of this language (BCP-47): the default one, else the first; if there is
        none, the default voice of whatever language.
        """
        wanted = _primary(language)
        speaking = [voice for voice in await self.known() if _primary(voice.language_code) == wanted]
        if any(voice.is_default for voice in speaking):
            return ""
        return speaking[0].id if speaking else ""

    async def known(self) -> Sequence[VoiceLine]:
        """All voices, as they were at most 5 seconds ago."""
        now = time.monotonic()
        if now - self._asked >= _FRESH_SECONDS:
            self._known, self._asked = await self._ask(), now
        return self._known


def _primary(language: str) -> str:
    """The primary subtag: en of en-US and of en_US."""
    return language.replace("_", "-").partition("-")[0].lower()
