"""Checks of the flow's input, before any work, and of its output."""

import torch
from torch import Tensor

from cosyserve.errors import InternalFault, InvalidRequest
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, MAX_FLOW_FRAMES, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.stream_cache import FlowState
from services.token2wav.flow.weights import FlowConfig

LARGEST_MEL = 88.0
"""Mels are natural logarithms of magnitudes, and float32 has no magnitude beyond this. Speech lies
between -12 and 3.
"""
_MAX_TOKENS = MAX_FLOW_FRAMES // MEL_FRAMES_PER_TOKEN


def check_voice(voice: VoicePrompt, config: FlowConfig) -> None:
    """Raise InvalidRequest unless tokens, mel and embedding fit the model and one another."""
    prompt = voice.tokens.numel()
    if prompt:
        check_tokens(voice.tokens, config.vocabulary, "prompt token")
    if tuple(voice.mel.shape) != (MEL_FRAMES_PER_TOKEN * prompt, MEL_BINS):
        raise InvalidRequest(
            f"the prompt's mel is {list(voice.mel.shape)}, expected [{MEL_FRAMES_PER_TOKEN * prompt}, {MEL_BINS}] "
            f"for its {prompt} tokens: {MEL_FRAMES_PER_TOKEN} frames a token"
        )
    if tuple(voice.embedding.shape) != (config.speaker,):
        raise InvalidRequest(f"the speaker embedding is {list(voice.embedding.shape)}, expected [{config.speaker}]")


def check_tokens(tokens: Tensor, vocabulary: int, name: str = "speech token") -> None:
    """Raise InvalidRequest unless `tokens` is one row of at least one id in 0..vocabulary - 1."""
    if tokens.dim() != 1 or tokens.numel() == 0:
        raise InvalidRequest(f"{name}s come as one row of at least one, not as {list(tokens.shape)}")
    bad = ((tokens < 0) | (tokens >= vocabulary)).nonzero()
    if bad.numel():
        at = int(bad[0, 0])
        raise InvalidRequest(f"{name} {at} is {int(tokens[at])}, allowed are 0..{vocabulary - 1}")


def check_length(tokens: int) -> None:
    """Raise InvalidRequest for more tokens, prompt included, than the noise table covers."""
    if tokens > _MAX_TOKENS:
        raise InvalidRequest(
            f"{tokens} speech tokens with the prompt's, allowed are {_MAX_TOKENS}: the flow's noise ends after "
            f"{MAX_FLOW_FRAMES} frames"
        )


def check_block(state: FlowState, block: Tensor, ahead: Tensor, vocabulary: int) -> None:
    """Raise InternalFault for a block off the grid, InvalidRequest for ids or a length that the
    model does not support.
    """
    check_tokens(block, vocabulary)
    if ahead.numel():
        check_tokens(ahead, vocabulary, "look-ahead token")
    count, seen = block.numel(), ahead.numel()
    if state.position % CHUNK_TOKENS:
        raise InternalFault(
            f"a block after the last: the stream ended off the grid of {CHUNK_TOKENS} tokens, at {state.position}"
        )
    if count > CHUNK_TOKENS or seen > LOOKAHEAD_TOKENS or (count < CHUNK_TOKENS and seen):
        raise InternalFault(
            f"a block of {count} tokens with {seen} behind it; blocks have {CHUNK_TOKENS} and see {LOOKAHEAD_TOKENS}"
        )
    check_length(state.position + count)


def plausible(mels: Tensor) -> Tensor:
    """mels [n, ...] -> bool [n]: whether all values of a row are finite and within LARGEST_MEL."""
    return (mels.abs() <= LARGEST_MEL).flatten(1).all(dim=1)


def all_plausible(mels: Tensor) -> bool:
    """The same for all rows together. Waits for the device."""
    return bool(torch.all(plausible(mels)))
