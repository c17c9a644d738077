"""One Euler step over pages equals the readable one, in Triton's interpreter: blocks one after the
other, together, short, with split keys, and in a batch with a stream that is not finite.
"""

import os
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs Triton's interpreter", allow_module_level=True)

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.flow import Flow
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.stream_cache import CachedPass, StreamCache
from services.token2wav.gpu.device.launcher import MANY, Launcher, Tile
from services.token2wav.gpu.paged_flow.dit.estimator import PagedDit
from services.token2wav.gpu.paged_flow.dit.look_ahead import PagedLookAhead
from services.token2wav.gpu.paged_flow.encoder import PagedEncoder
from services.token2wav.gpu.paged_flow.estimator import PagedEstimator
from services.token2wav.gpu.paged_flow.flow import PagedFlow
from services.token2wav.gpu.paged_flow.networks import DIT, UNET, Front, Velocity
from services.token2wav.gpu.paged_flow.page_layout import Layout
from services.token2wav.gpu.paged_flow.unit_table import Unit, UnitTable
from tests.unit.token2wav.gpu.small_flow import (
    SMALL,
    SMALL_DIT,
    large_tiles,
    random_tensors,
    random_voice,
    readable,
)

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
CPU = torch.device("cpu")
PROMPT, TOKENS = 30, 28


def blocks(config: Any = SMALL, new: int = TOKENS) -> tuple[Flow, list[Unit], list[tuple[Tensor, Tensor]]]:
    """Three blocks, the last of 8 tokens, or as many as the prompt and `new` tokens take; and what
    mu and x after Euler step 0 should be for each.
    """
    flow = readable(config, random_tensors(config))
    voice = random_voice(PROMPT)
    ids = torch.cat((voice.tokens, torch.arange(new) * 7))
    pages, units, wanted = [3, 5, 2], [], []
    encoder, step = StreamCache(), StreamCache()
    for at, first in enumerate(range(0, len(ids), 25)):
        tokens, ahead = ids[first : first + 25], ids[first + 25 : first + 28]
        frames = 2 * len(tokens)
        condition = F.pad(voice.mel[2 * first : 2 * first + 50], (0, 0, 0, 50))[:50]
        units.append(Unit(pages[: at + 1], tokens, ahead, flow.speaker(voice), condition))
        cache = CachedPass([encoder], 1)
        mu = flow.mu([tokens], [ahead], [first], cache)
        (encoder,) = cache.after()
        inputs = flow._solver.inputs(mu, flow.speaker(voice)[None], condition[None, :frames])
        cache = CachedPass([step], ROWS)
        x = flow._solver.step(0, flow.noise[None, 2 * first : 2 * first + frames], inputs, cache)
        (step,) = cache.after()
        wanted.append((mu[0], x[0]))
    return flow, units, wanted


def run_step(
    flow: Flow, encoder: Front, estimator: Velocity, table: UnitTable, pool: Tensor, layout: Any,
    units: list[Unit], *, size: int = 0, **how: bool,
) -> None:  # fmt: skip
    """The first Euler step of a batch of `size`, by default as many as there are units."""
    size = size or len(units)
    table.fill(units, size)
    encoder(table, pool, layout, size)
    estimator.prepare(encoder.mu, flow.noise, table, pool, layout, size)
    estimator.step(0, table, pool, layout, size, **how)


@pytest.mark.parametrize(
    ("kept", "by_head"), [(True, False), (False, False), (True, True)], ids=["kept", "recomputed", "together, by head"]
)
@torch.inference_mode()
def test_a_step_over_pages_is_the_readable_step(kept: bool, by_head: bool) -> None:
    flow, units, wanted = blocks()
    tensors = random_tensors(SMALL)
    # Kept: the first block, then two together with split keys. Recomputed, or with attention by
    # head: all in one pass.
    apart = kept and not by_head
    plain = large_tiles(whole=apart)
    tiles = {"feed forward": ((MANY, Tile(512, 0, 4 * SMALL.channels)),), "head": ((MANY, Tile(32, 0, 128)),)}
    launch = Launcher(False, plain.tiles | tiles)
    encoder = PagedEncoder(SMALL, tensors, 4, torch.float32, launch)
    estimator = PagedEstimator(SMALL, tensors, 4, torch.float32, launch, splits=2, barrier_units=4 * by_head, by_head=4)
    layout, table = Layout(SMALL, kept), UnitTable(4, CPU)
    pool = torch.full((6 * layout.elements,), float("nan"))
    made: list[tuple[Tensor, Tensor]] = []
    for group in (units[:1], units[1:]) if apart else (units,):
        run_step(flow, encoder, estimator, table, pool, layout, group, long=apart)
        made += [(encoder.mu[at].clone(), estimator.x[at].clone()) for at in range(len(group))]
    for found, right in zip(made, wanted, strict=True):
        for rows, wanted_rows in zip(found, right, strict=True):
            torch.testing.assert_close(rows[: len(wanted_rows)], wanted_rows, rtol=0, atol=2e-5)
    room = estimator.transformer_buffers
    assert (bool(room.heads.any()), bool(room.attended.any())) == (by_head, not by_head)


@pytest.mark.parametrize(
    ("whole", "kept"), [(True, True), (False, True), (True, False)], ids=["kept", "in pieces, long", "recomputed"]
)
@torch.inference_mode()
def test_a_step_of_the_transformer_is_the_readable_step(whole: bool, kept: bool) -> None:
    """Kept: the first block, then two together. In pieces: inner widths take several iterations,
    keys are split, a page at a time. Recomputed: two blocks, in one pass.
    """
    flow, units, wanted = blocks(SMALL_DIT, TOKENS if kept else 12)
    tensors, launch = random_tensors(SMALL_DIT), large_tiles(whole)
    front = PagedLookAhead(SMALL_DIT, tensors, 4, torch.float32, launch)
    estimator = PagedDit(SMALL_DIT, tensors, 4, torch.float32, launch, splits=2)
    layout, table = DIT.layout(SMALL_DIT, kept), UnitTable(4, CPU)
    pool = torch.full((6 * layout.elements,), float("nan"))
    for group in (range(1), range(1, 3)) if kept else (range(2),):
        run_step(flow, front, estimator, table, pool, layout, [units[at] for at in group], long=not whole)
        for at, block in enumerate(group):
            mu, x = wanted[block]
            torch.testing.assert_close(front.mu[at, : len(mu)], mu, rtol=0, atol=2e-6)
            torch.testing.assert_close(estimator.x[at, : len(x)], x, rtol=0, atol=2e-5)


def test_ten_steps_of_the_transformer_are_the_readable_flow() -> None:
    """A block and then the next over pages, and both again in one pass without."""
    config = replace(SMALL_DIT, depth=1)
    flow, units, _ = blocks(config, 12)
    paged = PagedFlow(
        DIT, config, random_tensors(config), pages=6, dtype=torch.float32, buckets=(1,), most=2,
        launch=large_tiles(whole=True),
    )  # fmt: skip
    state, wanted = flow.start(random_voice(PROMPT)), []
    for unit in units:
        (mel,) = flow.blocks([state], [unit.tokens], [unit.ahead])
        assert mel is not None
        wanted.append(mel.T)
    kept = [paged.run([unit])[0].clone() for unit in units]
    again = paged.recompute([replace(unit, pages=list(range(1, at + 2))) for at, unit in enumerate(units)])
    for found in (kept, again):
        for block, mel in zip(found, wanted, strict=True):
            torch.testing.assert_close(block[: len(mel)], mel, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("meeting", "frames"), [(1, 0), (1, 64), (1, 32), (0, 64)])
@torch.inference_mode()
def test_a_step_of_one_block_is_the_readable_step(meeting: int, frames: int) -> None:
    """meeting: units whose feed-forward is one launch; in the interpreter it has a single program
    for its rows. frames: frames per program where attention is fused with the product after it,
    which requires such a feed-forward; 0: separate attention.
    """
    config = replace(SMALL, transformers=2)
    flow, units, wanted = blocks(config)
    tensors, plain = random_tensors(config), large_tiles(whole=True)
    tiles = {"feed forward": ((MANY, Tile(128, 0, 4 * config.channels)),), "head": ((MANY, Tile(frames, 0, 128)),)}
    launch = Launcher(False, plain.tiles | tiles)
    encoder = PagedEncoder(config, tensors, 1, torch.float32, launch)
    estimator = PagedEstimator(
        config, tensors, 1, torch.float32, launch, barrier_units=meeting, by_head=int(frames > 0)
    )
    layout, table = Layout(config), UnitTable(1, CPU)
    pool = torch.full((6 * layout.elements,), float("nan"))
    for unit, (_, wanted_x) in zip(units, wanted, strict=True):
        run_step(flow, encoder, estimator, table, pool, layout, [unit])
        torch.testing.assert_close(estimator.x[0, : len(wanted_x)], wanted_x, rtol=0, atol=2e-5)
    room, by_head = estimator.transformer_buffers, meeting > 0 and frames > 0
    filled = (bool(room.partial.any()), bool(room.heads.any()), bool(room.wide.any()), bool(room.attended.any()))
    assert filled == (meeting > 0, by_head, not meeting, not by_head)


def first_block(flow: Flow, tokens: int, page: int, seed: int) -> tuple[Unit, Tensor]:
    """A stream's first block over `page`, and x after Euler step 0 by the readable flow."""
    voice = random_voice(10, seed)
    ids = torch.cat((voice.tokens, torch.arange(tokens - 10) * 7 + seed))
    condition = F.pad(voice.mel, (0, 0, 0, 30))
    mu = flow.mu([ids[:25]], [ids[25:]], [0], CachedPass([StreamCache()], 1))
    frames = mu.shape[1]
    inputs = flow._solver.inputs(mu, flow.speaker(voice)[None], condition[None, :frames])
    x = flow._solver.step(0, flow.noise[None, :frames], inputs, CachedPass([StreamCache()], ROWS))
    return Unit([page], ids[:25], ids[25:], flow.speaker(voice), condition), x[0]


@pytest.mark.parametrize(("network", "config"), [(UNET, SMALL), (DIT, SMALL_DIT)], ids=["unet", "dit"])
@torch.inference_mode()
def test_a_stream_that_is_not_finite_changes_no_other_stream_of_its_batch(network: Any, config: Any) -> None:
    tensors = random_tensors(config)
    flow = readable(config, tensors)
    whole, wanted_whole = first_block(flow, 28, page=3, seed=2)
    short, wanted_short = first_block(flow, 17, page=1, seed=5)
    broken, _ = first_block(flow, 28, page=2, seed=7)
    broken.speaker.fill_(float("nan"))
    launch = large_tiles(whole=True)
    front = network.front(config, tensors, 4, torch.float32, launch)
    estimator = network.estimator(config, tensors, 4, torch.float32, launch, barrier_units=0, by_head=0)
    layout, table = network.layout(config, True), UnitTable(4, CPU)
    pool = torch.full((4 * layout.elements,), float("nan"))
    # the fourth fills the batch up
    run_step(flow, front, estimator, table, pool, layout, [whole, broken, short], size=4, long=False)
    for at, wanted in ((0, wanted_whole), (2, wanted_short)):
        torch.testing.assert_close(estimator.x[at, : len(wanted)], wanted, rtol=0, atol=2e-5)
    assert estimator.x[1].isnan().any()
