"""What requests between engines that only take time came to."""

from dataclasses import dataclass, field

from cosyserve.load.player import Player


@dataclass
class Outcome:
    """first: seconds to the first sound of each request. seconds: of the whole run. widths: grid
    blocks of each step of token2wav.
    """

    first: list[float] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    audio: float = 0.0
    seconds: float = 0.0
    busy: float = 0.0
    widths: list[int] = field(default_factory=list)

    def add(self, player: Player) -> None:
        """One more request is over."""
        assert player.first_sound is not None
        self.first.append(player.first_sound)
        self.gaps.append(player.gaps)
        self.stalls.append(player.stalls)
        self.audio += player.audio

    def join(self, other: "Outcome") -> None:
        """The other's requests and times count here, too."""
        self.first += other.first
        self.gaps += other.gaps
        self.stalls += other.stalls
        self.widths += other.widths
        self.audio += other.audio
        self.seconds += other.seconds
        self.busy += other.busy

    def first_sound(self, share: float) -> float:
        """Seconds within which this share of requests sounded."""
        return sorted(self.first)[min(int(share * len(self.first)), len(self.first) - 1)]

    @property
    def gap_free(self) -> float:
        """Share of requests whose player never ran dry."""
        return sum(gaps == 0 for gaps in self.gaps) / len(self.gaps)
