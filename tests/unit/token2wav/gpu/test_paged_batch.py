"""A batch of streams over pages gives the results of each stream alone, also if one of them is not
finite, in Triton's interpreter.
"""

import os
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
from services.token2wav.gpu.paged_flow.estimator import PagedEstimator
from services.token2wav.gpu.paged_flow.page_layout import Layout
from services.token2wav.gpu.paged_flow.unit_table import Unit, UnitTable
from tests.unit.token2wav.gpu.small_flow import SMALL, large_tiles, random_tensors, random_voice

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
CPU = torch.device("cpu")


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


@torch.inference_mode()
def test_streams_of_a_batch_are_each_alone_beside_one_that_is_not_finite() -> None:
    tensors = random_tensors(SMALL)
    flow = Flow(SMALL, tensors, CPU)
    whole, wanted_whole = first_block(flow, 28, page=3, seed=2)
    short, wanted_short = first_block(flow, 17, page=1, seed=5)
    broken, _ = first_block(flow, 28, page=2, seed=7)
    broken.speaker.fill_(float("nan"))
    launch = large_tiles(whole=True)
    encoder = PagedEncoder(SMALL, tensors, 4, torch.float32, launch)
    estimator = PagedEstimator(SMALL, tensors, 4, torch.float32, launch, splits=2)
    layout, table = Layout(SMALL), UnitTable(4, CPU)
    pool = torch.full((4 * layout.elements,), float("nan"))
    table.fill([whole, broken, short], 4)  # the fourth fills the batch up
    encoder(table, pool, layout, 4)
    estimator.prepare(encoder.mu, flow.noise, table, pool, layout, 4)
    estimator.step(0, table, pool, layout, 4, long=False)
    torch.testing.assert_close(estimator.x[0, : len(wanted_whole)], wanted_whole, rtol=0, atol=2e-5)
    torch.testing.assert_close(estimator.x[2, : len(wanted_short)], wanted_short, rtol=0, atol=2e-5)
    assert estimator.x[1].isnan().any()
