"""`cosyserve up`: every service on this machine, one log stream, one Ctrl-C."""

import argparse
import asyncio
import functools
import signal
from collections.abc import Mapping

from cosyserve.commands.terminal.arguments import (
    SERVER,
    add_stack,
    devices,
    model_directory,
    ports,
    replicas,
    voices_url,
)
from cosyserve.host.supervision.layout import WITH_BACKEND
from cosyserve.host.supervision.supervisor import Stack, running_stack

HELP = "run all services on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_stack(parser)
    add_serving(parser)


def add_serving(parser: argparse.ArgumentParser) -> None:
    """Where and how the services run: --listen, --ports, --replicas, --devices, --voices, --drain,
    --strict.
    """
    parser.add_argument(
        "--listen",
        default=SERVER,
        metavar="HOST:PORT",
        help="public endpoint; port 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--ports",
        type=ports,
        default={},
        metavar="LIST",
        help="of the stages, on the loopback, such as frontend=50052,llm=50053,token2wav=50054; further replicas have the ports behind it "
        "(default: free ones)",
    )
    parser.add_argument(
        "--devices",
        type=devices,
        default={},
        metavar="LIST",
        help="one replica on each, such as token2wav=cuda:0,cuda:1,llm=cuda:0 (default: --replicas and the device of the engines)",
    )
    parser.add_argument(
        "--replicas", type=replicas, default={}, metavar="LIST", help="such as token2wav=2,llm=1 (default: one of each)"
    )
    parser.add_argument(
        "--voices",
        default=None,
        metavar="URL",
        help="where voices are kept: a directory or object store (default: the user's data directory)",
    )
    parser.add_argument(
        "--drain",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long a stop waits for calls (default: %(default)s)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="the fastest engine there is, or an error that says what it lacks"
    )


async def run(arguments: argparse.Namespace) -> int:
    return await serve(arguments, arguments.backend, arguments.device, {})


async def serve(
    arguments: argparse.Namespace,
    backend: str | Mapping[str, str] | None,
    device: str | None,
    environ: Mapping[str, str],
) -> int:
    """Run all services until Ctrl-C, as `add_serving`, --model and --gpu-sharing say, with
    `environ`; returns the exit code.
    """
    tell = functools.partial(print, flush=True)
    stop = Stop()
    try:
        async with running_stack(
            model_directory(arguments.model),
            listen=arguments.listen,
            replicas=arguments.replicas,
            devices=arguments.devices,
            ports=arguments.ports,
            backend=backend,
            device=device,
            gpu_sharing=arguments.gpu_sharing,
            environ={
                **environ,
                **strictness(arguments),
                "COSYSERVE_FRONTEND_VOICES_URL": arguments.voices or voices_url(),
            },
            drain_seconds=arguments.drain,
            log=tell,
            report=lambda line: tell(f"{'cosyserve':<14} | {line}"),
        ) as stack:
            stop.stack = stack
            counts = ", ".join(f"{child.name}.{child.replica}" for child in stack.children)
            tell(f"ready: {stack.address} ({counts}); Ctrl-C stops all")
            tell(f'try: cosyserve say "It works." --output it-works.wav --server {stack.address}')
            await stack.wait()
    except asyncio.CancelledError:
        if not stop.asked:
            raise
        tell("stopped")
        return 0
    return 0


def strictness(arguments: argparse.Namespace) -> dict[str, str]:
    """Variables that --strict stands for."""
    return {f"COSYSERVE_{service.upper()}_STRICT": "true" for service in WITH_BACKEND} if arguments.strict else {}


class Stop:
    """SIGINT or SIGTERM: the first cancels this task, which drains; a second one kills the
    stack.
    """

    def __init__(self) -> None:
        self.stack: Stack | None = None
        self.asked = False
        self._task = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if not self.asked and self._task is not None:
            self.asked = True
            self._task.cancel()
        elif self.stack is not None:
            self.stack.kill_all()
