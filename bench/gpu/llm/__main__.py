"""The speech-token engine on a GPU, against what the memory's bandwidth allows: `python -m
bench.gpu.llm [--part PART] [--json FILE]`.

Weights are random and of the published sizes. Parts: ceilings (copy, read, matrix product), steps
(the graphs of a decode step and of a chunk of prompts, alone), one-launch (a step of one row as one
launch against that of many: time, logits, repetition), engine (milliseconds a step at 1 to
128 sentences, time to the first token), same (fused steps against the readable path, many sentences
against each alone, text that arrives, a poisoned sentence). Every part takes less than a minute
once its kernels are compiled, which is kept on disk.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.gpu import kernels
from bench.gpu.llm.checks import same
from bench.gpu.llm.decode_steps import cache_bytes, steps
from bench.gpu.llm.one_launch import one_launch
from bench.gpu.llm.random_sentences import PROMPT_SPEECH, PROMPT_TEXT, TEXT_IDS, engine_of, random_model, speak
from bench.gpu.timing import ceilings
from bench.parts.part import ResultsFile
from services.llm.gpu.packing import pack

FIRST_SOUND_TOKENS = 16
"""For its first 120 ms a voice of 87 prompt tokens needs 13 tokens and 3 to look ahead."""
PARTS = ("ceilings", "steps", "one-launch", "engine", "same")


def speed(bandwidth: float, keep: Callable[[Any], None]) -> dict[str, list[dict[str, float]]]:
    """Steps and first tokens at 1 to 128 sentences. bandwidth: bytes a second. keep: is called with
    what is known after each measurement.
    """
    model = random_model(ends=False)
    started = time.perf_counter()
    engine = engine_of(model, 128, torch.bfloat16)
    print(f"engine with all buckets captured in {time.perf_counter() - started:.1f} s")
    packed = pack(model, torch.bfloat16, 1, torch.device("meta"))  # its sizes
    del model
    torch.cuda.empty_cache()
    gc.collect()
    gc.freeze()  # as a service does when it is loaded
    rows = []
    speak(engine, range(4))
    for count in (1, 2, 4, 8, 16, 32, 64, 128):
        heard = speak(engine, range(count))
        whole = [b - a for one in heard for a, b in zip(one.times[150:350], one.times[151:351], strict=True)]
        positions = PROMPT_TEXT + PROMPT_SPEECH + TEXT_IDS + 250
        floor = (packed.step_bytes + cache_bytes(packed, count, positions)) / bandwidth
        begun = time.perf_counter()
        first = speak(engine, range(count), text_ids=1)
        row = {
            "sentences": count,
            "step_ms": 1e3 * statistics.median(whole),
            "step_p99_ms": 1e3 * sorted(whole)[int(0.99 * len(whole))],
            "floor_ms": 1e3 * floor,
            "share_of_floor": floor / statistics.median(whole),
            "first_token_ms": 1e3 * statistics.median(one.times[0] - begun for one in first),
            "last_first_token_ms": 1e3 * max(one.times[0] - begun for one in first),
            "first_sound_tokens_ms": 1e3
            * statistics.median(one.times[FIRST_SOUND_TOKENS - 1] - begun for one in first),
            "last_first_sound_tokens_ms": 1e3 * max(one.times[FIRST_SOUND_TOKENS - 1] - begun for one in first),
        }
        rows.append(row)
        keep({"together": rows})
        print(
            "{sentences:4} sentences: {step_ms:.3f} ms a step (p99 {step_p99_ms:.3f}), floor {floor_ms:.3f} ms "
            "({share_of_floor:.0%}); "
            "first token {first_token_ms:.1f} ms (median), {last_first_token_ms:.1f} ms (last), "
            "all for the first sound {first_sound_tokens_ms:.1f}, {last_first_sound_tokens_ms:.1f} ms".format(**row),
            flush=True,
        )
    alone = []
    for speech in (87, 256 - PROMPT_TEXT - 3, 512, 1000):
        firsts = []
        for _ in range(5):
            begun = time.perf_counter()
            firsts.append(speak(engine, [1], 1, speech)[0].times[0] - begun)
        alone.append({"positions": PROMPT_TEXT + speech + 3, "first_token_ms": 1e3 * statistics.median(firsts)})
        print(
            "alone, prompt of {positions} positions: first token after {first_token_ms:.2f} ms".format(**alone[-1]),
            flush=True,
        )
    engine.close()
    return {"together": rows, "alone": alone}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="one part only")
    parser.add_argument("--json", type=Path, help="where the figures go; parts add to what is there")
    arguments = parser.parse_args()
    work: dict[str, Callable[[float, Callable[[Any], None]], object]] = {
        "steps": steps,
        "one-launch": one_launch,
        "engine": speed,
        "same": lambda _, keep: same(keep),
    }
    kernels.keep()
    results = ResultsFile(arguments.json)
    results["device"] = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    for part in [arguments.part] if arguments.part else PARTS:
        if part == "ceilings" or "ceilings" not in results:
            results["ceilings"] = ceilings()
        bandwidth = results["ceilings"]["read_terabytes_per_second"] * 1e12
        if part in work:
            results[part] = work[part](bandwidth, partial(results.__setitem__, part))


if __name__ == "__main__":
    main()
