"""The batch size of a pass: a recomputed sentence has graphs for as many blocks as it may have."""

from importlib.util import find_spec

import pytest

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

import torch

from services.token2wav.gpu.paged_flow.flow import LONG_PAGES, PagedFlow, Way
from services.token2wav.gpu.paged_flow.networks import UNET
from services.token2wav.gpu.paged_flow.unit_table import Unit
from tests.unit.token2wav.gpu.small_flow import SMALL, random_tensors


def unit(at: int) -> Unit:
    return Unit(
        list(range(1, at + 2)), torch.zeros(25, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), torch.zeros(80)
    )


@pytest.mark.parametrize(
    ("most", "sizes"), [(100, {2: 2, 31: 32, 33: 48, 64: 64, 65: 96, 97: 97}), (32, {31: 32, 32: 32})]
)
def test_a_pass_takes_the_next_size(most: int, sizes: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[tuple[int, Way]] = []
    flow = PagedFlow(UNET, SMALL, random_tensors(SMALL), pages=2, dtype=torch.float32, buckets=(1, 2, 32), most=most)
    monkeypatch.setattr(flow, "_launch", lambda units, way: launched.append((units, way)))
    for blocks in sizes:
        assert len(flow.recompute([unit(at) for at in range(blocks)])) == blocks
    assert launched == [(size, Way.RECOMPUTED) for size in sizes.values()]
    flow.run([unit(0)] * 3)
    assert launched[-1] == (32, Way.SHORT)


def test_keys_are_split_only_in_a_pass_that_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[tuple[int, Way]] = []
    flow = PagedFlow(UNET, SMALL, random_tensors(SMALL), pages=2, dtype=torch.float32, buckets=(1, 2, 8))
    monkeypatch.setattr(flow, "_launch", lambda units, way: launched.append((units, way)))
    for units in (2, 3):  # keys are split for at most four units, and three are launched as eight
        flow.run([unit(LONG_PAGES)] * units)
    assert launched == [(2, Way.LONG), (8, Way.SHORT)]
