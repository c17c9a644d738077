"""The decode step of one row as one launch, on layers of the published sizes: its logits are as
near to the readable model's as those of the launches, and every time the same; a sentence through
the engine is the same again, in two halves, and behind one that fails or is cancelled.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from bench.generations.random_weights import llm_tensors
from bench.gpu.llm.checks import POISONED, poisoned, speak_arriving
from bench.gpu.llm.one_launch import compared
from bench.gpu.llm.random_sentences import Heard, capacity, engine_of, script, speak
from bench.real_size import PUBLISHED_LLM
from cosyserve.errors import NonFinite
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import Grouping
from services.llm.generation.script import Table
from tests.gpu.compiling import environment
from tests.stacks.up_process import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("caches")]
LAYERS = 2


@pytest.fixture(scope="module")
def model() -> SpeechTokenModel:
    config, device = replace(PUBLISHED_LLM, layers=LAYERS), torch.device("cuda")
    model = SpeechTokenModel.build(config, llm_tensors(config, device, ends=True), device)
    model.tables[Table.TEXT][POISONED] = float("nan")
    return model


@pytest.fixture
def engine(model: SpeechTokenModel) -> Iterator[Engine]:
    engine = engine_of(model, 4, torch.bfloat16, one_launch=True)
    yield engine
    engine.close()


def test_logits_are_as_near_as_those_of_the_launches(model: SpeechTokenModel) -> None:
    for row in compared(model, repeats=20):
        assert row["one_launch"] < max(1.3 * row["launches"], 2e-3), row
        assert row["equal"] == row["of"], row


def test_a_sentence_is_the_same_again_and_in_two_halves(engine: Engine) -> None:
    whole = speak_arriving(engine, [1])[0].tokens
    assert len(whole) > 5
    assert speak_arriving(engine, [1])[0].tokens == whole
    half = tuple(whole[: len(whole) // 2])
    assert [*half, *speak_arriving(engine, [1], {1: half})[0].tokens] == whole


def test_a_sentence_that_is_cancelled_leaves_nothing_behind(engine: Engine) -> None:
    expected = speak(engine, [2], 6)[0].tokens
    heard = Heard()
    cancelled = engine.submit(script(3, 6), capacity(6), Outbox(heard.deliver, Grouping(first=1, rest=1)))
    engine.cancel(cancelled)
    assert speak(engine, [2], 6)[0].tokens == expected


def test_a_sentence_that_is_no_number_fails_alone(engine: Engine) -> None:
    expected = speak(engine, [4], 6)[0].tokens
    heard = Heard()
    engine.submit(poisoned(), 400, Outbox(heard.deliver, Grouping(first=1, rest=1)))
    assert heard.over.wait(60)
    assert isinstance(heard.error, NonFinite)
    assert speak(engine, [4], 6)[0].tokens == expected


def test_a_step_that_waits_for_a_program_without_a_place_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.missing_program"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "whole step: done"), done.stderr
    assert done.stdout.rstrip().endswith("lost: True")
