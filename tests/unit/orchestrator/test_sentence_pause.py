"""The silence between two sentences, where the request leaves it to us."""

import pytest
from services.orchestrator.speech.silence import (
    LONG_TOKENS,
    SENTENCE_PAUSE_MILLISECONDS,
    SHORT_TOKENS,
    default_pause,
)

from cosyserve.errors import FailedPrecondition
from services.orchestrator.stages import failover as engines


def test_short_replies_follow_at_once_and_sentences_after_a_breath() -> None:
    assert [default_pause(tokens) for tokens in (0, 1, SHORT_TOKENS)] == [0, 0, 0]
    assert [default_pause(tokens) for tokens in (LONG_TOKENS, 500)] == [SENTENCE_PAUSE_MILLISECONDS] * 2
    assert default_pause(35) == 100
    between = [default_pause(tokens) for tokens in range(SHORT_TOKENS, LONG_TOKENS + 1)]
    assert between == sorted(between)


def test_other_pauses_are_another_assembly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes here moves the samples of a request that is resumed: with new values comes a new
    ASSEMBLY.
    """
    assert (engines.ASSEMBLY, [default_pause(tokens) for tokens in (20, 25, 30, 35, 40, 45, 50, 60, 80)]) == (
        2,
        [0, 33, 67, 100, 133, 167, 200, 200, 200],
    )
    begun = engines.Engines()
    resumed = engines.Engines(wanted=begun.name)
    resumed.require()
    monkeypatch.setattr(engines, "ASSEMBLY", 3)
    with pytest.raises(FailedPrecondition, match="the request was begun by engines"):
        resumed.require()
