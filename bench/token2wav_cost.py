"""`python -m bench.token2wav_cost [--model DIR] [--json]`: what a second of sound costs in
token2wav, by length and profile.

A sentence is spoken through the batcher as a service would, all its tokens at once, no prompt, one
stream at a time. Wall time of the whole stream and CPU time of the process, medians of three after
a warm-up.
"""

import argparse
import asyncio
import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cosyserve.errors import ModelError, SettingsError
from cosyserve.spec import MEL_BINS, SPEAKER_DIMENSION, SPEECH_VOCABULARY, TOKENS_PER_SECOND
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.inputs.request import Profile, Sentence, Voice
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.stream import AcousticStream, warm_up

SECONDS = (4, 8, 16)
REPEATS = 3


@dataclass(frozen=True)
class Cost:
    """cpu_seconds: of all threads. first_sound_seconds: from the first token fed to the first piece
    of audio.
    """

    profile: str
    audio_seconds: int
    wall_seconds: float
    wall_per_audio_second: float
    cpu_seconds: float
    first_sound_seconds: float


async def measure(model: Path, threads: int) -> list[Cost]:
    """One row per profile and length."""
    backend = await asyncio.to_thread(load_backend, "torch", EngineSettings(model=model, threads=threads))
    batcher = Batcher(backend.decoders, Limits(max_streams=1, state_bytes=1 << 40))
    try:
        await warm_up(batcher)
        return [await _cost(batcher, profile, seconds) for profile in Profile for seconds in SECONDS]
    finally:
        await asyncio.to_thread(batcher.close)


async def _cost(batcher: Batcher, profile: Profile, seconds: int) -> Cost:
    await _speak(batcher, profile, 1)
    runs = [await _speak(batcher, profile, seconds) for _ in range(REPEATS)]
    first, wall, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
    return Cost(profile.name.lower(), seconds, round(wall, 4), round(wall / seconds, 4), round(cpu, 4), round(first, 4))


async def _speak(batcher: Batcher, profile: Profile, seconds: int) -> tuple[float, float, float]:
    """Seconds until the first audio, until the end, and of CPU."""
    voice = Voice(np.zeros(0, np.int64), np.zeros((0, MEL_BINS), np.float32), np.ones(SPEAKER_DIMENSION, np.float32))
    tokens = np.random.default_rng(0).integers(0, SPEECH_VOCABULARY, seconds * TOKENS_PER_SECOND).tolist()
    first = None
    async with AcousticStream(batcher, Sentence(voice, profile=profile)) as stream:
        began, cpu = time.perf_counter(), time.process_time()
        await stream.feed(tokens)
        await stream.finish()
        async for piece in stream:
            if first is None and piece.audio:
                first = time.perf_counter() - began
    whole = time.perf_counter() - began
    return whole if first is None else first, whole, time.process_time() - cpu


def render(costs: Sequence[Cost]) -> str:
    lines = [f"{'profile':<12}{'audio s':>8}{'wall s':>10}{'wall s / audio s':>18}{'CPU s':>9}{'first sound s':>15}"]
    lines += [
        f"{c.profile:<12}{c.audio_seconds:>8}{c.wall_seconds:>10.3f}{c.wall_per_audio_second:>18.4f}{c.cpu_seconds:>9.2f}{c.first_sound_seconds:>15.3f}"
        for c in costs
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.token2wav_cost", description="Wall time of token2wav per second of sound."
    )
    parser.add_argument(
        "--model", type=Path, default=Path("models/demo"), help="model directory (default: models/demo)"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of one operation (default 1)")
    parser.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    options = parser.parse_args(arguments)
    try:
        costs = asyncio.run(measure(options.model, options.threads))
    except (ModelError, SettingsError) as error:
        print(error, file=sys.stderr)
        return 3
    if options.json:
        print(
            json.dumps(
                {
                    "model": str(options.model),
                    "machine": platform.processor(),
                    "costs": [asdict(cost) for cost in costs],
                },
                indent=1,
            )
        )
    else:
        print(render(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
