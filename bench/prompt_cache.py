"""`python -m bench.prompt_cache [--model DIR] [--json]`: what the kept state behind a voice's
prompt saves before the first sound.

A sentence of two seconds is spoken through the batcher as a service would, its tokens all there at
once, one stream at a time; the prompt is 3, 10 or 30 s long. Cold: nothing is kept of its voice.
Warm: the voice has spoken before. Medians after a warm-up.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cosyserve.errors import ModelError, SettingsError
from cosyserve.spec import MEL_BINS, MEL_FRAMES_PER_TOKEN, SPEAKER_DIMENSION, SPEECH_VOCABULARY, TOKENS_PER_SECOND
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.stream import AcousticStream, warm_up

PROMPT_SECONDS = (3, 10, 30)
SENTENCE_SECONDS = 2
REPEATS = 5


@dataclass(frozen=True)
class Saving:
    """cold_seconds, warm_seconds: from the setup to the first piece of audio."""

    prompt_seconds: int
    cold_seconds: float
    warm_seconds: float
    cold_by_warm: float


async def measure(model: Path, threads: int) -> list[Saving]:
    """One row per length of the prompt."""
    backend = await asyncio.to_thread(
        load_backend, "torch", EngineSettings(model=model, threads=threads, prompt_cache_bytes=1 << 40)
    )
    batcher = Batcher(backend.decoders, Limits(max_streams=1, state_bytes=1 << 40))
    try:
        await warm_up(batcher)
        return [await _saving(batcher, seconds) for seconds in PROMPT_SECONDS]
    finally:
        await asyncio.to_thread(batcher.close)


async def _saving(batcher: Batcher, seconds: int) -> Saving:
    cold, warm = [], []
    for repeat in range(REPEATS):
        voice = _voice(seconds, f"{seconds} s, number {repeat}")
        cold.append(await _first_sound(batcher, voice))
        warm.append(await _first_sound(batcher, voice))
    slow, fast = statistics.median(cold), statistics.median(warm)
    return Saving(seconds, round(slow, 4), round(fast, 4), round(slow / fast, 2))


def _voice(seconds: int, key: str) -> Voice:
    # One second has 25 tokens; three more make the grid's last border inside the prompt known, as
    # in most real prompts.
    count, chance = seconds * TOKENS_PER_SECOND + 3, np.random.default_rng(seconds)
    mel = chance.normal(-5.0, 2.0, (MEL_FRAMES_PER_TOKEN * count, MEL_BINS)).astype(np.float32)
    return Voice(chance.integers(0, SPEECH_VOCABULARY, count), mel, np.ones(SPEAKER_DIMENSION, np.float32), key)


async def _first_sound(batcher: Batcher, voice: Voice) -> float:
    """Seconds until the first audio."""
    tokens = np.random.default_rng(0).integers(0, SPEECH_VOCABULARY, SENTENCE_SECONDS * TOKENS_PER_SECOND).tolist()
    began, first = time.perf_counter(), None
    async with AcousticStream(batcher, Sentence(voice)) as stream:
        await stream.feed(tokens)
        await stream.finish()
        async for piece in stream:
            if first is None and piece.audio:
                first = time.perf_counter() - began
    return time.perf_counter() - began if first is None else first


def render(savings: Sequence[Saving]) -> str:
    lines = [f"{'prompt s':>8}{'cold s':>10}{'warm s':>10}{'cold / warm':>13}"]
    lines += [
        f"{s.prompt_seconds:>8}{s.cold_seconds:>10.3f}{s.warm_seconds:>10.3f}{s.cold_by_warm:>13.1f}" for s in savings
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.prompt_cache", description="First sound with and without kept prompt state."
    )
    parser.add_argument(
        "--model", type=Path, default=Path("models/demo"), help="model directory (default: models/demo)"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of one operation (default 1)")
    parser.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    options = parser.parse_args(arguments)
    try:
        savings = asyncio.run(measure(options.model, options.threads))
    except (ModelError, SettingsError) as error:
        print(error, file=sys.stderr)
        return 3
    print(json.dumps([asdict(saving) for saving in savings], indent=1) if options.json else render(savings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
