"""What a second of sound costs in token2wav, by length and profile: `python -m bench.token2wav_cost
[--model DIR] [--json FILE]`; with --prompts, what the kept state behind a voice's prompt saves
before the first sound; with --parts, the processor time of flow and vocoder.

A sentence is spoken through the batcher as a service would, all its tokens at once, one stream at a
time; medians after a warm-up. By length: without a prompt; wall time of the whole stream and CPU
time of the process. With --prompts: a sentence of two seconds behind a prompt of 3, 10 or 30 s.
Cold: nothing is kept of its voice. Warm: the voice has spoken before.

With --parts a sentence behind a prompt of 61 tokens goes block by block through flow and vocoder,
one after the other; the state behind the prompt is kept. Processor time, not wall time, and the
least of all repeats: where the machine does other work too, two states of the code can be compared
by running them in turns.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bench.load.command_line import cost_command, show
from bench.load.engines import batcher, random_tokens, spoken
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import (
    CHUNK_TOKENS,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    MEL_FRAMES_PER_TOKEN,
    SAMPLE_RATE,
    SPEAKER_DIMENSION,
    SPEECH_VOCABULARY,
    TOKENS_PER_SECOND,
)
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.flow_state import FlowState
from services.token2wav.flow.loading import load_flow
from services.token2wav.inputs.request import Profile, Voice
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.state import window_frames
from services.token2wav.vocoder.vocoder import Vocoder

SECONDS, REPEATS = (4, 8, 16), 3
PROMPT_SECONDS, PROMPT_REPEATS, SENTENCE_SECONDS = (3, 10, 30), 5, 2
PARTS_SECONDS, PARTS_REPEATS, PARTS_PROMPT_TOKENS = 6.8, 5, 61
NO_LIMIT = 1 << 40
CPU = torch.device("cpu")


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


@dataclass(frozen=True)
class PartCost:
    """Milliseconds of processor time. first_milliseconds: of the first hop, 14 tokens.
    milliseconds_per_second: of a second of sound.
    """

    part: str
    first_milliseconds: float
    milliseconds_per_second: float


async def measure(options: argparse.Namespace) -> Sequence[Cost | Saving | PartCost]:
    """One row for each profile and length, for each length of the prompt, or for each part. Raises
    ModelError.
    """
    if options.parts:
        return part_costs(options.model, options.threads)
    settings = EngineSettings(model=options.model, threads=options.threads, prompt_cache_bytes=NO_LIMIT)
    async with batcher(await asyncio.to_thread(load_backend, "torch", settings), NO_LIMIT, most=1) as running:
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


def part_costs(model: Path, threads: int) -> list[PartCost]:
    """One row for each part and one for both. Raises ModelError."""
    torch.set_num_threads(threads)
    directory = ModelDirectory(model)
    flow, vocoder = load_flow(directory, CPU), load_vocoder(directory, CPU)
    random = np.random.default_rng(0)
    tokens = torch.from_numpy(
        random.integers(0, SPEECH_VOCABULARY, PARTS_PROMPT_TOKENS + int(PARTS_SECONDS * TOKENS_PER_SECOND))
    )
    prompt = VoicePrompt(
        tokens[:PARTS_PROMPT_TOKENS],
        torch.from_numpy(
            random.normal(-5, 2, (MEL_FRAMES_PER_TOKEN * PARTS_PROMPT_TOKENS, MEL_BINS)).astype(np.float32)
        ),
        torch.from_numpy(random.normal(size=SPEAKER_DIMENSION).astype(np.float32)),
    )
    prompt_state = flow.start(prompt)
    for _ in range(PARTS_PROMPT_TOKENS // CHUNK_TOKENS):
        _block(flow, prompt_state, tokens)
    spent = np.array([_blocks(flow, vocoder, prompt_state, tokens) for _ in range(PARTS_REPEATS + 1)][1:])
    blocks = np.concatenate([spent, spent.sum(axis=2, keepdims=True)], axis=2)
    first, whole = blocks[:, 0].min(axis=0), blocks.sum(axis=1).min(axis=0)
    audio = (len(tokens) - PARTS_PROMPT_TOKENS) / TOKENS_PER_SECOND
    return [
        PartCost(part, round(1000 * at_first, 1), round(1000 * all_in_all / audio, 1))
        for part, at_first, all_in_all in zip(("flow", "vocoder", "together"), first, whole, strict=True)
    ]


def _blocks(flow: Flow, vocoder: Vocoder, prompt_state: FlowState, tokens: torch.Tensor) -> list[tuple[float, float]]:
    """Seconds of processor time in flow and vocoder of each block."""
    state, skip, costs = flow.fork(prompt_state), MEL_FRAMES_PER_TOKEN * (PARTS_PROMPT_TOKENS % CHUNK_TOKENS), []
    sound = vocoder.start(0, 0, MEL_FRAMES_PER_TOKEN * (-PARTS_PROMPT_TOKENS % CHUNK_TOKENS), window_frames(1.0))
    samples = 0
    while state.position < len(tokens):
        began = time.process_time()
        mel = _block(flow, state, tokens)
        middle = time.process_time()
        (rendered,) = vocoder.step([sound], [mel[:, skip:]], [state.position == len(tokens)])
        costs.append((middle - began, time.process_time() - middle))
        samples, skip = samples + (0 if rendered is None else len(rendered)), 0
    if samples != SAMPLE_RATE * (len(tokens) - PARTS_PROMPT_TOKENS) // TOKENS_PER_SECOND:
        raise RuntimeError(f"{samples} samples were made")
    return costs


def _block(flow: Flow, state: FlowState, tokens: torch.Tensor) -> torch.Tensor:
    end = min(state.position + CHUNK_TOKENS, len(tokens))
    (mel,) = flow.blocks([state], [tokens[state.position : end]], [tokens[end : end + LOOKAHEAD_TOKENS]])
    if mel is None:
        raise RuntimeError("the flow made nothing")
    return mel


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cost_command("bench.token2wav_cost", __doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prompts", action="store_true", help="the first sound with and without kept prompt state")
    what.add_argument("--parts", action="store_true", help="processor time of flow and vocoder, block by block")
    options = parser.parse_args(arguments)
    return show("bench.token2wav_cost", lambda: asyncio.run(measure(options)), options.json)


if __name__ == "__main__":
    sys.exit(main())
