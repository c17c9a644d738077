"""A run chooses the ids of its script, for all kinds of scripts, with or without a replay, also
after serialization.
"""

import json

import numpy as np
import pytest

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_ROWS, SPEECH_VOCABULARY
from services.llm.generation.interleaved_text import ContinuousText
from services.llm.generation.request import Profile, Prompt
from services.llm.generation.sampling import GreedyChooser, RepetitionAwareChooser, Scores, SeededDraw
from services.llm.generation.script import Script, WholeText
from services.llm.hosted.run_sampler import NOT_FINITE, RunSampler
from tests.unit.llm.generation.test_scripts import CONFIG

PROMPT = Prompt((1, 2, 3, 4, 5, 6), tuple(range(20)))
LIKELY = [3, 4, 5, END_OF_SPEECH, FILL, RESERVED_SPEECH]


def scores(number: int) -> Scores:
    """Few ids likely, so that repetitions and reserved ids come up."""
    drawn = np.random.default_rng(number).normal(size=SPEECH_ROWS).astype(np.float32)
    drawn[LIKELY] += 9
    return drawn


def script(kind: str, replay: tuple[int, ...]) -> Script:
    chooser = RepetitionAwareChooser(CONFIG.sampling, SeededDraw(5, 2))
    if kind == "arriving":
        growing = ContinuousText(CONFIG, PROMPT, chooser, replay)
        growing.feed(list(range(23)))
        growing.end()
        return growing
    return WholeText(PROMPT, (1, 2, 3), Profile(kind), chooser, replay)


@pytest.mark.parametrize("kind", ["continuous", "upstream", "arriving"])
@pytest.mark.parametrize("replay", [(), (9, 9, 9, 8, 7)])
def test_runs_decide_as_the_script(kind: str, replay: tuple[int, ...]) -> None:
    plain, remote = script(kind, replay), script(kind, replay)
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
            chosen = run.decide(scores(number))
            over = chosen >= SPEECH_VOCABULARY
            actual = (FILL if remote.rules.fill_at is not None else END_OF_SPEECH) if over else chosen
            decisions.append(actual)
            assert remote.accept(actual) == plain.decide(scores(number))
            assert (remote.token_count, remote.finish, remote.ready) == (plain.token_count, plain.finish, plain.ready)
            number += 1
        # an engine that works ahead asks once more
        assert run.decide(scores(number)) == END_OF_SPEECH
    assert number >= 2


def test_a_run_with_non_finite_numbers_stays_ended() -> None:
    run = RunSampler(script("continuous", ()).rules, 0, [])
    bad = scores(0)
    bad[7] = np.nan
    assert [run.decide(bad), run.decide(scores(1))] == [NOT_FINITE, NOT_FINITE]
    assert (run.token_count, run.decisions) == (0, [])


def test_draws_that_are_not_counter_based_are_refused() -> None:
    greedy = WholeText(PROMPT, (1,), Profile.CONTINUOUS, GreedyChooser())
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
    assert run.decide(scores(1)) == END_OF_SPEECH
    run.rewind(0)
    assert run.decide(scores(0)) == last
