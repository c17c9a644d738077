"""AdamW that bounds gradients and passes over broken ones without asking the device."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Descent:
    """One group of parameters. A step whose gradient is not finite changes nothing and is counted in `skipped`."""

    def __init__(self, parameters: Sequence[Tensor], *, largest_norm: float) -> None:
        self.parameters = list(parameters)
        self.optimiser = torch.optim.AdamW(self.parameters, betas=(0.8, 0.99), weight_decay=0.0, fused=True)
        self._largest = largest_norm
        self.norm = torch.zeros((), device=self.parameters[0].device)
        self.skipped = torch.zeros((), device=self.parameters[0].device)

    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        """gradients: of the parameters, in their order. rate: learning rate."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.norm = torch.nn.utils.get_total_norm(gradients)
        broken = (~torch.isfinite(self.norm)).float()
        # The fused kernel divides by the one and does nothing at all when the other is 1: as torch.amp.GradScaler hands them over.
        self.optimiser.grad_scale = (self.norm / self._largest).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimiser.found_inf = broken  # type: ignore[attr-defined]
        self.optimiser.param_groups[0]["lr"] = rate
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.skipped += broken
