"""How well the language model reads held-out sentences: by its own probabilities, and by ear of the
tokenizer's sound reader.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from recipes.demo_voice.language_model.evaluate import Form, Spoken, arriving_form, generate, whole_form
from recipes.demo_voice.language_model.layouts import NOTHING, Ids, Layouts
from recipes.demo_voice.language_model.material import Material
from recipes.demo_voice.language_model.network import ThinnedModel
from recipes.demo_voice.language_model.supply import in_batches
from recipes.demo_voice.tokenizer.trained import TrainedTokenizer, distance

Metrics = dict[str, float | int | str | list[float]]
USUAL = (0.8, 1.25)
"""Lengths of generated speech, as a share of the true one, that a listener would not call hasty or
slow.
"""
_BUDGET = 16_000


@dataclass(frozen=True)
class HeldOut:
    """Held-out sentences, laid out both ways, on the device.

    known, arriving: int64 [batch, positions] pairs of inputs and targets.
    """

    material: Material
    layouts: Layouts
    tokenizer: TrainedTokenizer
    device: torch.device
    known: list[tuple[Tensor, Tensor]]
    arriving: list[tuple[Tensor, Tensor]]

    @classmethod
    def prepare(
        cls, material: Material, layouts: Layouts, tokenizer: TrainedTokenizer, device: torch.device
    ) -> "HeldOut":
        """tokenizer: on `device`."""
        said = [(material.text[number], material.codes[number]) for number in material.held_out]
        known = in_batches([layouts.whole(*each) for each in said], _BUDGET)
        arriving = in_batches([layouts.arriving(*each) for each in said], _BUDGET)
        return cls(
            material,
            layouts,
            tokenizer,
            device,
            [each.on(device) for each in known],
            [each.on(device) for each in arriving],
        )

    @torch.no_grad()
    def probabilities(self, model: ThinnedModel) -> Metrics:
        """Mean loss in nats and share of right first choices, of all decisions, of ends, and of
        fills where text arrives.
        """
        known = self.layouts.vocabulary
        loss, right, ends = _judged(model, self.known, known.end)
        arriving_loss, _, fills = _judged(model, self.arriving, known.fill)
        return {"loss": loss, "accuracy": right, "end": ends, "arriving_loss": arriving_loss, "fill": fills}

    def speech(self, model: ThinnedModel, *, most: int = 256, seed: int = 0) -> Metrics:
        """Free-running speech of at most `most` sentences: alone, behind another sentence of the
        voice, and from text that arrives.
        """
        numbers, config = self.material.held_out[:: max(1, -(-len(self.material.held_out) // most))], model.config
        text = [self.material.text[number] for number in numbers]
        before = [self._another(number) for number in numbers]
        forms: dict[str, list[Form]] = {
            "": [whole_form(self.layouts, config, ids) for ids in text],
            "prompted_": [
                whole_form(self.layouts, config, ids, self.material.text[other], self.material.codes[other])
                for ids, other in zip(text, before, strict=True)
            ],
            "arriving_": [arriving_form(self.layouts, config, ids) for ids in text],
        }
        metrics: Metrics = {
            "phone_error_of_truth": self.phone_error(numbers, [self.material.codes[number] for number in numbers])
        }
        for prefix, rows in forms.items():
            spoken = generate(model, self.layouts, rows, seed)
            metrics |= {prefix + key: value for key, value in self._judge(numbers, spoken).items()}
        return metrics

    def phone_error(self, numbers: Sequence[int], codes: Sequence[Ids]) -> float:
        """Edits to the sounds that the tokenizer hears in `codes`, per sound of the utterances."""
        lengths = torch.tensor([len(row) for row in codes])
        rows = np.zeros((len(codes), max(1, int(lengths.max()))), np.int64)
        for row, each in zip(rows, codes, strict=True):
            row[: len(each)] = each
        heard = self.tokenizer.phones_of_codes(torch.from_numpy(rows).to(self.device), lengths.to(self.device))
        said = [self.tokenizer.phones.of(self.material.phonemes[number]) for number in numbers]
        return sum(map(distance, heard, said)) / sum(map(len, said))

    def _judge(self, numbers: Sequence[int], spoken: Sequence[Spoken]) -> Metrics:
        ratios = np.array(
            [len(each.codes) / len(self.material.codes[number]) for number, each in zip(numbers, spoken, strict=True)]
        )
        return {
            "phone_error": self.phone_error(numbers, [each.codes for each in spoken]),
            "length": float(ratios.mean()),
            "length_least": float(ratios.min()),
            "length_most": float(ratios.max()),
            "unusual_length": float(np.mean((ratios < USUAL[0]) | (ratios > USUAL[1]))),
            "run_on": sum(not each.ended for each in spoken),
        }

    def _another(self, number: int) -> int:
        """The voice's next held-out utterance, one it was trained on where there is no other,
        itself at worst.
        """
        material, voice = self.material, self.material.voices[number]
        others = [each for each in material.held_out if material.voices[each] == voice]
        if len(others) > 1:
            return others[(others.index(number) + 1) % len(others)]
        return next((each for each in material.training if material.voices[each] == voice), number)


def _judged(model: ThinnedModel, batches: list[tuple[Tensor, Tensor]], special: int) -> tuple[float, float, float]:
    """Mean loss, share of right first choices, and that share where `special` is right."""
    sums = torch.zeros(5, device=model.device)
    for inputs, targets in batches:
        scores = model.scores(model.hidden(inputs))
        first, decided, asked = scores.argmax(-1), targets != NOTHING, targets == special
        loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=NOTHING, reduction="sum")
        right = first == targets
        sums += torch.stack([loss, decided.sum(), (right & decided).sum(), (right & asked).sum(), asked.sum()])
    loss, decided, right, special_right, asked = sums.tolist()
    return loss / max(1.0, decided), right / max(1.0, decided), special_right / max(1.0, asked)
