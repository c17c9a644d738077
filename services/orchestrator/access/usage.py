"""What each key has used: counters of this process, and a line in the log for each call."""

import json
import logging
from collections import OrderedDict
from dataclasses import asdict, dataclass

from cosyserve import telemetry
from services.orchestrator.access.caller import Call

log = logging.getLogger("cosyserve.audit")
MOST_KEYS = 20_000
_OWN = "cosyserve.v1"
_REQUESTS = telemetry.meter.create_counter("cosyserve.usage.requests", "{request}", "Calls by key, method and status")
_CHARACTERS = telemetry.meter.create_counter("cosyserve.usage.characters", "{character}", "Text taken, by key")
_SECONDS = telemetry.meter.create_counter("cosyserve.usage.audio", "s", "Audio sent, by key")


@dataclass
class Used:
    """Since the process started."""

    requests: int = 0
    characters: int = 0
    audio_seconds: float = 0.0


class UsageByKey:
    """Of the 20,000 keys that were used last. Each line has the counts of its key so far, so that
    the last one of a key is what it has used of this process.
    """

    def __init__(self) -> None:
        self.used: OrderedDict[str, Used] = OrderedDict()

    def record(self, call: Call | None, method: str, status: str, milliseconds: float) -> None:
        """A call is over. call: None for one that was refused before its caller was known. method:
        as gRPC has it, such as /cosyserve.v1.SynthesisService/Synthesize.
        """
        name = _name_of(method)
        line: dict[str, object] = {"method": name, "status": status}
        if call is not None:
            caller = call.caller
            used = self.used.setdefault(caller.id, Used())
            self.used.move_to_end(caller.id)
            if len(self.used) > MOST_KEYS:
                self.used.popitem(last=False)
            used.requests += 1
            used.characters += call.characters
            used.audio_seconds += call.audio_seconds
            labels = {"key": caller.id, "tenant": caller.owner}
            _REQUESTS.add(1, {**labels, "method": name, "status": status})
            _CHARACTERS.add(call.characters, labels)
            _SECONDS.add(call.audio_seconds, labels)
            line = {
                "request": call.request_id,
                "key": caller.id,
                "tenant": caller.owner,
                **line,
                "audio_seconds": round(call.audio_seconds, 3),
                "characters": call.characters,
                "since_start": {**asdict(used), "audio_seconds": round(used.audio_seconds, 3)},
            }
        log.info("%s", json.dumps({**line, "milliseconds": round(milliseconds, 1)}))


def _name_of(method: str) -> str:
    """The method; of another server's contract, or of gRPC itself, with its service in front, since
    several have a `Synthesize`.
    """
    service, _, name = method.removeprefix("/").rpartition("/")
    package, _, kind = service.rpartition(".")
    return name if package == _OWN else f"{kind}/{name}"
