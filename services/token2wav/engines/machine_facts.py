"""What a plan is bound to beside its graph: the GPU and the versions of what runs it."""

import torch

from cosyserve.engines.gpu_facts import driver_version


def machine_facts(device: torch.device, tensorrt: str) -> dict[str, str]:
    """For the key of a plan. tensorrt: its version."""
    major, minor = torch.cuda.get_device_capability(device)
    return {
        "gpu": torch.cuda.get_device_name(device),
        "compute_capability": f"{major}.{minor}",
        "tensorrt": tensorrt,
        "driver": driver_version() or "unknown",
    }
