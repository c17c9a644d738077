"""A run chooses the ids of its script, for all kinds of scripts, with or without a replay, also
after serialization.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.generation import SpeechVocabulary
from services.llm.generation.interleaved_text import ContinuousText
from services.llm.generation.request import Profile, Prompt
from services.llm.generation.sampling import GreedyChooser, RepetitionAwareChooser, Scores, SeededDraw
from services.llm.generation.script import Script, WholeText
from services.llm.hosted.run_sampler import RunSampler, signals
from tests.unit.llm.generation.test_scripts import CONFIG

PROMPT = Prompt((1, 2, 3, 4, 5, 6), tuple(range(20)))
MADE_UP = replace(COSYVOICE2.speech, rows=6600, end=6599, fill=6561, masked_by_reference=6570)
"""Of a generation that there is not."""
VOCABULARIES = (COSYVOICE2.speech, COSYVOICE3.speech, MADE_UP)
END = COSYVOICE2.speech.end
NOT_FINITE, _ = signals(COSYVOICE2.speech)


def scores(number: int, speech: SpeechVocabulary = VOCABULARIES[0]) -> Scores:
    """Few ids likely, so that repetitions and special ids come up."""
    drawn = np.random.default_rng(number).normal(size=speech.rows).astype(np.float32)
    drawn[[3, 4, 5, *speech.special[:3], speech.fill, speech.end]] += 9
    return drawn


def script(kind: str, replay: tuple[int, ...], speech: SpeechVocabulary = VOCABULARIES[0]) -> Script:
    config = replace(CONFIG, speech=speech)
    chooser = RepetitionAwareChooser(CONFIG.sampling, SeededDraw(5, 2))
    if kind == "arriving":
        growing = ContinuousText(config, PROMPT, chooser, replay)
        growing.feed(list(range(23)))
        growing.end()
        return growing
    return WholeText(config, PROMPT, (1, 2, 3), Profile(kind), chooser, replay)


@pytest.mark.parametrize("kind", ["continuous", "upstream", "arriving"])
@pytest.mark.parametrize("replay", [(), (9, 9, 9, 8, 7)])
@pytest.mark.parametrize("speech", VOCABULARIES, ids=("cosyvoice2", "cosyvoice3", "made up"))
def test_runs_decide_as_the_script(kind: str, replay: tuple[int, ...], speech: SpeechVocabulary) -> None:
    plain, remote = script(kind, replay, speech), script(kind, replay, speech)
    decisions, number = list[int](), 0
    while remote.finish is None:
        run = RunSampler.from_plain(
            json.loads(json.dumps(RunSampler(remote.rules, remote.token_count, decisions).plain()))
        )
        before, over, most = len(decisions), False, run.most
        while not over and remote.finish is None:
            assert len(decisions) - before < most
            plain.take()
            remote.take()
            chosen = run.decide(scores(number, speech))
            over = chosen >= speech.tokens
            actual = (speech.fill if remote.rules.fill_at is not None else speech.end) if over else chosen
            decisions.append(actual)
            assert remote.accept(actual) == plain.decide(scores(number, speech))
            assert (remote.token_count, remote.finish, remote.ready) == (plain.token_count, plain.finish, plain.ready)
            number += 1
        # an engine that works ahead asks once more
        assert run.decide(scores(number, speech)) == speech.end
    assert number >= 2


def test_a_run_with_non_finite_numbers_stays_ended() -> None:
    run = RunSampler(script("continuous", ()).rules, 0, [])
    bad = scores(0)
    bad[7] = np.nan
    assert [run.decide(bad), run.decide(scores(1))] == [NOT_FINITE, NOT_FINITE]
    assert (run.token_count, run.decisions) == (0, [])


def test_draws_that_are_not_counter_based_are_refused() -> None:
    greedy = WholeText(CONFIG, PROMPT, (1,), Profile.CONTINUOUS, GreedyChooser())
    with pytest.raises(TypeError, match="no engine can sample as GreedyChooser does"):
        RunSampler(greedy.rules, 0, [])


def test_decisions_that_were_thrown_away_are_made_again_as_the_first_time() -> None:
    run = RunSampler(script("continuous", ()).rules, 3, [5, 6, 7])
    first = [run.decide(scores(number)) for number in range(4)]
    run.rewind(1)
    assert (run.token_count, run.decisions) == (4, [5, 6, 7, first[0]])
    assert [run.decide(scores(number)) for number in range(1, 4)] == first[1:]
    assert run.decide(scores(0) * np.nan) == NOT_FINITE
    run.rewind(0)
    assert (run.token_count, run.decide(scores(0))) == (3, first[0])


def test_an_end_stays_one_as_long_as_it_counts() -> None:
    rules = script("continuous", ()).rules
    run = RunSampler(rules, rules.longest - 1, [1] * (rules.longest - 1))
    last = run.decide(scores(0))
    run.rewind(1)
    assert run.decide(scores(1)) == END
    run.rewind(0)
    assert run.decide(scores(0)) == last
