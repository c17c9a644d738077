"""Euler steps along the flow with classifier-free guidance, from a fixed noise table (compatibility
specification of CosyVoice2, section 4.4; of CosyVoice3, section 4.5).

Conditional flow matching: Lipman et al., "Flow Matching for Generative Modeling", ICLR 2023;
guidance: Ho and Salimans, "Classifier-Free Diffusion Guidance", 2022.
"""

import hashlib

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.spec import EULER_STEPS, FEWEST_EULER_STEPS, MAX_FLOW_FRAMES, MEL_BINS
from services.token2wav.flow.attention import Mask
from services.token2wav.flow.network import VelocityEstimator
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.inputs.request import Stop

NOISE_SHA256 = "584a26e6eaad944407a96c5999aaa5cd0a6a359309a841eade68bf805c072322"
ROWS = 2
"""Each stream occupies two rows: with its condition and, for the guidance, without."""
LARGEST_MEL = 88.0
"""Mels are natural logarithms of magnitudes, and float32 has no magnitude beyond this. Speech lies
between -12 and 3.
"""


def noise_table() -> Tensor:
    """The noise float32 [80, 15000] that every sentence starts from, frame by frame from the first
    prompt frame.

    Drawn from a separate generator. Raises ModelError if this build of torch draws different
    numbers from those that the published model expects.
    """
    table = torch.randn(1, MEL_BINS, MAX_FLOW_FRAMES, generator=torch.Generator("cpu").manual_seed(0))[0]
    digest = hashlib.sha256(table.numpy().tobytes()).hexdigest()
    if digest != NOISE_SHA256:
        raise ModelError(
            f"the flow's noise table has sha256 {digest}, expected {NOISE_SHA256}: torch {torch.__version__} "
            f"({torch.backends.cpu.get_cpu_capability()}) draws other numbers from seed 0 than the published model is "
            "used with"
        )
    return table


def time_grid(steps: int = EULER_STEPS) -> Tensor:
    """float32 [steps + 1]: 1 - cos(pi / 2 * k / steps)."""
    return 1 - torch.cos(torch.linspace(0, 1, steps + 1, dtype=torch.float32) * 0.5 * torch.pi)


def euler_schedule(steps: int = EULER_STEPS) -> list[tuple[float, float]]:
    """The (t, dt) of each step. t is the sum accumulated in float32, and dt leads from it to the
    next point of the grid.
    """
    grid = time_grid(steps)
    t, dt = grid[0], grid[1] - grid[0]
    schedule = []
    for step in range(steps):
        schedule.append((float(t), float(dt)))
        t = t + dt
        if step + 2 <= steps:
            dt = grid[step + 2] - t
    return schedule


class Solver:
    """The estimator with its time grid and guidance."""

    def __init__(self, estimator: VelocityEstimator, guidance: float, device: torch.device) -> None:
        self.euler_steps = 0
        """Steps begun since the start, counted for each stream."""
        self._estimator, self._guidance = estimator, guidance
        # One time per call, because the rounding of a row may depend on the number of rows.
        self._schedules = {
            steps: [
                (estimator.times(estimator.time_embedding(torch.tensor([t], device=device))), dt)
                for t, dt in euler_schedule(steps)
            ]
            for steps in range(FEWEST_EULER_STEPS, EULER_STEPS + 1)
        }

    @staticmethod
    def inputs(mu: Tensor, speaker: Tensor, condition: Tensor) -> Tensor:
        """The part of the input that is constant over the steps: mu, condition [streams, frames,
        80], speaker [streams, 80] -> [streams, 2, frames, 320].

        Row 0 of each stream carries the condition, row 1 zeros; the first 80 channels are reserved
        for x.
        """
        streams, frames, _ = mu.shape
        rows = mu.new_zeros(streams, ROWS, frames, 4 * MEL_BINS)
        rows[:, 0, :, MEL_BINS:] = torch.cat((mu, speaker[:, None].expand(-1, frames, -1), condition), dim=2)
        return rows

    def step(
        self,
        at: int,
        x: Tensor,
        inputs: Tensor,
        cache: CachedPass,
        mask: Mask | None = None,
        steps: int = EULER_STEPS,
    ) -> Tensor:
        """Euler step `at` (from 0) of `steps` (5 to 10) of x float32 [streams, frames, 80]; writes
        x into the first channels of `inputs`.
        """
        times, dt = self._schedules[steps][at]
        self.euler_steps += x.shape[0]
        inputs[..., :MEL_BINS] = x[:, None]
        rows = inputs.flatten(0, 1).to(self._estimator.dtype)
        velocity = self._estimator.velocity(rows, times, cache, mask).float().view(-1, ROWS, *x.shape[1:])
        guided: Tensor = (1.0 + self._guidance) * velocity[:, 0] - self._guidance * velocity[:, 1]
        return x + dt * guided

    def solve(self, x: Tensor, inputs: Tensor, mask: Mask | None, stop: Stop) -> Tensor | None:
        """All steps over all frames of one stream; None as soon as `stop` returns True before a
        step.
        """
        for at in range(EULER_STEPS):
            if stop():
                return None
            x = self.step(at, x, inputs, CachedPass.whole(ROWS), mask)
        return x


def plausible(mels: Tensor) -> Tensor:
    """mels [n, ...] -> bool [n]: whether all values of a row are finite and within LARGEST_MEL."""
    return (mels.abs() <= LARGEST_MEL).flatten(1).all(dim=1)
