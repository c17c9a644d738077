"""How many positions a sequence may come to, so that its slot can be reserved before it starts.

Source of the length rules: compatibility specification sections 3.2 and 3.4.
"""

from collections.abc import AsyncGenerator

from cosyserve.errors import InvalidRequest
from services.llm.generation.config import PUBLISHED_LENGTHS, LengthBounds, LlmConfig
from services.llm.generation.request import Prompt, TextStream


def positions_of_whole_text(
    prompt: Prompt, text_ids: int, limit: int, lengths: LengthBounds = PUBLISHED_LENGTHS
) -> int:
    """Positions of a sentence of known text. Raises InvalidRequest when that is over `limit`."""
    wanted = positions_of_prompt(prompt) + text_ids + lengths.longest(text_ids)
    if wanted > limit:
        raise InvalidRequest(
            f"text_ids has {text_ids} ids, which with this prompt may come to {wanted} positions; this server reserves "
            f"at most {limit}"
        )
    return wanted


def longest_arriving_text(config: LlmConfig, prompt: Prompt, limit: int) -> int:
    """Most text ids of a sentence that arrives over time, so that it never outgrows `limit`
    positions in profile `continuous`.

    Raises InvalidRequest when the prompt leaves room for none.
    """
    room = limit - positions_of_prompt(prompt)
    # A short sentence may come to the shortest limit whatever its ratio.
    by_length = (
        int(room / (1 + max(1.0, config.lengths.max_token_text_ratio)))
        if room > 2 * config.lengths.shortest_limit
        else 0
    )
    # Speech made in blocks answers prompt text too: one block of speech for each block of text, and
    # one begun.
    per_text_id = -(-config.speech_block // config.text_block)
    by_blocks = (room - config.speech_block - per_text_id * len(prompt.text_ids)) // (1 + per_text_id)
    most = min(by_length, by_blocks)
    if most < 1:
        raise InvalidRequest(f"the prompt leaves no room for text in the {limit} positions that this server reserves")
    return most


def positions_of_prompt(prompt: Prompt) -> int:
    """Of the voice's own words, and the two that stand before text and before speech."""
    return 2 + len(prompt.text_ids) + len(prompt.speech_tokens)


async def limited_text(stream: TextStream, most: int) -> AsyncGenerator[list[int]]:
    """The pieces of the stream. Raises InvalidRequest when there is no text, or more than `most`
    ids of it.
    """
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
