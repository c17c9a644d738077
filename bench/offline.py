"""What do sentences cost in batches, without listeners? `python -m bench.offline [--model DIR]
[--engines fast|readable] [--json FILE]`

Whole sentences in batches: the speech-token model makes all tokens of a batch at once, then
token2wav the sound of the batch. Seconds are sums over all batches; the real-time factor is seconds
in all by seconds of audio. fast: graphs of our own kernels, token2wav in pages. readable: PyTorch,
token2wav whole sentences one by one under full attention. On a CPU both are what serves there.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.load.command_line import command
from bench.load.engines import Speaker, batcher, generated, sound_engine, speech_tokens, spoken, text_ids
from bench.load.stack import TEXTS
from bench.parts.part import ResultsFile
from bench.reports.tables import offline as table_of
from cosyserve.commands.terminal.arguments import numbers
from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.batcher import Batcher

STATE_BYTES = 16 << 30


async def sound(
    batcher: Batcher, speaker: Speaker, batches: Sequence[Sequence[list[int]]], profile: Profile
) -> tuple[float, float]:
    """Seconds that all batches took, and of audio."""
    began, audio = time.perf_counter(), 0.0
    for batch in batches:
        sentences = (spoken(batcher, speaker.voice, tokens, at, profile) for at, tokens in enumerate(batch))
        audio += sum(one.audio for one in await asyncio.gather(*sentences))
    return time.perf_counter() - began, audio


async def measure(options: argparse.Namespace, results: ResultsFile) -> None:
    """One row for each batch; the speech tokens of all first, so that each engine has the device to
    itself.
    """
    fast = options.engines == "fast"
    speaker = Speaker.first_of(options.model)
    texts = text_ids(options.model, TEXTS)
    counts = {batch: max(batch, options.sentences) for batch in options.batches}
    tokens_by_batch: dict[int, tuple[float, list[list[list[int]]]]] = {}
    async with speech_tokens(
        options.model, options.device, "fused" if fast else "readable", max(options.batches)
    ) as backend:
        for batch, count in counts.items():
            print(f"{options.engines}: speech tokens of {count} sentences in batches of {batch}", file=sys.stderr)
            began, batches = time.perf_counter(), []
            for first in range(0, count, batch):
                numbers = range(first, min(first + batch, count))
                batches.append(
                    list(
                        await asyncio.gather(
                            *(generated(backend, speaker.prompt, texts[at % len(texts)], at) for at in numbers)
                        )
                    )
                )
            tokens_by_batch[batch] = time.perf_counter() - began, batches
    profile = Profile.CONTINUOUS if fast else Profile.OFFLINE
    engine = await sound_engine(options.model, options.device, "paged" if fast else "readable", STATE_BYTES)
    async with batcher(engine, STATE_BYTES) as running:
        await sound(running, speaker, tokens_by_batch[options.batches[0]][1][:1], profile)
        for batch, (llm, batches) in tokens_by_batch.items():
            print(f"{options.engines}: sound of {counts[batch]} sentences in batches of {batch}", file=sys.stderr)
            spent, audio = await sound(running, speaker, batches, profile)
            results[str(batch)] = {
                "engines": options.engines, "batch": batch, "sentences": counts[batch], "audio": audio, "llm": llm,
                "token2wav": spent,
            }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = command("bench.offline", __doc__)
    parser.add_argument("--device", default="cpu", help="(default: %(default)s)")
    parser.add_argument(
        "--engines", choices=("fast", "readable"), default="readable", help="on a GPU (default: %(default)s)"
    )
    parser.add_argument(
        "--batches",
        type=numbers(1, 4096),
        default=(1, 2, 4, 8, 16),
        help="(default: 1,2,4,8,16)",
    )
    parser.add_argument(
        "--sentences", type=int, default=16, help="for each batch, or the batch if that is more (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go, each as soon as it is known")
    options = parser.parse_args(arguments)
    results = ResultsFile(options.json)
    asyncio.run(measure(options, results))
    print("\n".join(table_of(results.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
