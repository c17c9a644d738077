"""The parts of `make bench-gpu`, in the order in which they are run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.gpu.prepare import COMPLETE
from bench.gpu.service_settings import settings
from bench.parts.part import Part

PREPARE = "prepare"
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)
SEARCH = (16, 32, 64, 96, 128, 160, 192, 224, 256)
SLOW_LEVELS = (1, 4)
STOP_BELOW = 0.95
"""The search for the most streams ends at the first load of which fewer than this share had no
gap.
"""
SOAK_STREAMS = 32
VOCODER, VOCODER_SHARDS = "vocoder-float16", ("0 5", "1 5", "2 5", "3 5", "4 5")
"""Part of `bench.gpu.token2wav` with the arithmetic that serves, and the shares in which it is
compiled.
"""
MARGIN_SECONDS = 90.0
"""Around a soak: services that start and stop."""


@dataclass(frozen=True)
class Plan:
    """out, model: directories. free: bytes of GPU memory. seconds: of each load of the services.
    minutes: of the soak.
    """

    out: Path
    model: Path
    free: int
    seconds: float = 6.0
    minutes: float = 8.0


def parts(plan: Plan) -> list[Part]:
    """Raises ValueError for a GPU with too little memory."""
    return [_prepare(plan), *_stages(plan), *_correctness(plan), *_services(plan)]


def _prepare(plan: Plan) -> Part:
    compiled = [("-m", "bench.gpu.prepare", "llm", *rows.split()) for rows in ("0 1 2", "4 8 16", "32 64 128")]
    token2wav = ("-m", "bench.gpu.token2wav", "--out", str(plan.out), "--compile", "--part")
    compiled += [(*token2wav, "passes", "--shard", *units.split()) for units in ("1 2", "4", "8", "16 32")]
    compiled += [(*token2wav, VOCODER, "--shard", *shard.split()) for shard in VOCODER_SHARDS]
    about = "random weights of the published sizes on the disk, kernels compiled"
    return Part(PREPARE, about, (("-m", "bench.gpu.prepare", str(plan.model)), *compiled), makes=plan.model / COMPLETE)


def _stages(plan: Plan) -> list[Part]:
    def llm(name: str, about: str, part: str) -> Part:
        return Part(name, about, (("-m", "bench.gpu.llm", "--part", part, "--json", str(plan.out / f"{name}.json")),))

    return [
        llm("ceilings", "copy and read bandwidth, a matrix product, the smallest kernel", "ceilings"),
        llm("llm-steps", "decode steps and chunks of prompts, their graphs alone", "steps"),
        llm("llm-engine", "milliseconds a token and to the first one, 1 to 128 sentences", "engine"),
        _token2wav(plan, "flow", "a pass of the flow by batch and prefix", "passes", alone=True),
        _token2wav(plan, "recompute", "a block made again from nothing kept", "recompute", alone=True),
        _token2wav(plan, "vocoder", "a window of the vocoder by batch, and against the readable one", VOCODER,
        alone=True),
        _token2wav(plan, "readable", "flow and vocoder of the readable path", "readable", alone=True),
        Part(
            "lengths", "sentences of 4, 10 and 30 s: cost and memory, memory of each engine",
            (("-m", "bench.gpu.lengths", "--model", str(plan.model), "--json", str(plan.out / "lengths.json")),),
            needs=(PREPARE,),
        ),
    ]  # fmt: skip


def _correctness(plan: Plan) -> list[Part]:
    same = ("-m", "bench.gpu.llm", "--part", "same", "--json", str(plan.out / "llm-same.json"))
    return [
        Part(
            "llm-same", "tokens of the fused steps against the readable path, many against alone", (same,), alone=False
        ),
        _token2wav(plan, "mel", "mel of the flow in bfloat16 against float32", "correctness-bfloat16", alone=False),
        _token2wav(
            plan, "samples", "samples of the decoder: together, alone, behind a kept prompt", "decoder", alone=False
        ),
    ]


def _token2wav(plan: Plan, name: str, about: str, part: str, *, alone: bool) -> Part:
    command = (
        "-m",
        "bench.gpu.token2wav",
        "--out",
        str(plan.out),
        "--part",
        part,
        "--json",
        str(plan.out / f"{name}.json"),
    )
    return Part(name, about, (command,), alone=alone)


def _services(plan: Plan) -> list[Part]:
    def stack(module: str, name: str, engines: str, *arguments: str) -> tuple[str, ...]:
        settings_options = [word for pair in settings(engines, plan.free).items() for word in ("--set", "=".join(pair))]
        json = str(plan.out / f"{name}.json")
        return (
            "-m",
            module,
            "--model",
            str(plan.model),
            "--device",
            "cuda",
            "--json",
            json,
            *arguments,
            *settings_options,
        )

    def serving(name: str, about: str, engines: str, arrivals: str, levels: Sequence[int], *more: str) -> Part:
        loads = (
            "--arrivals",
            arrivals,
            "--streams",
            ",".join(map(str, levels)),
            "--seconds",
            f"{plan.seconds:g}",
            *more,
        )
        under = f"{plan.seconds:g} s a load"
        return Part(
            name, about, (stack("bench.serving", name, engines, *loads),), keeps=True, under=under, needs=(PREPARE,)
        )

    def offline(name: str, engines: str, sentences: int) -> Part:
        command = ("-m", "bench.offline", "--model", str(plan.model), "--device", "cuda", "--engines", engines)
        options = ("--sentences", str(sentences), "--json", str(plan.out / f"{name}.json"))
        return Part(name, f"whole sentences in batches, {engines} engines", ((*command, *options),), needs=(PREPARE,))

    soak = stack("bench.load_soak", "soak", "fast", "--streams", str(SOAK_STREAMS), "--minutes", f"{plan.minutes:g}")
    return [
        serving("closed", "the services over gRPC, callers in a closed loop", "fast", "closed", LEVELS),
        serving("poisson", "the services over gRPC, listeners who come by chance", "fast", "poisson", LEVELS),
        serving("most", "how many listeners at once hear no gap", "fast", "listening", SEARCH, "--stop-below",
        str(STOP_BELOW)),
        serving("slow", "the services over gRPC with the readable engines", "readable", "closed", SLOW_LEVELS),
        offline("offline", "fast", 16),
        offline("offline-readable", "readable", 4),
        Part(
            "soak", f"{plan.minutes:g} minutes at {SOAK_STREAMS} streams with hang-ups: memory and errors", (soak,),
            limit=60 * plan.minutes + MARGIN_SECONDS, under=f"{plan.minutes:g} minutes", needs=(PREPARE,),
        ),
    ]  # fmt: skip
