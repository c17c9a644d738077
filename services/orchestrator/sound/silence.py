"""Pauses between sentences: their default length, and the silence that is sent for them. Samples of
silence are counted like samples of speech, so that a resumed stream continues at the right sample.
"""

from collections.abc import Awaitable, Callable

from cosyserve.spec import SAMPLE_RATE

_PIECE_MILLISECONDS = 1_000
Play = Callable[[bytes], Awaitable[None]]
"""Receives the next samples of an utterance: mono, s16le, 24 kHz."""
SENTENCE_PAUSE_MILLISECONDS = 200
"""Added after a sentence of LONG_TOKENS or more. The bundled voices themselves end a sentence with
200 to 280 ms of silence; the sum is a typical pause of a human reader.
"""
SHORT_TOKENS, LONG_TOKENS = 20, 50
"""Length of a sentence in speech tokens, 40 ms each. Up to SHORT_TOKENS no pause is added, from
LONG_TOKENS on SENTENCE_PAUSE_MILLISECONDS; between the two the pause grows linearly.
"""


def default_pause(tokens_before: int) -> int:
    """Milliseconds of pause to add after a sentence of `tokens_before` speech tokens when the
    request sets no pause.

    Speakers pause only briefly next to a short sentence. The teacher model of the bundled voices
    pauses for a median of 70 ms (af_heart) and 50 ms (am_michael) if one of two sentences is a
    single word. That is far less than the silence with which the voices end a sentence, so
    nothing is added after a short one.
    """
    share = (tokens_before - SHORT_TOKENS) / (LONG_TOKENS - SHORT_TOKENS)
    return round(SENTENCE_PAUSE_MILLISECONDS * min(max(share, 0.0), 1.0))


async def play_silence(milliseconds: int, play: Play) -> None:
    """Pass `milliseconds` of silence (mono, s16le, 24 kHz) to `play`, at most one second per call.
    For 0 or less, `play` is not called.
    """
    for begin in range(0, milliseconds, _PIECE_MILLISECONDS):
        piece = min(_PIECE_MILLISECONDS, milliseconds - begin)
        await play(bytes(2 * (SAMPLE_RATE * piece // 1000)))
