"""The preset voices of a model as an immutable set with a default."""

from collections.abc import Iterable

from cosyserve.errors import InvalidRequest, NotFound
from services.frontend.voices.voice import LONGEST_ID, Voice

_MOST_NAMED = 10


class PresetVoices:
    """An immutable set of voices with a default: the one named, else the first by id.

    Raises ValueError when the default is not among them or two voices share an id.
    """

    def __init__(self, voices: Iterable[Voice], default: str | None = None) -> None:
        ordered = sorted(voices, key=lambda voice: voice.id)
        self._voices = {voice.id: voice for voice in ordered}
        if len(self._voices) != len(ordered):
            raise ValueError("two voices have the same id")
        if default is not None and default not in self._voices:
            raise ValueError(f"there is no voice {default!r} to be the default; {self._known()}")
        self.default = default if default is not None else next(iter(self._voices), None)
        """Id of the default voice; None when there are no voices."""

    def all(self) -> list[Voice]:
        """All voices, ordered by id."""
        return list(self._voices.values())

    def has(self, voice_id: str) -> bool:
        """Whether a voice has exactly this id."""
        return voice_id in self._voices

    def get(self, voice_id: str) -> Voice:
        """The voice of that id, or the default one for an empty id.

        Raises InvalidRequest for an id over 128 characters, NotFound naming at most 10 known ids
        otherwise.
        """
        if len(voice_id) > LONGEST_ID:
            raise InvalidRequest(f"the voice id has {len(voice_id)} characters, allowed 1 to {LONGEST_ID}")
        voice = self._voices.get(voice_id or self.default or "")
        if voice is None:
            problem = f"there is no voice {voice_id!r}" if voice_id else "no voice was named and there is no default"
            raise NotFound(f"{problem}; {self._known()}")
        return voice

    def _known(self) -> str:
        names = list(self._voices)
        if not names:
            return "this server has no voices"
        rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"known: {', '.join(names[:_MOST_NAMED])}{rest}"
