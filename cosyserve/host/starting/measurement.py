"""Measures a deployment: time to the first audible sample, cold and warm, and a check of the sound.
A trial starts one configuration, measures it and stops it.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cosyserve.audio.encoding import from_pcm
from cosyserve.client import AsyncClient
from cosyserve.client.types import STAGES
from cosyserve.engines.benchmark_note import LLM, TOKEN2WAV, NotedService, facts, read_note, write
from cosyserve.engines.gpu_facts import visible_gpus
from cosyserve.errors import CosyserveError, ModelError, SettingsError
from cosyserve.host.starting.configurations import BY_NAME, rating
from cosyserve.host.starting.engine_builds import PRECISION, engine_directory
from cosyserve.host.starting.plan import Plan
from cosyserve.host.starting.serving import WITHOUT_KEYS
from cosyserve.host.supervision.supervisor import DeploymentFailed, local_deployment
from cosyserve.load.player import Heard, listen, milliseconds

TEXT = (
    "Hello! This sentence went through four services before you heard it, "
    "and it began to sound while it was still being made."
)
_SEED = 7
_SHORTEST_SECONDS = 1.0
_SILENCE = 1e-3
"""Root mean square, of full scale 1, below which a recording counts as silent: -60 dB."""


@dataclass(frozen=True)
class Measured:
    """Result of a measurement."""

    cold: Heard
    """The first request."""
    warm: Heard
    """The same request again."""
    audio: bytes
    """int16, mono, 24 kHz."""
    fault: str | None
    """What is wrong with the audio; None if nothing."""

    def table(self) -> str:
        """First byte, first audible sample, real-time factor, and milliseconds of each stage."""
        columns = ("first byte", "audible", "RTF", *(stage.replace("_", " ") for stage in STAGES))
        lines = [f"{'':<22}" + "".join(f"{column:>12}" for column in columns)]
        for name, heard in (("cold", self.cold), ("warm", self.warm)):
            first = (
                milliseconds(heard.first_sound),
                milliseconds(heard.first_audible),
                f"{heard.real_time_factor:.2f}",
            )
            for kind, stages in (("to first byte", heard.summary.first_sound), ("in all", heard.summary.total)):
                head = first if kind == "to first byte" else ("", "", "")
                cells = (*head, *(f"{stages[stage]:.0f} ms" for stage in STAGES))
                lines.append(f"{name + ', ' + kind:<22}" + "".join(f"{cell:>12}" for cell in cells))
        return "\n".join(lines)


async def measure(client: AsyncClient, text: str = TEXT) -> Measured:
    """Speak `text` twice with the same seed; on a machine with a GPU a third time if the second
    sounds different.
    """
    cold, audio = await _speak(client, text)
    warm, again = await _speak(client, text)
    if again != audio and len(await asyncio.to_thread(visible_gpus)) > 0:
        # Rounding on a GPU depends on the other rows of a batch, and voices may still be warmed
        # during the first request.
        audio = again
        warm, again = await _speak(client, text)
    return Measured(cold, warm, audio, _fault(cold, audio, again))


async def _speak(client: AsyncClient, text: str) -> tuple[Heard, bytes]:
    pieces: list[bytes] = []

    async def play(audio: bytes) -> None:
        pieces.append(audio)

    heard = await listen(client.synthesize(text, seed=_SEED), play=play)
    return heard, b"".join(pieces)


def _fault(heard: Heard, audio: bytes, again: bytes) -> str | None:
    if heard.audio < _SHORTEST_SECONDS:
        return f"the audio has only {heard.audio:.2f} s"
    loudness = float(np.sqrt(np.mean(np.square(from_pcm(audio), dtype=np.float64))))
    if loudness < _SILENCE:
        return f"the audio is silent: root mean square {loudness:.1e} of full scale"
    if audio != again:
        return "the same request with the same seed gave other samples"
    return None


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
    variables = {**plan.environ, **WITHOUT_KEYS, **(environ or {})}
    stack_of = local_deployment(model, backend=plan.backends, environ=variables, gpu_sharing=gpu_sharing, report=report)
    try:
        async with stack_of as stack, AsyncClient(stack.plain) as client:
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
            milliseconds(cold.first_sound),
            milliseconds(cold.first_audible),
            milliseconds(warm.first_audible),
        )
        figures = f"{cells[0]:>8}{cells[1]:>13}{cells[2]:>10}{cells[3]:>10}{trial.real_time_factor:>7.2f}"
        lines.append(f"{trial.name:<14}{figures}  {rating(trial.real_time_factor)}")
    return "\n".join(lines)


FASTER = 0.9
"""Another engine must be below this share of our own real-time factor: one measured sentence is
accurate to about a tenth.
"""


def read_notes(
    model: Path, environ: Mapping[str, str] = os.environ, decoder_model: Path | None = None
) -> dict[str, str]:
    """By service, the hosted engine that was measured to be faster on this machine. decoder_model:
    of flow and vocoder, where they are not those of `model`. Blocks while checkpoints are hashed.
    """
    engines = {}
    for service, weights in ((LLM, model), (TOKEN2WAV, decoder_model or model)):
        directory, precision = engine_directory(service.name, environ), _precision(service, environ)
        engines[service.name] = read_note(directory, service, weights, precision)
    return {service: engine for service, engine in engines.items() if engine}


def write_notes(
    trials: Sequence[Trial],
    model: Path,
    environ: Mapping[str, str] = os.environ,
    decoder_model: Path | None = None,
) -> dict[str, str]:
    """Write a note for each service of which a hosted engine was measured as well as our own.
    Returns by service what `auto` takes from now on, empty for our own. decoder_model: as for
    `read_notes`. Blocks. Raises OSError.
    """
    preferred = {}
    spoken = {trial.name: trial.real_time_factor for trial in trials if trial.measured is not None}
    for service, weights in ((LLM, model), (TOKEN2WAV, decoder_model or model)):
        factors = {
            name: factor
            for name, factor in spoken.items()
            if BY_NAME[name].on_gpu and BY_NAME[name].hosted in ("", service.name)
        }
        own = [factor for name, factor in factors.items() if not BY_NAME[name].hosted]
        others = {BY_NAME[name].backends[service.name]: factors[name] for name in factors if BY_NAME[name].hosted}
        if not own or not others:
            continue
        best = min(others, key=lambda engine: others[engine])
        preferred[service.name] = best if others[best] <= FASTER * min(own) else ""
        depends_on = facts(service, weights, _precision(service, environ))
        write(engine_directory(service.name, environ), depends_on, preferred[service.name], factors)
    return preferred


def _precision(service: NotedService, environ: Mapping[str, str]) -> str:
    """Precision of the exported estimator that was measured: from the environment of the user, else
    of the configuration.
    """
    return environ.get(PRECISION) or BY_NAME["trt+fp16"].environ[PRECISION] if service is TOKEN2WAV else ""
