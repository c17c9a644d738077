"""Pauses between sentences: how long they are, and the samples of silence that play them. These are
counted and resumed like the samples of speech.
"""

from collections.abc import Awaitable, Callable

from cosyserve.spec import SAMPLE_RATE

_PIECE_MILLISECONDS = 1_000
Play = Callable[[bytes], Awaitable[None]]
"""Takes the next samples of an utterance: s16le, 24 kHz."""
SENTENCE_PAUSE_MILLISECONDS = 200
"""Added after a sentence of LONG_TOKENS or more: together with the 200 to 280 ms that the bundled
voices leave (bench.sentence_pause) this is the pause of a human reader.
"""
SHORT_TOKENS, LONG_TOKENS = 20, 50
"""Speech tokens, 40 ms each: no pause is added after sentences up to the first number, the full
pause from the second number on, and a proportional one between them.
"""


def default_pause(tokens_before: int) -> int:
    """Milliseconds of pause after a sentence of so many speech tokens, if the request sets none.

    Speakers join short replies: the teacher of the bundled voices pauses for a median of 70 ms
    (af_heart) and 50 ms (am_michael) if one of two sentences is a single word, far less than the
    voices leave by themselves.
    """
    share = (tokens_before - SHORT_TOKENS) / (LONG_TOKENS - SHORT_TOKENS)
    return round(SENTENCE_PAUSE_MILLISECONDS * min(max(share, 0.0), 1.0))


async def play_silence(milliseconds: int, play: Play) -> None:
    """Hand so much silence (s16le, 24 kHz) to `play`, at most a second at a time; nothing for 0."""
    for begin in range(0, milliseconds, _PIECE_MILLISECONDS):
        piece = min(_PIECE_MILLISECONDS, milliseconds - begin)
        await play(bytes(2 * (SAMPLE_RATE * piece // 1000)))
