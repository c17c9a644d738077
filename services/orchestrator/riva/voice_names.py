"""Voices by the names that clients of Riva use."""

import re
from collections import defaultdict

from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.spec import SAMPLE_RATE
from services.orchestrator.foreign.native_call import FEMALE, MALE, Voices, first_of, primary, speaking

MODEL = "cosyserve"
"""Name of the model, and what stands before the id in the full name of a voice."""
DEFAULT_LANGUAGE = "en-US"
"""What clients send unless a language is chosen."""
UNDETERMINED = "und"
_LANGUAGES = "English|French|German|Hindi|Italian|Japanese|Korean|Mandarin|Portuguese|Spanish|Vietnamese"
_NVIDIA = re.compile(rf"(Magpie-|({_LANGUAGES})-[A-Z]{{2}}[.-])[A-Za-z0-9.-]+")
_LOCALE = re.compile(r"(?P<language>[A-Z]{2})-[A-Z]{2}")
_SPEAKERS = {"aria": FEMALE, "mia": FEMALE, "sofia": FEMALE, "jason": MALE, "leo": MALE, "ray": MALE, "diego": MALE}
_SEX = {"female": FEMALE, "male": MALE}


def own_name(name: str) -> str:
    """The id in a full name such as `cosyserve.anna`; any other name as it is."""
    return name.removeprefix(f"{MODEL}.")


def is_chosen_here(name: str) -> bool:
    """Whether `voice_of` needs the voices for this name: it is empty or one of NVIDIA's."""
    return not name or _NVIDIA.fullmatch(name) is not None


def voice_of(name: str, language: str, voices: Voices) -> str:
    """The id of a voice for a name that `is_chosen_here`; empty: the default voice.

    language: of the request. A name of NVIDIA's is the first voice of its language and of the sex
    that its listeners hear, as far as there is one: a client finds its default voice.
    """
    if any(voice.id == name for voice in voices):
        return name
    locale = _LOCALE.search(name)
    spoken = speaking(voices, locale["language"] if locale else language)
    sex = _sex_of(name)
    of_that_sex = (first_of(spoken, sex) or first_of(voices, sex)) if sex else ""
    return of_that_sex or (spoken[0].id if spoken else "")


def mismatch(voice_id: str, language: str, voices: Voices) -> str | None:
    """A warning for a voice whose language is known and another one than the request names; such a
    voice speaks all the same.
    """
    spoken = next((voice.language_code for voice in voices if voice.id == voice_id), "")
    if not spoken or primary(spoken) == primary(language):
        return None
    return f"language_code is {language}, voice_name is a voice of {spoken}: it speaks with the accent of its language"


def configurations(voices: Voices) -> list[riva.RivaSynthesisConfigResponse.Config]:
    """One for each language of `voices`, the language of the default voice first."""
    by_language: dict[str, list[str]] = defaultdict(list)
    for voice in sorted(voices, key=lambda voice: not voice.is_default):
        # A list of subvoices is divided by commas, and each by a colon from its number.
        if not {",", ":"} & set(voice.id):
            by_language[voice.language_code or UNDETERMINED].append(voice.id)
    return [
        riva.RivaSynthesisConfigResponse.Config(
            model_name=MODEL,
            parameters={
                "language_code": language,
                "voice_name": MODEL,
                "subvoices": ",".join(f"{voice_id}:{number}" for number, voice_id in enumerate(ids)),
                "sample_rate_hz": str(SAMPLE_RATE),
            },
        )
        for language, ids in by_language.items()
    ]


def _sex_of(name: str) -> str:
    """By a segment of the name, such as `Female` or `Aria`; empty if unknown."""
    segments = [part.lower() for part in re.split(r"[.-]", name)]
    known = _SPEAKERS | _SEX
    return next((known[segment] for segment in segments if segment in known), "")
