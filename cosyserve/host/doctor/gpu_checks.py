"""Checks of the driver, the GPUs and what the engines need in addition."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cosyserve.engines.gpu_facts import VISIBLE, Gpu, driver_complaint, has_nvidia_device, hidden_gpus
from cosyserve.host.doctor.finding import Finding, State, note, ok, problem
from cosyserve.host.hardware import AMPERE, TIERS, Machine
from cosyserve.host.supervision.gpu_sharing import PROGRAM as MPS

_CPU_ONLY = "the engines run on the CPU; the published sizes are slower there than speech"
_BUSY_SHARE = 0.2


def check_driver(machine: Machine, wanted: bool) -> Finding:
    """wanted: no GPU is a problem, not a note."""
    if machine.gpu is not None:
        return ok(
            "driver", f"NVIDIA {machine.gpu.driver}, {len(machine.gpus)} GPU{'s' if len(machine.gpus) > 1 else ''}"
        )
    complaint = driver_complaint()
    if complaint is not None:
        fix = "sudo dmesg | grep -i nvrm has details; after an update of the driver: sudo reboot"
        return Finding("driver", State.PROBLEM, f"nvidia-smi fails: {complaint}", "the driver does not work", fix)
    state = State.PROBLEM if wanted else State.NOTE
    if hidden_gpus():
        return Finding(
            "driver", state, f"{VISIBLE} hides every GPU", _CPU_ONLY, f"unset {VISIBLE}, or name GPUs that are there"
        )
    if has_nvidia_device():
        fix = (
            "in a container: docker run --gpus all (NVIDIA_DRIVER_CAPABILITIES=compute,utility), "
            "with the NVIDIA Container Toolkit"
        )
        return Finding("driver", state, "a GPU device, but no nvidia-smi", "the GPU is unknown; " + _CPU_ONLY, fix)
    install = "Debian: apt-get install nvidia-driver; Ubuntu: ubuntu-drivers install --gpgpu"
    fix = f"install NVIDIA's driver ({install}); in a container also: docker run --gpus all"
    return Finding("driver", state, "no NVIDIA driver and no GPU", _CPU_ONLY, fix)


def check_cuda(machine: Machine) -> list[Finding]:
    """Checks whether the driver is new enough for the CUDA of torch."""
    if machine.gpu is None:
        return []
    runtime = machine.version("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
    if machine.cuda is None:
        return [note("cuda", "the driver does not say which CUDA it runs", "whether it is new enough is unknown")]
    newest = ".".join(map(str, machine.cuda))
    if runtime is None:
        return [ok("cuda", f"driver up to {newest}")]
    brought = tuple(int(part) for part in runtime.split(".")[:2])
    both = f"driver up to {newest}, torch brings {'.'.join(map(str, brought))}"
    if brought[0] > machine.cuda[0]:
        least = {12: "525", 13: "580"}.get(brought[0], "the newest")
        fix = f"install driver {least} or later, or a torch built for CUDA {machine.cuda[0]}"
        return [problem("cuda", both, "torch finds no GPU under this driver", fix)]
    if brought > machine.cuda:
        return [
            note(
                "cuda",
                both,
                "goes, within one major version; kernels compiled on the spot may not",
                "install a newer driver",
            )
        ]
    return [ok("cuda", both)]


def check_gpu(number: int, gpu: Gpu) -> list[Finding]:
    """Checks the age and memory of one GPU."""
    name = f"GPU {number}"
    capability = ".".join(map(str, gpu.capability))
    observed = f"{gpu.name}, compute capability {capability}, {gpu.memory_mib} MiB, {gpu.free_mib} free"
    least = min(tier.at_least for tier in TIERS)
    if gpu.memory_mib < least:
        return [
            note(
                name, observed, "too little memory for an engine; the CPU serves", "cosyserve start --force-config cpu"
            )
        ]
    findings = []
    if gpu.capability < AMPERE:
        means = (
            "older than Ampere (8.0): no bfloat16 matrix units, so the readable engines serve, "
            "in float32 and far slower"
        )
        findings.append(
            note(
                name,
                observed,
                means,
                "cosyserve start --force-config fp16, or a GPU of compute capability 8.0 or later",
            )
        )
    else:
        findings.append(ok(name, observed))
    if gpu.free_mib < gpu.memory_mib * (1 - _BUSY_SHARE):
        means = "another process holds memory; the recommendation assumes all of it"
        fix = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv names it; end it"
        findings.append(note(f"{name} memory", f"{gpu.free_mib} of {gpu.memory_mib} MiB free", means, fix))
    return findings


def check_torch_build(machine: Machine, torch: Path | None) -> list[Finding]:
    """torch: directory of the package; None if it is not installed."""
    if machine.gpu is None or torch is None:
        return []
    if (torch / "lib" / "libtorch_cuda.so").exists():
        return [ok("torch build", "with CUDA")]
    fix = "pip uninstall --yes torch && pip install torch==2.13.0 (without an index of CPU builds)"
    return [problem("torch build", "for CPUs only", "the GPU stays idle: this torch cannot use one", fix)]


def torch_directory() -> Path | None:
    """Directory of the installed torch, which is not imported."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.submodule_search_locations[0]) if spec is not None and spec.submodule_search_locations else None


def check_compiler(machine: Machine) -> list[Finding]:
    """Triton compiles its launchers with a C compiler."""
    if machine.gpu is None:
        return []
    if machine.compiler is not None:
        return [ok("C compiler", machine.compiler)]
    means = "Triton cannot compile the launchers of our kernels; the readable engines serve, far slower"
    return [note("C compiler", "neither CC nor gcc, clang or cc", means, "apt-get install gcc libc6-dev")]


def check_sharing(machine: Machine, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """NVIDIA's Multi-Process Service: two engines on one GPU at the same time."""
    if machine.gpu is None:
        return []
    program = shutil.which(MPS, path=environ.get("PATH"))
    if program is not None:
        return [ok("MPS", f"{program}, started by cosyserve up where two engines share a GPU")]
    if len(machine.gpus) > 1:
        return [ok("MPS", "not there; not needed with a GPU for each engine (compose.gpus.yaml)")]
    means = "llm and token2wav have the GPU in turns, which costs latency when both work"
    install = "Debian: apt-get install nvidia-cuda-mps; Ubuntu: nvidia-compute-utils and the driver's first number"
    fix = f"it comes with the driver's tools ({install}), or mount it into the container"
    return [note("MPS", f"no {MPS}", means, fix)]
