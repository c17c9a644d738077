"""Settings of the orchestrator: variables COSYSERVE_ORCHESTRATOR_*."""

from dataclasses import dataclass

from cosyserve.rpc.load.breaker import BreakerRules
from cosyserve.rpc.names.lookup import LEAST_SECONDS
from cosyserve.settings import require_range
from cosyserve.tls.settings import CallingTlsSettings
from services.orchestrator.access.access_settings import AccessSettings

PREFIX = "COSYSERVE_ORCHESTRATOR_"
LONGEST_IDLE_SECONDS = 180
ADAPTIVE_LIMITS = ("auto", "on", "off")
_MOST_LOOK_UP_SECONDS = 60
_MOST_WORD_WAIT_SECONDS = 60
_LEAST_WAITING_CHARACTERS = 1_000
"""Text waits until its sentence is complete, and a sentence without an end is cut after 400
characters; with less room it would wait for ever.
"""


@dataclass(frozen=True, kw_only=True)
class FaultSettings:
    """docs/faults.md says what each is for."""

    retry_share: float = 0.2
    """Retries of a stage for each of its successful calls in the last ten seconds, 0 to 1."""
    retries_per_second: float = 2.0
    """Retries of a stage that are allowed in any case, on average over ten seconds, 0 to 1000."""
    hedge_share: float = 0.02
    """Share of the calls of the frontend that may be sent to a second replica, 0 to 0.1."""
    breaker_failures: int = 5
    """Failures in a row after which a replica gets no calls for a while, 0 to 1000; 0: it always
    gets them.
    """
    breaker_share: float = 0.5
    """Share of failed calls in ten seconds, of at least 20, after which the same happens, 0.05 to
    1.
    """
    breaker_seconds: float = 2.0
    """Seconds in which it gets no calls for the first time, 0.1 to 30; doubled up to 30 while
    probes fail.
    """
    quarantine_engines: int = 2
    """Lost engines after which a text is refused, 1 to 16; 0: never."""
    quarantine_seconds: float = 600.0
    """How long it is refused, 1 to 86400."""
    brownout_share: float = 0.1
    """Share of MAX_STREAMS, or of the lower limit in effect, whose requests get a longer first hop,
    0 to 1; 0: none.
    """
    brownout_first_hop_tokens: int = 25
    """Least tokens of their first hop, 1 to 100."""

    def __post_init__(self) -> None:
        between = "{NAME} is {value:g}, allowed are {least:g} to {most:g}"
        for name, least, most in (
            ("retry_share", 0, 1),
            ("retries_per_second", 0, 1000),
            ("hedge_share", 0, 0.1),
            ("breaker_failures", 0, 1000),
            ("breaker_share", 0.05, 1),
            ("breaker_seconds", 0.1, 30),
            ("quarantine_engines", 0, 16),
            ("quarantine_seconds", 1, 86_400),
            ("brownout_share", 0, 1),
            ("brownout_first_hop_tokens", 1, 100),
        ):
            require_range(self, (name,), between, least=least, most=most)

    @property
    def breakers(self) -> BreakerRules:
        """The rules of the breakers of all stages."""
        return BreakerRules(self.breaker_failures, self.breaker_share, open_seconds=self.breaker_seconds)


@dataclass(frozen=True, kw_only=True)
class OrchestratorSettings(AccessSettings, CallingTlsSettings, FaultSettings):
    """All settings of the orchestrator."""

    frontend: tuple[str, ...]
    """Addresses of the frontend replicas, comma separated: address:port, or a name as name:port or
    dns:///name:port (dns://server/name:port asks that DNS server), each of whose addresses is a
    replica; or another gRPC target, which is one replica.
    """
    llm: tuple[str, ...]
    """Addresses of the LLM replicas, as for the frontend."""
    token2wav: tuple[str, ...]
    """Addresses of the token2wav replicas, as for the frontend."""
    look_up_seconds: float = 1.0
    """Seconds between two look-ups of a name, 0.5 to 60: a new replica is in use about a second
    after the look-up that finds it.
    """
    max_message_bytes: int = 22 * 1024 * 1024
    """Bytes: room for two recordings of 10 MiB, the one to convert and the prompt."""
    max_connections: int = 256
    max_streams_per_connection: int = 512
    max_incoming_messages: int = 8
    warm_up_from: tuple[str, ...] = ()
    """None: callers of the public service are not trusted, even in private networks."""
    processes: int = 1
    """Processes behind the port, 1 to 64, that are one service: limits, keys, health and metrics
    are those of all of them together. One takes up to a core.
    """
    max_streams: int = 16
    """Requests at once, at most what the stages accept; more are refused with RESOURCE_EXHAUSTED
    and a retry hint. A request with two recordings of the largest size holds 80 MB.
    """
    adaptive_limit: str = "auto"
    """Whether fewer requests are admitted if the measured load shows that the stages cannot keep
    up. auto: counts engines on CPUs; on: counts all engines; off: max_streams are admitted.
    """
    max_characters: int = 20_000
    """Most characters of the text of Synthesize and SynthesizeUnary."""
    max_stream_characters: int = 200_000
    """Characters of one StreamingSynthesize, all fragments together; the frontends have a setting
    of the same name. An hour of speech is about 60,000.
    """
    max_waiting_characters: int = 20_000
    """Characters of one StreamingSynthesize that are buffered before they can be spoken; beyond
    that the caller is not read. At least 1000.
    """
    max_stream_seconds: float = 14_400.0
    """Seconds after which a StreamingSynthesize ends with DEADLINE_EXCEEDED."""
    idle_seconds: float = 30.0
    """Seconds without a message after which a StreamingSynthesize ends with DEADLINE_EXCEEDED,
    unless its setup says otherwise; 1 to 180. A stream that only blank text keeps open, without
    audio, gives its place to another request after this time.
    """
    max_unary_seconds: float = 60.0
    """Longest audio of SynthesizeUnary, in seconds."""
    max_request_seconds: float = 3_600.0
    """Seconds after which a request ends with DEADLINE_EXCEEDED, whether or not the caller set a
    deadline.
    """
    stall_seconds: float = 20.0
    """Seconds without a response after which a stage that owes one is considered dead."""
    recovery_seconds: float = 15.0
    """Seconds that a running request waits for another replica of a dead stage."""
    reader_seconds: float = 60.0
    """Seconds after which a caller that reads no audio is disconnected, so that it does not hold a
    decoder's memory.
    """
    attempts: int = 4
    """Most calls to one stage for one piece of work."""
    guards: bool = True
    """Whether unintelligible speech (Guard in synthesis.proto) is an error; off for weights that
    cannot speak, such as random ones in a measurement. Non-finite numbers are always an error.
    """
    prompt_as_block: bool | None = None
    """Whether token2wav takes a prompt as one block, behind which hops begin (Step-Audio2): then a
    first hop has 25 tokens, for which the LLM's first message is cut. None: as token2wav says.
    """
    warm_voices: int = 8
    """Voices, the default one first, whose prompt state is computed on each decoder that comes up;
    0: none.
    """
    voices_cache_bytes: int = 64 * 1024 * 1024
    """Bytes of the LRU cache of the contents of voices, from 0, in each process; 0: the frontend
    sends the content with each answer. A voice of 30 s takes 0.5 MB.
    """
    max_voice_makings: int = 8
    """Voices being created at once; more are refused with RESOURCE_EXHAUSTED and a retry hint."""
    word_aligners: int = 1
    """Processes that find the times of words in the sound of models that have none, each up to a
    core; they need the package pocketsphinx and are started when first needed. 0: none.
    """
    word_wait_seconds: float = 5.0
    """Seconds that the last message of a response waits for such times, 0 to 60."""
    voice_seconds: float = 120.0
    """Seconds after which a frontend that has not analyzed a recording (for a voice, a prompt or a
    conversion) is considered dead.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        CallingTlsSettings.__post_init__(self)
        FaultSettings.__post_init__(self)
        for name in ("frontend", "llm", "token2wav"):
            if not getattr(self, name):
                raise ValueError(f"{name.upper()} names no address")
        positive = (
            "max_streams",
            "max_characters",
            "attempts",
            "max_stream_characters",
            "max_stream_seconds",
            "max_unary_seconds",
            "stall_seconds",
            "max_request_seconds",
            "reader_seconds",
            "max_voice_makings",
            "voice_seconds",
        )
        require_range(self, positive, "{NAME} must be positive, got {value}", above=0)
        if self.adaptive_limit not in ADAPTIVE_LIMITS:
            raise ValueError(f"ADAPTIVE_LIMIT is {self.adaptive_limit!r}, allowed: {', '.join(ADAPTIVE_LIMITS)}")
        waiting, at_least = ["max_waiting_characters"], "{NAME} is {value}, allowed are at least {least}"
        require_range(self, waiting, at_least, least=_LEAST_WAITING_CHARACTERS)
        require_range(self, ["processes"], "{NAME} is {value}, allowed are {least} to {most}", least=1, most=64)
        look_up, allowed = ["look_up_seconds"], "{NAME} is {value:g}, allowed are {least} to {most}"
        require_range(self, look_up, allowed, least=LEAST_SECONDS, most=_MOST_LOOK_UP_SECONDS)
        idle, between = ["idle_seconds"], "{NAME} is {value:g}, allowed are {least} to {most}"
        require_range(self, idle, between, least=1, most=LONGEST_IDLE_SECONDS)
        not_negative = ("warm_voices", "voices_cache_bytes", "recovery_seconds", "word_aligners")
        require_range(self, not_negative, "{NAME} must not be negative, got {value}", least=0)
        require_range(self, ["word_wait_seconds"], between, least=0, most=_MOST_WORD_WAIT_SECONDS)
