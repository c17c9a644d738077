"""Pods, GPUs and cost of every stage for a demand, and the thresholds at which each is scaled."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from cosyserve.capacity.demand import Demand
from cosyserve.capacity.first_sound import EngineLoad, engine_load, open_share
from cosyserve.capacity.profile import EngineProfile
from cosyserve.errors import SettingsError

SHARED, SEPARATE = "shared", "separate"
PLACEMENTS = (SHARED, SEPARATE)
"""shared: each GPU serves an LLM and a token2wav. separate: each has a GPU of its own."""
_ENGINE_CORES = 2.0
"""Cores of a pod with an engine: its own thread, and the calls."""
_HOST_CORES = 1.0
"""Cores of a pod without: one process computes on one core."""
_SCRATCH = 0.1
"""Share of the GPU's memory that is left free."""
_PROMPT_CACHE_BYTES = 2 << 30
"""As COSYSERVE_TOKEN2WAV_PROMPT_CACHE_BYTES."""
_CREST = 1.64
"""Standard deviations of a number that is exceeded in 5 % of the time."""
_LEAST_LIMIT, _LEAST_SLOTS = 8, 16
_LEAST_PRESSURE = 0.1
"""Of token2wav's target: with few streams open, one player that is about to run dry is a large
share.
"""
_BEFORE_GAPS = 0.9
"""Share of the streams of a token2wav at its largest load that it admits, so that a request is
refused before players run dry.
"""
_MOST_STREAMS_OF_A_POD = 100_000


class Impossible(SettingsError):
    """No number of pods holds what is asked for; the text says what does not, and what would.
    seconds: of the first sound of a single stream, infinite where that is not what is too long.
    """

    def __init__(self, message: str, seconds: float = math.inf) -> None:
        super().__init__(message)
        self.seconds = seconds


@dataclass(frozen=True, kw_only=True)
class Choices:
    """headroom: share of what a pod can do that is used. spare: pods of each stage beyond what is
    needed, so that as many may be lost. gpu_price, cpu_price: of an hour, None if not known.
    """

    headroom: float = 0.8
    spare: int = 1
    gpu_price: float | None = None
    cpu_price: float | None = None


@dataclass(frozen=True)
class StagePlan:
    """streams: that one pod serves at its threshold. pods: spare ones included. limit: streams that
    a pod admits, None for the frontend, which has no limit. metric, threshold: of KEDA. settings:
    of the service.
    """

    stage: str
    streams: int
    pods: int
    gpus: int
    cores: float
    metric: str
    threshold: float
    settings: dict[str, str]

    @property
    def most(self) -> int:
        """Pods that scaling may begin."""
        return 2 * self.pods


@dataclass(frozen=True)
class Plan:
    """load: of a token2wav at its share of the streams. pages: blocks of state that it keeps. gpus,
    cores: of all pods. cost: an hour, None without a price.
    """

    demand: Demand
    choices: Choices
    placement: str
    profile: str
    stages: tuple[StagePlan, ...]
    load: EngineLoad
    pages: int
    gpus: int
    cores: float
    cost: float | None

    def stage(self, name: str) -> StagePlan:
        """By its name."""
        return next(one for one in self.stages if one.stage == name)


def plan(profile: EngineProfile, demand: Demand, choices: Choices, placement: str | None = None) -> Plan:
    """placement: None takes the one with fewer GPUs, separate ones of two that are equal. Raises
    Impossible.
    """
    placements = [placement] if placement else [SEPARATE, SHARED]
    plans, errors = list[Plan](), list[Impossible]()
    for each in placements:
        try:
            plans.append(_placed(profile, demand, choices, each))
        except Impossible as error:
            errors.append(error)
    if not plans:
        raise min(errors, key=lambda error: error.seconds)
    return min(plans, key=lambda one: one.gpus)


def _placed(profile: EngineProfile, demand: Demand, choices: Choices, placement: str) -> Plan:
    shared = placement == SHARED
    pages = _pages(profile, demand, shared=shared)
    most_llm = _most_of_llm(profile, demand, choices, shared=shared)

    def load(streams: float) -> EngineLoad:
        # An LLM on a GPU of its own serves several token2wavs, and is as busy as planned.
        return engine_load(profile, demand, streams, streams if shared else most_llm, shared=shared)

    def holds(streams: int) -> bool:
        if load(streams).used > choices.headroom:
            return False
        # Listeners come by chance: 95 % of the time there are no more than these.
        one = load(streams + _CREST * math.sqrt(streams))
        if one.used >= 1 or (shared and one.llm_used > choices.headroom):
            return False
        return one.first_sound <= demand.slo and one.open * (demand.blocks + 0.5) <= choices.headroom * pages

    streams = _most(holds)
    if streams == 0:
        _refuse(load(1), demand, pages, placement)
    needed = math.ceil(demand.streams / streams)
    token2wav_pods = needed + choices.spare
    llm_streams = streams if shared else most_llm
    llm_pods = token2wav_pods if shared else math.ceil(demand.streams / llm_streams) + choices.spare
    gpus = token2wav_pods if shared else token2wav_pods + llm_pods
    per_pod, full = load(math.ceil(demand.streams / needed)), load(streams)
    # With its spare pods a stage is less busy: what it is scaled by has to be at its target then.
    usual = load(streams * needed / token2wav_pods)
    crowd = max(
        math.ceil(_BEFORE_GAPS * streams / full.used * open_share(demand)), math.ceil(2 * full.open), _LEAST_LIMIT
    )
    llm_usual = llm_streams * (llm_pods - choices.spare) / llm_pods
    slots = _slots(profile, _sentences(demand, profile, llm_streams, shared=shared))
    engines = (
        StagePlan(
            "llm", llm_streams, llm_pods, 0 if shared else llm_pods, _ENGINE_CORES * llm_pods,
            "(running + waiting) / slots",
            _share(_sentences(demand, profile, llm_usual, shared=shared) / slots, choices),
            {
                "MAX_SEQUENCES": str(slots),
                "MAX_WAITING": str(4 * slots),
                "KV_BUDGET_MIB": str(_kv_mebibytes(profile, demand)),
            },
        ),
        StagePlan(
            "token2wav", streams, token2wav_pods, token2wav_pods, _ENGINE_CORES * token2wav_pods,
            "max(pages used, 1 - slack)",
            # Streams grow from no page to all of theirs.
            _share(usual.open * (demand.blocks + 1.0) / 2 / pages, choices, _LEAST_PRESSURE),
            {
                "MAX_STREAMS": str(crowd),
                "STATE_BYTES": str(pages * profile.block_bytes),
                "RESERVE_TOKENS": "25",
            },
        ),
    )  # fmt: skip
    # Requests at once that the engines can have: more would run dry, so they are refused.
    at_once = crowd * token2wav_pods, usual.open * token2wav_pods
    hosts = tuple(
        _host(name, seconds, demand, choices, at_once) for name, seconds in _host_seconds(profile, demand).items()
    )
    stages = (*hosts, *engines)
    cores = sum(one.cores for one in stages)
    return Plan(
        demand, choices, placement, profile.name, stages, per_pod, pages, gpus, cores, _cost(gpus, cores, choices)
    )


def _host_seconds(profile: EngineProfile, demand: Demand) -> dict[str, float]:
    """Seconds of a core that a stream takes in a second, by stage."""
    hosts = profile.hosts
    return {
        "gateway": hosts.gateway_per_second,
        "orchestrator": hosts.orchestrator_per_second,
        "frontend": hosts.frontend_per_request * demand.requests,
    }


def _host(name: str, seconds: float, demand: Demand, choices: Choices, at_once: tuple[float, float]) -> StagePlan:
    """at_once: requests that the engines can have under way, and that they have as planned."""
    streams = max(math.floor(choices.headroom / seconds), 1)
    needed = math.ceil(demand.streams / streams)
    pods = needed + choices.spare
    threshold, metric, settings = choices.headroom * needed / pods, "processor, streams / limit", dict[str, str]()
    if name == "orchestrator":
        limit = max(math.ceil(at_once[0] / pods), _LEAST_LIMIT)
        settings = {"MAX_STREAMS": str(limit)}
        threshold = max(at_once[1] / pods / limit, threshold)
    return StagePlan(name, streams, pods, 0, _HOST_CORES * pods, metric, _share(threshold, choices), settings)


def _pages(profile: EngineProfile, demand: Demand, *, shared: bool) -> int:
    """Of one token2wav: what is left of its GPU's memory. Raises Impossible."""
    llm = profile.llm_bytes + (_kv_mebibytes(profile, demand) << 20) if shared else 0
    left = int((1.0 - _SCRATCH) * profile.memory) - profile.token2wav_bytes - llm - _PROMPT_CACHE_BYTES
    if left < math.ceil(demand.blocks + 0.5) * profile.block_bytes:
        raise Impossible(
            f"{profile.memory / 1e9:.0f} GB of GPU memory leave {max(left, 0) / 1e9:.1f} GB for the state of streams; "
            f"one of {demand.sentence:g} s takes {math.ceil(demand.blocks + 0.5) * profile.block_bytes / 1e9:.1f} GB"
        )
    return left // profile.block_bytes


def _kv_mebibytes(profile: EngineProfile, demand: Demand) -> int:
    """For keys and values of as many sentences as a step has rows, each three times as long."""
    positions = demand.prompt_positions + 3 * demand.tokens
    return math.ceil(profile.most_rows * positions * profile.row_bytes / (1 << 20))


def _most_of_llm(profile: EngineProfile, demand: Demand, choices: Choices, *, shared: bool) -> int:
    return max(
        _most(lambda streams: engine_load(profile, demand, 0, streams, shared=shared).llm_used <= choices.headroom), 1
    )


def _most(holds: Callable[[int], bool]) -> int:
    """The largest number of streams up to which it holds; 0 if it does not hold for one."""
    low, high = 0, 1
    while holds(high) and high < _MOST_STREAMS_OF_A_POD:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _sentences(demand: Demand, profile: EngineProfile, streams: float, *, shared: bool) -> float:
    """That run or wait at an LLM: those whose prompt runs, and the rows of a step."""
    rows = engine_load(profile, demand, 0, streams, shared=shared).rows
    return rows + streams * demand.requests * profile.prefill * (profile.contention.decode if shared else 1.0)


def _slots(profile: EngineProfile, sentences: float) -> int:
    """Places of an LLM: four times as many as it needs, a power of two as its steps are."""
    wanted = max(math.ceil(4 * sentences), _LEAST_SLOTS)
    return min(profile.most_rows, 1 << (wanted - 1).bit_length())


def _share(value: float, choices: Choices, least: float = 0.01) -> float:
    """A target: at least so much, below which chance alone scales, and at most the headroom."""
    return round(min(max(value, least), choices.headroom), 3)


def _refuse(one: EngineLoad, demand: Demand, pages: int, placement: str) -> None:
    """Raises Impossible with the reason why not even one stream fits."""
    if one.first_sound > demand.slo:
        raise Impossible(
            f"--slo-ms is {1000 * demand.slo:.0f}, and even a single stream sounds after "
            f"{1000 * one.first_sound:.0f} ms (95th percentile, GPUs {placement}); allowed is what is above that",
            one.first_sound,
        )
    raise Impossible(
        f"a sentence of {demand.sentence:g} s takes {demand.blocks + 0.5:.0f} blocks of state, of which the GPU holds "
        f"{pages}; raise --headroom or shorten --sentence-seconds"
    )


def _cost(gpus: int, cores: float, choices: Choices) -> float | None:
    if choices.gpu_price is None and choices.cpu_price is None:
        return None
    return gpus * (choices.gpu_price or 0.0) + cores * (choices.cpu_price or 0.0)
