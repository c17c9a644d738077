"""Options of a capacity plan, which `cosyserve plan` and the simulation of it share."""

import argparse
import math
from pathlib import Path

from cosyserve.capacity.demand import Demand
from cosyserve.capacity.plan import PLACEMENTS, Choices, Plan, plan
from cosyserve.capacity.profile import EngineProfile
from cosyserve.capacity.report_file import default_profile, read_profile
from cosyserve.commands.terminal.arguments import number, whole
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.prompt_cut import audible_first_hop, cut_for
from cosyserve.generations.reading import GENERATIONS
from cosyserve.spec import CHUNK_TOKENS

MOST_STREAMS = 10_000_000
OPTIONS = (
    "streams", "slo_ms", "report", "sentence_seconds", "prompt_tokens", "first_hop_tokens", "generation", "placement",
    "headroom", "spare", "gpu_price", "cpu_price",
)  # fmt: skip
"""What `add_plan` adds, as attributes."""
_MILLISECONDS = number("number of milliseconds from 1 to 60000", lambda value: 1 <= value <= 60_000)
_SENTENCE = number("number of seconds from 1 to 60", lambda value: 1 <= value <= 60)
_SHARE = number("share from 0.1 to 0.95", lambda value: 0.1 <= value <= 0.95)
_PRICE = number("price from 0", lambda value: 0 <= value < math.inf)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """--streams and all that `planned` reads."""
    parser.add_argument(
        "--streams", type=whole(1, MOST_STREAMS), required=True, metavar="N", help="listeners at once, all of whom hear"
    )
    parser.add_argument(
        "--slo-ms",
        type=_MILLISECONDS,
        required=True,
        metavar="M",
        help="milliseconds within which 95 %% of the requests sound",
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="report.json of `make bench-gpu` (default: an H200, from the figures of the documentation)",
    )
    parser.add_argument(
        "--sentence-seconds", type=_SENTENCE, default=3.1, metavar="S", help="of sound (default: %(default)g)"
    )
    parser.add_argument(
        "--prompt-tokens",
        type=whole(25, 750),
        default=87,
        metavar="N",
        help="of the voice, 25 for a second of its recording (default: %(default)s)",
    )
    parser.add_argument(
        "--first-hop-tokens",
        type=whole(0, CHUNK_TOKENS),
        metavar="N",
        help="as COSYSERVE_TOKEN2WAV_FIRST_HOP_TOKENS: prompts are cut at their start so that the first hop has so "
        "many tokens, 0: they are not cut (default: that of token2wav on a GPU)",
    )
    parser.add_argument(
        "--generation",
        choices=[each.name for each in GENERATIONS],
        default=COSYVOICE2.name,
        help="of the model: how much sound its vocoder holds back (default: %(default)s)",
    )
    parser.add_argument(
        "--placement",
        choices=PLACEMENTS,
        help="shared: a GPU serves an LLM and a token2wav; separate: each has its own (default: what takes fewer GPUs)",
    )
    parser.add_argument(
        "--headroom",
        type=_SHARE,
        default=0.8,
        metavar="SHARE",
        help="of what a pod can do that is used (default: %(default)g)",
    )
    parser.add_argument(
        "--spare",
        type=whole(0, 1000),
        default=1,
        metavar="PODS",
        help="of each stage that may be lost (default: %(default)s)",
    )
    parser.add_argument("--gpu-price", type=_PRICE, metavar="PRICE", help="of a GPU for an hour")
    parser.add_argument("--cpu-price", type=_PRICE, metavar="PRICE", help="of a vCPU for an hour")


def planned(arguments: argparse.Namespace) -> tuple[EngineProfile, Plan]:
    """Raises SettingsError for a report that cannot be used, and for what no pods can hold."""
    profile = read_profile(arguments.report) if arguments.report else default_profile()
    generation = next(each for each in GENERATIONS if each.name == arguments.generation)
    first_hop = arguments.first_hop_tokens
    if first_hop is None:
        first_hop = audible_first_hop(generation)
    demand = Demand(
        streams=arguments.streams,
        slo=arguments.slo_ms / 1000,
        sentence=arguments.sentence_seconds,
        prompt_tokens=arguments.prompt_tokens - cut_for(arguments.prompt_tokens, first_hop),
        hold_back_tokens=generation.hold_back_tokens,
    )
    choices = Choices(
        headroom=arguments.headroom,
        spare=arguments.spare,
        gpu_price=arguments.gpu_price,
        cpu_price=arguments.cpu_price,
    )
    return profile, plan(profile, demand, choices, arguments.placement)
