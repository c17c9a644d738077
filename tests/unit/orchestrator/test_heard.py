"""What a listener hears, on a clock of the test's own."""

import pytest

from cosyserve.metrics import names
from cosyserve.rpc.records.call_record import CallRecord
from services.orchestrator.speech.heard import BUFFER_SECONDS, Heard
from tests.stacks.telemetry.scraping import reader
from tests.stacks.virtual_time import Clock


class Listened:
    """One request that arrives at 100 s, and what it adds to the metrics."""

    def __init__(self, *, text_arrives: bool = False) -> None:
        self.clock = Clock(100.0)
        self.call = CallRecord("Synthesize", arrived=self.clock.now, text_arrives=text_arrives)
        self._before = reader().scrape("orchestrator")
        self.heard: Heard

    def admitted(self, at: float) -> Heard:
        self.clock.now = at
        self.heard = Heard(self.call, self.clock)
        return self.heard

    def at(self, moment: float) -> Heard:
        self.clock.now = moment
        return self.heard

    def added(self, name: str, **labels: str) -> float:
        return reader().scrape("orchestrator").of(name, **labels) - self._before.of(name, **labels)


def terms(listened: Listened) -> dict[str, float]:
    return {
        term: pytest.approx(listened.added("cosyserve_first_sound_term_seconds_sum", term=term)) for term in names.TERMS
    }


def test_the_parts_of_a_first_sound_add_up_to_it() -> None:
    listened = Listened()
    listened.admitted(100.01)
    listened.at(100.03).analyzed(0)
    listened.at(100.1).written()
    listened.at(100.25).decoded()
    listened.at(100.3).sent(0.5)
    assert terms(listened) == {"admission": 0.01, "frontend": 0.02, "llm": 0.07, "token2wav": 0.15, "held": 0.05}
    assert listened.added("cosyserve_first_byte_seconds_sum", method="Synthesize") == pytest.approx(0.3)
    assert listened.added("cosyserve_first_byte_seconds_bucket", method="Synthesize", le="0.2") == 0
    assert listened.added("cosyserve_first_byte_seconds_bucket", method="Synthesize", le="0.4") == 1
    later = listened.at(101.0)
    later.analyzed(1)
    later.written()
    later.decoded()
    later.sent(0.5)
    assert listened.added("cosyserve_first_byte_seconds_count", method="Synthesize") == 1


def test_a_stage_that_had_nothing_to_do_took_no_time() -> None:
    listened = Listened()
    listened.admitted(100.1)
    listened.at(100.2).analyzed(0)
    listened.at(100.5).decoded()  # a recording: no tokens are written
    listened.at(100.6).sent(1.0)
    assert terms(listened) == {"admission": 0.1, "frontend": 0.1, "llm": 0.0, "token2wav": 0.3, "held": 0.1}


def test_arriving_text_counts_from_the_first_of_it() -> None:
    listened = Listened(text_arrives=True)
    listened.admitted(100.1)
    listened.call._text = 105.0
    listened.at(105.2).analyzed(0)
    listened.at(105.3).written()
    listened.at(105.4).decoded()
    listened.at(105.4).sent(1.0)
    assert terms(listened) == {"admission": 0.0, "frontend": 0.2, "llm": 0.1, "token2wav": 0.1, "held": 0.0}


def test_a_player_that_runs_dry_has_a_gap() -> None:
    listened = Listened()
    listened.admitted(100.0)
    listened.at(101.0).sent(1.0)  # plays until 102.04
    listened.at(101.5).sent(0.5)  # plays until 102.54
    assert listened.added("cosyserve_gaps_total") == 0
    listened.at(102.64).sent(1.0)
    assert listened.added("cosyserve_gaps_total") == 1
    assert listened.added("cosyserve_gap_seconds_total") == pytest.approx(0.1)
    assert listened.added("cosyserve_playback_slack_seconds_count") == 2
    assert listened.added("cosyserve_playback_slack_seconds_sum") == pytest.approx(0.5 + BUFFER_SECONDS)
    listened.at(103.6).sent(1.0)
    assert listened.added("cosyserve_gaps_total") == 1, "it plays on from the gap"


def test_what_the_caller_did_not_take_is_no_gap() -> None:
    listened = Listened()
    listened.admitted(100.0)
    listened.at(101.0).sent(1.0)
    listened.at(110.0).taken()  # its connection was full for nine seconds
    listened.at(110.0005).sent(1.0)
    assert listened.added("cosyserve_gaps_total") == 0


def test_text_that_was_not_written_yet_is_no_gap() -> None:
    listened = Listened(text_arrives=True)
    listened.admitted(100.0)
    listened.at(100.0).analyzed(0)
    listened.at(101.0).sent(1.0)  # plays until 102.04
    listened.at(105.0).analyzed(1)
    listened.at(105.3).begins(1)
    listened.at(105.3).sent(1.0)  # plays until 106.3
    assert listened.added("cosyserve_gaps_total") == 0
    listened.at(105.4).analyzed(2)
    listened.at(106.4).begins(2)
    listened.at(106.4).sent(1.0)
    assert listened.added("cosyserve_gaps_total") == 1, "its text was there in time"
    listened.at(107.0).begins(3, whole=False)
    listened.at(107.0).sent(0.5)
    listened.at(110.0).sent(0.5)
    assert listened.added("cosyserve_gaps_total") == 1, "it is still being written"


def test_the_first_audible_sample_and_the_pace_are_counted_once() -> None:
    listened = Listened()
    heard = listened.admitted(100.2)
    heard.audible_at(100.35)
    heard.audible_at(100.9)
    assert listened.added("cosyserve_first_audible_seconds_sum", method="Synthesize") == pytest.approx(0.35)
    heard.finished(0.25)
    heard.finished(0.0)
    assert listened.added("cosyserve_real_time_factor_count") == 1
    arriving = Listened(text_arrives=True)
    arriving.admitted(100.0).finished(3.0)
    assert arriving.added("cosyserve_real_time_factor_count") == 0, "its caller takes the time"
