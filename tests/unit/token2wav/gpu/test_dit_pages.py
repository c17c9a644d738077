"""What lies in a page of the diffusion transformer: every part at a place of its own, as large as
the docs say.
"""

import pytest

from bench.real_size import PUBLISHED_DIT
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.gpu.paged_flow.dit.page_layout import DitLayout
from tests.unit.token2wav.gpu.small_flow import SMALL_DIT


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
