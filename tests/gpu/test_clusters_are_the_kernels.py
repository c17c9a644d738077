"""An Euler step in thread-block clusters against the kernels of larger batches: what a step returns
and what it leaves in the page, of streams by themselves and together.
"""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or find_spec("triton") is None or torch.cuda.get_device_capability() != (9, 0),
        reason="no CUDA device of compute capability 9.0 or no triton",
    ),
    pytest.mark.usefixtures("caches"),
]
BFLOAT16 = 1e-2
"""Relative error, root mean square, between two ways of rounding to bfloat16. Seen on an H100: mel
1.7e-3 to 2.1e-3, what the page keeps 5.3e-3 to 5.9e-3.
"""
PAGES = 12


@pytest.fixture(scope="module")
def flow() -> Any:
    """Of the published widths, with three levels."""
    from bench.real_size import PUBLISHED_FLOW
    from services.token2wav.gpu.paged_flow.flow import PagedFlow
    from services.token2wav.gpu.paged_flow.networks import UNET
    from tests.unit.token2wav.gpu.small_flow import random_tensors

    config = replace(PUBLISHED_FLOW, encoder_layers=1, encoder_feed_forward=64, middle=1)
    tensors = {name: tensor.cuda() for name, tensor in random_tensors(config).items()}
    return PagedFlow(UNET, config, tensors, pages=PAGES, buckets=(1, 2), clusters=True)


def unit(own: int, *before: int, tokens: int = 25) -> Any:
    from services.token2wav.gpu.paged_flow.unit_table import Unit

    ids = torch.arange(tokens) * 37 % 6561
    ahead = torch.arange(3) if tokens == 25 else torch.zeros(0, dtype=torch.int64)
    return Unit([*before, own], ids + own, ahead, torch.linspace(-1, 1, 80, device="cuda"))


CASES = {
    "first block": [(1,)],
    "behind three": [(4, 1, 2, 3)],
    "behind seven": [(8, 1, 2, 3, 4, 5, 6, 7)],
    "two streams of one prompt": [(5, 1, 2), (6, 1, 3)],
}


@torch.inference_mode()
def passed(flow: Any, units: list[Any], clusters: bool) -> tuple[Tensor, list[Tensor]]:
    """The mel of a pass, and the pages that it wrote."""
    most = flow._estimator.clustered_units
    generator = torch.Generator(device="cuda").manual_seed(1)
    flow.pool.normal_(generator=generator)
    flow._estimator.clustered_units = most if clusters else 0
    try:
        mel = flow.run(units).clone()
    finally:
        flow._estimator.clustered_units = most
    pages = flow.pool.view(PAGES, -1)
    return mel, [pages[one.pages[-1]].float() for one in units]


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("pages", CASES.values(), ids=CASES)
@pytest.mark.parametrize("tokens", [25, 7])
def test_a_pass_is_that_of_the_other_kernels(flow: Any, pages: list[tuple[int, ...]], tokens: int) -> None:
    assert flow.clustered_units == 2
    units = [unit(*one, tokens=tokens) for one in pages]
    (found, ours), (wanted, theirs) = passed(flow, units, True), passed(flow, units, False)
    again, _ = passed(flow, units, True)
    frames = 2 * tokens  # no later block reads the page of a last one
    assert found[:, :frames].equal(again[:, :frames])
    mel = error(found[:, :frames], wanted[:, :frames])
    kept = [error(mine, other) for mine, other in zip(ours, theirs, strict=True)] if tokens == 25 else []
    print(f"mel {mel:.1e}, pages", *(f"{each:.1e}" for each in kept))
    assert max([mel, *kept]) < BFLOAT16


@torch.inference_mode()
def test_what_is_not_finite_stays_in_its_stream(flow: Any) -> None:
    alone, _ = passed(flow, [unit(5, 1, 2)], True)
    generator = torch.Generator(device="cuda").manual_seed(1)
    flow.pool.normal_(generator=generator)
    flow.pool.view(PAGES, -1)[3].fill_(float("nan"))
    both = flow.run([unit(5, 1, 2), unit(6, 1, 3)]).clone()
    assert bool(torch.isfinite(both[0]).all())
    assert not bool(torch.isfinite(both[1]).any())
    assert error(both[0], alone[0]) < BFLOAT16


def test_a_graph_is_the_launches_that_it_recorded(flow: Any) -> None:
    from services.token2wav.gpu.paged_flow.flow import Way

    units = [unit(5, 1, 2), unit(6, 1, 3)]
    eager, pages = passed(flow, units, True)
    flow.capture((Way.APART,))
    replayed, again = passed(flow, units, True)
    flow._graphs.clear()
    assert eager.equal(replayed)
    assert all(one.equal(other) for one, other in zip(pages, again, strict=True))
