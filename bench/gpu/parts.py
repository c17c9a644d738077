"""The parts of `make bench-gpu`, in the order in which they are run, and the settings of services
on a GPU that they have to themselves, by the memory that is free.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu.prepare import COMPLETE
from bench.parts.part import Part

PREPARE = "prepare"
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)
SEARCH = (16, 32, 64, 96, 128, 160, 192, 224, 256)
LONG_SECONDS, LONG_SEARCH = 10, (216, 320, 500)
"""Seconds of a sentence, and how many listeners hear such ones."""
SLOW_LEVELS = (1, 4)
STOP_BELOW = 0.95
"""The search for the most streams ends at the first load of which fewer than this share had no
gap.
"""
SOAK_STREAMS = 64
VOCODER, VOCODER_SHARDS = "vocoder-float16", ("0 5", "1 5", "2 5", "3 5", "4 5")
"""Part of `bench.gpu.token2wav` with the arithmetic that serves, and the shares in which it is
compiled.
"""
MARGIN_SECONDS = 90.0
"""Around a soak: services that start and stop."""

ENGINES: Mapping[str, Mapping[str, str]] = {
    "fast": {
        "COSYSERVE_LLM_GPU_ENGINE": "fused",
        "COSYSERVE_TOKEN2WAV_GPU_ENGINE": "paged",
        "COSYSERVE_TOKEN2WAV_GPU_VOCODER": "windowed",
    },
    "readable": {"COSYSERVE_LLM_GPU_ENGINE": "readable", "COSYSERVE_TOKEN2WAV_GPU_ENGINE": "readable"},
}
"""fast: graphs of our own kernels. readable: PyTorch, as it runs on a CPU."""
SHARE_OF_STATE, BESIDE_BYTES = 0.65, 20_000_000_000
"""What the state of streams may take of the free memory, and what weights, graphs, scratch and the
speech-token model need in addition.
"""
LEAST_STATE_BYTES = 1 << 30


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
    compiled = [("-m", "bench.gpu.prepare", "llm", *rows.split()) for rows in ("0 1 2 one", "4 8 16", "32 64 128")]
    token2wav = ("-m", "bench.gpu.token2wav", "--out", str(plan.out), "--compile", "--part")
    compiled += [(*token2wav, "passes", "--shard", *units.split()) for units in ("1 2", "4", "8", "16 32")]
    compiled += [(*token2wav, VOCODER, "--shard", *shard.split()) for shard in VOCODER_SHARDS]
    about = "random weights of the published sizes on the disk, kernels compiled"
    return Part(PREPARE, about, (("-m", "bench.gpu.prepare", str(plan.model)), *compiled), makes=plan.model / COMPLETE)


def _measured(plan: Plan, name: str, about: str, module: str, *arguments: str, **conditions: Any) -> Part:
    """One command that keeps its figures under the part's name. conditions: as in `Part`."""
    return Part(name, about, (("-m", module, "--json", str(plan.out / f"{name}.json"), *arguments),), **conditions)


def _llm(plan: Plan, name: str, about: str, part: str, **conditions: Any) -> Part:
    return _measured(plan, name, about, "bench.gpu.llm", "--part", part, **conditions)


def _token2wav(plan: Plan, name: str, about: str, part: str, **conditions: Any) -> Part:
    return _measured(plan, name, about, "bench.gpu.token2wav", "--out", str(plan.out), "--part", part, **conditions)


def _stages(plan: Plan) -> list[Part]:
    return [
        _llm(plan, "ceilings", "copy and read bandwidth, a matrix product, the smallest kernel", "ceilings"),
        _llm(plan, "llm-steps", "decode steps and chunks of prompts, their graphs alone", "steps"),
        _llm(plan, "llm-engine", "milliseconds a token and to the first one, 1 to 128 sentences", "engine"),
        _llm(plan, "llm-one-launch", "a step of one sentence as one launch, beside launches", "one-launch"),
        _token2wav(plan, "flow", "a pass of the flow by batch and prefix", "passes"),
        _token2wav(plan, "recompute", "a block made again from nothing kept", "recompute"),
        _token2wav(plan, "vocoder", "a window of the vocoder by batch, and against the readable one", VOCODER),
        _token2wav(plan, "readable", "flow and vocoder of the readable path", "readable"),
        _measured(
            plan, "lengths", "sentences of 4, 10 and 30 s: cost and memory, memory of each engine",
            "bench.gpu.lengths", "--model", str(plan.model), needs=(PREPARE,),
        ),
    ]  # fmt: skip


def _correctness(plan: Plan) -> list[Part]:
    same = "tokens of the fused steps against the readable path, many against alone"
    samples = "samples of the decoder: together, alone, behind a kept prompt"
    return [
        _llm(plan, "llm-same", same, "same", alone=False),
        _token2wav(plan, "mel", "mel of the flow in bfloat16 against float32", "correctness-bfloat16", alone=False),
        _token2wav(plan, "samples", samples, "decoder", alone=False),
    ]


def _services(plan: Plan) -> list[Part]:
    on_gpu = ("--model", str(plan.model), "--device", "cuda")

    def stack(engines: str) -> list[str]:
        return [word for pair in settings(engines, plan.free).items() for word in ("--set", "=".join(pair))]

    def serving(name: str, about: str, engines: str, arrivals: str, levels: Sequence[int], *more: str) -> Part:
        loads = ("--arrivals", arrivals, "--streams", ",".join(map(str, levels)), "--seconds", f"{plan.seconds:g}")
        return _measured(
            plan, name, about, "bench.serving", *on_gpu, *loads, *more, *stack(engines),
            keeps=True, under=f"{plan.seconds:g} s a load", needs=(PREPARE,),
        )  # fmt: skip

    def offline(name: str, engines: str, sentences: int) -> Part:
        about, count = f"whole sentences in batches, {engines} engines", str(sentences)
        options = (*on_gpu, "--engines", engines, "--sentences", count)
        return _measured(plan, name, about, "bench.offline", *options, needs=(PREPARE,))

    return [
        serving("closed", "the services over gRPC, callers in a closed loop", "fast", "closed", LEVELS),
        serving("poisson", "the services over gRPC, listeners who come by chance", "fast", "poisson", LEVELS),
        serving("most", "how many listeners at once hear no gap", "fast", "listening", SEARCH, "--stop-below",
        str(STOP_BELOW)),
        serving(
            "most-long", f"the same of listeners of {LONG_SECONDS}-second sentences, states in eight bits",
            "fast", "listening", LONG_SEARCH, "--stop-below", str(STOP_BELOW), "--sentence-seconds", str(LONG_SECONDS),
            "--set", "COSYSERVE_TOKEN2WAV_GPU_KV_PRECISION=int8",
        ),
        serving("slow", "the services over gRPC with the readable engines", "readable", "closed", SLOW_LEVELS),
        offline("offline", "fast", 16),
        offline("offline-readable", "readable", 4),
        _measured(
            plan, "soak", f"{plan.minutes:g} minutes at {SOAK_STREAMS} streams with hang-ups: memory and errors",
            "bench.load_soak", *on_gpu, "--streams", str(SOAK_STREAMS), "--minutes", f"{plan.minutes:g}",
            *stack("fast"),
            limit=60 * plan.minutes + MARGIN_SECONDS, under=f"{plan.minutes:g} minutes", needs=(PREPARE,),
        ),
    ]  # fmt: skip


def state_bytes(free: int) -> int:
    """Memory for pages out of `free` bytes. Raises ValueError where there is too
    little.
    """
    count = min(int(SHARE_OF_STATE * free), free - BESIDE_BYTES)
    if count < LEAST_STATE_BYTES:
        raise ValueError(
            f"{free} bytes of GPU memory are free; the parts with services need {BESIDE_BYTES + LEAST_STATE_BYTES}"
        )
    return count


def settings(engines: str, free: int) -> dict[str, str]:
    """Environment of all services. engines: "fast" or "readable". free: bytes of GPU memory."""
    return {
        **ENGINES[engines],
        "COSYSERVE_TOKEN2WAV_STATE_BYTES": str(state_bytes(free)),
        # Random weights cannot speak.
        "COSYSERVE_ORCHESTRATOR_GUARDS": "false",
    }
