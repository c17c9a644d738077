"""Long silences of a speech-token model are not spoken: which tokens stay, for any pieces and any
replica, and that positions count what is spoken.
"""

import asyncio
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.generation import SilentRuns, SilentTokens
from services.orchestrator.decode_ahead import seconds_of
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import Sentence, SpokenWord
from services.orchestrator.speech.word_alignment import word_times

RECORDED = np.load(Path(__file__).parents[2] / "golden/tiny3/silent.npz")
SILENT = SilentTokens(ids=frozenset({1, 2}), longest_run=2)
TOKENS = st.lists(st.sampled_from([1, 2, 3, 4]), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=6)


def pieces(tokens: list[int], cuts: list[int]) -> list[list[int]]:
    places = sorted({0, len(tokens), *(min(cut, len(tokens)) for cut in cuts)})
    return [tokens[start:end] for start, end in pairwise(places)]


def stream_of(tokens: list[int], cuts: list[int], silent: SilentTokens | None = SILENT) -> TokenStream:
    stream = TokenStream(Sentence(0, (1,)), seed=1)
    stream.accept(has_text_starts=True, silent=silent)
    for piece in pieces(tokens, cuts):
        stream.extend(piece)
    return stream


async def read(stream: TokenStream) -> list[int]:
    return [token for piece in [piece async for piece in stream.read()] for token in piece]


def test_the_recorded_tokens_are_kept() -> None:
    runs = SilentRuns(COSYVOICE3.silent)
    runs.extend(RECORDED["spoken"].tolist())
    assert runs.spoken == RECORDED["kept"].tolist()


@given(TOKENS, CUTS)
def test_of_each_run_the_first_stay_whatever_the_pieces(tokens: list[int], cuts: list[int]) -> None:
    stream = stream_of(tokens, cuts)
    kept, run = list[int](), 0
    for token in tokens:
        run = run + 1 if token in SILENT.ids else 0
        if run <= SILENT.longest_run:
            kept.append(token)
    assert stream.spoken == kept
    # The model that carries a sentence on gets everything.
    assert stream.tokens == tokens
    for place in range(len(tokens) + 1):
        alone = SilentRuns(SILENT)
        alone.extend(tokens[:place])
        assert stream.spoken_before(place) == len(alone.spoken)


async def test_readers_before_and_after_get_what_is_spoken() -> None:
    stream = stream_of([3, 1, 1], [])
    early = asyncio.create_task(read(stream))
    await asyncio.sleep(0)
    # Another replica of the model carries the sentence on in the middle of a run.
    stream.accept(has_text_starts=True, silent=SILENT)
    stream.extend([1, 2, 3])
    stream.finish(GenerationTiming(0.0, 0.0, 0.0))
    assert await early == await read(stream) == [3, 1, 1, 3]


async def test_everything_is_spoken_without_silent_tokens() -> None:
    stream = stream_of([1] * 9, [4], None)
    stream.finish(GenerationTiming(0.0, 0.0, 0.0))
    assert await read(stream) == [1] * 9


def test_times_count_what_is_spoken() -> None:
    words = (SpokenWord("one", 0, 1), SpokenWord("two", 1, 1))
    stream = TokenStream(Sentence(0, (1, 2), 0, words), seed=1)
    stream.accept(has_text_starts=True, silent=SILENT)
    stream.extend([3, 1, 1, 1, 2, 4, 3])
    stream.finish(GenerationTiming(0.0, 0.0, 0.0, (0, 5)))
    # Two of the four silent tokens are left out, so the second word begins with the fourth token.
    assert [(time.start, time.end) for time in word_times(stream, 0, 1.0)] == [
        pytest.approx((0.0, 0.12)),
        pytest.approx((0.12, 0.2)),
    ]
    assert seconds_of(stream, 1.0) == pytest.approx(0.2)
