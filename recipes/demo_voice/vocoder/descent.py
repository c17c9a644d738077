"""AdamW that bounds gradients and passes over broken ones without asking the device."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class Descent:
    """One group of parameters. A step whose gradient is not finite changes nothing and is counted
    in `skipped`.

    Nothing waits for the device and every number that changes is a tensor on it, so a step can be
    recorded in a CUDA graph.
    """

    def __init__(self, parameters: Sequence[Tensor], *, largest_norm: float) -> None:
        self.parameters = list(parameters)
        device = self.parameters[0].device
        self._rate = torch.zeros((), device=device)
        self._recordable = device.type == "cuda"
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=self._rate, betas=(0.8, 0.99), weight_decay=0.0, fused=True, capturable=self._recordable
        )
        # torch warns once when such an optimiser steps outside of a graph; its first steps do.
        self.optimiser._warned_capturable_if_run_uncaptured = True
        self._largest = largest_norm
        self.norm = torch.zeros((), device=device)
        self.skipped = torch.zeros((), device=device)

    def step(self, gradients: Sequence[Tensor], rate: Tensor) -> None:
        """gradients: of the parameters, in their order. rate: learning rate, [] on the device."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = (
                gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)
            )
        self.norm = torch.nn.utils.get_total_norm(gradients)
        broken = (~torch.isfinite(self.norm)).float()
        # The fused kernel divides by the one and does nothing at all when the other is 1: as
        # torch.amp.GradScaler hands them over.
        self.optimiser.grad_scale = (self.norm / self._largest).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimiser.found_inf = broken  # type: ignore[attr-defined]
        self._rate.copy_(rate)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.skipped += broken

    def state(self) -> dict[str, Any]:
        """For `load`."""
        return self.optimiser.state_dict()

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.optimiser.load_state_dict(dict(state))
        self.optimiser.param_groups[0] |= {"lr": self._rate, "capturable": self._recordable}
