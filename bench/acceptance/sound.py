"""`python -m bench.acceptance.sound MODEL --configuration NAME --json FILE
[--token2wav-model DIR]`: does the token2wav engine of a configuration make the sound that the
readable one makes of the same speech tokens?

The speech-token model, readable, speaks each text once. Both engines make sound of its tokens,
which is compared by the logarithms of its short-time spectra: engines of half precision round the
pitch otherwise, and a phase that has moved says nothing about what is heard.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.acceptance.speech import options, plan_of
from bench.load.command_line import user_errors
from bench.load.engines import Speaker, batcher, generated, speech_tokens, text_ids
from bench.load.stack import TEXTS
from bench.parts.part import write
from cosyserve.audio.encoding import from_pcm
from cosyserve.host.starting.plan import Plan
from cosyserve.settings import load
from services.token2wav.__main__ import PREFIX, Token2WavSettings
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.loading import load_chosen
from services.token2wav.stream import AcousticStream

STATE_BYTES = 1 << 30
WINDOW, HOP = 1024, 256
QUIETEST = 1e-3
"""Share of the loudest value below which a value of a spectrum counts as this: -60 dB."""


def settings_of(plan: Plan, model: Path) -> Token2WavSettings:
    """As the service has them with this plan. Strict: an engine that is missing is not replaced by
    the readable one.
    """
    given = {"LISTEN": "127.0.0.1:0", "MODEL": str(model), "STATE_BYTES": str(STATE_BYTES), "STRICT": "true"}
    chosen = {f"{PREFIX}{name}": value for name, value in (given | {"BACKEND": plan.backends["token2wav"]}).items()}
    return load(Token2WavSettings, PREFIX, {**os.environ, **plan.environ, **chosen})


async def tokens_of(model: Path, count: int) -> list[list[int]]:
    """Speech tokens of `count` texts, by the readable speech-token model on the CPU."""
    speaker, texts = Speaker.first_of(model), text_ids(model, TEXTS[:count])
    async with speech_tokens(model, "cpu", "readable", 1) as backend:
        return [await generated(backend, speaker.prompt, ids, seed) for seed, ids in enumerate(texts)]


async def sounds_of(
    settings: EngineSettings, backend: str, voice: Voice, sentences: Sequence[Sequence[int]]
) -> list[NDArray[np.float32]]:
    """The samples of each sentence, one after the other."""
    engine = (await asyncio.to_thread(load_chosen, backend, settings, strict=True)).engine
    sounds = []
    try:
        async with batcher(engine, STATE_BYTES, 1) as running:
            for seed, tokens in enumerate(sentences):
                async with AcousticStream(running, Sentence(voice, seed=seed)) as stream:
                    await stream.feed(list(tokens))
                    await stream.finish()
                    audio = b"".join([piece.audio async for piece in stream])
                sounds.append(from_pcm(audio))
    finally:
        engine.release()
    return sounds


def decibels(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Mean difference of the spectra of two sounds, up to the end of the shorter one."""
    count = min(len(one), len(other))
    first, second = _spectrum(one[:count]), _spectrum(other[:count])
    floor = QUIETEST * max(float(first.max(initial=0.0)), 1e-9)
    levels = [20 * np.log10(np.maximum(spectrum, floor)) for spectrum in (first, second)]
    return float(np.mean(np.abs(levels[0] - levels[1])))


def _spectrum(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """Magnitudes [frames, WINDOW / 2 + 1]."""
    padded = np.pad(samples.astype(np.float64), (0, max(0, WINDOW - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    magnitudes: NDArray[np.float64] = np.abs(np.fft.rfft(frames * np.hanning(WINDOW), axis=1))
    return magnitudes


async def compare(model: Path, settings: Token2WavSettings, count: int) -> list[dict[str, float]]:
    """Of each sentence, what the engine of these settings and the readable one differ by."""
    voice, sentences = Speaker.first_of(model).voice, await tokens_of(model, count)
    readable = replace(settings, backend="torch", gpu_engine="readable", gpu_vocoder="readable")
    ours, theirs = [await sounds_of(chosen, chosen.backend, voice, sentences) for chosen in (readable, settings)]
    return [
        {"decibels": decibels(one, other), "duration": abs(len(one) - len(other)) / len(one)}
        for one, other in zip(ours, theirs, strict=True)
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = options("bench.acceptance.sound", __doc__)
    parser.add_argument("--sentences", type=int, default=3, metavar="N", help="(default: %(default)s)")
    given = parser.parse_args(arguments)
    with user_errors("bench.acceptance.sound"):
        settings = settings_of(plan_of(given), given.model)
        found = asyncio.run(compare(given.model, settings, given.sentences))
    for one in found:
        print(f"spectra differ by {one['decibels']:.3f} dB, lengths by {one['duration']:.2%}")
    write(given.json, {"sentences": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
