"""The rows of the measurement: how the GPU is shared, and what each of the two processes does."""

from dataclasses import dataclass

HIGH, NORMAL, EARLY, SEVERAL = "high", "normal", "early", "several"
"""Ways of the speech-token model: its stream goes before others, or not; it does, and in a step for
one sentence a kernel comes at once, to wait on the device, instead of when the product of the one
before is done; it does, and that step has the blocks of one for several sentences."""
MEETING, APART, AHEAD = "meeting", "apart", "ahead"
"""Ways of a pass: as it serves; a product a launch, so that no programs wait for each other; as it
serves, on a stream of high priority.
"""
ONE, COLD = 1, 4
"""Units of a pass: behind a prompt of 87 tokens that is kept, and with the prompt."""


@dataclass(frozen=True)
class Decoding:
    """A speech-token model at work. pace: least seconds from token to token, 0: as fast as it
    can.
    """

    way: str = HIGH
    pace: float = 0.0
    sentences: int = 1

    def __str__(self) -> str:
        many = "one sentence" if self.sentences == 1 else f"{self.sentences} sentences"
        paced = f", a token in {1000 * self.pace:g} ms" if self.pace else ""
        return f"{many}, {_LLM[self.way]}{paced}"


@dataclass(frozen=True)
class Row:
    """together: both processes run at the same time, by MPS; else in turns. llm: None while its
    process is idle. units: of the passes that are timed one after the other. service: passes go
    through the service over gRPC, instead of `units`."""

    together: bool
    llm: Decoding | None
    way: str = MEETING
    units: tuple[int, ...] = (ONE, COLD)
    service: bool = False

    @property
    def name(self) -> str:
        """Of its figures."""
        return f"{self.gpu}; {self.other}; {self.passes}"

    @property
    def gpu(self) -> str:
        return "together" if self.together else "in turns"

    @property
    def other(self) -> str:
        """What the speech-token model does."""
        return str(self.llm) if self.llm else "idle"

    @property
    def passes(self) -> str:
        """What is timed."""
        if self.service:
            return "over gRPC"
        return _PASSES[self.way] if self.units else "none"


_LLM = {
    HIGH: "high priority",
    NORMAL: "normal priority",
    EARLY: "high priority, kernels come at once",
    SEVERAL: "high priority, blocks of several",
}
_PASSES = {MEETING: "as served", APART: "a product a launch", AHEAD: "high priority"}

ROWS = (
    Row(False, None),
    Row(False, Decoding()),
    Row(True, None, service=True),
    *(Row(True, one, service=True) for one in (Decoding(), Decoding(NORMAL), Decoding(sentences=2), Decoding(EARLY))),
    Row(True, Decoding(), units=()),
    Row(True, Decoding(NORMAL), units=()),
    Row(True, None),
    Row(True, Decoding()),
    Row(True, Decoding(NORMAL)),
    Row(True, Decoding(pace=0.002)),
    Row(True, Decoding(pace=0.005)),
    Row(True, Decoding(sentences=2)),
    Row(True, Decoding(EARLY)),
    Row(True, Decoding(SEVERAL)),
    Row(True, None, APART, (ONE,)),
    Row(True, Decoding(), APART, (ONE,)),
    Row(True, Decoding(NORMAL), APART, (ONE,)),
    Row(True, Decoding(), AHEAD),
    Row(True, Decoding(NORMAL), AHEAD),
)
"""In the order in which they are measured; those over gRPC come first of theirs, while no other
process has programs that meet.
"""
