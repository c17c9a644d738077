"""Speaking rate: any cutting gives the frames of the whole, at the positions that the speed asks
for.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosyserve.errors import InternalFault
from services.token2wav.vocoder.time_stretch import MelStretch

MEL = torch.randn(80, 200, generator=torch.Generator().manual_seed(0))


def stretched(speed: float, frames: int, cuts: list[int]) -> Tensor:
    state, made, begin = MelStretch(speed), [], 0
    for cut in cuts:
        end = min(frames, begin + cut)
        made.append(state.step(MEL[:, begin:end], final=False))
        begin = end
    made.append(state.step(MEL[:, begin:frames], final=True))
    return torch.cat(made, dim=1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(speed=st.floats(0.5, 2.0), frames=st.integers(1, 120), cuts=st.lists(st.integers(0, 40), max_size=8))
def test_any_cutting_is_the_whole(speed: float, frames: int, cuts: list[int]) -> None:
    whole = stretched(speed, frames, [])
    assert whole.shape == (80, max(1, int(frames / speed)))
    assert torch.equal(stretched(speed, frames, cuts), whole)


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.1, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("frames", [1, 2, 11, 101])
def test_frame_by_frame(speed: float, frames: int) -> None:
    assert torch.equal(stretched(speed, frames, [1] * frames), stretched(speed, frames, []))


def test_positions() -> None:
    """A ramp comes back as the positions themselves."""
    ramp = torch.arange(100.0).expand(80, -1)
    state = MelStretch(1.25)
    got = state.step(ramp, final=True)[0]
    want = (torch.arange(80) + 0.5) * 1.25 - 0.5
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


def test_where_the_lengths_divide_streaming_is_the_reference_rule() -> None:
    torch.testing.assert_close(stretched(1.25, 100, [7, 13]), MelStretch.offline(MEL[:, :100], 1.25), rtol=0, atol=2e-6)


def test_frames_come_out_as_early_as_they_can() -> None:
    state = MelStretch(0.5)
    assert state.step(MEL[:, :10], final=False).shape[1] == 19
    assert state.step(MEL[:, 10:10], final=True).shape[1] == 1


def test_speed_one_is_untouched() -> None:
    assert MelStretch(1.0).step(MEL, final=False) is MEL
    assert MelStretch.offline(MEL, 1.0) is MEL


def test_nothing_in_nothing_out() -> None:
    assert stretched(1.7, 0, []).shape == (80, 0)
    assert MelStretch.offline(MEL[:, :0], 1.7).shape == (80, 0)


def test_memory_stays_small() -> None:
    state = MelStretch(0.7)
    for begin in range(0, 200, 10):
        state.step(MEL[:, begin : begin + 10], final=False)
        assert state.bytes <= 80 * 4 * 4


def test_a_step_after_the_final_one_is_refused() -> None:
    state = MelStretch(1.5)
    state.step(MEL, final=True)
    with pytest.raises(InternalFault, match="after the final one"):
        state.step(MEL, final=True)
