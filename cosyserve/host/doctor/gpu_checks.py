"""Checks of the driver, the GPUs and what the engines need in addition."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cosyserve.engines.gpu_facts import AMPERE, VISIBLE, Gpu, driver_complaint, has_nvidia_device, hidden_gpus
from cosyserve.engines.one_launch import GPU_DECODE, ONE_LAUNCH, lacking
from cosyserve.host.doctor.finding import Finding, note, ok, problem
from cosyserve.host.hardware import Machine, format_version, parse_version
from cosyserve.host.recommendation import LEAST_GPU_MIB
from cosyserve.host.supervision.gpu_sharing import PROGRAM as MPS

_CPU_ONLY = "the engines run on the CPU; the published sizes are slower there than speech"
_BUSY_SHARE = 0.2


def check_driver(machine: Machine, wanted: bool) -> Finding:
    """wanted: no GPU is a problem, not a note."""
    if machine.gpu is not None:
        return ok(
            "driver", f"NVIDIA {machine.gpu.driver}, {len(machine.gpus)} GPU{'s' if len(machine.gpus) > 1 else ''}"
        )
    if (complaint := driver_complaint()) is not None:
        return problem(
            "driver",
            f"nvidia-smi fails: {complaint}",
            means="the driver does not work",
            fix="sudo dmesg | grep -i nvrm has details; after an update of the driver: sudo reboot",
        )
    without_gpu = problem if wanted else note
    if hidden_gpus():
        return without_gpu(
            "driver", f"{VISIBLE} hides every GPU", _CPU_ONLY, f"unset {VISIBLE}, or name GPUs that are there"
        )
    if has_nvidia_device():
        return without_gpu(
            "driver",
            "a GPU device, but no nvidia-smi",
            means="the GPU is unknown; " + _CPU_ONLY,
            fix="in a container: docker run --gpus all (NVIDIA_DRIVER_CAPABILITIES=compute,utility), "
            "with the NVIDIA Container Toolkit",
        )
    return without_gpu(
        "driver",
        "no NVIDIA driver and no GPU",
        means=_CPU_ONLY,
        fix="install NVIDIA's driver (Debian: apt-get install nvidia-driver; Ubuntu: ubuntu-drivers install --gpgpu); "
        "in a container also: docker run --gpus all",
    )


def check_gpus(machine: Machine, torch: Path | None, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """What the engines need on a machine with a GPU; nothing on one without. torch: directory of
    the package; None if it is not installed.
    """
    if machine.gpu is None:
        return []
    return [
        check_cuda(machine),
        *(finding for number, gpu in enumerate(machine.gpus) for finding in check_gpu(number, gpu)),
        *([] if torch is None else [check_torch_build(torch)]),
        check_compiler(machine),
        check_sharing(machine, environ),
        *check_decode(machine, environ),
    ]


def check_cuda(machine: Machine) -> Finding:
    """Checks whether the driver is new enough for the CUDA of torch."""
    if machine.cuda is None:
        return note("cuda", "the driver does not say which CUDA it runs", "whether it is new enough is unknown")
    newest = format_version(machine.cuda)
    runtime = machine.version("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
    if runtime is None:
        return ok("cuda", f"driver up to {newest}")
    brought = parse_version(runtime)[:2]
    both = f"driver up to {newest}, torch brings {format_version(brought)}"
    if brought[0] > machine.cuda[0]:
        least = {12: "525", 13: "580"}.get(brought[0], "the newest")
        fix = f"install driver {least} or later, or a torch built for CUDA {machine.cuda[0]}"
        return problem("cuda", both, "torch finds no GPU under this driver", fix)
    if brought > machine.cuda:
        return note(
            "cuda",
            both,
            means="goes, within one major version; kernels compiled on the spot may not",
            fix="install a newer driver",
        )
    return ok("cuda", both)


def check_gpu(number: int, gpu: Gpu) -> list[Finding]:
    """Checks the age and memory of one GPU."""
    name = f"GPU {number}"
    capability = format_version(gpu.capability)
    observed = f"{gpu.name}, compute capability {capability}, {gpu.memory_mib} MiB, {gpu.free_mib} free"
    if gpu.memory_mib < LEAST_GPU_MIB:
        means = "too little memory for an engine; the CPU serves"
        return [note(name, observed, means, "cosyserve start --force-config cpu")]
    findings = [ok(name, observed)]
    if gpu.capability < AMPERE:
        findings[0] = note(
            name,
            observed,
            means="older than Ampere (8.0): no bfloat16 matrix units, so the readable engines serve, "
            "in float32 and far slower",
            fix="cosyserve start --force-config fp16, or a GPU of compute capability 8.0 or later",
        )
    if gpu.free_mib < gpu.memory_mib * (1 - _BUSY_SHARE):
        busy = note(
            f"{name} memory",
            f"{gpu.free_mib} of {gpu.memory_mib} MiB free",
            means="another process holds memory; the recommendation assumes all of it",
            fix="nvidia-smi --query-compute-apps=pid,used_memory --format=csv names it; end it",
        )
        findings.append(busy)
    return findings


def check_torch_build(torch: Path) -> Finding:
    """Checks whether the torch in this directory was built for GPUs."""
    if (torch / "lib" / "libtorch_cuda.so").exists():
        return ok("torch build", "with CUDA")
    return problem(
        "torch build",
        "for CPUs only",
        means="the GPU stays idle: this torch cannot use one",
        fix="pip uninstall --yes torch && pip install torch==2.13.0 (without an index of CPU builds)",
    )


def torch_directory() -> Path | None:
    """Directory of the installed torch, which is not imported."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.submodule_search_locations[0]) if spec is not None and spec.submodule_search_locations else None


def check_compiler(machine: Machine) -> Finding:
    """Triton compiles its launchers with a C compiler."""
    if machine.compiler is not None:
        return ok("C compiler", machine.compiler)
    means = "Triton cannot compile the launchers of our kernels; the readable engines serve, far slower"
    return note("C compiler", "neither CC nor gcc, clang or cc", means, "apt-get install gcc libc6-dev")


def check_sharing(machine: Machine, environ: Mapping[str, str] = os.environ) -> Finding:
    """NVIDIA's Multi-Process Service: two engines on one GPU at the same time."""
    program = shutil.which(MPS, path=environ.get("PATH"))
    if program is not None:
        return ok("MPS", f"{program}, started by cosyserve up where two engines share a GPU")
    if len(machine.gpus) > 1:
        return ok("MPS", "not there; not needed with a GPU for each engine (compose.gpus.yaml)")
    return note(
        "MPS",
        f"no {MPS}",
        means="llm and token2wav have the GPU in turns, which costs latency when both work",
        fix="it comes with the driver's tools (Debian: apt-get install nvidia-cuda-mps; "
        "Ubuntu: nvidia-compute-utils and the driver's first number), or mount it into the container",
    )


def check_decode(machine: Machine, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Whether a decode step of one launch can run, where the settings ask for it."""
    if environ.get(GPU_DECODE) != ONE_LAUNCH:
        return []
    setting, instead = f"{GPU_DECODE}={ONE_LAUNCH}", f"{GPU_DECODE}=launches"
    for gpu in machine.gpus:
        if (need := lacking(gpu.capability)) is not None:
            observed = f"{setting}, a GPU of compute capability {format_version(gpu.capability)}"
            return [problem("decode", observed, f"it needs {need}: on this GPU llm does not start", instead)]
    if len(machine.gpus) > 1:
        fix = "cosyserve up --devices llm=cuda:0,token2wav=cuda:1"
        return [note("decode", setting, "llm needs a GPU that no other process uses", fix)]
    means = "it needs a GPU of its own: with token2wav on this one, llm does not start"
    return [note("decode", f"{setting}, one GPU", means, f"{instead}, or token2wav on another machine")]
