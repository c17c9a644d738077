"""Cuts the start of the decoder's prompt, so that the first hop of every sentence needs few new
tokens.

The decoder works in blocks of 25 tokens counted from the first prompt token that it receives
(docs/streaming.md, "The grid"). After P prompt tokens the first hop has 25 - P mod 25 new tokens.
Of its audio the vocoder holds back ten tokens, and the next five are the silence with which voices
begin, so a first hop of 15 tokens or fewer is inaudible and the listener waits for a second one.
Leaving out up to 24 tokens at the start of the prompt, less than a second, makes the first hop
`FIRST_HOP_TOKENS` long for every voice. The speech-token model still receives the whole prompt,
because the transcript belongs to all of it.
"""

from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS

FIRST_HOP_TOKENS = 20
"""The audio after the held-back tokens and the silence, five tokens or 200 ms, plays while the
second hop is computed. With the bundled voice on two CPU cores a first hop of 18 tokens, 160 ms of
audio, waits 165 ms for the second hop; one of 20 is sent at once.
"""
LEAST_PROMPT_TOKENS = 50
"""The decoder keeps at least two seconds of prompt; a shorter prompt is not cut."""
_HELD_BACK_TOKENS = 10
"""20 mel frames, the vocoder's right context with the published kernels (docs/streaming.md)."""
_SILENT_TOKENS = 5
"""0.2 s: `python -m bench.sentence_pause` measures 180 ms before a sentence with one bundled voice
and 100 ms with the other.
"""


def cut_of(prompt_tokens: int) -> int:
    """Tokens to leave out at the start of a prompt of `prompt_tokens`, 0 to 24."""
    cut = (prompt_tokens + FIRST_HOP_TOKENS) % CHUNK_TOKENS
    return cut if prompt_tokens - cut >= LEAST_PROMPT_TOKENS else 0


def tokens_before_sound(decoder_tokens: int) -> int:
    """New speech tokens, including look-ahead, that must be generated before the first audible
    sample, after a decoder prompt of `decoder_tokens`: 19 to 43.
    """
    first = CHUNK_TOKENS - decoder_tokens % CHUNK_TOKENS
    return first + (0 if first > _HELD_BACK_TOKENS + _SILENT_TOKENS else CHUNK_TOKENS) + LOOKAHEAD_TOKENS
