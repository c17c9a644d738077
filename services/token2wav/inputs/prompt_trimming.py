"""Earlier first audio without approximation: trims the start of the prompt so that the first grid
border follows soon after it.

Blocks of 25 tokens are counted from the first prompt token, so the first hop is 25 - P mod 25
tokens long. It gives audio only if it is longer than the ten tokens that the vocoder holds back
(docs/streaming.md). Up to 24 tokens at the start of the prompt, less than a second, determine that
by chance. The flow does not see the trimmed tokens, and every later frame starts from different
noise. The samples are therefore those of a voice that was recorded with the shorter prompt:
different, but neither better nor worse.
"""

from cosyserve.errors import SettingsError
from cosyserve.spec import CHUNK_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.inputs.request import Voice

SHORTEST, LONGEST = 11, CHUNK_TOKENS
LEAST_PROMPT = 2 * CHUNK_TOKENS
"""Minimum number of prompt tokens that remain: two seconds of the voice."""


def check_first_hop(tokens: int) -> None:
    """Raise SettingsError unless `tokens` is 0 (prompts stay unchanged) or 11 to 25."""
    if tokens and not SHORTEST <= tokens <= LONGEST:
        raise SettingsError(
            f"first_hop_tokens is {tokens}; 0 leaves prompts as they are, else {SHORTEST} to {LONGEST} is allowed"
        )


def trim_prompt(voice: Voice, first_hop: int) -> Voice:
    """The voice with its prompt trimmed for a first hop of `first_hop` tokens; 0 leaves it
    unchanged. A prompt that would become shorter than two seconds is not trimmed.
    """
    prompt = len(voice.tokens)
    drop = (prompt + first_hop) % CHUNK_TOKENS if first_hop else 0
    if drop == 0 or prompt - drop < LEAST_PROMPT:
        return voice
    return Voice(voice.tokens[drop:], voice.mel[MEL_FRAMES_PER_TOKEN * drop :], voice.embedding, voice.key)
