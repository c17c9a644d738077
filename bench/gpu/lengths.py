"""What a long sentence costs compared with a short one, and who holds which memory: `python -m
bench.gpu.lengths --model DIR --json FILE`.

Sentences of 4, 10 and 30 s, one at a time, through both engines in this process: seconds for each
second of audio, bytes that a stream holds at its end. GPU memory of each engine is what is free
less once it is loaded, with its pools, graphs and share of the CUDA context.
"""

import argparse
import asyncio
import statistics
from pathlib import Path

import torch

from bench.gpu.parts import ENGINES
from bench.load.engines import Speaker, batcher, generated, random_tokens, sound_engine, speech_tokens, spoken
from bench.parts.part import ResultsFile

SECONDS = (4, 10, 30)
TEXT_IDS = 20
REPEATS = 3
STATE_BYTES, PROMPT_BYTES = 12 << 30, 2 << 30
MEGABYTE = 1_000_000


def free() -> int:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


async def measure(model: Path, engines: str, results: ResultsFile) -> None:
    """engines: as in `bench.gpu.parts`."""
    speaker = Speaker.first_of(model)
    before = torch.cuda.mem_get_info()[1]
    llm, token2wav = (ENGINES[engines][f"COSYSERVE_{service}_GPU_ENGINE"] for service in ("LLM", "TOKEN2WAV"))
    results["context_megabytes"] = (before - free()) / MEGABYTE
    before = free()
    async with speech_tokens(model, "cuda", llm, 64) as tokens:
        results["llm_megabytes"] = (before - free()) / MEGABYTE
        results["llm_pool_megabytes"] = (tokens.engine._scheduler.limits.kv_bytes or 0) / MEGABYTE
        held: list[int] = []
        speech = await generated(
            tokens,
            speaker.prompt,
            tuple(range(TEXT_IDS)),
            1,
            lambda: held.append(tokens.engine.stats.reserved_kv_bytes),
        )
        results["llm_stream"] = {"tokens": len(speech), "bytes": max(held)}
    torch.cuda.empty_cache()
    before = free()
    backend = await sound_engine(model, "cuda", token2wav, STATE_BYTES)
    results["token2wav_megabytes"] = (before - free()) / MEGABYTE
    results["token2wav_pool_megabytes"] = (STATE_BYTES + PROMPT_BYTES) / MEGABYTE if token2wav == "paged" else 0.0
    for seconds in SECONDS:
        ids = random_tokens(seconds, seed=seconds)
        async with batcher(backend, STATE_BYTES) as running:
            await spoken(running, speaker.voice, ids)
            walls = [(await spoken(running, speaker.voice, ids, seed)).wall for seed in range(REPEATS)]
            results[str(seconds)] = figures = {
                "milliseconds_per_second": 1000 * statistics.median(walls) / seconds,
                "state_megabytes": running.stats().peak_state_bytes / MEGABYTE,
            }
            print(f"{seconds} s: {figures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--engines", choices=sorted(ENGINES), default="fast")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(measure(options.model, options.engines, ResultsFile(options.json)))


if __name__ == "__main__":
    main()
