"""Does an hour of text stay flat? `python -m bench.text_soak`: one StreamingSynthesize of so much
text, resident memory of every process as the sound comes.

The engines are the fake ones, so the hour takes minutes: what is watched is the way of the text and
of the sound. The slope is a least-squares line over all samples after the first sixth. Flat: at
most 1 MB for ten minutes of sound.
"""

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from bench.load.flat_memory import sample, slopes_by_hundred
from bench.load.stack import ALL_ADMITTED
from cosyserve.client import AsyncClient
from cosyserve.client.types import Mode, Summary
from cosyserve.errors import InternalFault
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.spec import SAMPLE_RATE

FLAT_MEGABYTES = 1.0
SENTENCES = (
    "The train was late again, and nobody had told her. ", "He counted to ten, opened the door and went in. ",
    "What did you expect? ",
    "It rained for three days without a break, from May 1st to May 3rd. ",
    "We will meet at the station at noon, as always. ",
)  # fmt: skip
FRAGMENT = 11
"""Characters: half words, as a language model's tokens."""


@dataclass(frozen=True)
class SoakResult:
    """slopes: MB per ten minutes of sound, by process; megabytes: resident at the first and the
    last sample that counts.
    """

    mode: str
    characters: int
    sentences: int
    audio_seconds: float
    seconds: float
    slopes: dict[str, float]
    megabytes: dict[str, tuple[float, float]]

    @property
    def flat(self) -> bool:
        return all(slope <= FLAT_MEGABYTES for slope in self.slopes.values())


async def soak(model: Path, characters: int, mode: Mode) -> SoakResult:
    """Speak a text of at least `characters` characters. Raises InternalFault when the sound is not
    as long as its tokens and pauses.
    """
    samples: dict[str, list[tuple[float, float]]] = {}
    written = 0

    async def text() -> AsyncIterator[str]:
        nonlocal written
        whole = itertools.chain.from_iterable(itertools.cycle(SENTENCES))
        while written < characters:
            fragment = "".join(itertools.islice(whole, FRAGMENT))
            written += len(fragment)
            yield fragment

    async with (
        local_deployment(model, backend="fake", environ=ALL_ADMITTED) as stack,
        AsyncClient(stack.address) as client,
    ):
        began = time.monotonic()
        heard, looked = 0, 0.0
        async with client.streaming_synthesize(text(), mode=mode, seed=1, sentence_pause_milliseconds=200) as speech:
            async for chunk in speech:
                heard += len(chunk.audio) // 2
                if time.monotonic() - looked > 0.2:
                    looked = time.monotonic()
                    sample(stack, heard // SAMPLE_RATE, samples)
        seconds = time.monotonic() - began
        sample(stack, heard // SAMPLE_RATE, samples)
        summary = cast("Summary", speech.summary)
    expected = 960 * summary.speech_tokens + 4_800 * (summary.sentences - 1)
    if heard != expected:
        raise InternalFault(f"{heard} samples came, the tokens and pauses are {expected}")
    counted = {
        name: [point for point in points if point[0] >= heard // SAMPLE_RATE / 6] for name, points in samples.items()
    }
    return SoakResult(
        mode,
        written,
        summary.sentences,
        summary.audio_seconds,
        seconds,
        {name: slope * 6 for name, slope in slopes_by_hundred(counted).items()},
        {name: (points[0][1], points[-1][1]) for name, points in counted.items()},
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--characters", type=int, default=60_000, help="an hour of speech is about 55,000")
    parser.add_argument("--mode", choices=("sentences", "tokens", "both"), default="both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    flat = True
    for mode in ("sentences", "tokens") if options.mode == "both" else (options.mode,):
        result = asyncio.run(soak(options.model, options.characters, mode))
        flat = flat and result.flat
        if options.json:
            print(json.dumps({**asdict(result), "flat": result.flat}))
            continue
        print(
            f"{mode}: {result.characters} characters, {result.sentences} sentences, {result.audio_seconds / 60:.0f} "
            "minutes of sound "
            f"in {result.seconds:.0f} s"
        )
        for name, slope in result.slopes.items():
            first, last = result.megabytes[name]
            print(f"{name:16} {first:7.1f} MB -> {last:7.1f} MB   {slope:+.3f} MB per ten minutes")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
