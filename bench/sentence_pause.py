"""How much silence does a voice leave by itself between sentences? `python -m bench.sentence_pause`

Speaks sentences one by one through all services and measures the quiet before the first and behind
the last sound of each: 10 ms frames more than 40 dB under the loudest one.
"""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cosyserve.client import Client
from cosyserve.host.supervision.supervisor import running_stack
from cosyserve.spec import SAMPLE_RATE

SENTENCES = (
    "The train was late again.", "Nobody had told her.", "He counted to ten and opened the door.",
    "What did you expect?",
    "It rained for three days without a break.", "She laughed.", "We will meet at the station at noon.",
    "That is not what I said!",
    "The old house stood at the end of the road.", "Come in, sit down, and tell me everything.",
)  # fmt: skip
QUIET_DECIBEL = 40.0
FRAME_MILLISECONDS = 10


@dataclass(frozen=True)
class Quiet:
    """Milliseconds of one sentence."""

    before: float
    behind: float


def quiet(pcm: bytes) -> Quiet:
    """Of one sentence, s16le at 24 kHz, not all silent."""
    frame = SAMPLE_RATE * FRAME_MILLISECONDS // 1000
    samples = np.frombuffer(pcm, dtype="<i2").astype(np.float64)
    level = np.sqrt(np.mean(samples[: len(samples) // frame * frame].reshape(-1, frame) ** 2, axis=1))
    loud = np.flatnonzero(level > level.max() * 10 ** (-QUIET_DECIBEL / 20))
    return Quiet(FRAME_MILLISECONDS * float(loud[0]), FRAME_MILLISECONDS * float(len(level) - 1 - loud[-1]))


async def measure(model: Path, seeds: int) -> dict[str, list[Quiet]]:
    """By voice."""
    async with running_stack(model, environ={}) as stack, Client(stack.address) as client:
        found: dict[str, list[Quiet]] = {}
        for voice in await client.voices():
            for seed in range(seeds):
                for text in SENTENCES:
                    audio = await client.synthesize(text, voice=voice.id, seed=seed, onset="natural").read()
                    found.setdefault(voice.id, []).append(quiet(audio))
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    found = asyncio.run(measure(told.model, told.seeds))
    if told.json:
        print(json.dumps({voice: [asdict(one) for one in all_of_it] for voice, all_of_it in found.items()}))
        return 0
    print(f"milliseconds of quiet, {len(SENTENCES)} sentences x {told.seeds} seeds: median (10th to 90th percentile)")
    for voice, all_of_it in found.items():
        for name in ("before", "behind"):
            low, middle, high = np.percentile([getattr(one, name) for one in all_of_it], [10, 50, 90])
            print(f"{voice:12} {name:7} {middle:4.0f} ({low:.0f} to {high:.0f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
