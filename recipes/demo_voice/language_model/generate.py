"""Free-running speech of many sentences at once, by the served rules, without a cache: for judging
a training.

Two simplifications: the model is not asked whether it wants a fill before a block of speech is
full, and fills are not in the repetition window.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recipes.demo_voice.language_model.layouts import START, TASK, Ids, Layouts
from recipes.demo_voice.language_model.network import ThinnedModel
from services.llm.generation.config import LlmConfig, SamplingParameters

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
