"""The schedule of token2wav under load, on a clock of its own: who waits for how long, and that
no player runs dry.
"""

import pytest

from bench.token2wav_schedule.__main__ import main
from bench.token2wav_schedule.simulation import Simulation, closed_loop, poisson
from tools.capacity.timing.engines import Times

SHORT = (60, 95)


def test_alone_on_a_gpu_nothing_waits() -> None:
    """But the first, of which it is not known how fast its tokens come."""
    plain, held = (
        closed_loop(Simulation(Times(jitter=0.0), SHORT, hold_seconds=seconds), 1, 5) for seconds in (0.0, 0.5)
    )
    assert held.first == plain.first
    assert held.gap_free == 1.0
    assert held.first_sound(0.5) < 0.06


@pytest.mark.parametrize("streams", [8, 64, 128])
def test_no_player_runs_dry(streams: int) -> None:
    outcome = closed_loop(Simulation(Times(jitter=0.0), SHORT), streams, 6)
    assert outcome.gap_free == 1.0
    assert outcome.audio / outcome.seconds > min(streams, 128)


def test_without_holding_players_run_dry() -> None:
    """Steps that vary, as on a device that others use too; one throw of the dice moves the p95 by a
    tenth, so there are two.
    """
    held, plain = (
        [closed_loop(Simulation(Times(seed=seed), SHORT, hold_seconds=hold), 96, 6) for seed in (2, 3)]
        for hold in (0.5, 0.0)
    )
    assert [outcome.gap_free for outcome in held] == [1.0, 1.0]
    assert all(outcome.gap_free < 0.95 for outcome in plain)
    assert sum(outcome.first_sound(0.95) for outcome in held) < 1.5 * sum(
        outcome.first_sound(0.95) for outcome in plain
    )


def test_with_two_decoders_the_margin_is_that_of_the_whole_crowd() -> None:
    """64 players of two replicas, on ways as long as 64 make them: with the margin of the 32 that
    each replica sees, some run dry.
    """

    def heard(*, shares_load: bool) -> list[float]:
        simulations = [
            Simulation(Times(seed=seed, jitter=0.3), SHORT, seed=seed + 1, replicas=2, shares_load=shares_load)
            for seed in (0, 1)
        ]
        return [closed_loop(each, 64, 5).gap_free for each in simulations]

    crowd, alone = heard(shares_load=True), heard(shares_load=False)
    assert min(crowd) > 0.998
    assert sum(alone) < sum(crowd) - 0.01


def test_two_decoders_speak_more_and_the_same_again() -> None:
    one, two, again = (closed_loop(Simulation(Times(jitter=0.0), SHORT, replicas=count), 64, 4) for count in (1, 2, 2))
    assert two == again
    assert two.gap_free == 1.0
    assert two.audio / two.seconds > 1.4 * one.audio / one.seconds


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--streams", "2", "--seconds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(len(line.split()) == len(lines[1].split()) for line in lines[1:])


@pytest.mark.parametrize("sentences", [1, 3])
def test_on_a_cpu_no_admitted_player_runs_dry_for_longer_than_it_keeps(sentences: int) -> None:
    """Loads of one and of three listeners on average, replies of one and of three sentences: of
    those whom the orchestrator admits, by what the decoder measures, hardly any player runs dry,
    and none for the 50 ms that players keep. Without holding most do."""
    for streams in (1, 3):
        two_cores, kinds = Times.of_two_cores(seed=1), {"widest_step": 1, "sentences": sentences}
        held = Simulation(two_cores, SHORT, limited=True, **kinds)  # type: ignore[arg-type]
        plain = Simulation(two_cores, SHORT, limited=True, hold_seconds=0.0, **kinds)  # type: ignore[arg-type]
        outcome, before = (poisson(each, streams, 60, sentences * 3.1) for each in (held, plain))
        assert outcome.gap_free > 0.95
        assert max(outcome.stalls) < 0.05
        assert before.gap_free < 0.5
        assert held.refused < len(outcome.first)


def test_of_short_sentences_the_next_is_begun_early_and_no_player_runs_dry_for_longer_than_it_keeps() -> None:
    """Replies of three sentences of 0.6 to 1.2 s by three listeners at once, which the engine can
    speak with a sixth to spare.
    """

    def loop(*, ahead: bool) -> Simulation:
        return Simulation(Times.of_two_cores(), (14, 30), widest_step=1, sentences=3, ahead=ahead)

    early, in_turn = closed_loop(loop(ahead=True), 3, 60), closed_loop(loop(ahead=False), 3, 60)
    assert max(early.stalls) < 0.04 < max(in_turn.stalls)
    assert early.gap_free > in_turn.gap_free
    assert early.audio / early.seconds > 0.95 * in_turn.audio / in_turn.seconds


@pytest.mark.parametrize("wrong", ["14", "30,14", "0,9", "a,b"])
def test_lengths_are_two_numbers(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--tokens", wrong])
    assert f"--tokens is {wrong!r}" in capsys.readouterr().err
