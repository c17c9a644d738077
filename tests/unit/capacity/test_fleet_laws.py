"""What must hold of every simulated run: no request is lost, the same chance gives the same run,
more pods never serve fewer, and what is lost goes on elsewhere.
"""

from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from cosyserve.capacity.report_file import default_profile
from cosyserve.capacity.scaling import Scaling
from tools.capacity.fleet.arrivals import by_chance, closed_loop, listening, share_at
from tools.capacity.fleet.fleet import Fleet
from tools.capacity.fleet.layout import STAGES, FleetLayout, Speech

PROFILE = default_profile()
ONE = FleetLayout(replicas=dict.fromkeys(STAGES, 1))
TWO = replace(ONE, replicas=dict.fromkeys(STAGES, 2))
Load = Callable[[Fleet], None]


def ran(layout: FleetLayout, load: Load, seconds: float = 12.0, seed: int = 1, *, drain: bool = True) -> Fleet:
    fleet = Fleet(PROFILE, layout, Speech(), seed)
    load(fleet)
    fleet.run(seconds)
    if drain:
        fleet.drain()
    return fleet


def chance(streams: float) -> Load:
    return lambda fleet: by_chance(fleet, streams, 10.0)


def accounts(fleet: Fleet) -> bool:
    seen = fleet.outcome
    return seen.arrived == seen.answered + seen.refused + seen.failed + len(fleet.active)


@pytest.mark.parametrize(
    ("layout", "load"),
    [
        (ONE, chance(20)),
        (replace(ONE, orchestrator_streams=2), chance(100)),
        (replace(ONE, token2wav_streams=3), chance(100)),
        (replace(ONE, llm_slots=1, llm_waiting=1), chance(200)),
        (replace(ONE, shared=True, pages=12), chance(60)),
        (replace(ONE, adaptive=True), chance(100)),
        (replace(TWO, failures=tuple((2.0 + at, stage) for at, stage in enumerate(STAGES))), chance(60)),
        (replace(ONE, failures=((3.0, "token2wav"),), start_seconds={"token2wav": 60.0}), chance(20)),
        (ONE, lambda fleet: listening(fleet, 20, 10.0)),
        (replace(ONE, orchestrator_streams=4), lambda fleet: closed_loop(fleet, 20, 10.0)),
    ],
)
def test_every_request_is_served_refused_failed_or_running(layout: FleetLayout, load: Load) -> None:
    fleet = ran(layout, load, drain=False)
    assert fleet.outcome.arrived > 20
    assert accounts(fleet)
    fleet.drain()
    assert accounts(fleet)
    assert not fleet.active
    assert all(not pod.users for stage in fleet.stages.values() for pod in stage.pods), "no place is left taken"
    assert all(pod.admission.active == 0 for pod in fleet.orchestrator.pods)
    assert all(pod.decoder.pool.free == pod.decoder.pool.count for pod in fleet.token2wav.pods), "no page is left taken"
    assert all(pod.engine.sentences == 0 for pod in fleet.llm.pods)


def test_every_served_request_has_all_its_sound() -> None:
    heard: list[tuple[int, float]] = []
    lost = [(0.6 + 0.02 * at, STAGES[at % len(STAGES)]) for at in range(100)]
    four = dict.fromkeys(STAGES, 4)
    fleet = Fleet(PROFILE, replace(ONE, replicas=four, failures=tuple(lost)), Speech())

    def ask() -> None:
        fleet.ask(lambda request, how, again: heard.append((request._tokens, request.player.audio)))

    for number in range(60):
        fleet.clock.after(0.05 * number, ask)
    fleet.run(4.0)
    fleet.drain()
    assert len(heard) == 60
    assert fleet.outcome.resumed > 50
    assert all(audio == pytest.approx(tokens / 25, abs=1e-6) for tokens, audio in heard)


def test_the_same_chance_is_the_same_run() -> None:
    layout = replace(TWO, shared=True, failures=((4.0, "token2wav"),))
    one, two, other = (ran(layout, chance(100), seed=seed) for seed in (1, 1, 2))
    assert [asdict(period) for period in one.outcome.periods] == [asdict(period) for period in two.outcome.periods]
    assert [asdict(period) for period in one.outcome.periods] != [asdict(period) for period in other.outcome.periods]


def test_more_pods_never_serve_fewer() -> None:
    """Of a load that one pod of each stage has to refuse in part."""
    served = []
    for pods in (1, 2, 3):
        layout = replace(ONE, replicas=dict.fromkeys(STAGES, pods), orchestrator_streams=12, token2wav_streams=12)
        served.append(ran(layout, chance(240)).outcome.answered)
    assert served[0] < served[1] <= served[2]


def test_without_a_pod_to_go_on_at_requests_fail_and_do_not_hang() -> None:
    layout = replace(ONE, failures=((3.0, "token2wav"),), start_seconds={"token2wav": 600.0})
    fleet = ran(layout, chance(10))
    assert fleet.outcome.failed > 0
    assert not fleet.active


def test_a_lost_pod_is_replaced_after_its_start() -> None:
    fleet = ran(
        replace(TWO, failures=((2.0, "llm"),), start_seconds={"llm": 5.0}), chance(20), seconds=6.0, drain=False
    )
    assert len(fleet.llm.serving) == 1
    fleet.run(2.0)
    assert len(fleet.llm.serving) == 2


def test_load_scales_up_and_a_lack_of_it_down() -> None:
    scaling = {"llm": Scaling(threshold=0.005, least=1, most=3, interval=2.0, cooldown=4.0, lowered=2.0)}
    layout = replace(ONE, scaling=scaling, start_seconds={"llm": 1.0})
    fleet = ran(layout, chance(150), seconds=9.0, drain=False)
    assert len(fleet.llm.serving) == 3
    fleet.drain()
    fleet.run(20.0)
    assert len(fleet.llm.serving) == 1
    assert accounts(fleet)


def test_pods_that_were_there_at_the_start_stay_for_the_cooldown() -> None:
    """One interval without load is no reason to take them away."""
    scaling = {"frontend": Scaling(threshold=0.5, least=1, most=4, interval=1.0, cooldown=5.0, lowered=1.0)}
    fleet = ran(replace(TWO, scaling=scaling), chance(5), seconds=4.0, drain=False)
    assert len(fleet.frontend.serving) == 2
    fleet.run(6.0)
    assert len(fleet.frontend.serving) == 1


def test_a_pod_that_drains_ends_with_its_last_stream() -> None:
    fleet = Fleet(PROFILE, TWO, Speech())
    fleet.ask()
    fleet.run(0.05)
    busy = next(pod for pod in fleet.orchestrator.pods if pod.streams)
    fleet.orchestrator.resize(1)
    assert fleet.orchestrator.pods == [busy], "the idle one goes first, and at once"
    fleet.orchestrator.resize(2)
    fleet.run(0.0)
    busy.serving, busy.draining = False, True
    fleet.drain()
    assert fleet.outcome.answered == 1
    assert busy.gone
    assert busy not in fleet.orchestrator.pods


def test_a_curve_is_straight_between_its_points() -> None:
    curve = [(0.0, 0.5), (10.0, 1.5), (20.0, 1.5)]
    assert [share_at(curve, at) for at in (0.0, 5.0, 10.0, 15.0, 99.0)] == [0.5, 1.0, 1.5, 1.5, 1.5]


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": {"llm": 1}},
        {"replicas": dict.fromkeys(STAGES, 1) | {"llm": 2}, "shared": True},
        {"replicas": dict.fromkeys(STAGES, 1), "failures": ((1.0, "vocoder"),)},
    ],
)
def test_a_layout_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"llm|vocoder|no pod of"):
        FleetLayout(**wrong)  # type: ignore[arg-type]


def test_a_busy_core_scales_whatever_else_looks() -> None:
    """The gateway uses half of its core at 150 streams; what a plot notes changes nothing."""
    scaling = {"gateway": Scaling(threshold=0.25, least=1, most=4, interval=4.0)}
    fleet = Fleet(PROFILE, replace(ONE, scaling=scaling), Speech(), period=0.5)
    by_chance(fleet, 150, 20.0)
    fleet.run(13.0)
    assert 0.4 < fleet.scalers["gateway"].value * len(fleet.gateway.serving) < 0.75
    assert len(fleet.gateway.serving) in (2, 3)
