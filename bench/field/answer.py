"""What one listener heard."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cosyserve.audio.audibility import FirstAudible
from cosyserve.audio.encoding import Encoding
from cosyserve.load.player import BYTES_PER_SAMPLE, Player
from cosyserve.spec import SAMPLE_RATE

ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"
Window = tuple[float, float]
"""Seconds after the load began."""


@dataclass(frozen=True)
class Answer:
    """Seconds since the moment at which the request was due. late: until it was sent. first: until
    the first byte of sound. audible: until the player plays the first audible sample; None without
    one. dry: how often a player that begins with the first byte had nothing left; longest_dry: for
    how long at most. audio: seconds of sound; in_window: of those, what arrived while requests were
    counted. reason: why there is no answer. hint: seconds after which a
    refused one may come again, as the server says. spent: milliseconds until the first sound, by
    what they were spent on, where the server reports it.
    """

    number: int
    counted: bool
    state: str
    late: float
    end: float
    first: float | None = None
    audible: float | None = None
    dry: int = 0
    longest_dry: float = 0.0
    audio: float = 0.0
    in_window: float = 0.0
    reason: str = ""
    hint: float | None = None
    spent: dict[str, float] = field(default_factory=dict)


class Listener:
    """Takes 16-bit PCM of SAMPLE_RATE as it arrives. at: when the request was due, in seconds of
    the load. any_sample: the first sample counts as audible.
    """

    def __init__(self, at: float, window: Window, *, any_sample: bool = False) -> None:
        self._at, self._window, self._any_sample = at, window, any_sample
        self._player, self._loud = Player(), FirstAudible(Encoding.LINEAR16, SAMPLE_RATE)
        self._in_window, self._half = 0.0, b""

    def arrived(self, now: float, audio: bytes) -> None:
        """now: seconds since the request was due."""
        whole = self._half + audio
        cut = len(whole) - len(whole) % BYTES_PER_SAMPLE
        whole, self._half = whole[:cut], whole[cut:]
        if not whole:
            return
        seconds = cut / BYTES_PER_SAMPLE / SAMPLE_RATE
        self._player.hear(now, seconds)
        self._loud.arrived(now, whole)
        begin, end = self._window
        if begin <= self._at + now <= end:
            self._in_window += seconds

    def answer(
        self, number: int, *, counted: bool, late: float, end: float, spent: dict[str, float] | None = None
    ) -> Answer:
        """After the last piece. One without a sample has failed."""
        dry: Sequence[float] = [stall.seconds for stall in self._player.dry]
        first = self._player.first_sound
        return Answer(
            number=number,
            counted=counted,
            state=FAILED if first is None else ANSWERED,
            late=late,
            end=end,
            first=first,
            audible=first if self._any_sample else self._loud.seconds,
            dry=len(dry),
            longest_dry=max(dry, default=0.0),
            audio=self._player.audio,
            in_window=self._in_window,
            reason="an answer without sound" if first is None else "",
            spent=spent or {},
        )
