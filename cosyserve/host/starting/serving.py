"""Runs all services on this machine until Ctrl-C."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cosyserve.errors import SettingsError
from cosyserve.host.supervision.layout import WITH_BACKEND, checked_address
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from cosyserve.keys import key_file
from cosyserve.keys.exposure import require_protected


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


KEYS = "COSYSERVE_ORCHESTRATOR_KEYS_FILE"
_KEYS_IN_PLACE = "COSYSERVE_ORCHESTRATOR_KEYS", "COSYSERVE_ORCHESTRATOR_JWT_ISSUER"
_INSECURE = "COSYSERVE_ORCHESTRATOR_INSECURE"
_WAYS = "name a file of keys (--keys FILE; cosyserve keys add makes one), or say that this is wanted (--insecure)"


def callers(keys: Path | None, listen: str, http: str, *, insecure: bool) -> dict[str, str]:
    """The variables that --keys and --insecure set, of the orchestrator and of the gateway. Raises
    SettingsError for keys that cannot be used, and for an address that other machines reach without
    one of the two, or a variable in their place.
    """
    keys = keys or (Path(os.environ[KEYS]) if os.environ.get(KEYS) else None)
    if keys is not None:
        key_file.read(keys)
    has_keys = keys is not None or any(map(os.environ.get, _KEYS_IN_PLACE))
    insecure = insecure or os.environ.get(_INSECURE, "").lower() in ("1", "true", "yes", "on")
    for address in (listen, *([] if http == "off" else [http])):
        if not address.rpartition(":")[0]:
            continue  # what is no address is refused as such
        try:
            require_protected(address, keys=has_keys, insecure=insecure, ways=_WAYS)
        except ValueError as error:
            raise SettingsError(str(error)) from error
    return {
        **({} if keys is None else {KEYS: str(keys.absolute())}),
        **({_INSECURE: "true", "COSYSERVE_GATEWAY_INSECURE": "true"} if insecure else {}),
        **({"COSYSERVE_GATEWAY_REQUIRE_KEY": "true"} if has_keys else {}),
    }


WITHOUT_KEYS = dict.fromkeys(
    (KEYS, *_KEYS_IN_PLACE, "COSYSERVE_ORCHESTRATOR_JWT_AUDIENCE", "COSYSERVE_ORCHESTRATOR_JWT_KEYS"), ""
)
"""Variables of services on the loopback that only this process calls."""


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
