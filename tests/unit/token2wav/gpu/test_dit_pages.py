"""What lies in a page of the diffusion transformers: every part at a place of its own, as large as
the docs say.
"""

import itertools

import pytest

from bench.generations.step_audio2 import PUBLISHED_STEP_DIT
from bench.real_size import PUBLISHED_DIT
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.gpu.paged_flow.dit.page_layout import DitLayout
from services.token2wav.gpu.paged_flow.step_dit.page_layout import StepDitLayout
from tests.unit.token2wav.gpu.small_flow import SMALL_DIT, SMALL_STEP_DIT


@pytest.mark.parametrize("config", [SMALL_DIT, PUBLISHED_DIT], ids=["small", "published"])
def test_parts_of_a_page_do_not_overlap(config: DitConfig) -> None:
    layout, width = DitLayout(config), config.width
    parts = [(layout.smooth_tail, 2 * config.lookahead_channels)]
    for step in range(10):
        parts += [(layout.attention(step, block), 2 * 2 * 50 * width) for block in range(config.depth)]
        parts += [(layout.position_tail(step, at), 2 * 30 * width) for at in (0, 1)]
    parts.sort()
    ends = [begin + size for begin, size in parts]
    assert all(end <= begin for end, (begin, _) in zip(ends, parts[1:], strict=False))
    assert ends[-1] <= layout.elements


def test_a_page_of_the_published_size_takes_what_the_docs_say() -> None:
    assert 2 * DitLayout(PUBLISHED_DIT).elements == 92_573_696
    scratch = DitLayout(PUBLISHED_DIT, stored=False)
    assert (scratch.attention(9, 21), scratch.position_tail(9, 1)) == (
        scratch.attention(0, 0),
        scratch.position_tail(0, 1),
    )
    assert 2 * scratch.elements == 659_456


@pytest.mark.parametrize("ratio", [1, 2, 4])
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("config", [SMALL_STEP_DIT, PUBLISHED_STEP_DIT], ids=["small", "published"])
def test_parts_of_the_pages_of_step_audio2_do_not_overlap(config: StepDitConfig, stored: bool, ratio: int) -> None:
    layout, front = StepDitLayout(config, stored, ratio), StepDitLayout(config, stored, ratio).front
    scales = 2 * 2 * 50 * config.heads if ratio > 1 else 0
    attention = 2 * 2 * 50 * config.heads * config.head_width // ratio + scales
    tail = 2 * 2 * config.width
    places = {(step, block) for step in range(10) for block in range(config.depth)} if stored else {(3, 1)}
    parts = [(layout.attention(*place), attention) for place in places]
    parts += [(layout.tail(*place, at), tail) for place in places for at in (0, 1)]
    layers = config.encoder_layers + config.encoder_upsampled_layers if stored else 0
    width = 2 * config.encoder_width
    in_front = [
        (front.encoder_attention(at), (25 if at < config.encoder_layers else 50) * width) for at in range(layers)
    ]
    in_front += [(front.smooth_tail, width), (front.up_tail, width)]
    for found, size in ((parts, layout.elements), (in_front, front.elements)):
        ordered = sorted(found)
        assert all(begin + length <= after for (begin, length), (after, _) in itertools.pairwise(ordered))
        assert sum(ordered[-1]) <= size
    assert layout.elements == layout.fronts * front.elements


def test_pages_of_step_audio2_of_the_published_size_take_what_the_docs_say() -> None:
    for ratio, size, fronts in ((1, 34_603_008, 48), (2, 18_743_296, 26)):
        layout = StepDitLayout(PUBLISHED_STEP_DIT, ratio=ratio)
        assert (2 * layout.elements, 2 * layout.front.elements, layout.fronts) == (size, 720_896, fronts)
