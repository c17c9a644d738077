"""How much sooner does sound begin when text is spoken as it is written? `python -m
bench.text_stream`

A text is written at the pace of a language model, 20 tokens of four characters a second. Three
listeners, in turn, in one run: one waits for the whole text and calls Synthesize, two write it into
StreamingSynthesize as it comes, by sentence and by token. The first byte and the first audible
sample (above -40 dBFS) count from the first token. Stalls: how long a player that starts with the
first byte would have to wait for more, all in all.
"""

import argparse
import asyncio
import json
import platform
import statistics
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

from bench.load.player import Heard, listen
from cosyserve.client import Client
from cosyserve.client.types import Mode
from cosyserve.host.supervision.supervisor import running_stack

TEXT = (
    "Thank you for calling, and sorry that you had to wait. I have looked at your order, and it left our house on "
    "Monday. "
    "It should be with you by the end of this week, unless the snow in the north holds it up. "
    "If it is not there on Friday, please call again and we will send you another one at once. "
    "Is there anything else that I can do for you today?"
)
CHARACTERS_PER_TOKEN = 4
WAYS: tuple[str, ...] = ("whole text", "sentences", "tokens")


async def written(text: str, tokens_per_second: float) -> AsyncIterator[str]:
    """Tokens, each at its time."""
    begin = time.monotonic()
    for number, place in enumerate(range(0, len(text), CHARACTERS_PER_TOKEN)):
        await asyncio.sleep(begin + number / tokens_per_second - time.monotonic())
        yield text[place : place + CHARACTERS_PER_TOKEN]


async def speak(client: Client, way: str, seed: int, tokens_per_second: float) -> Heard:
    begin = time.monotonic()
    if way == "whole text":
        text = "".join([token async for token in written(TEXT, tokens_per_second)])
        return await listen(client.synthesize(text, seed=seed), begin)
    mode: Mode = "tokens" if way == "tokens" else "sentences"
    return await listen(client.streaming_synthesize(written(TEXT, tokens_per_second), mode=mode, seed=seed), begin)


async def measure(model: Path, runs: int, tokens_per_second: float) -> dict[str, list[Heard]]:
    """By way. One run of each goes before and is not counted."""
    found: dict[str, list[Heard]] = {way: [] for way in WAYS}
    async with running_stack(model, environ={}) as stack, Client(stack.address) as client:
        for seed in range(-1, runs):
            for way in WAYS:
                heard = await speak(client, way, max(seed, 0), tokens_per_second)
                if seed >= 0:
                    found[way].append(heard)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--tokens-per-second", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    found = asyncio.run(measure(told.model, told.runs, told.tokens_per_second))
    if told.json:
        print(json.dumps({way: [asdict(heard) for heard in all_of_it] for way, all_of_it in found.items()}))
        return 0
    tokens = -(-len(TEXT) // CHARACTERS_PER_TOKEN)
    print(
        f"{len(TEXT)} characters, {tokens} tokens in {tokens / told.tokens_per_second:.1f} s; {told.runs} runs; "
        f"{platform.machine()}"
    )
    wholly = statistics.median(heard.first_sound for heard in found[WAYS[0]])
    print("way           first byte (median, worst)   of waiting   audible (median, worst)   stalls (median, worst)")
    for way, all_of_it in found.items():
        first = [heard.first_sound for heard in all_of_it]
        audible = [heard.first_audible for heard in all_of_it if heard.first_audible is not None]
        stalls = [heard.stalls for heard in all_of_it]
        print(
            f"{way:12} {statistics.median(first):8.2f} s  {max(first):8.2f} s   "
            f"{statistics.median(first) / wholly:10.2f}   "
            f"{statistics.median(audible):8.2f} s  {max(audible):8.2f} s   "
            f"{statistics.median(stalls):8.2f} s  {max(stalls):8.2f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
