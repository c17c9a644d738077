"""Runs all services on this machine until Ctrl-C."""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.commands.terminal.arguments import voices_url
from cosyserve.host.supervision.layout import WITH_BACKEND
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Where and how the services run."""

    listen: str
    """host:port of the public endpoint; port 0 takes a free one."""
    ports: Mapping[str, Sequence[int]]
    """Ports of the replicas of each stage; stages that are not named take free ones."""
    devices: Mapping[str, Sequence[str]]
    """Devices of each stage, one replica on each."""
    replicas: Mapping[str, int]
    """Replicas of each stage; one where nothing is given."""
    voices: str | None
    """Directory or object store of the voices; None: the default of this machine."""
    drain_seconds: float
    """How long a stop waits for calls."""
    strict: bool
    """Whether the fastest engine has to serve, or none."""
    gpu_sharing: str | None
    """How engines share a GPU, one of `gpu_sharing.WAYS`; None: as the environment says."""


async def serve(
    model: Path,
    serving: Serving,
    backend: str | Mapping[str, str] | None,
    device: str | None,
    environ: Mapping[str, str],
    log: Callable[[str], None],
) -> int:
    """Run all services with `environ` until Ctrl-C; returns the exit code. log: takes each line of
    output.
    """
    stop = StopSignals()
    try:
        async with local_deployment(
            model,
            listen=serving.listen,
            replicas=serving.replicas,
            devices=serving.devices,
            ports=serving.ports,
            backend=backend,
            device=device,
            gpu_sharing=serving.gpu_sharing,
            environ={
                **environ,
                **strictness(serving.strict),
                "COSYSERVE_FRONTEND_VOICES_URL": serving.voices or voices_url(),
            },
            drain_seconds=serving.drain_seconds,
            log=log,
            report=lambda line: log(f"{'cosyserve':<14} | {line}"),
        ) as stack:
            stop.stack = stack
            counts = ", ".join(f"{child.name}.{child.replica}" for child in stack.children)
            log(f"ready: {stack.address} ({counts}); Ctrl-C stops all")
            log(f'try: cosyserve say "It works." --output it-works.wav --server {stack.address}')
            await stack.wait()
    except asyncio.CancelledError:
        if not stop.received:
            raise
        log("stopped")
        return 0
    return 0


def strictness(strict: bool) -> dict[str, str]:
    """The variables that --strict sets."""
    return {f"COSYSERVE_{service.upper()}_STRICT": "true" for service in WITH_BACKEND} if strict else {}


class StopSignals:
    """Handles SIGINT and SIGTERM: the first one cancels the current task, which then drains; a
    second one kills all services.
    """

    def __init__(self) -> None:
        self.stack: LocalDeployment | None = None
        self.received = False
        self._task = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if not self.received and self._task is not None:
            self.received = True
            self._task.cancel()
        elif self.stack is not None:
            self.stack.kill_all()
