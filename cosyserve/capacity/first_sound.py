"""How long engines at a steady load let a first sound wait: a queue that is served in batches.

Blocks that come while a step runs share the next one. So a step has as many blocks as come in the
time that it takes, and the fixed point of that is how a loaded engine works.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from cosyserve.capacity.demand import Demand
from cosyserve.capacity.profile import CHUNK_POSITIONS, EngineProfile

WAY = 0.009
"""Seconds of the six messages from the caller through the services and back."""
MARGIN = 0.0075
"""Times the square root of the open streams: what a first piece must outlast besides two steps, as
`services.token2wav.scheduling.first_chunk_delay` has it.
"""
SPREAD = 1.15
"""The 95th percentile of what the engines take for a first sound, by the measured medians: each of
its parts takes 1.3 times as long in one of twenty cases (`python -m tools.capacity` draws them so),
their sum less.
"""
SLACK = 0.8
"""Seconds of sound that token2wav is ahead of the players of a crowd: its steps take what is
urgent, and what else fits without making them longer, so most streams stay open until they near
their end. It begins where engines are used to CROWD_FROM and is the rule from CROWD_FULL on; both
from simulations of 32 to 320 streams, docs/capacity.md.
"""
CROWD_FROM, CROWD_FULL = 0.3, 0.6
RARE = 0.05
"""Share of the requests that may wait longer than a 95th percentile."""


@dataclass(frozen=True)
class EngineLoad:
    """One token2wav and its share of an LLM under the load of so many streams.

    blocks: of a step. step: seconds of it. used: share of the largest step's rate. rows: of a step
    of the LLM. llm_used: likewise. open: streams that are open at token2wav. first_sound: seconds,
    95th percentile. Everything is infinite beyond what the engine can do.
    """

    blocks: float
    step: float
    used: float
    rows: float
    llm_used: float
    open: float
    first_sound: float


def token2wav_used(profile: EngineProfile, demand: Demand, streams: float, *, shared: bool) -> float:
    """Share of what steps of the largest size can do."""
    most = profile.most_blocks
    return streams * demand.requests * demand.blocks * _step(profile, demand, most, streams, shared=shared) / most


def llm_used(profile: EngineProfile, demand: Demand, streams: float, *, shared: bool) -> float:
    """Share of what the LLM can do in steps of the largest size, prompts included."""
    return streams * demand.requests * (_prompt(profile, demand) + _sentence(profile, demand, shared=shared))


def engine_load(
    profile: EngineProfile, demand: Demand, streams: float, llm_streams: float, *, shared: bool
) -> EngineLoad:
    """streams, llm_streams: of the token2wav and of its LLM. shared: on one GPU."""
    used = token2wav_used(profile, demand, streams, shared=shared)
    prompts = llm_streams * demand.requests * _prompt(profile, demand)
    writing = llm_used(profile, demand, llm_streams, shared=shared)
    if used >= 1 or writing >= 1:
        return EngineLoad(math.inf, math.inf, used, math.inf, writing, math.inf, math.inf)
    crowd = streams * open_share(demand) * min(max((used - CROWD_FROM) / (CROWD_FULL - CROWD_FROM), 0.0), 1.0)
    blocks, step = _fixed_point(
        lambda size: _step(profile, demand, size, crowd, shared=shared),
        streams * demand.requests * demand.blocks,
        profile.most_blocks,
    )
    longer = profile.contention.decode if shared else 1.0
    rows, row_step = _fixed_point(
        lambda size: longer * profile.decode_step(size),
        llm_streams * demand.requests * demand.tokens / (1.0 - prompts),
        profile.most_rows,
    )
    first_tokens = 2 * _prompt(profile, demand) + demand.first_tokens * row_step / (1.0 - prompts)
    # A stream has a step for each block, and waits for the one that runs when it comes.
    seconds = (demand.blocks + 0.5) * step + first_tokens
    open_streams = max(streams * demand.requests * seconds, crowd)
    held = max(2 * step + MARGIN * math.sqrt(open_streams) - demand.first_piece, 0.0)
    busy = min(streams * demand.requests * demand.blocks * step / blocks, 1.0)
    waits = step * (1.0 - RARE / busy) if busy > RARE else 0.0
    engines = SPREAD * (first_tokens + step) + waits
    hosts = profile.hosts
    services = hosts.frontend_per_request + demand.first_piece * hosts.orchestrator_per_second
    services += demand.first_piece * hosts.gateway_per_second
    return EngineLoad(blocks, step, used, rows, writing, open_streams, WAY + services + engines + held)


def open_share(demand: Demand) -> float:
    """Share of the listeners of a crowd whose stream is open at token2wav."""
    return max(demand.sentence - SLACK, 0.0) / demand.sentence


def _step(profile: EngineProfile, demand: Demand, size: float, open_streams: float, *, shared: bool) -> float:
    """Of token2wav. Sizes between the measured ones take the time of the next larger one."""
    whole = max(math.ceil(size), 1)
    device = profile.flow_pass(whole, demand.behind) + profile.vocoder_pass(whole)
    planning = profile.planning.seconds(round(open_streams), whole)
    return (profile.contention.of_flow(whole) if shared else 1.0) * device + profile.host_step(whole) + planning


def _prompt(profile: EngineProfile, demand: Demand) -> float:
    """Seconds of the LLM for the prompt of a request: several share a chunk."""
    return profile.prefill * demand.prompt_positions / CHUNK_POSITIONS


def _sentence(profile: EngineProfile, demand: Demand, *, shared: bool) -> float:
    """Seconds of the LLM for the tokens of a request, in steps of the largest size."""
    most = profile.most_rows
    return demand.tokens * profile.decode_step(most) / most * (profile.contention.decode if shared else 1.0)


def _fixed_point(seconds: Callable[[int], float], rate: float, most: int) -> tuple[float, float]:
    """The smallest size whose step takes as long as so many come at `rate`, and the step's time;
    the largest if there is none.
    """
    size = 1.0
    for _ in range(200):
        following = min(max(rate * seconds(math.ceil(size)), 1.0), float(most))
        if following <= size:
            break
        size = following
    return size, seconds(math.ceil(size))
