"""`cosyserve up` as a process, with the gateway, keys, TLS, metrics of every service and traces in
a file; keys and certificates are exchanged while it serves.
"""

import asyncio
import contextlib
import os
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.load.stack import ALL_ADMITTED, report
from cosyserve.errors import SettingsError
from cosyserve.keys import key_file
from cosyserve.keys.key_record import KeyRecord, record_of
from cosyserve.keys.secret import digest, new_secret
from cosyserve.metrics.names import SERVICES
from cosyserve.tls.settings import ClientTls
from tools.certificates import HERE, Authority, Folder

UP = "up"
"""Name of the process that supervises the others."""
LIMITED_REQUESTS = 60
"""Requests a minute of the limited key."""
TRACED = 0.02
"""Share of the requests."""
_PATIENT_SECONDS = 600
_PATIENT = (
    "COSYSERVE_FRONTEND_FIRST_MESSAGE_SECONDS",
    "COSYSERVE_LLM_FIRST_MESSAGE_SECONDS",
    "COSYSERVE_TOKEN2WAV_FIRST_MESSAGE_SECONDS",
    "COSYSERVE_ORCHESTRATOR_FIRST_MESSAGE_SECONDS",
    "COSYSERVE_ORCHESTRATOR_STALL_SECONDS",
    "COSYSERVE_ORCHESTRATOR_READER_SECONDS",
    "COSYSERVE_ORCHESTRATOR_VOICE_SECONDS",
    "COSYSERVE_GATEWAY_HEAD_SECONDS",
    "COSYSERVE_GATEWAY_BODY_SECONDS",
    "COSYSERVE_GATEWAY_READER_SECONDS",
    "COSYSERVE_GATEWAY_WEBSOCKET_IDLE_SECONDS",
)
"""Limits of time that a machine that stands still for minutes must not reach."""
_START_SECONDS = 900.0
_STOP_SECONDS = 120.0
_MODULE = "services."
_READY = re.compile(r"ready: (\S+) and https://(\S+)")
_METRICS = re.compile(r"^(\S+)\s*\|.*health is served on port (\d+)")


class Output:
    """What `cosyserve up` prints, line by line. ready: the addresses of gRPC and of HTTP. ports: of
    metrics, by process. troubles: how often each line of a warning or an error came.
    """

    def __init__(self) -> None:
        self.ready: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        self.ports: dict[str, int] = {}
        self.troubles: dict[str, int] = {}

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Until the process ends."""
        last: list[str] = []
        async for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            last = [*last[-20:], line]
            if (found := _METRICS.match(line)) is not None:
                self.ports[found[1]] = int(found[2])
            if (found := _READY.search(line)) is not None and not self.ready.done():
                self.ready.set_result((found[1], found[2]))
            if any(word in line for word in (" WARNING ", " ERROR ", " CRITICAL ", "Traceback", "starting it again")):
                self._trouble(line)
        if not self.ready.done():
            self.ready.set_exception(SettingsError("cosyserve up ended:\n" + "\n".join(last)))

    def _trouble(self, line: str) -> None:
        same = re.sub(r"\d+", "N", re.sub(r"\b[0-9a-f]{8,}\b", "ID", line))
        if same not in self.troubles:
            report(line)
        self.troubles[same] = self.troubles.get(same, 0) + 1


@dataclass(frozen=True)
class Up:
    """grpc, http: host:port, both with TLS. key, limited: secrets; the second one may ask
    `LIMITED_REQUESTS` times a minute. trust: for clients of HTTP.
    """

    process: psutil.Process
    output: Output
    grpc: str
    http: str
    key: str
    limited: str
    tls: ClientTls
    trust: ssl.SSLContext
    keys: Path
    own: Folder
    authority: Authority
    traces: Path

    def processes(self) -> dict[str, psutil.Process]:
        """Those that live, by name: the supervisor, and the services with the number of the
        replica.
        """
        found = {UP: self.process}
        counts: dict[str, int] = {}
        for child in sorted(self.process.children(recursive=True), key=lambda one: one.pid):
            with contextlib.suppress(psutil.Error):
                service = next((word for word in child.cmdline() if word.startswith(_MODULE)), "")
                if (name := service.removeprefix(_MODULE)) in SERVICES:
                    found[f"{name}.{counts.setdefault(name, 0)}"] = child
                    counts[name] += 1
        return found

    async def exchange(self, number: int) -> None:
        """A new certificate, and one more key or one less."""
        self.own.put(await asyncio.to_thread(self.authority.issue, HERE), self.authority.pem)
        extra = record_of({"id": "extra", "sha256": digest(new_secret())})

        def changed(records: Sequence[KeyRecord]) -> list[KeyRecord]:
            kept = [record for record in records if record.id != extra.id]
            return [*kept, extra] if number % 2 else kept

        await asyncio.to_thread(key_file.change, self.keys, changed)


@contextlib.asynccontextmanager
async def serving(model: Path, folder: Path, places: int, token_milliseconds: float) -> AsyncIterator[Up]:
    """Ready when the block begins. folder: a new one, for everything that is written. places: of
    the orchestrator. token_milliseconds: that a speech token takes. Raises SettingsError if it does
    not start.
    """
    authority, key, limited = Authority(), new_secret(), new_secret()
    own = Folder(folder / "own").put(authority.issue(HERE), authority.pem)
    keys, traces = folder / "keys.json", folder / "traces.jsonl"
    records = (
        record_of({"id": "caller", "sha256": digest(key), "tenant": "soak"}),
        record_of({"id": "limited", "sha256": digest(limited), "limits": {"requests_per_minute": LIMITED_REQUESTS}}),
    )
    key_file.change(keys, lambda _: records)
    environ = {
        **os.environ,
        **ALL_ADMITTED,
        **{f"COSYSERVE_{service.upper()}_HEALTH_LISTEN": "127.0.0.1:0" for service in SERVICES},
        "COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": str(token_milliseconds),
        "COSYSERVE_LLM_MAX_SEQUENCES": str(2 * places),
        "COSYSERVE_LLM_MAX_WAITING": str(2 * places),
        "COSYSERVE_TOKEN2WAV_MAX_STREAMS": str(2 * places),
        "COSYSERVE_ORCHESTRATOR_MAX_STREAMS": str(places),
        **dict.fromkeys(_PATIENT, str(_PATIENT_SECONDS)),
        "COSYSERVE_TRACE_FILE": str(traces),
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": str(TRACED),
    }
    options = (
        *("--model", str(model), "--backend", "fake", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"),
        *("--replicas", "token2wav=2", "--voices", str(folder / "voices"), "--keys", str(keys)),
        *("--tls-certificate", str(own.certificate), "--tls-key", str(own.key)),
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.whole_soak.process", *options),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 20,
    )
    assert process.stdout is not None
    output = Output()
    reading = asyncio.create_task(output.read(process.stdout))
    try:
        async with asyncio.timeout(_START_SECONDS):
            grpc, http = await output.ready
        trust = ssl.create_default_context(cafile=str(own.ca))
        tls = ClientTls(own.ca)
        yield Up(
            psutil.Process(process.pid), output, grpc, http, key, limited, tls, trust, keys, own, authority, traces
        )
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
        await reading
