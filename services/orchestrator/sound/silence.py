"""Pauses between sentences: how long they are, and the samples of silence that play them. These are
counted and resumed like the samples of speech.
"""

from collections.abc import Awaitable, Callable

from cosyserve.spec import SAMPLE_RATE

_PIECE_MILLISECONDS = 1_000
Play = Callable[[bytes], Awaitable[None]]
"""Takes the next samples of an utterance: s16le, 24 kHz."""
SENTENCE_PAUSE_MILLISECONDS = 200
"""Behind a sentence of LONG_TOKENS: with the 200 to 280 that the bundled voices leave
(bench.sentence_pause) it is what readers pause.
"""
SHORT_TOKENS, LONG_TOKENS = 20, 50
"""Speech tokens, 40 ms each: up to the first nothing is added, from the second on all, and between
them in proportion.
"""


def default_pause(tokens_before: int) -> int:
    """Milliseconds behind a sentence of so many speech tokens, where the request leaves the pause
    to us.

    Speakers run short replies together: the teacher of the bundled voices pauses 70 ms (af_heart)
    and 50 ms (am_michael) in the median where one of two sentences is a single word, far less than
    the voices leave by themselves.
    """
    share = (tokens_before - SHORT_TOKENS) / (LONG_TOKENS - SHORT_TOKENS)
    return round(SENTENCE_PAUSE_MILLISECONDS * min(max(share, 0.0), 1.0))


async def play_silence(milliseconds: int, play: Play) -> None:
    """Hand so much silence (s16le, 24 kHz) to `play`, a second at a time. None: nothing is
    played.
    """
    for begin in range(0, milliseconds, _PIECE_MILLISECONDS):
        piece = min(_PIECE_MILLISECONDS, milliseconds - begin)
        await play(bytes(2 * (SAMPLE_RATE * piece // 1000)))
