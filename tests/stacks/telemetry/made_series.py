"""A real Prometheus that scrapes made series of pods, and what KEDA and the autoscaler of
Kubernetes make of an answer of it.
"""

import contextlib
import json
import math
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
_PATIENCE = 120.0
_TOLERANCE = 0.1
"""Of the autoscaler: a load this near the target changes nothing."""
Series = dict[str, float]


class Pods:
    """What each pod exports; `generation` is exported by all, so that a test sees when it has been
    scraped.
    """

    def __init__(self, labels: dict[str, dict[str, str]]) -> None:
        """labels: those with which the PodMonitor marks what it scrapes, by pod."""
        self.labels = labels
        self.generation = 0
        self._series: dict[str, Series] = {pod: {} for pod in labels}

    def export(self, series: dict[str, Series]) -> None:
        """Replace what is exported, by pod; a pod that is not named exports nothing."""
        self._series = {pod: series.get(pod, {}) for pod in self.labels}
        self.generation += 1

    def text(self, pod: str) -> str:
        lines = [f"{name} {value}" for name, value in self._series[pod].items()]
        return "\n".join([*lines, f"generation {self.generation}", ""])


class Prometheus:
    """Its HTTP API."""

    def __init__(self, address: str, pods: Pods) -> None:
        self.address, self.pods = address, pods

    def query(self, query: str) -> list[dict[str, Any]]:
        """The vector."""
        url = f"{self.address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def load(self, query: str) -> float:
        """As KEDA reads it: one element, and a number. Raises ValueError as its scaler fails, with
        ignoreNullValues: "false".
        """
        result = self.query(query)
        if len(result) != 1:
            raise ValueError(f"{len(result)} elements")
        value = float(result[0]["value"][1])
        if not math.isfinite(value):
            raise ValueError(f"{value}")
        return value

    def scraped(self) -> None:
        """Wait until what the pods export now is what a query finds."""
        until = time.monotonic() + _PATIENCE
        expected = [str(self.pods.generation)] * len(self.pods.labels)
        while [each["value"][1] for each in self.query("generation")] != expected:
            assert time.monotonic() < until, "not scraped in time"
            time.sleep(0.2)


def wanted_pods(load: float, target: float, ready: int, least: int, most: int) -> int:
    """What a HorizontalPodAutoscaler makes of an external metric of type Value (Kubernetes,
    Horizontal Pod Autoscaling, algorithm details).
    """
    ratio = load / target
    pods = ready if abs(ratio - 1) <= _TOLERANCE else math.ceil(ratio * ready)
    return min(max(pods, least), most)


@contextlib.contextmanager
def running(pods: Pods, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes `pods` each second."""

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pods.text(self.path.strip("/")).encode()
            # At its end Prometheus hangs up in the middle of an answer.
            with contextlib.suppress(ConnectionError):
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    exporter = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    scraped = f"127.0.0.1:{exporter.server_address[1]}"
    jobs = [
        {
            "job_name": pod,
            "metrics_path": f"/{pod}",
            "static_configs": [{"targets": [scraped], "labels": labels}],
        }
        for pod, labels in pods.labels.items()
    ]
    config = folder / "prometheus.yml"
    timing = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    config.write_text(yaml.safe_dump({"global": timing, "scrape_configs": jobs}), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    log = (folder / "log").open("wb")
    process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        server = Prometheus(f"http://{address}", pods)
        until = time.monotonic() + _PATIENCE
        while not _ready(server.address):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, "not ready in time"
            time.sleep(0.2)
        yield server
    finally:
        process.terminate()
        process.wait(30)
        log.close()
        exporter.shutdown()
        exporter.server_close()


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/-/ready", timeout=5):
            return True
    except OSError:
        return False
