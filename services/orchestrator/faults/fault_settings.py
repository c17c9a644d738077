"""Settings of the orchestrator about faults of its stages and about load near its limit."""

from dataclasses import dataclass

from cosyserve.rpc.load.breaker import BreakerRules
from cosyserve.settings import require_range


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
