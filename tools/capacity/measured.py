"""Does the simulation say what a GPU said? `python -m tools.capacity.measured [--listeners LIST]
[--seeds 4]`

Two measurements, simulated from a profile: so many listeners at once on one GPU, each of whom hears
its answer to the end and asks again (`make bench-gpu BENCH_ARGS="--part most"`); and callers that
ask again at once while a second GPU for token2wav is added, with the settings as they are.
"""

import statistics
import sys
from collections.abc import Sequence

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


def audio_a_second(profile: EngineProfile, callers: int, decoders: int, seed: int = 1, seconds: float = 15.0) -> float:
    """Seconds of sound in a second that so many callers get who ask again at once, or when a
    refusal says so.
    """
    fleet = Fleet(profile, as_they_are(profile, decoders), Speech(), seed)
    fleet.outcome.counted_from = _STARTING
    closed_loop(fleet, callers, seconds + _STARTING)
    fleet.run(seconds + _STARTING)
    return fleet.outcome.audio / seconds


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
        one, two = (audio_a_second(profile, callers, decoders) for decoders in (1, 2))
        times = f"with a second GPU {two:.0f}, {two / one:.2f} times"
        print(f"{callers} callers, settings as they are: {one:.0f} audio s/s, {times}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
