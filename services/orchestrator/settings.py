"""Settings of the orchestrator: variables COSYSERVE_ORCHESTRATOR_*."""

from dataclasses import dataclass

from cosyserve.rpc.server import ServerSettings

PREFIX = "COSYSERVE_ORCHESTRATOR_"
LONGEST_IDLE_SECONDS = 180
ADAPTIVE_LIMITS = ("auto", "on", "off")
_LEAST_WAITING_CHARACTERS = 1_000
"""Text waits until its sentence is complete; one that does not end is cut behind 400 characters,
and with less room would wait for ever.
"""


@dataclass(frozen=True, kw_only=True)
class OrchestratorSettings(ServerSettings):
    frontend: tuple[str, ...]
    """Addresses of the frontend's replicas, comma separated: host:port or any gRPC target such as
    dns:///name:port.
    """
    llm: tuple[str, ...]
    token2wav: tuple[str, ...]
    max_message_bytes: int = 22 * 1024 * 1024
    """Room for two recordings of 10 MiB: what is to be converted, and whom to speak like."""
    max_connections: int = 256
    max_streams_per_connection: int = 512
    max_incoming_messages: int = 8
    warm_up_from: tuple[str, ...] = ()
    """Callers of the public door are strangers, also those of private networks."""
    max_streams: int = 16
    """Requests at once, at most what the stages behind it take; more are refused with
    RESOURCE_EXHAUSTED and a retry hint. One that brings two recordings of the largest size holds 80
    MB while it lasts."""
    adaptive_limit: str = "auto"
    """Whether fewer are admitted where the stages cannot speak so many in time, by what they
    measure. auto: what engines on a CPU measure counts; on: of all; off: max_streams are admitted.
    """
    max_characters: int = 20_000
    max_stream_characters: int = 200_000
    """Text of one StreamingSynthesize, all fragments together; the frontends have a setting of the
    same name. An hour is about 60,000.
    """
    max_waiting_characters: int = 20_000
    """Text of one StreamingSynthesize that is read before it can be spoken; with so much waiting
    its caller is read no further. At least 1000."""
    max_stream_seconds: float = 14_400.0
    """A StreamingSynthesize that takes longer ends with DEADLINE_EXCEEDED."""
    idle_seconds: float = 30.0
    """A StreamingSynthesize on which no message comes for so long ends with DEADLINE_EXCEEDED,
    unless it asks otherwise; 1 to 180. One that is kept open by blank text alone, without audio,
    lends its place after that time."""
    max_unary_seconds: float = 60.0
    """Longest utterance that SynthesizeUnary gives at once."""
    max_request_seconds: float = 3_600.0
    """A request that takes longer ends with DEADLINE_EXCEEDED, whether or not the caller set a
    deadline.
    """
    stall_seconds: float = 20.0
    """A stage that owes an answer and gives none for this long is taken for dead."""
    recovery_seconds: float = 15.0
    """How long a request under way waits for a replica of a dead stage to come up."""
    reader_seconds: float = 60.0
    """A caller that takes no audio for this long is hung up on, so that it does not hold a
    decoder's memory.
    """
    attempts: int = 4
    """Calls to one stage for one piece of work."""
    guards: bool = True
    """Whether speech that no one could understand (Guard in synthesis.proto) is an error; off for
    weights that cannot speak, such as random ones in a measurement. Numbers that are not finite are
    an error in any case."""
    warm_voices: int = 8
    """Voices, the default one first, whose prompt state each decoder computes when it comes up; 0:
    none before they are asked for.
    """
    max_voice_makings: int = 8
    """Recordings being made voices at once; more are refused with RESOURCE_EXHAUSTED and a retry
    hint.
    """
    voice_seconds: float = 120.0
    """A frontend that has not read a recording (for a voice, a prompt or a conversion) within this
    time is taken for dead.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("frontend", "llm", "token2wav"):
            if not getattr(self, name):
                raise ValueError(f"{name.upper()} names no address")
        for name in (
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
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name.upper()} must be positive, got {getattr(self, name)}")
        if self.adaptive_limit not in ADAPTIVE_LIMITS:
            raise ValueError(f"ADAPTIVE_LIMIT is {self.adaptive_limit!r}, allowed: {', '.join(ADAPTIVE_LIMITS)}")
        if self.max_waiting_characters < _LEAST_WAITING_CHARACTERS:
            raise ValueError(
                f"MAX_WAITING_CHARACTERS is {self.max_waiting_characters}, allowed are at least "
                f"{_LEAST_WAITING_CHARACTERS}"
            )
        if not 1 <= self.idle_seconds <= LONGEST_IDLE_SECONDS:
            raise ValueError(f"IDLE_SECONDS is {self.idle_seconds:g}, allowed are 1 to {LONGEST_IDLE_SECONDS}")
        if self.warm_voices < 0:
            raise ValueError(f"WARM_VOICES must not be negative, got {self.warm_voices}")
        if self.recovery_seconds < 0:
            raise ValueError(f"RECOVERY_SECONDS must not be negative, got {self.recovery_seconds}")
