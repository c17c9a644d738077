"""Text ids that arrive over time, counted."""

from collections.abc import AsyncGenerator

from cosyserve.errors import InvalidRequest
from services.llm.generation.request import TextStream


async def counted(stream: TextStream, most: int) -> AsyncGenerator[list[int]]:
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
