"""How much of the start of a voice's prompt is left out for an early first sound.

The flow works in blocks of 25 tokens, counted from the first prompt token that it receives
(docs/streaming.md, "The grid"). After P prompt tokens the first hop has 25 - P mod 25 new tokens.
Up to 24 tokens less at the start of the prompt, less than a second, decide that length. The
speech-token model still receives the whole prompt, because the transcript belongs to all of it.
"""

from cosyserve.generations.generation import Generation
from cosyserve.spec import CHUNK_TOKENS

LEAST_PROMPT_TOKENS = 2 * CHUNK_TOKENS
"""Two seconds of the voice remain; a prompt that would become shorter is not cut."""
SILENT_TOKENS = 5
"""0.2 s: before a sentence one bundled voice is silent for 180 ms and the other for 100 ms, as
measured by a study that is no longer in the repository.
"""
_AUDIBLE_TOKENS = 5
"""200 ms that play while the second hop is computed. With the bundled voice on two CPU cores a
first hop of 18 tokens, 160 ms of audio, waits 165 ms for the second hop; one of 20 is sent at once.
"""


def audible_first_hop(generation: Generation) -> int:
    """Tokens of the shortest first hop in which something can be heard: 20 of CosyVoice2. Of its
    sound the vocoder holds back ten tokens (CosyVoice3's: two), and the next five are the silence
    with which voices begin, so that a first hop of 15 tokens or fewer (CosyVoice3: seven) is
    inaudible and the listener waits for a second one.
    """
    return generation.hold_back_tokens + SILENT_TOKENS + _AUDIBLE_TOKENS


def cut_for(prompt_tokens: int, first_hop: int) -> int:
    """Tokens to leave out at the start of a prompt of `prompt_tokens` so that the first hop behind
    it has `first_hop` tokens, 0 to 24; 0 for a `first_hop` of 0.
    """
    cut = (prompt_tokens + first_hop) % CHUNK_TOKENS if first_hop else 0
    return cut if prompt_tokens - cut >= LEAST_PROMPT_TOKENS else 0
