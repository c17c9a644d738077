"""What each key has used: counters of this process, and a line in the log for each call."""

import json
import logging
from collections import OrderedDict
from dataclasses import asdict, dataclass

from cosyserve.metrics import names
from cosyserve.metrics.recent_totals import RecentTotals
from cosyserve.rpc.records.counted_calls import method_name
from services.orchestrator.access.caller import Call

log = logging.getLogger("cosyserve.audit")
MOST_KEYS = 20_000
_REQUESTS = RecentTotals(names.KEY_REQUESTS)
_CHARACTERS, _SECONDS = RecentTotals(names.CHARACTERS), RecentTotals(names.AUDIO_SECONDS)


@dataclass
class Used:
    """Since the process started."""

    requests: int = 0
    characters: int = 0
    audio_seconds: float = 0.0


class UsageByKey:
    """Of the 20,000 keys that were used last. Each line has the counts of its key so far, so that
    the last one of a key is what it has used of this process. process: its number, which each line
    has where several write to one log; 0: there is one.
    """

    def __init__(self, process: int = 0) -> None:
        self._process = {"process": process} if process else {}
        self.used: OrderedDict[str, Used] = OrderedDict()

    def record(self, call: Call | None, method: str, status: str, milliseconds: float) -> None:
        """A call is over. call: None for one that was refused before its caller was known. method:
        as gRPC has it, such as /cosyserve.v1.SynthesisService/Synthesize.
        """
        name = method_name(method)
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
            _REQUESTS.add(1, key=caller.id, tenant=caller.owner, status=status)
            line = {
                "request": call.request_id,
                **({"trace": call.trace_id} if call.trace_id else {}),
                "key": caller.id,
                "tenant": caller.owner,
                **line,
                **self._process,
                "audio_seconds": round(call.audio_seconds, 3),
                "characters": call.characters,
                "since_start": {**asdict(used), "audio_seconds": round(used.audio_seconds, 3)},
            }
        log.info("%s", json.dumps({**line, "milliseconds": round(milliseconds, 1)}))


def count_speech(call: Call) -> None:
    """A call that speaks is over; also of a service without keys."""
    labels = {"key": call.caller.id, "tenant": call.caller.owner}
    _CHARACTERS.add(call.characters, **labels)
    _SECONDS.add(call.audio_seconds, **labels)
