"""Every shape that the schedules can lead to is within the profiles for which engines are built."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.engines.backend import replace_networks
from services.token2wav.engines.runtime import Port, Shape, Shapes
from services.token2wav.engines.shapes import (
    LONGEST_TOKENS,
    USUAL_TOKENS,
    covering,
    encoder_shapes,
    estimator_shapes,
    frames_around,
    padded,
    profiles,
)
from services.token2wav.engines.slots import Slots
from services.token2wav.inputs.chunking import next_border, schedule
from services.token2wav.inputs.request import MAX_PROMPT_TOKENS, MAX_TOKENS, Growth, Hops, Profile
from services.token2wav.vocoder.loading import load_vocoder
from tests.stacks.up_process import TINY, TINY3

PROMPT_SECONDS = 30
WIDTH, STREAMS = 512, 16


@cache
def prefixes() -> frozenset[int]:
    """Tokens, prompt included, of every prefix that a schedule makes for prompts of 0 to 30 s and
    sentences up to the limit.
    """
    found = set[int]()
    hops = [Hops(first, growth, longest) for first, growth, longest in product((1, 100), Growth, (25, 400))]
    prompts = [*range(60), *range(60, CHUNK_TOKENS * PROMPT_SECONDS + 1, 23), CHUNK_TOKENS * PROMPT_SECONDS]
    for profile, prompt, wanted in product((Profile.CONTINUOUS, Profile.UPSTREAM), prompts, hops):
        cuts, hop, position = schedule(profile, prompt, wanted), None, prompt
        while (hop := cuts.next(hop, MAX_TOKENS, finished=True)) is not None and not hop.final:
            end = prompt + hop.end
            while profile is Profile.CONTINUOUS and position < end:
                position = next_border(position, end)
                found.add(position)
            found.add(end)
    # The end of a sentence, and an offline one, may fall anywhere.
    return frozenset(found | set(range(1, CHUNK_TOKENS * PROMPT_SECONDS + MAX_TOKENS + 1)))


def test_the_profiles_cover_every_prefix() -> None:
    encoder, estimator = profiles("encoder", STREAMS, WIDTH), profiles("estimator", STREAMS)
    published = profiles("estimator", STREAMS, masked=False)
    assert max(prefixes()) == CHUNK_TOKENS * PROMPT_SECONDS + MAX_TOKENS
    shapes = {padded(tokens) for tokens in prefixes()}
    for tokens in shapes:
        assert tokens % CHUNK_TOKENS == 0
        frames = MEL_FRAMES_PER_TOKEN * tokens
        for streams in range(1, STREAMS + 1) if tokens <= USUAL_TOKENS else (1,):
            assert covering(encoder, encoder_shapes(streams, tokens, WIDTH)) is not None, (streams, tokens)
            assert covering(estimator, estimator_shapes(2 * streams, frames)) is not None, (streams, tokens)
        assert covering(published, estimator_shapes(2, frames, masked=False)) is not None
    assert len(shapes) < 60, "each shape is a context and a graph"


def test_longer_prompts_that_are_let_in_too() -> None:
    made = [padded(1)]
    while made[-1] < MAX_PROMPT_TOKENS + MAX_TOKENS:
        made.append(padded(made[-1] + 1))
    assert made[-1] == LONGEST_TOKENS == padded(MAX_PROMPT_TOKENS + MAX_TOKENS)
    estimator = profiles("estimator", 1)
    assert all(covering(estimator, estimator_shapes(2, 2 * tokens)) is not None for tokens in made)


def test_padding_costs_a_tenth_at_most_beyond_twenty_seconds() -> None:
    for tokens in range(1, MAX_PROMPT_TOKENS + MAX_TOKENS + 1):
        assert 0 <= padded(tokens) - tokens < max(CHUNK_TOKENS, 0.11 * tokens + CHUNK_TOKENS)
        assert padded(padded(tokens)) == padded(tokens)


def test_what_is_outside_is_outside() -> None:
    estimator = profiles("estimator", 4)
    for rows, frames, profile in (
        (8, 2 * USUAL_TOKENS, 0),
        (2, 2 * USUAL_TOKENS + 2, 1),
        (8, 2 * USUAL_TOKENS + 2, None),
        (10, 50, None),
        (2, 2 * LONGEST_TOKENS + 2, None),
    ):
        assert covering(estimator, estimator_shapes(rows, frames)) == profile
    assert covering(estimator, {"x": (2, 80, 50)}) is None
    with pytest.raises(ValueError, match="component 'llm' is not known"):
        profiles("llm", 1)


class Listening:
    """An engine that records shapes and returns zeros."""

    def __init__(self, name: str, inputs: Sequence[Port], output: Port) -> None:
        self.name, self.inputs, self.outputs = name, inputs, [output]
        self.recordable = True
        self.asked: set[tuple[tuple[str, Shape], ...]] = set()

    def refusal(self, shapes: Shapes) -> str:
        self.asked.add(tuple(sorted(shapes.items())))
        return ""

    def context(self, shapes: Shapes, stream: int) -> Mock:
        return Mock(scratch_bytes=0)


def cuttings(total: int) -> Iterator[list[int]]:
    """Frames that arrive together: at once, block by block in several phases."""
    yield [total]
    for phase in (2, 14, 26, 50):
        first = min(phase, total)
        yield [first, *(min(50, total - at) for at in range(first, total, 50))]


@pytest.mark.parametrize("model", [TINY, TINY3], ids=["hift", "causal-hift"])
def test_the_profiles_cover_every_window_of_the_vocoder(model: Path) -> None:
    vocoder: Any = load_vocoder(ModelDirectory(model), torch.device("cpu"))
    harmonics = vocoder.config.harmonics
    wide = (None, MEL_BINS, None)
    pitch = Listening("pitch", [Port("mel", torch.float32, wide)], Port("f0", torch.float32, (None, None)))
    ports = [Port("mel", torch.float32, wide), Port("source", torch.float32, (None, None))]
    network = Listening("filter", ports, Port("samples", torch.float32, (None, None)))
    slots = Slots(torch.device("cpu"), 1)
    vocoder.batch_invariant = False  # as on a GPU, where plans run
    replace_networks(vocoder, {"pitch": pitch, "filter": network}, slots)
    vocoder.noise = lambda *_, **__: torch.zeros(1, 1, harmonics)
    for total in (*range(1, 60), 99, 131, 260):
        for parts in cuttings(total):
            states = [vocoder.start(0, 0, 2) for _ in range(1 if total % 13 else 3)]
            for at, frames in enumerate(parts):
                count = len(states)
                vocoder.step(states, [torch.zeros(MEL_BINS, frames)] * count, [at == len(parts) - 1] * count)
        vocoder.offline(torch.zeros(MEL_BINS, total), 0, 0)
    for component, engine in (("pitch", pitch), ("filter", network)):
        built = profiles(component, 3, around=frames_around(ModelDirectory(model)))
        assert len(engine.asked) > 20
        assert {dict(asked)["mel"][0] for asked in engine.asked} == {1, 3}, "windows of equal length share a batch"
        for asked in engine.asked:
            assert covering(built, dict(asked)) is not None, (component, asked)
