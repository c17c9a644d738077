"""The fleet of a plan: all of it, or a share of the streams with pods planned for that share."""

import math
from dataclasses import dataclass, replace

from cosyserve.capacity.plan import SHARED, Plan, plan
from cosyserve.capacity.profile import EngineProfile
from cosyserve.capacity.scaling import Scaling
from tools.capacity.fleet.arrivals import Curve
from tools.capacity.fleet.layout import FleetLayout, Speech

LENGTH_SPREAD = 0.22
"""Sentences are shorter and longer than the mean by up to this share of it."""


@dataclass(frozen=True)
class Sample:
    """plan: of the simulated share. share: of the streams."""

    plan: Plan
    share: float

    @property
    def whole(self) -> bool:
        return self.share == 1.0


def sample(profile: EngineProfile, whole: Plan, most: int) -> Sample:
    """A deployment of so many streams at most, that stands for the whole one. Poisson arrivals of
    which each takes part by chance are Poisson arrivals, and a pod sees what it would see; so
    whole token2wav pods are taken with their streams. Spare pods are rounded: of a large deployment
    none is left.
    """
    if whole.demand.streams <= most:
        return Sample(whole, 1.0)
    stage = whole.stage("token2wav")
    needed = math.ceil(whole.demand.streams / stage.streams)
    pods = max(most * needed // whole.demand.streams, 1)
    streams = max(round(whole.demand.streams * pods / needed), 1)
    spare = round(whole.choices.spare * pods / needed)
    demand, choices = replace(whole.demand, streams=streams), replace(whole.choices, spare=spare)
    return Sample(plan(profile, demand, choices, whole.placement), streams / whole.demand.streams)


def layout(
    planned: Plan, curve: Curve, failures: tuple[tuple[float, str], ...], engine_start: float, host_start: float
) -> FleetLayout:
    """Pods for the load at the start of the curve, scaled as the values of the chart say."""
    first, spare = curve[0][1], planned.choices.spare
    replicas = {
        one.stage: max(math.ceil(first * planned.demand.streams / one.streams), 1) + spare for one in planned.stages
    }
    if planned.placement == SHARED:
        replicas["llm"] = replicas["token2wav"]
    settings = {one.stage: one.settings for one in planned.stages}
    return FleetLayout(
        replicas=replicas,
        shared=planned.placement == SHARED,
        orchestrator_streams=int(settings["orchestrator"]["MAX_STREAMS"]),
        llm_slots=int(settings["llm"]["MAX_SEQUENCES"]),
        llm_waiting=int(settings["llm"]["MAX_WAITING"]),
        token2wav_streams=int(settings["token2wav"]["MAX_STREAMS"]),
        pages=planned.pages,
        scaling={one.stage: Scaling(threshold=one.threshold, least=1 + spare, most=one.most) for one in planned.stages},
        failures=failures,
        start_seconds={
            one.stage: engine_start if one.stage in ("llm", "token2wav") else host_start for one in planned.stages
        },
    )


def speech(planned: Plan) -> Speech:
    """What is asked for, as the plan has it."""
    demand = planned.demand
    spread = LENGTH_SPREAD * demand.sentence
    return Speech(
        seconds=(demand.sentence - spread, demand.sentence + spread),
        prompt_tokens=demand.prompt_tokens,
        prompt_positions=demand.prompt_positions,
        first_tokens=demand.first_tokens,
    )
