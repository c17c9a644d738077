"""`python -m bench.gpu.token2wav --part PART`: token2wav on one GPU with random weights of the
published sizes.

Every part checks or measures one thing, prints a table and writes `PART.json` into --out. Times are
medians of CUDA events around replayed graphs. LowerBounds: bytes over the copy bandwidth,
operations over the rate of a large bfloat16 product, both from `--part ceilings`.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.gpu.timing import ceilings
from bench.gpu.token2wav.decoder import decoder, readable, steps, streams
from bench.gpu.token2wav.flow import correctness, passes, recompute
from bench.gpu.token2wav.random_models import RUN
from bench.gpu.token2wav.tuning import CHOICES, profile, tuned_tiles, tuning, variants
from bench.gpu.token2wav.vocoder import vocoder
from bench.gpu.token2wav.vocoder_tuning import pitch_tuning, sound_tuning
from bench.parts.part import ResultsFile

Part = Callable[[Path], dict[str, Any]]
PARTS: dict[str, Part] = {
    "ceilings": lambda out: dict(ceilings()),
    "correctness": correctness,
    "passes": passes,
    "variants": variants,
    "recompute": recompute,
    "tuning": tuning,
    "profile": profile,
    "vocoder": vocoder,
    "decoder": decoder,
    "streams": streams,
    "steps": steps,
    "readable": readable,
    "tuning-pitch": pitch_tuning,
}
for kind in ("ieee", "tf32x3", "tf32", "bfloat16", "float16"):
    PARTS[f"vocoder-{kind}"] = partial(vocoder, precisions=(kind,))
for kind in ("float32", "bfloat16"):
    PARTS[f"correctness-{kind}"] = partial(correctness, kinds=(getattr(torch, kind),))
for kind in ("float16", "tf32"):
    PARTS[f"tuning-sound-{kind}"] = partial(sound_tuning, precision=kind)
for kind in CHOICES:
    PARTS[f"tuning-{kind}"] = partial(tuning, kinds=(kind,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--part", required=True, choices=PARTS)
    parser.add_argument("--compile", action="store_true", help="fill the compiler's cache, time nothing")
    parser.add_argument("--tiles", action="store_true", help="with the tiles that a tuning part has left in --out")
    parser.add_argument(
        "--shard",
        type=int,
        nargs="*",
        default=[],
        help="of a part to compile: buckets of the flow; of the vocoder which share of how many",
    )
    parser.add_argument(
        "--json", type=Path, help="where the figures go, each as soon as it is known (default: PART.json in --out)"
    )
    parser.add_argument("--out", type=Path, default=Path("build/gpu"))
    options = parser.parse_args()
    RUN.compile_only, RUN.shard = options.compile, tuple(options.shard)
    if options.tiles:
        RUN.tuned.update(tuned_tiles(options.out))
    options.out.mkdir(parents=True, exist_ok=True)
    RUN.results = ResultsFile(None if options.compile else options.json or options.out / f"{options.part}.json")
    RUN.results.clear()
    began = time.perf_counter()
    with torch.inference_mode():
        for name, value in PARTS[options.part](options.out).items():
            RUN.results[name] = value
    print(f"== {options.part} took {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
