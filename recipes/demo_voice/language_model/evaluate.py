"""How well the language model reads held-out sentences: by its own probabilities, and by what the
tokenizer's sound reader makes of its speech.

Speech is generated for many sentences at once by the served rules, without a cache. There are two
simplifications: the model is not asked whether it wants a fill before a block of speech is full,
and fills are not in the repetition window.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from recipes.demo_voice.language_model.layouts import NOTHING, START, TASK, Ids, Layouts
from recipes.demo_voice.language_model.material import Material
from recipes.demo_voice.language_model.network import ThinnedModel
from recipes.demo_voice.language_model.supply import in_batches
from recipes.demo_voice.tokenizer.trained import TrainedTokenizer, distance
from services.llm.generation.config import LlmConfig, SamplingParameters

Metrics = dict[str, float]
USUAL = (0.8, 1.25)
"""Lengths of generated speech, as a share of the true one, that a listener would not call hasty or
slow.
"""
_BUDGET = 16_000
_STRIDE = 32
"""Sequence lengths in a pass are multiples of it; whether all have ended is asked as often."""


@dataclass(frozen=True)
class Form:
    """A sequence with room for speech. inputs: int16 [positions]. free: where a token is to be
    made. may_end: where it may be the end.
    """

    inputs: Ids
    free: NDArray[np.bool_]
    may_end: NDArray[np.bool_]


def whole_form(
    layouts: Layouts, config: LlmConfig, text: Ids, prompt_text: Ids | None = None, prompt: Ids | None = None
) -> Form:
    """A sentence whose text is known, behind a prompt if there is one."""
    known = layouts.vocabulary
    every = text if prompt_text is None else np.concatenate([prompt_text, text])
    spoken = np.empty(0, np.int16) if prompt is None else prompt
    fixed = np.concatenate([[START], every + known.first_text, [TASK], spoken + known.first_code])
    return _with_room(fixed.astype(np.int16), np.zeros(len(fixed), np.bool_), config, len(text), taken=0)


def arriving_form(layouts: Layouts, config: LlmConfig, text: Ids) -> Form:
    """A sentence whose text arrives in blocks."""
    known, size = layouts.vocabulary, layouts.text_block
    blocks = len(text) // size
    parts, room = [np.array([START])], np.zeros(layouts.speech_block, np.int64)
    free = [np.zeros(1, np.bool_)]
    for block in range(blocks):
        parts += [text[block * size : (block + 1) * size] + known.first_text, room]
        free += [np.zeros(size, np.bool_), np.ones(len(room), np.bool_)]
    parts += [text[blocks * size :] + known.first_text, np.array([TASK])]
    free += [np.zeros(len(parts[-2]) + 1, np.bool_)]
    taken = blocks * len(room)
    return _with_room(np.concatenate(parts).astype(np.int16), np.concatenate(free), config, len(text), taken)


def _with_room(inputs: Ids, free: NDArray[np.bool_], config: LlmConfig, text_ids: int, taken: int) -> Form:
    """Behind `inputs`, room for what the text may still have; text that arrives has no shortest
    length.
    """
    room = max(0, config.lengths.longest(text_ids) - taken)
    not_yet = 0 if taken else config.lengths.shortest(text_ids)
    may_end = np.zeros(len(inputs) + room, np.bool_)
    may_end[len(inputs) + not_yet :] = True
    return Form(np.pad(inputs, (0, room)), np.pad(free, (0, room), constant_values=True), may_end)


@dataclass(frozen=True)
class Spoken:
    """codes: what a sentence was given. ended: by its own decision, not by its longest length."""

    codes: Ids
    ended: bool


@torch.no_grad()
def generate(model: ThinnedModel, layouts: Layouts, forms: list[Form], seed: int = 0) -> list[Spoken]:
    """All forms side by side, on the model's device."""
    known, device, limits = layouts.vocabulary, model.device, model.config.sampling
    width = max(len(form.inputs) for form in forms)
    inputs = _stacked([form.inputs for form in forms], width).to(device).long()
    free = _stacked([form.free for form in forms], width).to(device)
    may_end = _stacked([form.may_end for form in forms], width).to(device)
    done = torch.zeros(len(forms), dtype=torch.bool, device=device)
    is_code = torch.zeros_like(free)
    recent = torch.full((len(forms), limits.win_size), -1, device=device)
    draws = torch.Generator(device).manual_seed(seed)
    begin = min(int(np.flatnonzero(form.free)[0]) for form in forms)
    for position in range(begin, width):
        if position % _STRIDE == 0 and bool(done.all()):
            break
        seen = min(width, -(-position // _STRIDE) * _STRIDE)
        scores = model.scores(model.hidden(inputs[:, :seen])[:, position - 1])
        scores[:, known.fill] = -torch.inf
        scores[:, known.end].masked_fill_(~may_end[:, position], -torch.inf)
        chosen = choose(scores, recent, limits, draws)
        decides = free[:, position] & ~done
        done = done | (decides & (chosen == known.end))
        speaks = decides & (chosen != known.end)
        inputs[:, position] = torch.where(speaks, chosen + known.first_code, inputs[:, position])
        is_code[:, position] = speaks
        recent = torch.where(speaks[:, None], torch.cat([recent[:, 1:], chosen[:, None]], 1), recent)
    codes, where, ended = (
        (inputs - known.first_code).cpu().numpy().astype(np.int16),
        is_code.cpu().numpy(),
        done.tolist(),
    )
    return [Spoken(row[there], end) for row, there, end in zip(codes, where, ended, strict=True)]


def choose(scores: Tensor, recent: Tensor, limits: SamplingParameters, draws: torch.Generator) -> Tensor:
    """Repetition-aware sampling (`services.llm.generation.sampling`) of many rows: float32 [rows,
    decisions] -> int64 [rows].

    recent: int64 [rows, win_size], latest decisions, -1 where there are none.
    """
    probabilities = scores.softmax(-1)
    sorted_down, ids = probabilities.sort(-1, descending=True)
    in_nucleus = sorted_down.cumsum(-1) - sorted_down < limits.top_p
    in_nucleus[:, limits.top_k :] = False
    drawn = ids.gather(1, torch.multinomial(sorted_down * in_nucleus, 1, generator=draws))
    repeated = (recent == drawn).sum(1, keepdim=True) >= limits.win_size * limits.tau_r
    # Where the drawn id has all the weight there is, the others share what is next to nothing.
    others = torch.where(scores.isinf(), 0.0, probabilities.clamp_min(1e-20)).scatter(1, drawn, 0.0)
    return torch.where(repeated, torch.multinomial(others, 1, generator=draws), drawn)[:, 0]


def _stacked(rows: list[NDArray[np.generic]], width: int) -> Tensor:
    return torch.from_numpy(np.stack([np.pad(row, (0, width - len(row))) for row in rows]))


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
