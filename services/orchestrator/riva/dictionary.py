"""The custom dictionary of a request: `NVIDIA  ɛnˈvɪdiə,SQL  sequel`."""

import re

from cosyserve.errors import InvalidRequest

_ENTRIES = re.compile(r",(?=[^,]*? {2})")
"""A comma before the next written form: others are part of how a word is said (IPA marks secondary
stress by one where it has no better sign).
"""
_IPA = re.compile("[\u0250-\u02ff\u00e6\u00f0\u014b\u03b8\u03b2]")
"""Letters and marks of the phonetic alphabet that are no letters of a respelling."""


def pronunciations(dictionary: str) -> dict[str, str]:
    """Written form to pronunciation, as our own contract takes them: IPA is marked; anything else
    is a respelling, or phonemes of the model between slashes. Raises InvalidRequest naming the
    entry.
    """
    entries: dict[str, str] = {}
    if not dictionary.strip():
        return entries
    for number, entry in enumerate(_ENTRIES.split(dictionary), 1):
        written, _, said = (part.strip() for part in entry.strip().partition("  "))
        if not (written and said):
            raise InvalidRequest(
                f"custom_dictionary, entry {number}: expected a written form, two blanks and its pronunciation, "
                "further entries behind a comma"
            )
        entries[written] = f"/ipa:{said.strip('/')}/" if _IPA.search(said) and not said.startswith("/") else said
    return entries
