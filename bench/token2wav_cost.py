"""What a second of sound costs in token2wav, by length and profile: `python -m bench.token2wav_cost
[--model DIR] [--json FILE]`; with --prompts, what the kept state behind a voice's prompt saves
before the first sound.

A sentence is spoken through the batcher as a service would, all its tokens at once, one stream at a
time; medians after a warm-up. By length: without a prompt; wall time of the whole stream and CPU
time of the process. With --prompts: a sentence of two seconds behind a prompt of 3, 10 or 30 s.
Cold: nothing is kept of its voice. Warm: the voice has spoken before.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.load.command_line import cost_command, show
from bench.load.engines import batcher, random_tokens, spoken
from cosyserve.spec import MEL_BINS, MEL_FRAMES_PER_TOKEN, SPEAKER_DIMENSION, SPEECH_VOCABULARY, TOKENS_PER_SECOND
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.inputs.request import Profile, Voice
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher

SECONDS, REPEATS = (4, 8, 16), 3
PROMPT_SECONDS, PROMPT_REPEATS, SENTENCE_SECONDS = (3, 10, 30), 5, 2
NO_LIMIT = 1 << 40


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


@dataclass(frozen=True)
class Saving:
    """cold_seconds, warm_seconds: from the first token fed to the first piece of audio."""

    prompt_seconds: int
    cold_seconds: float
    warm_seconds: float
    cold_by_warm: float


async def measure(options: argparse.Namespace) -> Sequence[Cost | Saving]:
    """One row for each profile and length, or for each length of the prompt."""
    settings = EngineSettings(model=options.model, threads=options.threads, prompt_cache_bytes=NO_LIMIT)
    backend = await asyncio.to_thread(load_backend, "torch", settings)
    async with batcher(backend, NO_LIMIT, most=1) as running:
        if options.prompts:
            return [await _saving(running, seconds) for seconds in PROMPT_SECONDS]
        return [await _cost(running, profile, seconds) for profile in Profile for seconds in SECONDS]


async def _cost(running: Batcher, profile: Profile, seconds: int) -> Cost:
    voice = Voice(np.zeros(0, np.int64), np.zeros((0, MEL_BINS), np.float32), np.ones(SPEAKER_DIMENSION, np.float32))
    await spoken(running, voice, random_tokens(1), profile=profile)
    runs = [await spoken(running, voice, random_tokens(seconds), profile=profile) for _ in range(REPEATS)]
    first, wall, cpu = (statistics.median(getattr(run, name) for run in runs) for name in ("first", "wall", "cpu"))
    return Cost(profile.name.lower(), seconds, round(wall, 4), round(wall / seconds, 4), round(cpu, 4), round(first, 4))


async def _saving(running: Batcher, seconds: int) -> Saving:
    cold, warm = list[float](), list[float]()
    for repeat in range(PROMPT_REPEATS):
        voice = _voice(seconds, f"{seconds} s, number {repeat}")
        for times in (cold, warm):
            times.append((await spoken(running, voice, random_tokens(SENTENCE_SECONDS))).first)
    slow, fast = statistics.median(cold), statistics.median(warm)
    return Saving(seconds, round(slow, 4), round(fast, 4), round(slow / fast, 2))


def _voice(seconds: int, key: str) -> Voice:
    # One second has 25 tokens; three more make the grid's last border inside the prompt known, as
    # in most real prompts.
    count, chance = seconds * TOKENS_PER_SECOND + 3, np.random.default_rng(seconds)
    mel = chance.normal(-5.0, 2.0, (MEL_FRAMES_PER_TOKEN * count, MEL_BINS)).astype(np.float32)
    return Voice(chance.integers(0, SPEECH_VOCABULARY, count), mel, np.ones(SPEAKER_DIMENSION, np.float32), key)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cost_command("bench.token2wav_cost", __doc__)
    parser.add_argument("--prompts", action="store_true", help="the first sound with and without kept prompt state")
    options = parser.parse_args(arguments)
    return show("bench.token2wav_cost", lambda: asyncio.run(measure(options)), options.json)


if __name__ == "__main__":
    sys.exit(main())
