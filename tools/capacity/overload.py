"""What becomes of more requests than a GPU can speak? `python -m tools.capacity.overload [--rates
60,80] [--pages 440] [--sentences 2,7]`

Requests that come by chance at one GPU with both engines, simulated from a profile as by
`tools.capacity.measured`: who is refused, and what those hear who are not.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from cosyserve.capacity.profile import EngineProfile
from cosyserve.commands.terminal.arguments import numbers, whole
from cosyserve.errors import SettingsError
from cosyserve.load.measurement import percentile
from tools.capacity.command_line import add_report, command, profile_of, refusing
from tools.capacity.fleet.arrivals import by_chance
from tools.capacity.fleet.fleet import Fleet
from tools.capacity.fleet.layout import STAGES, FleetLayout, Speech

SENTENCES = (2.0, 7.0)
"""Seconds, as the sentences of `bench.field` have; 4.5 on average."""
_COUNTED = 20.0
"""Seconds that are counted; with long sentences as many as several of them take."""
_STARTING = 5.0
"""Seconds of the same load that are not counted."""
_PLACES = 1_024
"""Requests at once that no setting refuses."""
_RESERVE_TOKENS = 250


@dataclass(frozen=True)
class Heard:
    """arrived, refused, served: requests. gap_free: share of the served ones whose player, which
    keeps nothing back, never ran dry. p50, p95: seconds to the first sound. audio: seconds of sound
    in a second. recomputed: share of all blocks that were computed again for want of pages.
    """

    arrived: int
    refused: int
    served: int
    gap_free: float
    p50: float
    p95: float
    audio: float
    recomputed: float


def heard(
    profile: EngineProfile,
    rate: float,
    pages: int,
    *,
    adaptive: bool = True,
    sentences: tuple[float, float] = SENTENCES,
    seconds: float | None = None,
    seed: int = 1,
) -> Heard:
    """rate: requests a second. pages: of the pool, prompts not included. adaptive: whether late
    pieces lower the limit of the orchestrator. sentences: the shortest and the longest, in seconds.
    seconds: that are counted; None: enough for such sentences.
    """
    seconds = max(_COUNTED, sum(sentences)) if seconds is None else seconds
    layout = FleetLayout(
        replicas=dict.fromkeys(STAGES, 1),
        shared=True,
        orchestrator_streams=_PLACES,
        adaptive=adaptive,
        llm_waiting=2 * _PLACES,
        token2wav_streams=2 * _PLACES,
        reserve_tokens=_RESERVE_TOKENS,
        pages=pages,
    )
    fleet = Fleet(profile, layout, Speech(seconds=sentences), seed, period=seconds)
    fleet.outcome.counted_from = _STARTING
    by_chance(fleet, rate * sum(sentences) / 2, seconds + _STARTING, seed=seed + 5)
    fleet.run(seconds + _STARTING)
    fleet.drain()
    (period, *_), (decoder, *_) = fleet.outcome.periods, [pod.decoder for pod in fleet.token2wav.pods]
    return Heard(
        period.arrived,
        period.refused,
        period.served,
        period.gap_free_share or 0.0,
        percentile(period.first_sounds, 50) or 0.0,
        percentile(period.first_sounds, 95) or 0.0,
        period.audio / seconds,
        decoder.recomputed / (decoder.blocks + decoder.recomputed),
    )


@refusing
def main(given: Sequence[str] | None = None) -> int:
    parser = command("tools.capacity.overload", __doc__)
    add_report(parser)
    parser.add_argument(
        "--rates", type=numbers(1, 4096), default=(60, 80), metavar="N,N", help="a second (default: 60,80)"
    )
    parser.add_argument(
        "--pages", type=whole(1, 1 << 20), default=440, help="seconds of sound that the pool holds (default: 440)"
    )
    parser.add_argument(
        "--sentences",
        type=numbers(1, 4096),
        default=(2, 7),
        metavar="N,N",
        help="shortest and longest, seconds (default: 2,7)",
    )
    parser.add_argument("--unlimited", action="store_true", help="without the orchestrator's adaptive limit")
    options = parser.parse_args(given)
    profile = profile_of(options)
    if len(options.sentences) != 2:
        raise SettingsError("--sentences takes the shortest and the longest, such as 2,7")
    for rate in options.rates:
        least, longest = sorted(options.sentences)
        one = heard(profile, rate, options.pages, adaptive=not options.unlimited, sentences=(least, longest))
        print(
            f"{rate} a second, {options.pages} pages: {one.refused} of {one.arrived} refused, {one.gap_free:.1%} of "
            f"{one.served} without a gap, first sound p50 {1000 * one.p50:.0f}, p95 {1000 * one.p95:.0f} ms, "
            f"{one.audio:.0f} audio s/s, {one.recomputed:.0%} of the blocks computed again",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
