"""Does an hour of text stay flat? `python -m bench.text_soak`: one StreamingSynthesize of so much
text, resident memory of every process as the sound comes.

The engines are the fake ones, so the hour takes minutes: what is watched is the way of the text and
of the sound. The slope is a least-squares line over all samples after the first sixth. Flat: at
most 1 MB for ten minutes of sound.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from bench.load.command_line import command
from bench.load.flat_memory import Memory, look
from bench.load.stack import ALL_ADMITTED
from cosyserve.client import AsyncClient
from cosyserve.client.types import Mode, Summary
from cosyserve.errors import InternalFault
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_TOKEN

PAUSE_MILLISECONDS = 200
LOOK_SECONDS = 0.2
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
    """memory: its slopes for ten minutes of sound."""

    mode: str
    characters: int
    sentences: int
    audio_seconds: float
    seconds: float
    memory: Memory


async def soak(model: Path, characters: int, mode: Mode) -> SoakResult:
    """Speak a text of at least `characters` characters. Raises InternalFault when the sound is not
    as long as its tokens and pauses.
    """
    written, heard, looked = 0, 0, 0.0
    samples: dict[str, list[tuple[float, float]]] = {}

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
        client.streaming_synthesize(
            text(), mode=mode, seed=1, sentence_pause_milliseconds=PAUSE_MILLISECONDS
        ) as speech,
    ):
        began = time.monotonic()
        async for chunk in speech:
            heard += len(chunk.audio) // 2
            if time.monotonic() - looked > LOOK_SECONDS:
                looked = time.monotonic()
                look(stack, heard // SAMPLE_RATE, samples)
        seconds = time.monotonic() - began
        look(stack, heard // SAMPLE_RATE, samples)
        summary = cast("Summary", speech.summary)
    pauses = SAMPLE_RATE * PAUSE_MILLISECONDS // 1000 * (summary.sentences - 1)
    expected = SAMPLES_PER_TOKEN * summary.speech_tokens + pauses
    if heard != expected:
        raise InternalFault(f"{heard} samples came, the tokens and pauses are {expected}")
    warm = heard // SAMPLE_RATE / 6
    counted = {name: [point for point in points if point[0] >= warm] for name, points in samples.items()}
    return SoakResult(mode, written, summary.sentences, summary.audio_seconds, seconds, Memory.of(counted, 600))


def main() -> int:
    parser = command("bench.text_soak", __doc__)
    parser.add_argument("--characters", type=int, default=60_000, help="an hour of speech is about 55,000")
    parser.add_argument("--mode", choices=("sentences", "tokens", "both"), default="both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    flat = True
    for mode in ("sentences", "tokens") if options.mode == "both" else (options.mode,):
        result = asyncio.run(soak(options.model, options.characters, mode))
        flat = flat and result.memory.flat
        if options.json:
            print(json.dumps({**asdict(result), "flat": result.memory.flat}))
            continue
        print(
            f"{mode}: {result.characters} characters, {result.sentences} sentences, {result.audio_seconds / 60:.0f} "
            f"minutes of sound in {result.seconds:.0f} s"
        )
        print(result.memory.text("ten minutes"))
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
