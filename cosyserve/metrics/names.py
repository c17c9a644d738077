"""Every metric of cosyserve: its name, unit, labels and meaning, and which services export it.

Names are those of OpenTelemetry; `Metric.prometheus` is what the same metric is called on
`/metrics`, by OpenTelemetry's rules for Prometheus: dots become underscores, the unit is appended,
and `_total` to a counter. Dashboards, alerts and autoscaling are written against these names, so
that none is changed within a major version.
"""

from dataclasses import dataclass
from enum import Enum

SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Buckets of durations; the targets for a first sound, 0.2 and 0.4 s, are borders."""
FACTORS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 5.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
FRONTEND, LLM, TOKEN2WAV, ORCHESTRATOR, GATEWAY = "frontend", "llm", "token2wav", "orchestrator", "gateway"
STAGES = (FRONTEND, LLM, TOKEN2WAV)
SERVICES = (*STAGES, ORCHESTRATOR, GATEWAY)
GRPC = (*STAGES, ORCHESTRATOR)
TERMS = ("admission", FRONTEND, LLM, TOKEN2WAV, "held")
"""Parts of a first sound, in the order in which they follow each other."""
LIMITS = (
    "streams",
    "queue",
    "voices",
    "rate",
    "characters",
    "concurrency",
    "connections",
    "body",
    "memory",
)
"""What a caller may be refused for: all places in use; too many calls wait to be read; voices being
made; requests a minute; characters a minute or a day; requests at once of one key; connections or
requests of the gateway; a body that is too large; audio of whole files.
"""
DEADLINE_QUEUES = {
    FRONTEND: ("call",),
    LLM: ("call", "llm.waiting", "llm.step"),
    TOKEN2WAV: ("call", "token2wav.waiting", "token2wav.step"),
    ORCHESTRATOR: ("call", "orchestrator.admission"),
}
"""Where work waits, or is computed, that is dropped at its deadline, by service."""
HEDGED = ("Analyze", "GetVoice", "DescribeVoice", "ListVoices", "ReadInstruction")
"""Calls of the frontend that a second replica may be asked for."""
OUTCOMES = ("retried", "failed")
"""Of a sentence that failed a guard."""
RESULTS = ("hit", "miss")
"""Of a lookup in a cache."""
CACHES = {FRONTEND: ("voices", "recordings"), TOKEN2WAV: ("prompts",)}
"""By service."""
CERTIFICATE_USES = ("served", "served_ca", "calls", "calls_ca")
"""Of a service its certificate, and the CA of its callers; the same of the calls that it makes."""
METHODS = {
    ORCHESTRATOR: ("Synthesize", "SynthesizeUnary", "StreamingSynthesize", "ConvertVoice"),
    GATEWAY: ("openai", "elevenlabs", "cosyvoice", "vllm_omni", "jambonz", "websocket", "wyoming"),
}
"""By service: methods of the public service that speak, APIs of the gateway. There are more."""
FREQUENT_STATUSES = (
    "OK",
    "CANCELLED",
    "INVALID_ARGUMENT",
    "RESOURCE_EXHAUSTED",
    "DEADLINE_EXCEEDED",
    "UNAVAILABLE",
    "INTERNAL",
)


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Needs(Enum):
    """What a service must have to export a metric at all."""

    NOTHING = ""
    GPU = "a GPU"
    CERTIFICATES = "certificates"


_UNITS = {"s": "seconds", "By": "bytes"}


@dataclass(frozen=True)
class Metric:
    """unit: of UCUM, annotations such as {request} included. services: those that export it.
    borders: of the buckets, of a histogram only.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    services: tuple[str, ...]
    labels: tuple[str, ...] = ()
    borders: tuple[float, ...] = ()
    needs: Needs = Needs.NOTHING

    @property
    def prometheus_unit(self) -> str:
        """The unit as it ends the name; empty: none does."""
        return _UNITS.get(self.unit, "ratio" if (self.unit, self.kind) == ("1", Kind.GAUGE) else "")

    @property
    def prometheus(self) -> str:
        """The name on `/metrics`; of a histogram without `_bucket`, `_sum` and `_count`."""
        name = "_".join(filter(None, (self.name.replace(".", "_"), self.prometheus_unit)))
        return f"{name}_total" if self.kind is Kind.COUNTER else name


def _counter(name: str, unit: str, description: str, services: tuple[str, ...], *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, unit, description, services, labels)


def _gauge(
    name: str, unit: str, description: str, services: tuple[str, ...], *labels: str, needs: Needs = Needs.NOTHING
) -> Metric:
    return Metric(name, Kind.GAUGE, unit, description, services, labels, needs=needs)


def _histogram(
    name: str,
    unit: str,
    description: str,
    services: tuple[str, ...],
    *labels: str,
    borders: tuple[float, ...] = SECONDS,
) -> Metric:
    return Metric(name, Kind.HISTOGRAM, unit, description, services, labels, borders)


_O, _OG = (ORCHESTRATOR,), (ORCHESTRATOR, GATEWAY)
_ENGINES = (LLM, TOKEN2WAV)

FIRST_BYTE = _histogram("cosyserve.first_byte", "s", "From the request to the first byte of its audio", _OG, "method")
FIRST_AUDIBLE = _histogram(
    "cosyserve.first_audible",
    "s",
    "From the request to the first audible sample (-40 dBFS) as it is sent",
    _O,
    "method",
)
FIRST_SOUND_TERM = _histogram(
    "cosyserve.first_sound_term", "s", "Parts of the first sound, which add up to cosyserve.first_byte", _O, "term"
)
STAGE_FIRST_RESULT = _histogram(
    "cosyserve.stage_first_result", "s", "From the first input of a call to its first result, in the stage", STAGES
)
REAL_TIME_FACTOR = _histogram(
    "cosyserve.real_time_factor",
    "1",
    "Seconds a finished request took for each second of its audio",
    _O,
    borders=FACTORS,
)
GAPS = _counter("cosyserve.gaps", "{gap}", "Times that a player with a buffer of 40 ms would have run dry", _O)
GAP_SECONDS = _counter("cosyserve.gap", "s", "For how long such players would have been dry", _O)
PLAYBACK_SLACK = _histogram(
    "cosyserve.playback_slack",
    "s",
    "Audio that the listener still had to play when the next piece was sent",
    (ORCHESTRATOR, TOKEN2WAV),
)

STREAMS_ACTIVE = _gauge("cosyserve.streams.active", "{stream}", "Requests that are being spoken", SERVICES)
STREAMS_LIMIT = _gauge("cosyserve.streams.limit", "{stream}", "How many are admitted at once", SERVICES)
STREAMS_WAITING = _gauge(
    "cosyserve.streams.waiting", "{stream}", "Requests that wait for a place or a turn", (FRONTEND, LLM, ORCHESTRATOR)
)
REQUESTS = _counter(
    "cosyserve.requests",
    "{request}",
    "Requests that are over, by the name of their gRPC status",
    _OG,
    "method",
    "status",
)
REFUSALS = _counter("cosyserve.refusals", "{request}", "Requests that a limit refused", _OG, "limit")
CANCELS = _counter("cosyserve.cancels", "{request}", "Requests whose caller hung up", SERVICES)
CANCEL_SECONDS = _histogram(
    "cosyserve.cancel", "s", "From a hang-up until everything that the request held is free", SERVICES
)
FAILOVERS = _counter("cosyserve.failovers", "{stream}", "Streams that went on at another replica", _O, "stage")
GUARDS = _counter(
    "cosyserve.guards",
    "{sentence}",
    "Sentences that failed a guard: retried, or failed for good",
    _O,
    "guard",
    "outcome",
)
FAULTS = _counter("cosyserve.speech.faults", "{sentence}", "Calls that ended with the fault of a guard", GRPC, "guard")
CACHE_LOOKUPS = _counter(
    "cosyserve.cache.lookups",
    "{lookup}",
    "Lookups in a cache, and whether they found something",
    (FRONTEND, TOKEN2WAV),
    "cache",
    "result",
)

LLM_RUNNING = _gauge("cosyserve.llm.running", "{sentence}", "Sentences in the batch", (LLM,))
LLM_WAITING = _gauge("cosyserve.llm.waiting", "{sentence}", "Sentences that wait for a place in the batch", (LLM,))
LLM_SLOTS = _gauge("cosyserve.llm.slots", "{sentence}", "Places in the batch", (LLM,))
TOKEN2WAV_PAGES_USED = _gauge(
    "cosyserve.token2wav.pages.used", "{page}", "Pages of decoder state that streams hold", (TOKEN2WAV,)
)
TOKEN2WAV_PAGES = _gauge("cosyserve.token2wav.pages", "{page}", "Pages of decoder state that there are", (TOKEN2WAV,))
TOKEN2WAV_SLACK = _gauge(
    "cosyserve.token2wav.slack",
    "1",
    "How far the players are from running dry: 0 all are about to, 1 none is",
    (TOKEN2WAV,),
)
BATCH_SIZE = _histogram(
    "cosyserve.batch_size", "{sentence}", "Sentences in a step of the engine", _ENGINES, borders=SIZES
)
QUEUE_AGE = _gauge("cosyserve.queue_age", "s", "How long the oldest waiting item has waited; 0: none waits", GRPC)
TASKS = _gauge("cosyserve.tasks", "{task}", "Tasks of the event loop that are not over", SERVICES)
ENGINE_RUNG = _gauge("cosyserve.engine.rung", "{engine}", "1 for the kind of engine that serves", _ENGINES, "rung")
ENGINE_RUNGS_REFUSED = _gauge(
    "cosyserve.engine.rungs_refused",
    "{engine}",
    "1 for each faster kind of engine that could not serve",
    _ENGINES,
    "rung",
)
GPU_MEMORY = _gauge(
    "cosyserve.gpu.memory", "By", "Memory of the GPU in use, by all its processes", _ENGINES, "gpu", needs=Needs.GPU
)
GPU_MEMORY_LIMIT = _gauge("cosyserve.gpu.memory.limit", "By", "Memory of the GPU", _ENGINES, "gpu", needs=Needs.GPU)
GPU_UTILISATION = _gauge(
    "cosyserve.gpu.utilisation",
    "1",
    "Share of the last moment in which the GPU computed",
    _ENGINES,
    "gpu",
    needs=Needs.GPU,
)

AUDIO_SECONDS = _counter("cosyserve.audio", "s", "Audio sent, by key", _O, "key", "tenant")
CHARACTERS = _counter("cosyserve.characters", "{character}", "Text taken, by key", _O, "key", "tenant")
KEY_REQUESTS = _counter(
    "cosyserve.key.requests", "{request}", "Requests that are over, by key", _O, "key", "tenant", "status"
)

RETRY_BUDGET = _gauge("cosyserve.retry_budget", "1", "Share of the retries of a stage that is left", _O, "stage")
RETRIES_REFUSED = _counter("cosyserve.retries.refused", "{retry}", "Retries that the budget did not allow", _O, "stage")
BREAKER_OPEN = _gauge("cosyserve.breaker.open", "{replica}", "Replicas that get no calls but a probe", _O, "stage")
HEDGES = _counter(
    "cosyserve.hedges", "{call}", "Calls sent to a second replica, by who won", _O, "stage", "call", "winner"
)
BROWNOUT_ACTIVE = _gauge("cosyserve.brownout.active", "{request}", "Requests under way that began near the limit", _O)
DEADLINE_DROPPED = _counter(
    "cosyserve.deadline.dropped", "{call}", "Calls dropped as their deadline passed, or surely would", GRPC, "queue"
)
QUARANTINED = _counter(
    "cosyserve.quarantined", "{request}", "Requests put into quarantine, or refused there", _O, "event"
)

CERTIFICATE_EXPIRY = _gauge(
    "cosyserve.certificate.expiry_timestamp",
    "s",
    "When a certificate in use ends, in seconds since the epoch",
    SERVICES,
    "use",
    needs=Needs.CERTIFICATES,
)
CERTIFICATE_BEGIN = _gauge(
    "cosyserve.certificate.begin_timestamp",
    "s",
    "When that certificate began to be valid, in seconds since the epoch",
    SERVICES,
    "use",
    needs=Needs.CERTIFICATES,
)

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


def service_of(full_name: str) -> str:
    """The service, by the full protobuf name of what it serves, such as cosyserve.v1.LlmService."""
    name = full_name.rsplit(".", 1)[-1].removesuffix("Service").lower()
    return ORCHESTRATOR if name == "synthesis" else name
