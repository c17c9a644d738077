"""What do listeners hear of a fault? `python -m bench.faults.supervised [--only STAGE]
[--streams 2] [--seconds 20]`

All services as `cosyserve up` starts them, each stage with two replicas, and askers that speak one
request after the other. An undisturbed control comes first; then one process is killed (SIGKILL),
asked to leave (SIGTERM) or stopped (SIGSTOP, for 3, 10 and 60 s) in each run, of each stage and the
orchestrator. Every request must be complete and have the samples that it has in the control; the
longest time for which a player that keeps 40 ms runs dry is shown next to the limit: that of the
control and 1 s for a stage that is killed or leaves, 9 s for one that is stopped, 15 s for any
fault of the orchestrator. Exit status 1 when a limit is broken.
"""

import argparse
import asyncio
import contextlib
import hashlib
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.load.command_line import command, user_errors
from bench.load.stack import ALL_ADMITTED, TEXTS, report
from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError
from cosyserve.host.supervision.layout import ORCHESTRATOR, STAGES
from cosyserve.host.supervision.supervisor import DeploymentFailed, LocalDeployment, local_deployment
from cosyserve.load.measurement import closed_loop
from cosyserve.load.player import Player
from cosyserve.spec import SAMPLE_RATE

BUFFER_SECONDS = 0.04
BEFORE_SECONDS = 4.0
"""Of each run, before the fault."""
RESUMPTIONS = 20
"""How often a request that has not begun is sent again: what counts here is that it is answered in
the end.
"""
REPLICAS = dict.fromkeys(STAGES, 2)
WHOLE_SECONDS = 90.0
"""For all processes to serve again behind a run."""


@dataclass(frozen=True)
class Fault:
    """stage: whose first process is hit. stop_seconds: for how long SIGSTOP lasts; None: SIGKILL or
    SIGTERM, as `number` says.
    """

    stage: str
    number: signal.Signals
    stop_seconds: float | None = None

    @property
    def name(self) -> str:
        """As in the table."""
        return self.number.name[3:] + ("" if self.stop_seconds is None else f" {self.stop_seconds:g} s")

    @property
    def limit(self) -> float:
        """Seconds beyond the control for which a player may be dry."""
        if self.stage == ORCHESTRATOR:
            return 15.0
        return 1.0 if self.stop_seconds is None else 9.0


def faults(only: str | None) -> list[Fault]:
    """All of them, or those of one stage."""
    stages = [stage for stage in (*STAGES, ORCHESTRATOR) if only in (None, stage)]
    kinds = [
        (signal.SIGKILL, None),
        (signal.SIGTERM, None),
        *((signal.SIGSTOP, seconds) for seconds in (3.0, 10.0, 60.0)),
    ]
    return [Fault(stage, number, seconds) for stage in stages for number, seconds in kinds]


@dataclass
class Run:
    """digests: of the audio of each request, by its number. dry: the longest time for which a
    player was dry, in seconds.
    """

    digests: dict[int, str] = field(default_factory=dict)
    dry: float = 0.0
    resumed: int = 0
    failed: list[str] = field(default_factory=list)


async def ask(client: AsyncClient, number: int, voices: Sequence[str], run: Run) -> None:
    """One request, heard to its end."""
    speech = client.synthesize(
        TEXTS[number % len(TEXTS)],
        voice=voices[number % len(voices)],
        seed=number // len(TEXTS),
        resumptions=RESUMPTIONS,
    )
    began, player, digest = time.monotonic(), Player(BUFFER_SECONDS), hashlib.sha256()
    try:
        async with speech:
            async for chunk in speech:
                player.hear(time.monotonic() - began, len(chunk.audio) / speech.bytes_per_sample / SAMPLE_RATE)
                digest.update(chunk.audio)
    except CosyserveError as error:
        run.failed.append(f"request {number}: {error.message}")
        return
    run.digests[number] = digest.hexdigest()
    run.dry = max([run.dry, *(dry.seconds for dry in player.dry)])
    run.resumed += speech.resumed + (speech.summary.resumptions if speech.summary else 0)


async def listen(address: str, voices: Sequence[str], streams: int, seconds: float, requests: int | None = None) -> Run:
    """As many askers as `streams`, for so long. voices: taken in turn. requests: how many different
    ones there are; None: each is another one."""
    run = Run()
    async with AsyncClient(address) as client:
        await closed_loop(
            lambda number: ask(client, number if requests is None else number % requests, voices, run), streams, seconds
        )
    return run


async def strike(stack: LocalDeployment, fault: Fault) -> None:
    """The fault, in the middle of a run. A process that was replaced in the meantime is not
    continued.
    """
    await asyncio.sleep(BEFORE_SECONDS)
    hit = next(child.pid for child in stack.children if (child.name, child.replica) == (fault.stage, 0))
    stack.kill(fault.stage, 0, fault.number)
    if fault.stop_seconds is None:
        return
    await asyncio.sleep(fault.stop_seconds)
    if any(child.pid == hit for child in stack.children):
        stack.kill(fault.stage, 0, signal.SIGCONT)


async def until_whole(stack: LocalDeployment) -> None:
    """Return when every process serves. Raises TimeoutError after a minute and a half."""
    wanted = sum(REPLICAS.values()) + 1
    async with asyncio.timeout(WHOLE_SECONDS):
        while sum(child.serving for child in stack.children) < wanted:  # noqa: ASYNC110 - a stack has no event for it
            await asyncio.sleep(0.2)
    # The orchestrator notices it by its own watch.
    await asyncio.sleep(1.0)


HEAD = "stage         fault       requests  same  failed  resumed  longest dry     limit"


def row(stage: str, name: str, run: Run, control: Run, limit: float) -> str:
    """A line under HEAD."""
    same = sum(control.digests.get(number) == digest for number, digest in run.digests.items())
    return (
        f"{stage:13} {name:10} {len(run.digests) + len(run.failed):9} {same:5} {len(run.failed):7} {run.resumed:8} "
        f"{run.dry:10.3f} s "
        f"{limit:7.2f} s"
    )


def holds(run: Run, control: Run, limit: float) -> bool:
    """Whether all requests are complete and the same, and no player was dry for longer."""
    same = all(control.digests.get(number) == digest for number, digest in run.digests.items())
    return bool(run.digests) and same and not run.failed and run.dry <= limit


async def measure(options: argparse.Namespace) -> bool:
    """Print the table; returns whether every limit holds."""
    every, voices = True, options.voices.split(",")
    services = local_deployment(
        options.model, replicas=REPLICAS, backend=options.backend, device="cpu", environ=ALL_ADMITTED, report=report
    )
    async with services as stack:
        control = await listen(stack.address, voices, options.streams, options.control_seconds)
        if control.failed or not control.digests:
            raise DeploymentFailed(f"the control failed: {control.failed[:3]}")
        print(HEAD)
        print(row("-", "control", control, control, control.dry), flush=True)
        for fault in faults(options.only):
            limit = control.dry + fault.limit
            striking = asyncio.create_task(strike(stack, fault))
            run = await listen(stack.address, voices, options.streams, options.seconds, len(control.digests))
            await striking
            await until_whole(stack)
            print(row(fault.stage, fault.name, run, control, limit), flush=True)
            for text in run.failed:
                print(f"  {text}", flush=True)
            every = holds(run, control, limit) and every
    return every


def main(arguments: list[str] | None = None) -> int:
    parser = command("bench.faults.supervised", __doc__)
    parser.add_argument("--backend", default="torch", help="of both engines (default: %(default)s)")
    parser.add_argument("--voices", default="af_heart,am_michael", help="taken in turn (default: %(default)s)")
    parser.add_argument("--only", choices=(*STAGES, ORCHESTRATOR), help="faults of this one")
    parser.add_argument("--streams", type=int, default=2, help="askers at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run (default: %(default)g)")
    parser.add_argument("--control-seconds", type=float, default=40.0, help="of the control (default: %(default)g)")
    options = parser.parse_args(arguments)
    with user_errors("bench.faults.supervised"), contextlib.suppress(KeyboardInterrupt):
        return 0 if asyncio.run(measure(options)) else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
