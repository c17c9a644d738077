"""Pauses: samples of silence among the samples of speech, counted and resumed like them."""

from collections.abc import Awaitable, Callable

from cosyserve.spec import SAMPLE_RATE

_PIECE_MILLISECONDS = 1_000
Play = Callable[[bytes], Awaitable[None]]
"""Takes the next samples of an utterance: s16le, 24 kHz."""


async def play_silence(milliseconds: int, play: Play) -> None:
    """Hand so much silence (s16le, 24 kHz) to `play`, a second at a time. None: nothing is
    played.
    """
    for begin in range(0, milliseconds, _PIECE_MILLISECONDS):
        piece = min(_PIECE_MILLISECONDS, milliseconds - begin)
        await play(bytes(2 * (SAMPLE_RATE * piece // 1000)))
