"""Streamed text to its very end, token for token as a reader that shares no code with the service:
the last phase is not in the reference's arrays in the form in which it is served.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from services.llm.engine.stepper import Alone
from services.llm.generation.interleaved_text import ContinuousText
from services.llm.generation.request import FinishReason, Prompt
from services.llm.generation.sampling import GreedyChooser
from services.llm.generation.script import Input, speech_inputs
from tests.laws.llm.independent_reader import THREE, TWO, Ids, Reader
from tests.stacks.up_process import TINY, TINY3
from tests.unit.llm.tiny_llm import SYSTEM, model, with_system

ROUNDING = 1e-4
"""Scores of the readable engine differ from those of the reader by less than a tenth of this."""
TRANSCRIPT = (60, 61, 62, 63, 64, 65, 66, 67)
SPEECH = tuple(range(4000, 4020))
PROMPTS = {
    "no speech": Prompt(),
    "a transcript only": Prompt(TRANSCRIPT[:3]),
    "speech": Prompt(TRANSCRIPT, SPEECH),
    "whole blocks of speech": Prompt(TRANSCRIPT[:2], SPEECH[:15]),
    "more speech than text": Prompt((), tuple(range(100, 160))),
}
TEXTS = ((70, 71, 72), (70, 71, 72, 73, 74), tuple(range(70, 80)), tuple(range(70, 83)))
"""Shorter than a block; one block; an end right after a fill; a rest behind the last block."""
LIKELY = 10.0
"""Added to a score: the best sound is 7 to 17 above the end and the fill."""

GENERATIONS = pytest.mark.parametrize(("bundle", "ids"), [(TINY, TWO), (TINY3, THREE)], ids=["tiny", "tiny3"])


def served(
    bundle: Path,
    prompt: Prompt,
    text: tuple[int, ...],
    raised: Mapping[int, float],
    kind: type[ContinuousText] = ContinuousText,
) -> ContinuousText:
    """The script behind its last decision, of text that came id by id."""
    plain = model(bundle=bundle)
    bias = plain.head_bias.clone()
    for row, value in raised.items():
        bias[row] += value
    script = kind(plain.config, with_system(prompt), GreedyChooser())
    alone = Alone(replace(plain, head_bias=bias), script, 1024)
    for one in text:
        script.feed([one])
        alone.run()
    script.end()
    alone.run()
    return script


def compared(
    reader: Reader, bundle: Path, prompt: Prompt, text: tuple[int, ...], raised: Mapping[int, float]
) -> ContinuousText:
    with torch.inference_mode():
        script = served(bundle, prompt, text, raised)
    best, gap = reader.decisions(
        [*SYSTEM, *prompt.text_ids], list(prompt.speech_tokens), list(text), script.decisions, raised
    )
    assert script.decisions == best
    assert gap > ROUNDING
    return script


@GENERATIONS
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_sentence_that_ends(bundle: Path, ids: Ids, prompt: str) -> None:
    """The end and the fill are likely, so that sentences end and blocks are cut short; the other
    special ids are likelier than anything, and have no meaning.
    """
    others = {6561, 6562, 6563, 6564, 6760} - {ids.end, ids.fill}
    others -= set() if ids.mark is not None else {6564, 6760}
    raised = {ids.end: LIKELY, ids.fill: LIKELY} | dict.fromkeys(others, 30.0)
    reader = Reader(bundle, ids)
    for text in TEXTS:
        script = compared(reader, bundle, PROMPTS[prompt], text, raised)
        assert script.finish is FinishReason.END_OF_SPEECH
        assert script.decisions[-1] == ids.end


class FedTwice(ContinuousText):
    """As the reference: the last speech token goes in once more before the last text."""

    def _begin_last_phase(self, rest: list[Input]) -> None:
        self._inputs = speech_inputs([one for one in self.decisions if one < 6561][-1:])
        super()._begin_last_phase(rest)


@GENERATIONS
def test_the_reader_notices_a_token_that_is_fed_twice(bundle: Path, ids: Ids) -> None:
    raised, text = {ids.end: -30.0}, TEXTS[0]
    with torch.inference_mode():
        script = served(bundle, PROMPTS["speech"], text, raised, FedTwice)
    prompt = [*SYSTEM, *PROMPTS["speech"].text_ids]
    best, _ = Reader(bundle, ids).decisions(prompt, list(SPEECH), list(text), script.decisions, raised)
    assert script.decisions != best


@GENERATIONS
def test_a_sentence_that_reaches_its_limit(bundle: Path, ids: Ids) -> None:
    script = compared(Reader(bundle, ids), bundle, PROMPTS["speech"], (70, 71, 72), {ids.end: -30.0})
    assert (script.finish, script.token_count) == (FinishReason.LENGTH, 60)
