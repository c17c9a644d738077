"""Writes spans into a file of OTLP JSON lines, as OpenTelemetry's collector does: several processes
into one file, which stays below a size.

Needs OpenTelemetry's SDK, so that only a service loads it.
"""

import base64
import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from cosyserve.errors import SettingsError
from cosyserve.settings import TRACE_FILE

log = logging.getLogger(__name__)
MOST_BYTES = 64 << 20
"""Size at which the file is renamed to `previous`, which replaces the one that had that name."""
_IDS = ("traceId", "spanId", "parentSpanId")


def previous(path: Path) -> Path:
    """Where the spans before those of `path` are."""
    return path.with_name(f"{path.name}.1")


class FileSpanExporter(SpanExporter):
    """Appends each batch of spans as one line. A batch that cannot be written is lost; the first
    one is logged.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        """Raises SettingsError if the file cannot be written."""
        self._path, self._most_bytes, self._complained = path, most_bytes, False
        try:
            os.close(self._open())
        except OSError as error:
            raise SettingsError(f"{TRACE_FILE}={str(path)!r} cannot be written: {error.strerror or error}") from error

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            self._append(json.dumps(_json(spans), separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            if not self._complained:
                log.warning("spans are lost, since %s cannot be written: %s", self._path, error.strerror or error)
                self._complained = True
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def _append(self, line: bytes) -> None:
        while True:
            file = self._open()
            try:
                # Without file locks, spans are lost when two processes rename at once, no more.
                with contextlib.suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX)
                state = os.fstat(file)
                if not self._is_current(state):
                    continue
                if state.st_size and state.st_size + len(line) > self._most_bytes:
                    self._path.replace(previous(self._path))
                    continue
                written = 0
                while written < len(line):
                    written += os.write(file, line[written:])
                return
            finally:
                os.close(file)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _is_current(self, state: os.stat_result) -> bool:
        """Whether no other process has renamed the file since it was opened."""
        try:
            return os.path.samestat(state, self._path.stat())
        except FileNotFoundError:
            return False


def _json(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """protobuf's JSON, but with ids in hexadecimal, as OTLP wants them."""
    export: dict[str, Any] = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource in export.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for holder in (span, *span.get("links", ())):
                    for key in _IDS:
                        if key in holder:
                            holder[key] = base64.b64decode(holder[key]).hex()
    return export
