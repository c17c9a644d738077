"""Step-Audio2's flow over pages equals the readable one, in Triton's interpreter: a prompt of any
length as one block of several units, blocks behind it one after the other and together, over pages
and made again.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs Triton's interpreter", allow_module_level=True)

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.flow import Flow
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.stream_cache import CachedPass, StreamCache
from services.token2wav.gpu.paged_flow.encoder import PagedEncoder
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KeptNumbers
from services.token2wav.gpu.paged_flow.step_dit.estimator import PagedStepDit
from services.token2wav.gpu.paged_flow.step_dit.page_layout import StepDitLayout
from services.token2wav.gpu.paged_flow.unit_table import Unit, UnitTable
from services.token2wav.gpu.stream_units import StreamUnits
from tests.unit.token2wav.gpu.small_flow import SMALL_STEP_DIT, large_tiles, random_tensors, random_voice, readable

CPU = torch.device("cpu")


class Spoken:
    """A voice and the tokens it speaks, as units over given pages and as blocks of the readable
    flow.
    """

    def __init__(self, flow: Flow, prompt: int, tokens: int) -> None:
        self.flow, self.voice, self.units = flow, random_voice(prompt), StreamUnits(prompt, whole_prompt=True)
        self.ids = torch.cat((self.voice.tokens, torch.arange(tokens) * 7))
        padded = F.pad(self.voice.mel, (0, 0, 2 * self.units.skipped, 0))
        self._conditions = padded.view(-1, 50, 80)

    def unit(self, at: int, pages: list[int], front_pages: list[int]) -> Unit:
        span, (seen, own) = self.units.tokens(at, len(self.ids)), self.units.seen(at)
        complete = span.stop == self.units.end(at + 1)
        ahead = self.ids[self.units.lookahead(span.stop)] if complete else self.ids[:0]
        front = front_pages[: max(at + 1, self.units.of_prompt)]
        condition = self._conditions[at] if at < len(self._conditions) else None
        speaker = self.flow.speaker(self.voice)
        return Unit(
            [pages[one] for one in seen], self.ids[span.start : span.stop], ahead, speaker, condition, own, front,
            self.units.skipped,
        )  # fmt: skip

    @property
    def count(self) -> int:
        return self.units.count(len(self.ids))

    def blocks(self) -> list[tuple[Tensor, Tensor]]:
        """Tokens and look-ahead of each block."""
        grid, position, made = self.units.grid, 0, []
        while position < len(self.ids):
            end = grid.next_border(position, len(self.ids))
            whole = end in (grid.prompt, grid.next_border(position, end + 25))
            made.append((self.ids[position:end], self.ids[grid.lookahead(end)] if whole else self.ids[:0]))
            position = end
        return made

    def by_unit(self, frames: Tensor) -> list[Tensor]:
        """Frames of the whole stream, by unit, without padding."""
        sizes = [2 * len(self.units.tokens(at, len(self.ids))) for at in range(self.count)]
        return list(frames.split(sizes))


def first_step(said: Spoken) -> tuple[list[Tensor], list[Tensor]]:
    """mu, and x after the first Euler step, by unit."""
    flow, encoder, step, mus, xs, first = said.flow, StreamCache(), StreamCache(), [], [], 0
    speaker = flow.speaker(said.voice)[None]
    for tokens, ahead in said.blocks():
        frames = 2 * len(tokens)
        cache = CachedPass([encoder], 1)
        mu = flow.mu([tokens], [ahead], [first // 2], cache)
        (encoder,) = cache.after()
        inputs = flow._solver.inputs(mu, speaker, flow._condition(said.voice.mel, first, frames)[None])
        cache = CachedPass([step], ROWS)
        x = flow._solver.step(0, flow.noise[None, first : first + frames], inputs, cache)
        step = flow.past.kept(said.units.prompt, cache.after()[0])
        mus.append(mu[0])
        xs.append(x[0])
        first += frames
    return said.by_unit(torch.cat(mus)), said.by_unit(torch.cat(xs))


def paged_step(said: Spoken, *, whole: bool, stored: bool, kept: KeptNumbers = AS_OPERANDS) -> Iterator[list[Tensor]]:
    """mu and x after the first Euler step over pages, by unit; stored: the prompt in one pass, then
    all blocks behind it, else all in one pass over scratch pages. whole: see `large_tiles`.
    """
    config, tensors, launch = SMALL_STEP_DIT, random_tensors(SMALL_STEP_DIT), large_tiles(whole)
    front = PagedEncoder(config, tensors, 4, torch.float32, launch, longest_prompt=100)
    estimator = PagedStepDit(config, tensors, 4, torch.float32, launch, splits=2, kept=kept)
    layout, table = StepDitLayout(config, stored, kept.ratio(torch.float32)), UnitTable(4, CPU, front_apart=True)
    pool = torch.full((10 * layout.elements,), float("nan"))
    pages, fronts = [3, 5, 2, 4], [7 * layout.fronts - 1 + at for at in range(4)]
    apart = [range(said.units.of_prompt), range(said.units.of_prompt, said.count)]
    for group in apart if stored else [range(said.count)]:
        table.fill([said.unit(at, pages, fronts) for at in group], len(group))
        front(table, pool, layout, len(group))
        estimator.prepare(front.mu, said.flow.noise, table, pool, layout, len(group))
        estimator.step(0, table, pool, layout, len(group), long=not whole)
        for row, at in enumerate(group):
            frames = said.unit(at, pages, fronts).frames
            yield [front.mu[row, frames], estimator.x[row, frames]]


@pytest.mark.parametrize(
    ("prompt", "tokens", "whole", "kept"),
    [(26, 8, True, True), (30, 33, False, True), (1, 30, True, False)],
    ids=["kept", "in pieces, long", "recomputed"],
)
@torch.inference_mode()
def test_a_step_over_pages_is_the_readable_step(prompt: int, tokens: int, whole: bool, kept: bool) -> None:
    """Kept: the first unit of the prompt has one token. In pieces: inner widths take several
    iterations, keys are split, a page at a time.
    """
    said = Spoken(readable(SMALL_STEP_DIT, random_tensors(SMALL_STEP_DIT)), prompt, tokens)
    wanted = list(zip(*first_step(said), strict=True))
    for found, right in zip(paged_step(said, whole=whole, stored=kept), wanted, strict=True):
        torch.testing.assert_close(found, list(right), rtol=0, atol=2e-5)
