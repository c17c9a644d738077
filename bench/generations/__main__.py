"""CosyVoice3 beside CosyVoice2, both of the bundled size and with random weights, in one run on the
CPU: `python -m bench.generations [--json FILE] [--repeats N]`.

The two take turns, so that what else the machine does is in both. Each speaks sentences of 100
tokens (4 s) behind the prompt of a voice that it has spoken before: the speech-token model and
token2wav in one process, without services and network. Medians. first_seconds: from the request to
the first audio, with the time for which token2wav holds a first piece (docs/streaming.md).
real_time_factor: wall time by seconds of audio. The sizes: `bench.generations.sizes`.
"""

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.generations.random_models import write_bundled_cosyvoice2, write_cosyvoice3
from bench.generations.speech import Talker, Utterance, talker
from bench.load.command_line import cost_command, show
from bench.token2wav_cost import PartCost, part_costs
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3


@dataclass(frozen=True)
class Cost:
    """prompt_tokens: that token2wav receives. first_tokens: generated before its first hop.
    token_milliseconds: of the speech-token model alone. flow_, vocoder_milliseconds: of processor
    time for a second of sound.
    """

    generation: str
    prompt_tokens: int
    first_tokens: int
    first_seconds: float
    real_time_factor: float
    cpu_per_audio_second: float
    token_milliseconds: float
    flow_milliseconds: float
    vocoder_milliseconds: float


async def measure(models: dict[str, Path], threads: int, repeats: int) -> list[Cost]:
    """One row for each model."""
    runs: dict[str, list[tuple[Utterance, float]]] = {name: [] for name in models}
    parts = {name: part_costs(model, threads) for name, model in models.items()}
    first, second = models
    async with talker(models[first], threads) as one, talker(models[second], threads) as other:
        talkers = {first: one, second: other}
        for seed in range(repeats + 1):
            for name, each in talkers.items():
                run = await each.speak(seed), await each.token_seconds(seed)
                if seed:
                    runs[name].append(run)
        return [_cost(name, talkers[name], runs[name], parts[name]) for name in models]


def _cost(name: str, speaker: Talker, runs: Sequence[tuple[Utterance, float]], parts: Sequence[PartCost]) -> Cost:
    spoken = [run for run, _ in runs]
    by_part = {part.part: part.milliseconds_per_second for part in parts}
    return Cost(
        name,
        speaker.prompt_tokens,
        speaker.first_tokens,
        round(statistics.median(run.first for run in spoken), 3),
        round(statistics.median(run.wall / run.audio for run in spoken), 3),
        round(statistics.median(run.cpu / run.audio for run in spoken), 3),
        round(1000 * statistics.median(seconds for _, seconds in runs), 2),
        by_part["flow"],
        by_part["vocoder"],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cost_command("bench.generations", __doc__, model=False)
    parser.add_argument("--repeats", type=int, default=7, help="sentences of each that count (default: %(default)s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        models = {name: Path(folder) / name for name in (COSYVOICE2.name, COSYVOICE3.name)}

        def costs() -> list[Cost]:
            write_bundled_cosyvoice2(models[COSYVOICE2.name], ends=False)
            write_cosyvoice3(models[COSYVOICE3.name], "bundled", ends=False)
            return asyncio.run(measure(models, options.threads, options.repeats))

        return show("bench.generations", costs, options.json)


if __name__ == "__main__":
    sys.exit(main())
