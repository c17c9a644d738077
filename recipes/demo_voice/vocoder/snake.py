"""The vocoder's activation for training: one kernel forwards, one backwards, and only its input
kept.

Left to autograd it is some twenty kernels and as many tensors. The kernels are compiled on the spot
by torch's jiterator; where that is not possible, and on the CPU, the same expressions are put
together from torch's own operators.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_FORWARD = """
template <typename T> T snake(T x, T alpha) {
    T s = sin(alpha * x);
    return x + s * s / (alpha + T(1e-9));
}
"""
_BACKWARD = """
template <typename T> void snake_backward(T slope, T x, T alpha, T& by_x, T& by_alpha) {
    T inverse = T(1) / (alpha + T(1e-9));
    T s = sin(alpha * x);
    T twice = T(2) * s * cos(alpha * x) * inverse;
    by_x = slope * (T(1) + alpha * twice);
    by_alpha = slope * (x * twice - s * s * inverse * inverse);
}
"""
Forward = Callable[[Tensor, Tensor], Tensor]
Backward = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class Snake:
    """As `services.token2wav.vocoder.hift.Snake`."""

    def __init__(self, alpha: Tensor) -> None:
        self._alpha = alpha

    def __call__(self, x: Tensor) -> Tensor:
        """[B, C, T] -> the same shape."""
        result: Tensor = _Snake.apply(x, self._alpha)  # type: ignore[no-untyped-call]  # torch's own is untyped
        return result


class _Snake(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor) -> Tensor:
        ctx.save_for_backward(x, alpha)
        return _operators(x.device.type)[0](x, alpha)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        x, alpha = ctx.saved_tensors
        by_x, by_alpha = _operators(x.device.type)[1](slope, x, alpha)
        return by_x, by_alpha.sum(dim=(0, 2)).unsqueeze(1)


def _forward(x: Tensor, alpha: Tensor) -> Tensor:
    return torch.sin(alpha * x).square_().div_(alpha + 1e-9).add_(x)


def _backward(slope: Tensor, x: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    inverse = 1 / (alpha + 1e-9)
    turned = alpha * x
    s = torch.sin(turned)
    twice = 2 * inverse * s * torch.cos(turned)
    return slope * (1 + alpha * twice), slope * (x * twice - (s * inverse).square())


@functools.cache
def _operators(device: str) -> tuple[Forward, Backward]:
    if device != "cuda":
        return _forward, _backward
    try:
        return _compiled()
    except Exception as error:
        print(f"snake: not compiled, slower: {type(error).__name__}: {error}", flush=True)
        return _forward, _backward


def _compiled() -> tuple[Forward, Backward]:
    """Raises whatever is wrong with compiler or result."""
    forward = torch.cuda.jiterator._create_jit_fn(_FORWARD)
    backward = torch.cuda.jiterator._create_multi_output_jit_fn(_BACKWARD, 2)
    x, slope = torch.linspace(-4, 4, 512, device="cuda").view(2, 2, 2, 64).unbind()
    alpha = torch.tensor([[0.7], [1.3]], device="cuda")
    torch.testing.assert_close(forward(x, alpha), _forward(x, alpha), rtol=1e-4, atol=1e-4)
    for compiled, wanted in zip(backward(slope, x, alpha), _backward(slope, x, alpha), strict=True):
        torch.testing.assert_close(compiled, wanted, rtol=1e-4, atol=1e-4)
    return forward, backward
