"""Kernels that a part launches by itself are kept where the services keep theirs."""

import torch

from cosyserve.engines.kernel_cache import Key, keep_kernels


def keep() -> None:
    """Before the first launch of a process; engines that are loaded as a service loads them do it
    themselves.
    """
    device = torch.cuda.current_device()
    keep_kernels(Key(gpu=torch.cuda.get_device_name(device), capability=torch.cuda.get_device_capability(device)))
