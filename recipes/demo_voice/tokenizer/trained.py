"""A trained tokenizer as later stages use it: speech to codes, codes to sounds, and how well sounds
were read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recipes.demo_voice.tokenizer import codes
from recipes.demo_voice.tokenizer.network import Network, Sizes, mask_of
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.speech import Speech
from services.frontend.tokenizers.phonemes.symbols import PHONES, START

WEIGHTS, SETTINGS, ONNX = "tokenizer.pt", "settings.json", "speech_tokenizer_v2.onnx"
CODES, PLACES, ALIGNED = "codes.npy", "place.npy", "aligned.npy"


@dataclass(frozen=True)
class Phones:
    """The sounds among a model's symbols, in their order; class k + 1 is the k-th, class 0 the
    blank between sounds.
    """

    symbols: tuple[str, ...]

    @classmethod
    def among(cls, ids: Mapping[str, int]) -> "Phones":
        """ids: symbol to text id, as `read_symbols` gives them."""
        return cls(tuple(symbol for symbol in sorted(ids, key=lambda symbol: ids[symbol]) if symbol in PHONES))

    def of(self, phonemes: str) -> list[int]:
        """Classes of the sounds of a phoneme string; stress, spaces and marks are passed over."""
        return [self.symbols.index(symbol) + 1 for symbol in phonemes if symbol in self.symbols]

    def places(self, phonemes: str) -> list[int]:
        """Where the same sounds stand among the text ids, which begin with the symbol of a
        sentence's start.
        """
        return [place for place, symbol in enumerate(START + phonemes) if symbol in self.symbols]


def greedy(log_probabilities: Tensor, lengths: Tensor) -> list[list[int]]:
    """[batch, time, classes] -> most probable class at each time, repetitions joined, blanks
    dropped. lengths: int64 [batch].
    """
    best = log_probabilities.argmax(-1)
    before = torch.cat([torch.zeros_like(best[:, :1]), best[:, :-1]], 1)
    within = torch.arange(best.shape[1], device=best.device)[None] < lengths[:, None]
    symbols = torch.where((best != before) & within, best, 0).tolist()
    return [[phone for phone in row if phone] for row in symbols]


def distance(recognised: Sequence[int], expected: Sequence[int]) -> int:
    """Fewest substitutions, insertions and deletions from one sequence to the other."""
    costs = list(range(len(expected) + 1))
    for row, left in enumerate(recognised, start=1):
        diagonal, costs[0] = costs[0], row
        for column, right in enumerate(expected, start=1):
            diagonal, costs[column] = (
                costs[column],
                min(costs[column] + 1, costs[column - 1] + 1, diagonal + (left != right)),
            )
    return costs[-1]


@dataclass(frozen=True)
class TrainedTokenizer:
    """Weights as they were shipped: rounded to half precision, computed with in float32."""

    network: Network
    phones: Phones

    @property
    def digits(self) -> int:
        return self.network.sizes.digits

    @classmethod
    def read(cls, folder: Path, device: torch.device | str = "cpu") -> "TrainedTokenizer":
        """What `write` left in the folder of a training."""
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        network = Network(Sizes(**settings["sizes"]))
        network.load_state_dict(parameter_store.load(folder / WEIGHTS))
        return cls(network.to(device).eval().requires_grad_(False), Phones(tuple(settings["phones"])))

    @torch.no_grad()
    def codes_of_speech(self, log_mel: Tensor, lengths: Tensor) -> Tensor:
        """float32 [batch, T, 128], int64 [batch] frames of each row -> int64 codes [batch, ceil(T /
        4)], meaningless past a row's end.
        """
        return codes.codes_of(codes.bounded(self.network.encoder(log_mel, lengths)))

    @torch.no_grad()
    def read_codes(self, compact: Tensor, lengths: Tensor) -> Tensor:
        """int64 codes [batch, time], int64 [batch] -> float32 log probabilities [batch, time, 1 +
        phones], class 0 the blank.
        """
        log_probabilities: Tensor = self.network.phones(
            codes.levels_of(compact, self.digits), mask_of(lengths, compact.shape[1])
        )
        return log_probabilities

    def phones_of_codes(self, compact: Tensor, lengths: Tensor) -> list[list[int]]:
        """The sounds that the codes seem to say, as classes of `phones`; to be compared with
        `phones.of(phonemes)` by `phones.distance`.

        compact: int64 [batch, time] on the tokenizer's device, anything past a row's end. lengths:
        int64 [batch], there as well.
        """
        within = mask_of(lengths, compact.shape[1])[..., 0].bool()
        return greedy(self.read_codes(torch.where(within, compact, 0), lengths), lengths)


def read_codes(folder: Path, speech: Speech) -> NDArray[np.int16]:
    """The codes of all utterances end to end, int16 [tokens], as `label` left them in `folder`.
    Raises ValueError when they are of other speech.
    """
    stored: NDArray[np.int16] = np.load(folder / CODES)
    if stored.shape != (sum(speech.tokens),):
        raise ValueError(f"{folder}: {len(stored)} codes, the speech has {sum(speech.tokens)} tokens; encode it again")
    return stored


def write(folder: Path, weights: dict[str, Tensor], sizes: Sizes, phones: Phones, voices: list[str]) -> None:
    """tokenizer.pt in half precision and settings.json: digits, codes, first_id, sizes, phones,
    voices.
    """
    parameter_store.save(folder / WEIGHTS, parameter_store.halved(weights))
    settings = {
        "digits": sizes.digits,
        "codes": codes.count(sizes.digits),
        "first_id": codes.first_id(sizes.digits),
        "sizes": asdict(sizes),
        "phones": list(phones.symbols),
        "voices": voices,
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
