"""Does its time show whether a key is right? `python -m bench.key_timing
[--pairs 10000] [--keys 100] [--json FILE]`

Each pair is the look-up of one key of a ring and of one that no ring has, in random order, without
garbage collection. Printed is the probability that the right one of a pair
takes longer (0.5: the time shows nothing), with the range in which it lies with 99 % certainty,
for right keys at the beginning, in the middle and at the end of the ring.
"""

import gc
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.load.command_line import command
from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from cosyserve.keys.key_record import KeyRecord
from cosyserve.keys.secret import digest, new_secret
from services.orchestrator.access.key_ring import KeyRing

CERTAINTY = 2.576
"""Standard deviations on both sides of the mean that hold 99 %."""


@dataclass(frozen=True)
class Compared:
    """Microseconds, and the probability with its range."""

    place: str
    pairs: int
    right_p50: float
    wrong_p50: float
    right_is_slower: float
    least: float
    most: float

    @property
    def alike(self) -> bool:
        """Whether 0.5 lies in the range."""
        return self.least <= 0.5 <= self.most


def compared(ring: KeyRing, right: Sequence[str], place: str, pairs: int) -> Compared:
    """right: keys of the ring; each pair takes one of them, and one of as many that are not."""
    draws = random.Random(place)
    wrong = [new_secret() for _ in right]
    times: tuple[list[int], list[int]] = ([], [])
    slower = ties = 0
    for _ in range(pairs):
        given = ["", ""]
        for which, secrets in draws.sample(((0, right), (1, wrong)), 2):
            secret = draws.choice(secrets)
            given[which] = f"{secret[:9]}{secret[9:]}"  # both are new strings, as those of requests are
        order = (0, 1) if draws.random() < 0.5 else (1, 0)
        taken = [0, 0]
        for which in order:
            begun = time.perf_counter_ns()
            ring.find(given[which])
            taken[which] = time.perf_counter_ns() - begun
            times[which].append(taken[which])
        slower += taken[0] > taken[1]
        ties += taken[0] == taken[1]
    share = (slower + ties / 2) / pairs
    half = CERTAINTY * math.sqrt(0.25 / pairs)
    medians = [statistics.median(each) / 1000 for each in times]
    return Compared(place, pairs, medians[0], medians[1], share, share - half, share + half)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if it does."""
    parser = command("bench.key_timing", __doc__)
    parser.add_argument("--pairs", type=int, default=10_000, help="of each place (default: %(default)s)")
    parser.add_argument("--keys", type=int, default=100, help="in the ring (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    secrets = [new_secret() for _ in range(options.keys)]
    ring = KeyRing([KeyRecord(f"key{number}", digest(secret)) for number, secret in enumerate(secrets)])
    places = {"first": secrets[:1], "middle": secrets[len(secrets) // 2 :][:1], "last": secrets[-1:], "any": secrets}
    gc.disable()
    rows = [compared(ring, right, place, options.pairs) for place, right in places.items()]
    gc.enable()
    print("\n".join(columns([asdict(row) for row in rows])))
    results = ResultsFile(options.json)
    results["machine"] = machine()
    results["rows"] = [asdict(row) for row in rows]
    apart = [row.place for row in rows if not row.alike]
    print(f"the time shows a right key: {', '.join(apart)}" if apart else "the time shows nothing")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
