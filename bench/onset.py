"""What does a trimmed onset gain, and what does it cost? `python -m bench.onset [--runs N] [--model
DIR]`

Each sentence is spoken with either onset, in turn, through all services. Printed for each voice:
medians of the time to the first byte and to the first sample above -40 dBFS at a player that starts
with the first byte; the silence that was removed; and how often and how much audio is withheld at a
message's end because it may be the end of the utterance (its quiet samples behind the first 100
ms), computed from the messages of the natural onset.
"""

import argparse
import asyncio
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np

from bench.sentence_pause import SENTENCES
from cosyserve.audio.levels import ONSET_DBFS, samples_above
from cosyserve.client import Client
from cosyserve.client.types import Onset
from cosyserve.host.supervision.supervisor import running_stack
from cosyserve.spec import SAMPLE_RATE

_TAIL_SECONDS = 0.1


@dataclass
class Found:
    """Milliseconds of one voice and onset. withheld: at the end of each message but the last."""

    first_byte: list[float] = field(default_factory=list)
    audible: list[float] = field(default_factory=list)
    removed_start: list[float] = field(default_factory=list)
    removed_end: list[float] = field(default_factory=list)
    withheld: list[float] = field(default_factory=list)


async def speak(client: Client, text: str, voice: str, seed: int, onset: Onset, found: Found) -> None:
    """One sentence; adds its figures to `found`."""
    speech = client.synthesize(text, voice=voice, seed=seed, onset=onset)
    heard, withheld = b"", list[float]()
    async for chunk in speech:
        heard += chunk.audio
        withheld.append(_withheld(heard))
    if speech.summary is None or speech.first_byte_seconds is None or speech.first_audible_seconds is None:
        raise RuntimeError("a sentence was spoken without an audible sample")
    found.withheld += withheld[:-1]
    found.first_byte.append(1000 * speech.first_byte_seconds)
    found.audible.append(1000 * speech.first_audible_seconds)
    found.removed_start.append(speech.summary.removed_start_milliseconds)
    found.removed_end.append(speech.summary.removed_end_milliseconds)


def _withheld(heard: bytes) -> float:
    samples = np.frombuffer(heard, "<i2")
    above = samples_above(samples, ONSET_DBFS)
    quiet = samples.size - 1 - int(above[-1]) if above.size else 0
    return 1000 * max(0.0, quiet / SAMPLE_RATE - _TAIL_SECONDS)


async def measure(model: Path, runs: int) -> dict[tuple[str, Onset], Found]:
    """By voice and onset. The first sentence of each voice is spoken once before and not
    counted.
    """
    found: dict[tuple[str, Onset], Found] = {}
    async with running_stack(model, environ={}) as stack, Client(stack.address) as client:
        for voice in await client.voices():
            await client.synthesize(SENTENCES[0], voice=voice.id, seed=0).read()
            for seed in range(runs):
                for text in SENTENCES:
                    for onset in get_args(Onset):
                        await speak(client, text, voice.id, seed, onset, found.setdefault((voice.id, onset), Found()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--runs", type=int, default=2, help="seeds of each sentence (default: %(default)s)")
    told = parser.parse_args()
    found = asyncio.run(measure(told.model, told.runs))
    print(f"{len(SENTENCES)} sentences x {told.runs} seeds; medians in ms")
    print(f"{'voice':12} {'onset':8} {'first byte':>11} {'audible':>8} {'removed: start':>15} {'end':>5}")
    for (voice, onset), one in found.items():
        figures = [
            statistics.median(each) for each in (one.first_byte, one.audible, one.removed_start, one.removed_end)
        ]
        print(f"{voice:12} {onset:8} {figures[0]:11.0f} {figures[1]:8.0f} {figures[2]:15.0f} {figures[3]:5.0f}")
    for (voice, onset), one in found.items():
        if onset == "natural":
            some = [each for each in one.withheld if each > 0]
            print(
                f"{voice:12} withheld behind {len(some)} of {len(one.withheld)} messages, at most "
                f"{max(one.withheld, default=0.0):.0f} ms"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
