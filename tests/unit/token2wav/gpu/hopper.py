"""`python -m tests.unit.token2wav.gpu.hopper FLOW KEPT UNITS..` compiles every kernel of a pass of
that flow network for Hopper as it would be launched, on any machine, with keys and values kept as
KEPT; `... hopper VOCODER FRAMES WINDOWS [KERNEL..]` those of windows of that vocoder network. `...
hopper steps FLOW UNITS STEP..` prints the kernels of a pass that those Euler steps alone lack.

Prints the resources of each kernel as JSON: {"kernel", "constants", "registers", "stack", "local",
"shared"}; in bytes, except registers per thread. Weights have the published widths, on which the
kernels depend, and those of the flow few layers.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from bench.generations.step_audio2 import PUBLISHED_STEP_DIT
from bench.gpu.token2wav.random_models import RUN, random_vocoder
from bench.real_size import PUBLISHED_DIT, PUBLISHED_FLOW
from cosyserve.generations.generation import Generation
from cosyserve.generations.reading import GENERATIONS
from cosyserve.spec import EULER_STEPS
from services.token2wav.gpu.device.launcher import Grid, Launcher
from services.token2wav.gpu.paged_flow.flow import PagedFlow, Way
from services.token2wav.gpu.paged_flow.kept_numbers import KEPT_NUMBERS
from services.token2wav.gpu.paged_flow.networks import DIT, STEP_DIT, UNET
from services.token2wav.gpu.windowed_vocoder.networks import NETWORKS
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder
from services.token2wav.gpu.windowed_vocoder.windows import Render
from tests.unit.token2wav.gpu.small_flow import random_tensors

TARGET = GPUTarget("cuda", 90, 32)
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float64: "fp64",
    torch.int8: "i8",
    torch.float8_e4m3fn: "fp8e4nv",
}


@dataclass(frozen=True)
class Recorder(Launcher):
    """Launches nothing. sources: what would have been compiled, by kernel, types and constants."""

    sources: dict[str, tuple[ASTSource, dict[str, Any]]] = field(default_factory=dict)

    def __call__(
        self, kernel: Any, grid: Grid, *arguments: Any, warps: int = 4, stages: int = 3, **constants: Any
    ) -> None:
        constants["CHAINED"] = True
        signature, values, aligned = {}, {}, {}
        for at, parameter in enumerate(kernel.params):
            argument = arguments[at] if at < len(arguments) else constants[parameter.name]
            one = isinstance(argument, int) and argument == 1 and not parameter.do_not_specialize
            if parameter.is_constexpr or one:
                signature[parameter.name], values[at,] = "constexpr", argument
                continue
            whole = isinstance(argument, int)
            if isinstance(argument, TensorDescriptor):
                signature[parameter.name] = f"tensordesc<{TYPES[argument.base.dtype]}{argument.block_shape}>"
                continue
            signature[parameter.name] = (
                "i32" if whole else "fp32" if isinstance(argument, float) else f"*{TYPES[argument.dtype]}"
            )
            divides = (
                not parameter.do_not_specialize and argument % 16 == 0 if whole else isinstance(argument, torch.Tensor)
            )
            if divides:
                aligned[at,] = [["tt.divisibility", 16]]
        options = {"num_warps": warps, "num_stages": stages, "launch_pdl": True}
        name = f"{kernel.__name__} {signature} {values} {sorted(aligned)} {options}"
        source = ASTSource(fn=kernel, signature=signature, constexprs=values, attrs=aligned)
        self.sources.setdefault(name, (source, options))


def resources(source: ASTSource, options: dict[str, Any]) -> dict[str, Any]:
    """The resources that the machine code needs."""
    compiled = triton.compile(source, target=TARGET, options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        output = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = {name.lower(): int(re.search(rf"{name}:(\d+)", output)[1]) for name in ("REG", "STACK", "LOCAL")}  # type: ignore[index]
    constants = {source.fn.arg_names[at[0]]: value for at, value in source.constants.items()}
    shared = compiled.metadata.shared
    return {
        "kernel": source.fn.__name__,
        "constants": constants,
        "registers": found.pop("reg"),
        **found,
        "shared": shared,
    }


SHALLOW: dict[str, Any] = {
    "conformer-unet": (UNET, replace(PUBLISHED_FLOW, encoder_layers=1, middle=1, transformers=1)),
    "dit": (DIT, replace(PUBLISHED_DIT, depth=1)),
    "conformer-dit": (STEP_DIT, replace(PUBLISHED_STEP_DIT, encoder_layers=1, encoder_upsampled_layers=1, depth=1)),
}


@torch.inference_mode()
def recorded(name: str, kept: str, units: int, steps: Sequence[int] = range(EULER_STEPS)) -> Recorder:
    """Of passes over so many units and those Euler steps, for every kind of graph, with and without
    grid barriers where a network has any.
    """
    (network, config), recorder = SHALLOW[name], Recorder(chained=True)
    tensors = random_tensors(config)
    for barrier_units in (0, 4) if network.barrier_channels(config) else (0,):
        flow = PagedFlow(
            network, config, tensors, pages=1, buckets=(units,), launch=recorder, barrier_units=barrier_units,
            kept=KEPT_NUMBERS[kept],
        )  # fmt: skip
        flow._table.fill([flow._padding_unit()], units)
        for way in Way:
            if units <= flow._narrow.get(way, units):
                flow._launch(units, way, steps)
    return recorder


@torch.inference_mode()
def recorded_windows(generation: Generation, frames: int, windows: int) -> Recorder:
    """Of a batch of so many windows of so many frames."""
    RUN.generation = generation.name
    network, config, weights = random_vocoder()
    recorder = Recorder(chained=True)
    vocoder = WindowedVocoder(
        config, weights, torch.device("cpu"), slots=2, buckets=(windows,), launch=recorder, lengths=(frames,),
        network=network,
    )  # fmt: skip
    vocoder.run([Render(1, 0, frames, None, 0, 0)] * windows, frames)
    return recorder


def main() -> None:
    first, *others = sys.argv[1:]
    if first == "steps":
        steps = [int(step) for step in others[2:]]
        given = recorded(others[0], "operands", int(others[1]), steps).sources
        every = recorded(others[0], "operands", int(others[1])).sources
        json.dump([source.fn.__name__ for name, (source, _) in every.items() if name not in given], sys.stdout)
        return
    if first in NETWORKS:
        (generation,) = [each for each in GENERATIONS if each.vocoder_network == first]
        sources, wanted = recorded_windows(generation, *map(int, others[:2])).sources, others[2:]
    else:
        sources, wanted = {}, []
        for units in map(int, others[1:]):
            sources |= recorded(first, others[0], units).sources
    chosen = [source for source in sources.values() if not wanted or source[0].fn.__name__ in wanted]
    json.dump([resources(*source) for source in chosen], sys.stdout)


if __name__ == "__main__":
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("kernels are compiled here, not interpreted")
    main()
