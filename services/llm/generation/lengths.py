"""Upper bounds on the positions of a sequence, so that its KV slot can be reserved before it
starts.

Source of the length rules: compatibility specification sections 3.2 and 3.4.
"""

from collections.abc import AsyncGenerator

from cosyserve.errors import InvalidRequest
from services.llm.generation.config import PUBLISHED_LENGTHS, LengthBounds, LlmConfig
from services.llm.generation.request import Prompt, TextStream


def positions_of_whole_text(
    prompt: Prompt, text_ids: int, limit: int, lengths: LengthBounds = PUBLISHED_LENGTHS
) -> int:
    """Most positions of a sentence whose text is known. Raises InvalidRequest when they exceed
    `limit`.
    """
    wanted = positions_of_prompt(prompt) + text_ids + lengths.longest(text_ids)
    if wanted > limit:
        raise InvalidRequest(
            f"text_ids has {text_ids} ids, which with this prompt may need {wanted} positions; this server reserves "
            f"at most {limit}"
        )
    return wanted


def longest_arriving_text(config: LlmConfig, prompt: Prompt, limit: int) -> int:
    """Most text ids of a sentence whose text arrives over time, so that it never needs more than
    `limit` positions in profile `continuous`.

    Raises InvalidRequest when the prompt leaves no room for text.
    """
    room = limit - positions_of_prompt(prompt)
    # A short sentence may have `shortest_limit` tokens, whatever its ratio.
    by_length = (
        int(room / (1 + max(1.0, config.lengths.max_token_text_ratio)))
        if room > 2 * config.lengths.shortest_limit
        else 0
    )
    # Prompt text, too, is followed by blocks of speech: one for each block of text, and one that
    # has begun.
    per_text_id = -(-config.speech_block // config.text_block)
    by_blocks = (room - config.speech_block - per_text_id * len(prompt.text_ids)) // (1 + per_text_id)
    most = min(by_length, by_blocks)
    if most < 1:
        raise InvalidRequest(f"the prompt leaves no room for text in the {limit} positions that this server reserves")
    return most


def positions_of_prompt(prompt: Prompt) -> int:
    """Positions of the prompt and of the two marks, one before the text and one before the
    speech.
    """
    return 2 + len(prompt.text_ids) + len(prompt.speech_tokens)


async def limited_text(stream: TextStream, most: int) -> AsyncGenerator[list[int]]:
    """Yield the stream. Raises InvalidRequest when it has no ids, or more than `most`."""
    count = 0
    async for ids in stream:
        count += len(ids)
        if count > most:
            raise InvalidRequest(
                f"text has more than {most} ids, the most that this server takes in one stream with this prompt"
            )
        yield ids
    if not count:
        raise InvalidRequest("text has 0 ids; at least 1 has to arrive before the stream is closed")
