"""Pinned host memory for transfers between host and device; allocated once and reused by later
steps.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_PART = 1 << 22
_ALIGNED = 256


class DeviceToHost:
    """Receives the results of a step. For one owner thread, which synchronizes with the device
    before it begins the next step.
    """

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self._parts: list[Tensor] = []
        self._part = self._used = 0

    def begin(self) -> None:
        """Invalidate everything received before."""
        self._part = self._used = 0

    def receive(self, tensor: Tensor) -> Tensor:
        """Queue the copy of a contiguous tensor; the returned host tensor is valid after
        synchronization.
        """
        size = tensor.numel() * tensor.element_size()
        while self._part < len(self._parts) and self._used + size > len(self._parts[self._part]):
            self._part, self._used = self._part + 1, 0
        if self._part == len(self._parts):
            self._parts.append(torch.empty(max(size, _PART), dtype=torch.uint8, pin_memory=self._pinned))
        here = self._parts[self._part][self._used : self._used + size].view(tensor.dtype).view(tensor.shape)
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return here.copy_(tensor, non_blocking=True)


class HostToDevice:
    """Pinned copies of a device tensor, used in rotation: one is written while the transfers of
    others may be in progress.
    """

    def __init__(self, device_tensor: Tensor, turns: int = 4) -> None:
        self._to = device_tensor
        cuda = device_tensor.device.type == "cuda"
        self._hosts = [torch.zeros_like(device_tensor, device="cpu", pin_memory=cuda) for _ in range(turns)]
        self._sent = [torch.cuda.Event() if cuda else None for _ in range(turns)]  # type: ignore[no-untyped-call]
        self._turn = 0

    def begin(self) -> "np.ndarray[Any, Any]":
        """The memory for the next content, all of which must be written."""
        self._turn = (self._turn + 1) % len(self._hosts)
        event = self._sent[self._turn]
        if event is not None:
            event.synchronize()
        array: np.ndarray[Any, Any] = self._hosts[self._turn].numpy()
        return array

    def send(self) -> None:
        """Queue the copy of what was written."""
        self._to.copy_(self._hosts[self._turn], non_blocking=True)
        event = self._sent[self._turn]
        if event is not None:
            event.record()
