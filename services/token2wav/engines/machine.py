"""What a plan is bound to beside its graph: the GPU and the versions of what runs it."""

import re
from pathlib import Path

import torch

_DRIVER = Path("/proc/driver/nvidia/version")


def machine_facts(device: torch.device, tensorrt: str) -> dict[str, str]:
    """For the key of a plan. tensorrt: its version."""
    major, minor = torch.cuda.get_device_capability(device)
    return {
        "gpu": torch.cuda.get_device_name(device),
        "compute_capability": f"{major}.{minor}",
        "tensorrt": tensorrt,
        "driver": driver_version(_DRIVER),
    }


def driver_version(path: Path = _DRIVER) -> str:
    """As the kernel module tells it, `unknown` where there is none."""
    try:
        found = re.search(r"Kernel Module.*?\s([0-9]+(?:\.[0-9]+)+)", path.read_text(encoding="utf-8"))
    except OSError:
        return "unknown"
    return found[1] if found else "unknown"
