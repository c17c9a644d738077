"""Speech tokens of a recording and of copies of it that are shifted by milliseconds, in each digit
what most of them have.

A token is eight digits of base 3, each a rounded value of the speech tokenizer (finite scalar
quantisation). Where a value lies close to the border between two digits, noise decides, and so does
where the recording begins within a frame of the spectrum. Copies err independently there.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory

MOST_COPIES = 8
_STEP_SECONDS = 0.004
_DIGITS = 8
_BASE = 3
_PLACES = _BASE ** np.arange(_DIGITS)


def copies_of(directory: ModelDirectory) -> int:
    """How many shifted copies the directory asks for: its yaml key
    `speech_tokenizer.shifted_copies`, an extension of ours, even and at most MOST_COPIES; 0 when it
    is missing, as in published ones. Raises ModelError for an invalid value.
    """
    section = directory.config().get("speech_tokenizer", {})
    value = section.get("shifted_copies", 0) if isinstance(section, dict) else section
    if type(value) is not int or value not in range(0, MOST_COPIES + 1, 2):
        raise ModelError(
            f"{directory.path}: yaml key speech_tokenizer.shifted_copies is {value!r}, must be an even number from 0 "
            f"to {MOST_COPIES}"
        )
    return value


def shifted(wave: Tensor, rate: int, copies: int) -> Iterator[Tensor]:
    """`wave` [samples] itself, then `copies` of the same length, half of them later and half
    earlier, 4 ms apart; silence takes the place of what is shifted out.
    """
    yield wave
    for step in range(1, copies // 2 + 1):
        samples = min(round(step * _STEP_SECONDS * rate), len(wave))
        silence = wave.new_zeros(samples)
        yield torch.cat((silence, wave[: len(wave) - samples]))
        yield torch.cat((wave[samples:], silence))


def agreed(readings: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """One token for each place: in each digit what most `readings` have, of two as frequent the
    first reading's if it is one of them, else the smaller. All readings are equally long.
    """
    digits: NDArray[np.int64] = np.stack([np.asarray(tokens)[:, None] // _PLACES % _BASE for tokens in readings])
    votes = np.stack([(digits == digit).sum(axis=0) + 0.5 * (digits[0] == digit) for digit in range(_BASE)])
    return tuple((votes.argmax(axis=0) * _PLACES).sum(axis=1).tolist())
