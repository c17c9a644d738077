"""The requirements on a recording before it becomes a voice, and whether its transcript can belong
to it, judged by the speaking rate.

A prompt whose text and audio differ gives a voice that repeats, babbles or speaks the prompt.
Speech recognition would find more errors; the check of the rate finds the transcript of another
take, a truncated one, and a transcript that is only a title.
"""

import re
import unicodedata

import torch
from torch import Tensor

from cosyserve.errors import InvalidRequest
from services.frontend.recordings.sound import require_length, require_rate

QUIETEST = 0.003
"""Root mean square of the loudest 0.1 s, about -50 dBFS: quiet speech is louder, a silent
microphone is not.
"""
FULL_SCALE = 0.999
MOST_CLIPPED = 0.001
"""Share of samples at full scale or beyond. Normalised speech reaches it in single samples."""
_WINDOWS_PER_SECOND = 10


def check_recording(wave: Tensor, rate: int) -> None:
    """Raise InvalidRequest unless `wave` is suitable for a voice; the message gives the problem,
    its position and the allowed range.

    wave: float32 [samples], mono, full scale at 1 (ValueError for another shape or type). rate:
    samples per second, 16,000 to 192,000 in steps of 50. 1 to 30 s, finite, neither silent
    (`QUIETEST`) nor clipped (`MOST_CLIPPED`). The maximum length and the minimum rate are those of
    compatibility specification section 2.5.
    """
    if wave.ndim != 1 or wave.dtype != torch.float32:
        raise ValueError(f"wave is {wave.dtype} of shape {list(wave.shape)}, expected float32 [samples]")
    require_rate(rate)
    require_length(len(wave), rate)
    if not bool(torch.isfinite(wave).all()):
        place = int(torch.isfinite(wave).int().argmin())
        raise InvalidRequest(
            f"the recording is {wave[place].item()} at sample {place}, expected finite samples from -1 to 1"
        )
    if (loudest := _loudest(wave, rate)) < QUIETEST:
        raise InvalidRequest(
            f"the recording is silent: its loudest 0.1 s has a root mean square of {loudest:.5f}, allowed from "
            f"{QUIETEST}"
        )
    clipped = wave.abs() >= FULL_SCALE
    if (share := int(clipped.sum()) / len(wave)) > MOST_CLIPPED:
        raise InvalidRequest(
            f"the recording is clipped: {100 * share:.2f} % of its samples lie at full scale ({FULL_SCALE} or beyond), "
            f"the first at {int(clipped.int().argmax()) / rate:.2f} s; allowed {100 * MOST_CLIPPED:g} %"
        )


def _loudest(wave: Tensor, rate: int) -> float:
    """Root mean square of the loudest 0.1 s, without its DC offset."""
    length = rate // _WINDOWS_PER_SECOND
    windows = wave[: len(wave) // length * length].reshape(-1, length)
    # The mean of the whole recording may overflow, so each window removes its own.
    return float(windows.double().std(dim=1, correction=0).max())


SLOWEST, FASTEST = 1.0, 10.0
"""Syllables per second. Speech has 3 to 8 in every language that was measured (F. Pellegrino et
al., "A cross-language perspective on speech information rate", Language 87, 2011), slow speech with
pauses about 2.
"""
_VOWELS = re.compile(r"[aeiouyäöüàáâãåæèéêëìíîïòóôõøùúûýœаеёиоуыэюя]+")
_ALPHABET = re.compile(r"[a-zà-ÿœа-яё]")
_LETTERS_PER_SYLLABLE = 2.5
# Names in the character database: CJK UNIFIED IDEOGRAPH-..., HIRAGANA LETTER ..., HANGUL SYLLABLE
# ...
_SYLLABLES = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL SYLLABLE")


def syllables(text: str) -> float:
    """An estimate of the syllables in `text`: a character of Chinese, Japanese kana or Korean is
    one, a Latin or Cyrillic word has one for each run of vowels, 2.5 letters of other scripts count
    as one. text: normalised, so numbers are words.
    """
    count = float(len(re.findall(r"\d", text)))
    for word in re.findall(r"[^\W\d_]+", text.lower()):
        rest = "".join(letter for letter in word if not unicodedata.name(letter, "").startswith(_SYLLABLES))
        count += len(word) - len(rest)
        if _ALPHABET.search(rest):
            count += max(1, len(_VOWELS.findall(rest)))
        else:
            count += len(rest) / _LETTERS_PER_SYLLABLE
    return count


def require_plausible(text: str, seconds: float) -> None:
    """Raise InvalidRequest when speaking `text` in `seconds` takes less than 1 or more than 10
    syllables per second.
    """
    count = syllables(text)
    pace = count / seconds
    if not SLOWEST <= pace <= FASTEST:
        raise InvalidRequest(
            f"the transcript is implausible: about {count:.0f} syllables in {seconds:.1f} s of speech are {pace:.1f} a "
            f"second, allowed {SLOWEST:g} to {FASTEST:g}; is it what the recording says?"
        )
