"""Does the simulation say what a GPU said? `python -m tools.capacity.measured [--listeners LIST]
[--seeds 4]`

Three measurements, simulated from a profile: so many listeners at once on one GPU, each of whom
hears its answer to the end and asks again (`make bench-gpu BENCH_ARGS="--part most"`); callers that
ask again at once while a second GPU for token2wav is added, with the settings as they are; and 96
such streams a GPU where a second one has both engines, too, by the processes around them.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

from cosyserve.capacity.profile import EngineProfile
from cosyserve.commands.terminal.arguments import numbers, whole
from tools.capacity.command_line import add_report, command, profile_of, refusing
from tools.capacity.fleet.arrivals import closed_loop, listening
from tools.capacity.fleet.fleet import Fleet
from tools.capacity.fleet.layout import STAGES, FleetLayout, Speech
from tools.capacity.fleet.outcome import Outcome

LOADS = (64, 128, 192, 224, 256, 272, 288, 304, 320, 336, 352, 368)
STOP_BELOW = 0.95
"""The search ends at the first load of which fewer players were without a gap, as the bench's."""
STREAMS = 96
"""Of each GPU with both engines, in a closed loop."""
_ALL_ADMITTED = 1 << 14
_STARTING = 3.0
"""Seconds until as many listen as are asked for; they are not counted."""
_STATE_BYTES = 8 << 30
"""As COSYSERVE_TOKEN2WAV_STATE_BYTES by default."""


def one_gpu(profile: EngineProfile) -> FleetLayout:
    """As `bench.gpu.parts`: both engines on a GPU, no request is refused, 65 % of its memory for
    pages. The client of the bench is one process, as the gateway here is.
    """
    return FleetLayout(
        replicas=dict.fromkeys(STAGES, 1),
        shared=True,
        orchestrator_streams=_ALL_ADMITTED,
        llm_waiting=_ALL_ADMITTED,
        token2wav_streams=_ALL_ADMITTED,
        pages=int(0.65 * profile.memory) // profile.block_bytes,
    )


def gap_free(profile: EngineProfile, listeners: int, seed: int, seconds: float = 6.0) -> Outcome:
    """What so many listeners hear in `seconds`."""
    fleet = Fleet(profile, one_gpu(profile), Speech(), seed)
    fleet.outcome.counted_from = _STARTING
    listening(fleet, listeners, seconds + _STARTING, seed + 50)
    fleet.run(seconds + _STARTING)
    fleet.drain()
    return fleet.outcome


def search(profile: EngineProfile, loads: Sequence[int], seed: int) -> list[tuple[int, float]]:
    """Loads and the share of players without a gap, up to the first below `STOP_BELOW`."""
    found: list[tuple[int, float]] = []
    for load in loads:
        found.append((load, gap_free(profile, load, seed).gap_free))
        if found[-1][1] < STOP_BELOW:
            break
    return found


def most(found: Sequence[tuple[int, float]], share: float) -> int:
    """The largest load up to which every one had at least this share; 0 if the first had not."""
    largest = 0
    for load, gaps in found:
        if gaps < share:
            break
        largest = load
    return largest


def as_they_are(profile: EngineProfile, decoders: int, state_bytes: int = _STATE_BYTES) -> FleetLayout:
    """The settings of the services by default: 16 requests, 8 GiB of pages, each stream with room
    for ten seconds. One LLM, on the first of so many GPUs.
    """
    return FleetLayout(
        replicas={**dict.fromkeys(STAGES, 1), "token2wav": decoders},
        shared=True,
        orchestrator_streams=16,
        llm_slots=16,
        llm_waiting=64,
        token2wav_streams=16,
        reserve_tokens=250,
        pages=state_bytes // profile.block_bytes,
    )


def on_each(profile: EngineProfile, gpus: int, callers: int = 1, hosts: int = 1) -> FleetLayout:
    """An LLM and a token2wav on each of so many GPUs, otherwise as `one_gpu`. callers: processes of
    the bench. hosts: processes of the orchestrator, and frontends.
    """
    host = {"gateway": callers, "orchestrator": hosts, "frontend": hosts}
    return replace(one_gpu(profile), replicas={**host, "llm": gpus, "token2wav": gpus})


def closed(
    profile: EngineProfile, layout: FleetLayout, streams: int, seed: int = 1, seconds: float = 15.0
) -> tuple[float, float]:
    """So many streams that ask again at once, or when a refusal says so: seconds of sound in a
    second, and the share of a core of the busiest process of the bench.
    """
    fleet = Fleet(profile, layout, Speech(), seed)
    fleet.outcome.counted_from = _STARTING
    closed_loop(fleet, streams, seconds + _STARTING)
    fleet.run(seconds + _STARTING)
    busiest = max(pod.busy_seconds for pod in fleet.gateway.pods)
    # What it still has to do at the end counts as done.
    return fleet.outcome.audio / seconds, min(1.0, busiest / (seconds + _STARTING))


@refusing
def main(given: Sequence[str] | None = None) -> int:
    parser = command("tools.capacity.measured", __doc__)
    add_report(parser)
    parser.add_argument("--listeners", type=numbers(1, 4096), default=LOADS, metavar="N,N", help="(default: 64 to 368)")
    parser.add_argument("--seeds", type=whole(1, 100), default=4, help="searches (default: %(default)s)")
    options = parser.parse_args(given)
    profile, searches = profile_of(options), []
    for seed in range(1, options.seeds + 1):
        searches.append(search(profile, sorted(options.listeners), seed))
        print(f"search {seed}: " + ", ".join(f"{load} {share:.1%}" for load, share in searches[-1]), flush=True)
    for share, what in ((1.0, "every player"), (0.99, "99 %"), (0.95, "95 %")):
        found = [most(one, share) for one in searches]
        print(f"most listeners without a gap, {what}: {statistics.median(found):g} ({min(found)} to {max(found)})")
    for callers in (64, 128):
        one, two = (closed(profile, as_they_are(profile, decoders), callers)[0] for decoders in (1, 2))
        times = f"with a second GPU {two:.0f}, {two / one:.2f} times"
        print(f"{callers} callers, settings as they are: {one:.0f} audio s/s, {times}")
    for callers, hosts in ((1, 1), (4, 1), (4, 4)):
        layouts = [on_each(profile, gpus, callers, hosts) for gpus in (1, 2)]
        (one, _), (two, busy) = (closed(profile, layout, STREAMS * gpus) for gpus, layout in enumerate(layouts, 1))
        times = f"with two GPUs {two:.0f}, {two / one:.2f} times, a caller busy {busy:.0%}"
        print(f"calling processes {callers}, of frontend and orchestrator {hosts}: {one:.0f} audio s/s, {times}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
