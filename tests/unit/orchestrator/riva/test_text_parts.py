"""The requests of one stream as one text, and where it is flushed."""

from collections.abc import AsyncIterator, Sequence

import pytest

from cosyserve.foreign import riva_tts_pb2 as riva
from services.orchestrator.riva.servicer import text_parts

FLUSH = None


async def parts_of(texts: Sequence[str]) -> list[str | None]:
    first, *others = [riva.SynthesizeSpeechRequest(text=text) for text in texts]

    async def further() -> AsyncIterator[riva.SynthesizeSpeechRequest]:
        for request in others:
            yield request

    return [FLUSH if part.HasField("flush") else part.text async for part in text_parts(first, further())]


@pytest.mark.parametrize(
    ("texts", "parts"),
    [
        (["It works"], ["It works"]),
        (["It works."], ["It works.", FLUSH]),
        (["It works.", "It does."], ["It works.", FLUSH, " It does.", FLUSH]),
        (["I", "met", "Dr.", "Smith"], ["I", " met", " Dr.", " Smith"]),
        (["Really?", "Yes!"], ["Really?", FLUSH, " Yes!", FLUSH]),
        (["He said “it works.” ", "So"], ["He said “it works.” ", FLUSH, "So"]),
        (["它能用。", "真的"], ["它能用。", FLUSH, " 真的"]),
        (["a ", "b", " c"], ["a ", "b", " c"]),
        (["", "a", "", "b"], ["", "a", "", " b"]),
        (["3.5", "and version 2.0 of it"], ["3.5", " and version 2.0 of it"]),
        (["<speak>It works.", "</speak>"], ["<speak>It works.", " </speak>"]),
    ],
)
async def test_parts(texts: list[str], parts: list[str | None]) -> None:
    assert await parts_of(texts) == parts
