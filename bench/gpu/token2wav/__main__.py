"""`python -m bench.gpu.token2wav --part PART`: token2wav on one GPU with random weights of the
published sizes.

Every part checks or measures one thing, prints a table and writes `PART.json` into --out. Times are
medians of CUDA events around replayed graphs.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from bench.gpu import kernels
from bench.gpu.token2wav.decoder import decoder, readable
from bench.gpu.token2wav.flow import correctness, passes, recompute
from bench.gpu.token2wav.random_models import FLOWS, RUN
from bench.gpu.token2wav.vocoder import vocoder
from bench.parts.part import ResultsFile

PARTS: dict[str, Callable[[], None]] = {
    "passes": passes,
    "recompute": recompute,
    "decoder": decoder,
    "readable": readable,
    **{f"vocoder-{kind}": partial(vocoder, kind) for kind in ("ieee", "tf32x3", "tf32", "bfloat16", "float16")},
    **{f"correctness-{kind}": partial(correctness, getattr(torch, kind)) for kind in ("float32", "bfloat16")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--part", required=True, choices=PARTS)
    parser.add_argument(
        "--generation",
        choices=FLOWS,
        default=RUN.generation,
        help="whose flow and vocoder (default: %(default)s)",
    )
    parser.add_argument(
        "--kv-precision", choices=("int8", "float8", "operands"), default=RUN.kept,
        help="type of the flow's keys and values in pages (default: %(default)s; of a part in float32: operands)",
    )  # fmt: skip
    parser.add_argument("--no-clusters", action="store_true", help="without thread-block clusters for small batches")
    parser.add_argument("--compile", action="store_true", help="fill the compiler's cache, time nothing")
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
    RUN.generation, RUN.kept = options.generation, options.kv_precision
    RUN.clusters = not options.no_clusters
    RUN.compile_only, RUN.shard = options.compile, tuple(options.shard)
    options.out.mkdir(parents=True, exist_ok=True)
    RUN.results = ResultsFile(None if options.compile else options.json or options.out / f"{options.part}.json")
    RUN.results.clear()
    began = time.perf_counter()
    kernels.keep()
    with torch.inference_mode():
        PARTS[options.part]()
    print(f"== {options.part} took {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
