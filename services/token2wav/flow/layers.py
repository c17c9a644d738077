"""Layers that the flows share, time-major: activations are [rows, time, channels]."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.stream_cache import CachedPass


class Tensors:
    """A flat checkpoint, seen from inside one of its prefixes."""

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str = "") -> None:
        self._tensors, self._prefix = tensors, prefix

    def within(self, name: str) -> "Tensors":
        return Tensors(self._tensors, f"{self._prefix}{name}.")

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self._prefix + name]

    def get(self, name: str) -> Tensor | None:
        return self._tensors.get(self._prefix + name)


def mish(x: Tensor) -> Tensor:
    """x tanh(softplus(x)), [...] -> the same shape.

    On a CPU it is computed by tanh(log(1 + e)) = 1 - 2 / ((1 + e)^2 + 1) with e = exp(x), which
    takes a third of the time of the three functions.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or torch.is_grad_enabled():
        return F.mish(x)
    # From 20 on the result is x in float32; for large x the square would overflow.
    squared = x.clamp(max=20.0).exp_().add_(1.0).square_()
    return torch.addcdiv(x, x, squared.add_(1.0), value=-2.0)


@dataclass(frozen=True)
class Linear:
    """weight [out, in], bias [out] or None. `of` and `joined` store the weight in the memory order
    that is fastest for short blocks.
    """

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, tensors: Tensors) -> "Linear":
        return cls(ordered(tensors["weight"]), tensors.get("bias"))

    @classmethod
    def joined(cls, *parts: "Linear") -> "Linear":
        """Several linear maps of the same input as one, outputs concatenated."""
        biases = [part.bias for part in parts if part.bias is not None]
        return cls(ordered(torch.cat([part.weight for part in parts])), torch.cat(biases) if biases else None)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def ordered(weight: Tensor) -> Tensor:
    """The same [out, in]; on a CPU, outside training, the outputs of one input are contiguous,
    which is a tenth faster for a hundred rows.
    """
    return weight if weight.device.type != "cpu" or weight.requires_grad else weight.t().contiguous().t()


@dataclass(frozen=True)
class LayerNorm:
    """Over the channels; statistics in float32 whatever the type of x."""

    weight: Tensor
    bias: Tensor
    epsilon: float

    @classmethod
    def of(cls, tensors: Tensors, epsilon: float = 1e-5) -> "LayerNorm":
        return cls(tensors["weight"], tensors["bias"], epsilon)

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


@dataclass(frozen=True)
class Convolution:
    """Convolution over time without padding: [rows, time + taps - 1, in] -> [rows, time, out].
    weight [out, in, taps].
    """

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, tensors: Tensors) -> "Convolution":
        return cls(tensors["weight"], tensors["bias"])

    @property
    def reach(self) -> int:
        """Frames of context that the convolution needs in addition to the frame itself."""
        return int(self.weight.shape[2]) - 1

    def __call__(self, x: Tensor) -> Tensor:
        return F.conv1d(x.transpose(1, 2), self.weight, self.bias).transpose(1, 2)


class ProductConvolution:
    """The same as one matrix product: in time-major memory the taps of a frame are contiguous.

    Four times as fast on the CPU for the estimator's short blocks, and full float32 on a GPU, where
    convolutions default to TF32; sums are rounded in a different order.
    """

    def __init__(self, convolution: Convolution) -> None:
        self.reach = convolution.reach
        self._map = Linear(ordered(convolution.weight.transpose(1, 2).flatten(1).contiguous()), convolution.bias)

    @classmethod
    def of(cls, tensors: Tensors) -> "ProductConvolution":
        return cls(Convolution.of(tensors))

    @classmethod
    def unless_cpu(cls, tensors: Tensors) -> "Convolution | ProductConvolution":
        """For layers that should round as the reference's do: on the CPU the plain convolution."""
        plain = Convolution.of(tensors)
        return plain if plain.weight.device.type == "cpu" else cls(plain)

    def __call__(self, x: Tensor) -> Tensor:
        rows, time, channels = x.shape
        # The same matrix by a view whose gradient is a sum instead of a scatter.
        if torch.is_grad_enabled():
            return self._map(x.unfold(1, self.reach + 1, 1).transpose(2, 3).flatten(2).contiguous())
        shape = (rows, time - self.reach, (self.reach + 1) * channels)
        return self._map(x.contiguous().as_strided(shape, (time * channels, channels, 1)).contiguous())


class TimeEmbedding:
    """Flow time as a vector (sinusoids: Vaswani et al., "Attention Is All You Need", 2017).

    first: [width, sinusoids]; second: [width, width].
    """

    def __init__(self, first: Linear, second: Linear) -> None:
        self._first, self._second = first, second
        self.width_in = first.weight.shape[1]

    def sinusoid(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> float32 [rows, sinusoids]: sines, then cosines, of 1000 t."""
        half = self.width_in // 2
        exponent = torch.arange(half, dtype=torch.float32, device=t.device) * -(math.log(10000.0) / (half - 1))
        # A thousand times the last place of a rate is seen in its sine, and in float32 processors
        # differ in it.
        rate = exponent.double().exp().float()
        angle = 1000.0 * t.float()[:, None] * rate
        return torch.cat((angle.sin(), angle.cos()), dim=1)

    def __call__(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> [rows, width]."""
        return self._second(F.silu(self._first(self.sinusoid(t).to(self._first.weight.dtype))))


class TimedEstimator:
    """What estimators of a velocity share: the time that their layers are given."""

    _time: TimeEmbedding
    _project: Linear
    """The last map."""

    @property
    def dtype(self) -> torch.dtype:
        """Number type of weights, keys and values."""
        return self._project.weight.dtype

    def time_sinusoid(self, t: Tensor) -> Tensor:
        """See `TimeEmbedding.sinusoid`."""
        return self._time.sinusoid(t)

    def time_embedding(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> [rows, width of the embedding]."""
        return self._time(t)


class LookAhead:
    """A convolution over a token and those behind it, then one over the three tokens up to it,
    added to the input: each token sees the three tokens after it (compatibility specification of
    CosyVoice2, section 4.2; of CosyVoice3, section 4.2).
    """

    def __init__(self, tensors: Tensors) -> None:
        self._ahead = ProductConvolution.unless_cpu(tensors.within("conv1"))
        self._smooth = ProductConvolution.unless_cpu(tensors.within("conv2"))

    def __call__(self, x: Tensor, ahead: Tensor, cache: CachedPass) -> Tensor:
        """x [streams, tokens, width] and ahead [streams, 3, width], zeros where there is no token
        -> the shape of x. The cache holds what the second convolution has seen, so that the zeros
        in front of a stream are zeros behind the first one.
        """
        seen = F.leaky_relu(self._ahead(torch.cat((x, ahead), dim=1)), 0.01)
        return self._smooth(cache.before(seen, self._smooth.reach)) + x
