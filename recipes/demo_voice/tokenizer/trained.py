"""A trained tokenizer as later stages use it: codes to sounds, speech to codes."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from recipes.demo_voice.tokenizer import codes
from recipes.demo_voice.tokenizer.network import Network, Sizes, mask_of
from recipes.demo_voice.tokenizer.trained import Phones, greedy
from recipes.demo_voice.training import parameter_store

WEIGHTS, SETTINGS, ONNX = "tokenizer.pt", "settings.json", "speech_tokenizer_v2.onnx"
CODES, PLACES, ALIGNED = "codes.npy", "place.npy", "aligned.npy"


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
        network.load_state_dict(
            {
                name: tensor
                for name, tensor in parameter_store.load(folder / WEIGHTS).items()
                if isinstance(tensor, Tensor)
            }
        )
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
