"""Starts one configuration, measures it and stops it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyserve.client import AsyncClient
from cosyserve.client.playback import milliseconds
from cosyserve.errors import CosyserveError, ModelError, SettingsError
from cosyserve.host.starting.configurations import rating
from cosyserve.host.starting.measurement import Measured, measure
from cosyserve.host.starting.plan import Plan
from cosyserve.host.supervision.supervisor import DeploymentFailed, local_deployment


@dataclass(frozen=True)
class Trial:
    """Result of one configuration."""

    name: str
    start_seconds: float = 0.0
    """Seconds until the public service was SERVING."""
    measured: Measured | None = None
    """None if it did not speak, for `reason`."""
    reason: str = ""

    @property
    def real_time_factor(self) -> float:
        """Of the warm request; infinite if it did not speak."""
        return float("inf") if self.measured is None else self.measured.warm.real_time_factor


async def run_trial(
    plan: Plan,
    model: Path,
    gpu_sharing: str | None,
    report: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
) -> Trial:
    """Start all services with this plan, overridden by `environ`, speak, and stop them."""
    began = time.monotonic()
    variables = {**plan.environ, **(environ or {})}
    stack_of = local_deployment(model, backend=plan.backends, environ=variables, gpu_sharing=gpu_sharing, report=report)
    try:
        async with stack_of as stack, AsyncClient(stack.address) as client:
            seconds = time.monotonic() - began
            measured = await measure(client)
    except (DeploymentFailed, CosyserveError, SettingsError, ModelError, OSError) as error:
        return Trial(plan.name, reason=next(reversed(str(error).splitlines()), type(error).__name__).strip())
    if measured.fault:
        return Trial(plan.name, seconds, reason=measured.fault)
    return Trial(plan.name, seconds, measured)


def table(trials: list[Trial]) -> str:
    """A row for each, the fastest first; those that did not speak last, with the reason."""
    lines = [f"{'configuration':<14}{'start':>8}{'first byte':>13}{'audible':>10}{'warm':>10}{'RTF':>7}  rating"]
    for trial in sorted(trials, key=lambda trial: trial.real_time_factor):
        if trial.measured is None:
            lines.append(f"{trial.name:<14}not run: {trial.reason}")
            continue
        cold, warm = trial.measured.cold, trial.measured.warm
        cells = (
            f"{trial.start_seconds:.1f} s",
            milliseconds(cold.first_sound_seconds),
            milliseconds(cold.first_audible_seconds),
            milliseconds(warm.first_audible_seconds),
        )
        figures = f"{cells[0]:>8}{cells[1]:>13}{cells[2]:>10}{cells[3]:>10}{trial.real_time_factor:>7.2f}"
        lines.append(f"{trial.name:<14}{figures}  {rating(trial.real_time_factor)}")
    return "\n".join(lines)
