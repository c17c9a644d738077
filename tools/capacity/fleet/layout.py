"""What is simulated: pods of each stage with their limits, how they are scaled, and the speech that
is asked for.
"""

from dataclasses import dataclass, field

from cosyserve.capacity.scaling import Scaling

STAGES = ("gateway", "orchestrator", "frontend", "llm", "token2wav")


@dataclass(frozen=True, kw_only=True)
class Speech:
    """seconds: of a sentence, shortest and longest. prompt_tokens: of the voice. prompt_positions:
    of the LLM, voice and text. first_tokens: of the first message of the LLM. buffer_seconds: of
    the players.
    """

    seconds: tuple[float, float] = (2.4, 3.8)
    prompt_tokens: int = 87
    prompt_positions: int = 130
    first_tokens: int = 16
    buffer_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FleetLayout:
    """replicas: pods of each stage at the start. shared: every token2wav has its GPU together with
    an LLM, as far as there are LLMs; otherwise each has one of its own.

    The limits are settings of the services: orchestrator_streams MAX_STREAMS, adaptive
    ADAPTIVE_LIMIT, llm_slots MAX_SEQUENCES, llm_waiting MAX_WAITING, token2wav_streams MAX_STREAMS,
    reserve_tokens RESERVE_TOKENS, and pages what STATE_BYTES holds, all of one pod.

    scaling: by stage; a stage without one keeps its pods. failures: seconds since the start, and
    the stage of which one pod is lost then; a pod that takes its place begins to start.
    start_seconds: from the creation of a pod to its readiness.
    """

    replicas: dict[str, int]
    shared: bool = False
    orchestrator_streams: int = 512
    adaptive: bool = False
    llm_slots: int = 128
    llm_waiting: int = 256
    token2wav_streams: int = 512
    reserve_tokens: int = 25
    pages: int = 700
    widest_step: int = 32
    scaling: dict[str, Scaling] = field(default_factory=dict)
    failures: tuple[tuple[float, str], ...] = ()
    start_seconds: dict[str, float] = field(default_factory=dict)
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if missing := [stage for stage in STAGES if self.replicas.get(stage, 0) < 1]:
            raise ValueError(f"no pod of {', '.join(missing)}; every stage needs one")
        if self.shared and self.replicas["llm"] > self.replicas["token2wav"]:
            raise ValueError(
                f"{self.replicas['llm']} pods of llm share the GPUs of {self.replicas['token2wav']} of token2wav"
            )
        if unknown := sorted({stage for _, stage in self.failures} - set(STAGES)):
            raise ValueError(f"{unknown[0]} is no stage; there are {', '.join(STAGES)}")
