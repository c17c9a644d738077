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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu.sharing.rows import ROWS, Figures, Row, summary
from bench.gpu.sharing.service import Service
from bench.gpu.sharing.worker import FAILED, Worker, WorkerFailed
from bench.parts.part import ResultsFile
from bench.parts.progress import bar
from cosyserve.host.supervision.gpu_sharing import CLIENT_PRIORITIES, finds_a_daemon, shared_gpu
from cosyserve.host.supervision.layout import ProcessSpec, free_ports

POOL = {"COSYSERVE_TOKEN2WAV_STATE_BYTES": str(4 << 30), "COSYSERVE_TOKEN2WAV_PROMPT_CACHE_BYTES": str(1 << 30)}
KERNELS = "TRITON_CACHE_DIR"
MOST_STARTS = 2
"""Failed starts of one process."""
DECODING, PASSES, SERVICE = "decoding", "passes", "service"
EXCLUDES = {PASSES: SERVICE, SERVICE: PASSES}
"""Each could occupy SMs that the grid-wide barriers of the other wait for."""


def places(model: Path) -> list[ProcessSpec]:
    """The two processes; the service takes its kernels from where this measurement's own processes
    keep theirs.
    """
    shared = {**os.environ, KERNELS: _kernels()}
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    settings = {"LISTEN": addresses[1], "MODEL": str(model), "BACKEND": "torch", "DEVICE": "cuda", "DRAIN_SECONDS": "0"}
    sound = POOL | {f"COSYSERVE_TOKEN2WAV_{name}": value for name, value in settings.items()}
    return [
        ProcessSpec("llm", 0, addresses[0], shared | {"COSYSERVE_LLM_DEVICE": "cuda"}),
        ProcessSpec("token2wav", 0, addresses[1], shared | sound),
    ]


def _kernels() -> str:
    from triton import knobs

    return str(knobs.cache.dir)


class SharingProcesses:
    """The processes of one way of sharing, each started when it is first asked for. places: of
    "llm" and "token2wav". After a failure `close` it: the next request starts them again."""

    def __init__(self, places: Mapping[str, ProcessSpec]) -> None:
        self._places = places
        self._running: dict[str, Worker | Service] = {}
        self._failures: defaultdict[str, list[str]] = defaultdict(list)

    async def process(self, name: str) -> Any:
        """A `Worker` for DECODING and PASSES, a `Service` for SERVICE. Raises WorkerFailed."""
        if other := self._running.pop(EXCLUDES.get(name, ""), None):
            await other.close()
        failures = self._failures[name]
        if name not in self._running:
            if len(failures) >= MOST_STARTS:
                raise WorkerFailed(failures[-1])
            try:
                self._running[name] = await self._started(name)
            except WorkerFailed as error:
                failures.append(str(error))
                raise
        return self._running[name]

    async def _started(self, name: str) -> Worker | Service:
        if name == SERVICE:
            return await Service.start(self._places["token2wav"])
        environ = self._places["llm" if name == DECODING else "token2wav"].environ
        return await Worker.start(f"bench.gpu.sharing.{name}", environ=environ)

    async def close(self) -> None:
        while self._running:
            await self._running.popitem()[1].close()


async def heard(company: SharingProcesses, row: Row, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of everything that a row measures: "passes" by units, "service", "llm" from
    token to token. Raises WorkerFailed.
    """
    measured = [SERVICE] if row.service else [PASSES] if row.units else []
    # Each runs or has failed before anything is raised, so that `close` finds it.
    names = (DECODING, *measured)
    running: list[Any] = await asyncio.gather(*map(company.process, names), return_exceptions=True)
    # A decoding process that is missing does not matter while nothing decodes.
    for one in running if row.llm else running[1:]:
        if isinstance(one, BaseException):
            raise one
    times: dict[str, dict[str, list[float]]] = {}
    if row.llm:
        await running[0].ask(do="talk", way=row.llm.way, pace=row.llm.pace, sentences=row.llm.sentences)
    if row.service:
        times["service"] = await running[1].first_passes(seconds)
    elif row.units:
        times["passes"] = {
            str(units): (await running[1].ask(way=row.way, units=units, seconds=seconds))["ms"] for units in row.units
        }
    else:
        await asyncio.sleep(seconds)
    if row.llm:
        times["llm"] = {"token": (await running[0].ask(do="hush"))["ms"]}
    return times


async def attempted(company: SharingProcesses, row: Row, seconds: float) -> Figures:
    """Figures of a row, or the reason why there are none."""
    try:
        return summary(await heard(company, row, seconds))
    except Exception as error:  # whatever it is, the other rows can be measured
        traceback.print_exc()
        await company.close()
        return {FAILED: next(iter(str(error).splitlines()), type(error).__name__)}


async def measure(model: Path, seconds: float, results: ResultsFile, rows: Sequence[Row] = ROWS) -> None:
    began = time.monotonic()
    for together in (False, True):
        said: list[str] = []
        async with shared_gpu(places(model), "auto" if together else "off", said.append) as shared:
            company = SharingProcesses({place.service: place for place in shared})
            why = _not_together(shared, said) if together else _not_in_turns()
            try:
                for row in (row for row in rows if row.together is together):
                    results[row.name] = {FAILED: why} if why else await attempted(company, row, seconds)
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


def failed(results: Mapping[str, Figures]) -> bool:
    """Whether nothing at all was measured."""
    return all(FAILED in figures for figures in results.values())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.sharing", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model directory of the service")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default: %(default)g)")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    options = parser.parse_args(arguments)
    results = ResultsFile(options.json)
    results.clear()
    asyncio.run(measure(options.model.resolve(), options.seconds, results))
    return int(failed(results))


if __name__ == "__main__":
    sys.exit(main())
