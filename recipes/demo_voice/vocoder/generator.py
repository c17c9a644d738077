"""The services' vocoder with parameters that can be trained."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.vocoder.segments import Stretch
from services.token2wav.vocoder.hift import FilterNetwork
from services.token2wav.vocoder.source import F0Predictor, Source
from services.token2wav.vocoder.weights import VocoderConfig, expected_tensors, is_gain

PITCH = "f0_predictor."
"""Prefix of the f0 predictor's tensors: nothing else changes its gradient, and it changes no
other's.
"""
_FIRST_MAGNITUDE = -2.0
"""Natural logarithm of the untrained network's magnitudes, about those of speech."""
_BRANCH_SCALE = 0.3
"""Of the convolutions inside residual blocks: they begin small compared with what they are added
to.
"""
_PITCH_SCALE = 20.0
"""Hertz that one unit of the f0 predictor's last layer is worth at first: otherwise hundreds of
hertz take long to grow.
"""


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


def make(config: VocoderConfig, device: torch.device) -> dict[str, Tensor]:
    """Untrained tensors under the published names, gain and direction apart, on a network that is
    about as loud as speech.

    With HiFi-GAN's own small deviations all phases begin equal and cancel: silence, which takes
    long to leave.
    """
    tensors = parameter_store.make(expected_tensors(config), functools.partial(_initial, config), torch.device("cpu"))
    with torch.no_grad():
        for name, tensor in tensors.items():
            if is_gain(name):
                direction = tensors[name.removesuffix("0") + "1"]
                tensor.copy_(torch.linalg.vector_norm(direction, dim=(1, 2), keepdim=True))
        tensors["conv_post.bias"][: config.bins] = _FIRST_MAGNITUDE
    return {name: tensor.detach().to(device).requires_grad_() for name, tensor in tensors.items()}


def _initial(config: VocoderConfig, name: str, shape: tuple[int, ...]) -> Tensor:
    if name.endswith("alpha"):
        return torch.ones(shape)
    if name.endswith("bias"):
        return torch.zeros(shape)
    if name == "m_source.l_linear.weight":
        # Harmonics in phase: pulses, and loud enough that the filter does not have to amplify them
        # first.
        return torch.ones(shape)
    if name == f"{PITCH}classifier.weight":
        return _PITCH_SCALE * parameter_store.uniform_by_inputs(shape)
    if name.startswith("ups."):
        rate = config.upsample_rates[int(name.split(".")[1])]
        return torch.randn(shape) * math.sqrt(rate / (shape[0] * shape[2]))
    if name.startswith(("resblocks.", "source_resblocks.", "conv_post.")):
        scale = 1.0 if name.startswith("conv_post.") else _BRANCH_SCALE
        return torch.randn(shape) * scale / math.sqrt(shape[1] * shape[2])
    return parameter_store.uniform_by_inputs(shape)


def fused(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """As `weights.fused`, in one kernel for each weight and one for its gradient."""
    weights = dict(parameters)
    for name in parameters:
        if is_gain(name):
            gain, direction = weights.pop(name), weights.pop(name.removesuffix("0") + "1")
            weights[name.replace(".parametrizations.weight.original0", ".weight")] = torch._weight_norm(
                direction, gain, 0
            )
    return weights


class Generator:
    """The vocoder of one step, put together from the parameters of that step."""

    def __init__(self, config: VocoderConfig, parameters: Mapping[str, Tensor], device: torch.device) -> None:
        weights = fused(parameters)
        self._harmonics = config.harmonics
        self._pitch = F0Predictor(weights, device, torch.float32)
        self._source = Source(config, weights, device)
        self._filter = FilterNetwork(config, weights, device, Snake)

    def pitch(self, mel: Tensor) -> Tensor:
        """[B, 80, T] -> [B, T] Hz."""
        return self._pitch(mel)

    def sound(self, mel: Tensor, f0: Tensor, stretch: Stretch) -> Tensor:
        """mel [B, 80, T] and f0 [B, T] of a stretch -> [B, 480 * stretch.sound], not limited."""
        noise = torch.randn(mel.shape[0], SAMPLES_PER_MEL_FRAME * stretch.frames, self._harmonics, device=mel.device)
        source, _ = self._source.generate(f0, None, noise, ended=True)
        first, last = stretch.before, stretch.before + stretch.sound
        plan = self._filter.plan(first, last, stretch.frames)
        return self._filter.unlimited(self._filter.conv_post(mel, source, plan), plan, first, last)


class Snake:
    """The vocoder's activation for training, as `services.token2wav.vocoder.hift.Snake`: one kernel
    forwards, one backwards, and only its input kept.

    Left to autograd it is some twenty kernels and as many tensors. The kernels are compiled on the
    spot by torch's jiterator; where that is not possible, and on the CPU, the same expressions are
    put together from torch's own operators.
    """

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
