"""What a first pass of the flow takes while a speech-token model decodes on the same GPU: `python
-m bench.gpu.sharing --model DIR --json FILE`.

A process of passes and a process that decodes, in turns and together (MPS), and the same first pass
through the service over gRPC. Every row is in FILE as soon as it is known, as medians and 95th
percentiles in milliseconds; one that fails is there with the reason and stops no other.
"""

import argparse
import asyncio
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.gpu.sharing.__main__ import SharingProcesses, heard
from bench.gpu.sharing.rows import ROWS, Figures, Row, summary
from bench.gpu.sharing.worker import FAILED
from bench.parts.part import ResultsFile
from bench.parts.progress import bar
from cosyserve.host.supervision.gpu_sharing import CLIENT_PRIORITIES, finds_a_daemon, shared_gpu
from cosyserve.host.supervision.layout import ProcessSpec, free_ports

POOL = {"COSYSERVE_TOKEN2WAV_STATE_BYTES": str(4 << 30), "COSYSERVE_TOKEN2WAV_PROMPT_CACHE_BYTES": str(1 << 30)}
KERNELS = "TRITON_CACHE_DIR"


def places(device: str, model: Path, kernels: str = "") -> list[ProcessSpec]:
    """The two processes. kernels: directory of those that are compiled."""
    shared = {**os.environ, **({KERNELS: kernels} if kernels else {})}
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    settings = {"LISTEN": addresses[1], "MODEL": str(model), "BACKEND": "torch", "DEVICE": device, "DRAIN_SECONDS": "0"}
    sound = POOL | {f"COSYSERVE_TOKEN2WAV_{name}": value for name, value in settings.items()}
    return [
        ProcessSpec("llm", 0, addresses[0], shared | {"COSYSERVE_LLM_DEVICE": device}),
        ProcessSpec("token2wav", 0, addresses[1], shared | sound),
    ]


async def attempted(company: SharingProcesses, row: Row, seconds: float) -> Figures:
    """Figures of a row, or the reason why there are none."""
    try:
        return summary(await heard(company, row, seconds))
    except Exception as error:  # whatever it is, the other rows can be measured
        traceback.print_exc()
        await company.close()
        return {FAILED: next(iter(str(error).splitlines()), type(error).__name__)}


async def measure(options: argparse.Namespace, results: ResultsFile, rows: Sequence[Row] = ROWS) -> None:
    kernels, began = _kernels() if options.device == "cuda" else "", time.monotonic()
    for together in (False, True):
        said: list[str] = []
        async with shared_gpu(
            places(options.device, options.model, kernels), "auto" if together else "off", said.append
        ) as shared:
            company = SharingProcesses(options.device, options.model, {place.service: place for place in shared})
            why = _not_together(shared, said) if together else _not_in_turns()
            try:
                for row in (row for row in rows if row.together is together):
                    results[row.name] = {FAILED: why} if why else await attempted(company, row, options.seconds)
                    print(
                        f"[{bar(len(results) / len(rows))}] {time.monotonic() - began:.0f} s, {row.name}: "
                        f"{results[row.name]}",
                        flush=True,
                    )
            finally:
                await company.close()


def _not_together(shared: Sequence[ProcessSpec], said: Sequence[str]) -> str:
    """Why they did not get the settings of MPS clients; empty when they did."""
    name = next(iter(CLIENT_PRIORITIES["llm"]))
    return "" if all(name in place.environ for place in shared) else "; ".join(said) or "there is no GPU to share"


def _not_in_turns() -> str:
    """Every process that computes here is a client of that daemon."""
    return "an MPS daemon is there already" if finds_a_daemon(os.environ) else ""


def _kernels() -> str:
    """Where this measurement's own processes keep theirs, for the service too."""
    from triton import knobs

    return str(knobs.cache.dir)


def failed(results: Mapping[str, Figures]) -> bool:
    """Whether nothing at all was measured."""
    return all(FAILED in figures for figures in results.values())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.sharing", description=__doc__)
    parser.add_argument(
        "--model", type=Path, required=True, help="model directory of the service; on a CPU of the other processes too"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default: %(default)g)")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    options = parser.parse_args(arguments)
    options.model = options.model.resolve()
    results = ResultsFile(options.json)
    results.clear()
    asyncio.run(measure(options, results))
    return int(failed(results))


if __name__ == "__main__":
    sys.exit(main())
