"""An earlier first sound, exactly: a prompt cut at its start so that the first border of the grid
lies soon behind it.

Blocks of 25 tokens are counted from the first prompt token, so the first hop is 25 - P mod 25
tokens long, and it sounds if it is longer than the ten tokens that the vocoder holds back
(docs/streaming.md). Up to 24 tokens at the start of the prompt, under a second, decide that by
chance. What is cut is no longer heard by the flow, and every frame behind it starts from other
noise: the samples are those of a voice that was recorded with the shorter prompt, no better and no
worse, and different.
"""

from cosyserve.errors import SettingsError
from cosyserve.spec import CHUNK_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.inputs.request import Voice

SHORTEST, LONGEST = 11, CHUNK_TOKENS
LEAST_PROMPT = 2 * CHUNK_TOKENS
"""Tokens that are left at least: two seconds of the voice."""


def check_first_hop(tokens: int) -> None:
    """Raise SettingsError unless `tokens` is 0, for prompts as they come, or 11..25."""
    if tokens and not SHORTEST <= tokens <= LONGEST:
        raise SettingsError(
            f"first_hop_tokens is {tokens}; 0 leaves prompts as they are, else {SHORTEST} to {LONGEST} is allowed"
        )


def trim_prompt(voice: Voice, first_hop: int) -> Voice:
    """The voice with a first hop of `first_hop` tokens, 0: unchanged. A prompt that would become
    shorter than two seconds stays.
    """
    prompt = len(voice.tokens)
    drop = (prompt + first_hop) % CHUNK_TOKENS if first_hop else 0
    if drop == 0 or prompt - drop < LEAST_PROMPT:
        return voice
    return Voice(voice.tokens[drop:], voice.mel[MEL_FRAMES_PER_TOKEN * drop :], voice.embedding, voice.key)
