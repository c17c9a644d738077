"""Runs all services on this machine until Ctrl-C."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cosyserve.errors import SettingsError
from cosyserve.host.supervision.layout import WITH_BACKEND, checked_address
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment


async def serve(model: Path, log: Callable[[str], None], **options: Any) -> int:
    """Run all services until Ctrl-C; returns the exit code. log: takes each line of output.
    options: further arguments of `local_deployment`.
    """
    stop = StopSignals()
    try:
        async with local_deployment(
            model, log=log, report=lambda line: log(f"{'cosyserve':<14} | {line}"), **options
        ) as stack:
            stop.stack = stack
            counts = ", ".join(f"{child.name}.{child.replica}" for child in stack.children)
            over_http = f" and http{'s' * stack.secured}://{stack.http}" if stack.http else ""
            log(f"ready: {stack.address}{over_http} ({counts}); Ctrl-C stops all")
            tls = " --tls-ca CA.pem" if stack.secured else ""
            log(f'try: cosyserve say "It works." --output it-works.wav --server {stack.address}{tls}')
            await stack.wait()
    except asyncio.CancelledError:
        if not stop.received:
            raise
        log("stopped")
    return 0


def strictness(strict: bool) -> dict[str, str]:
    """The variables that --strict sets."""
    return {f"COSYSERVE_{service.upper()}_STRICT": "true" for service in WITH_BACKEND} if strict else {}


def wyoming_address(wyoming: str | None, http: str) -> dict[str, str]:
    """The variable that --wyoming sets. Raises SettingsError without the gateway that serves it,
    and for an address that cannot be listened on.
    """
    if wyoming is None:
        return {}
    if http == "off":
        raise SettingsError("--wyoming is served by the gateway, which --http off leaves out")
    try:
        checked_address(wyoming)
    except SettingsError as error:
        raise SettingsError(f"{error}; --wyoming chooses another address") from error
    return {"COSYSERVE_GATEWAY_WYOMING_LISTEN": wyoming}


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
