"""`python -m tools.model.verify MODEL [--precision fp16] [--runtime tensorrt]`: do the graphs compute what the torch path computes?

Each graph is asked every case of `tools.model.cases`. When an answer is too far off, the graph is run again with the layers' values as
outputs, and the first layer that differs is named.

Exit status: 0 all within tolerance, 1 something differs or cannot run, 2 bad arguments, 3 the directory is no model.
"""

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import torch

from cosyserve.engine_cache import EngineCache, default_directory
from cosyserve.errors import ModelError, SettingsError
from services.token2wav.engines.keys import COMPONENTS, OWN, PRECISIONS, graph_file
from services.token2wav.engines.shapes import profiles
from services.token2wav.engines.slots import Slots
from services.token2wav.torch_backend import device_of
from services.token2wav.trt import tensorrt_library
from tools.model.cases import Case, Reference
from tools.model.execute import Execute, Executor, by_onnx_runtime, by_tensorrt, on_cpu, on_cuda
from tools.model.export import export
from tools.model.graph import Array, Precision, layers_of
from tools.model.torch_layers import heard_layers
from tools.verify.report import Report

TOLERANCES = {Precision.FP32: 2e-5, Precision.FP16: 1e-2, Precision.BF16: 8e-2, Precision.FP8: 3e-1}
"""Largest difference of the estimator's velocity, as a share of its largest value where that is above 1."""
_OTHERS = {"encoder": 2e-5, "pitch": 2e-3, "filter": 2e-5}
RUNTIMES = ("cpu", "cuda", "tensorrt")
_GPU_FACTOR = 50.0
"""Other kernels round differently: on a GPU as many times the CPU's tolerance in float32 is allowed."""


def tolerance(component: str, precision: Precision) -> float:
    """Of a graph's output, on the CPU."""
    return TOLERANCES[precision] if component == "estimator" else _OTHERS[component]


def compare(
    models: Mapping[str, onnx.ModelProto],
    reference: Reference,
    precision: Precision,
    executor: Executor,
    *,
    masked: bool,
    factor: float = 1.0,
) -> tuple[Report, list[str]]:
    """A row for each case, and for each graph that differs a line that names its first layer that does."""
    report, ready = Report(), dict[str, Execute]()
    lines: list[str] = []
    executors = {component: executor if component == "estimator" or factor != 1.0 else by_onnx_runtime for component in COMPONENTS}
    for case in reference.cases(masked=masked):
        allowed = tolerance(case.component, precision) * (factor if case.component != "estimator" or precision is Precision.FP32 else 1.0)
        if case.component == "estimator":
            allowed *= max(1.0, float(np.abs(case.wanted).max()))
        if case.component not in ready:
            ready[case.component] = executors[case.component](models[case.component])
        report.compare(f"{case.component}: {case.name}", _answer(ready[case.component], case), case.wanted, allowed)
        if report.rows[-1].verdict != "ok" and not any(line.startswith(f"{case.component}:") for line in lines):
            lines.append(
                f"{case.component}: {first_difference(models[case.component], reference, case, executors[case.component], allowed)}"
            )
    return report, lines


def _answer(execute: Execute, case: Case) -> Array:
    return execute(case.inputs)[case.output]


def first_difference(model: onnx.ModelProto, reference: Reference, case: Case, executor: Executor, allowed: float) -> str:
    """The first layer, in the order of computation, that is further than `allowed` from the torch path's, in words.

    Where a layer's values are larger than one, `allowed` is a share of the largest.
    """
    layers = layers_of(model)
    wanted = heard_layers(reference, case, layers)
    told = [layer for layer in layers if layer.name in wanted]
    if not told:
        return "it has no layers that could be looked at one by one"
    found = executor(with_outputs(model, [layer.value for layer in told]))(case.inputs)
    for layer in told:
        error = float(np.abs(found[layer.value].astype(np.float64) - wanted[layer.name]).max(initial=0.0))
        if not error <= allowed * max(1.0, float(np.abs(wanted[layer.name]).max())):
            return f"layer {layer.name} is the first that differs, by {error:.2e} ({case.name})"
    return f"every layer up to {told[-1].name} agrees; what differs comes behind it ({case.name})"


def with_outputs(model: onnx.ModelProto, values: Sequence[str]) -> onnx.ModelProto:
    """A copy that hands these float32 values out as well."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    shown.graph.output.extend(inferred[value] for value in values)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="cosyserve model verify", description="Compare graphs or plans with the torch path.")
    parser.add_argument("model", type=Path, metavar="MODEL", help="model directory")
    parser.add_argument("--engines", type=Path, default=None, metavar="DIR", help=f"engine cache (default: {default_directory()})")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of the estimator's products (default: %(default)s)")
    parser.add_argument(
        "--published", type=Path, default=None, metavar="FILE", help="take this flow.decoder.estimator.fp32.onnx as estimator"
    )
    parser.add_argument("--runtime", choices=RUNTIMES, default="cpu", help="who computes; cuda: ONNX Runtime there (default: %(default)s)")
    parser.add_argument("--device", default="cuda", metavar="NAME", help="of TensorRT (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    precision, cache = Precision(options.precision), EngineCache(options.engines or default_directory(), on_wait=logging.info)
    try:
        executor, factor = (on_cuda(), _GPU_FACTOR) if options.runtime == "cuda" else (on_cpu(precision), 1.0)
        reference = Reference(options.model)
        graphs = export(options.model, cache, precision, options.published)
        masked = graphs.key.facts["estimator"] == OWN
        models = {component: onnx.load(str(graphs.file(graph_file(component)))) for component in COMPONENTS}
        if options.runtime == "tensorrt":
            tensorrt_library()
            device, width = device_of(options.device), reference.flow.config.encoder_width
            built = {component: profiles(component, 8, width, masked=masked) for component in COMPONENTS}
            executor, factor = by_tensorrt(built, device, Slots(device, 1)), _GPU_FACTOR
        report, lines = compare(models, reference, precision, executor, masked=masked, factor=factor)
    except ModelError as error:
        print(f"cosyserve: {error}", file=sys.stderr)
        return 3
    except (SettingsError, OSError) as error:
        print(f"cosyserve: {error}", file=sys.stderr)
        return 1
    print(json.dumps(report.as_dict() | {"first_differences": lines}, indent=1) if options.json else "\n".join([report.as_table(), *lines]))
    return 0 if report.ok else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
