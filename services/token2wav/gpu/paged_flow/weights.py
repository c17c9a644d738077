"""Weights in the kernels' format: [N, K] in the operand type, layer norms folded into the product
that follows, biases float32.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.unet.weights import UnetConfig


@dataclass(frozen=True)
class Product:
    """weight [N, K] in the operand type, bias float32 [N]."""

    weight: Tensor
    bias: Tensor


def product(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, norm: Tensors | None = None) -> Product:
    """From float32; a preceding layer norm is folded in."""
    bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
    if norm is not None:
        weight, bias = weight * norm["weight"], bias + weight @ norm["bias"]
    return Product(weight.to(dtype).contiguous(), bias.float().contiguous())


def convolution(tensors: Tensors, dtype: torch.dtype) -> Product:
    """weight [N, taps, C]."""
    return Product(tensors["weight"].transpose(1, 2).to(dtype).contiguous(), tensors["bias"].float().contiguous())


@dataclass(frozen=True)
class Norm:
    """A separate layer norm, float32."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, tensors: Tensors) -> "Norm":
        """From its two tensors."""
        return cls(tensors["weight"].float().contiguous(), tensors["bias"].float().contiguous())


class Transformer:
    """Queries, keys and values in one product, the queries scaled; norms folded in."""

    def __init__(self, tensors: Tensors, width: int, dtype: torch.dtype) -> None:
        attention, norm = tensors.within("attn1"), tensors.within("norm1")
        joined = torch.cat([attention["to_q.weight"] * width**-0.5, attention["to_k.weight"], attention["to_v.weight"]])
        self.qkv = product(joined, None, dtype, norm)
        self.out = product(attention["to_out.0.weight"], attention["to_out.0.bias"], dtype)
        inner = tensors.within("ff.net")
        self.widen = product(inner["0.proj.weight"], inner["0.proj.bias"], dtype, tensors.within("norm3"))
        self.narrow = product(inner["2.weight"], inner["2.bias"], dtype)


class Level:
    """A resnet and its transformers. times: float32 [steps, channels], the term that the resnet
    adds between its convolutions in each Euler step.
    """

    def __init__(self, tensors: Tensors, config: UnetConfig, times: Tensor, dtype: torch.dtype) -> None:
        resnet = tensors.within("0")
        self.first, self.second = (convolution(resnet.within(f"block{at}.block.0"), dtype) for at in (1, 2))
        self.norms = tuple(Norm.of(resnet.within(f"block{at}.block.2")) for at in (1, 2))
        self.shortcut = product(resnet["res_conv.weight"].squeeze(2), resnet["res_conv.bias"], dtype)
        self.times = F.linear(F.mish(times), resnet["mlp.1.weight"], resnet["mlp.1.bias"]).contiguous()
        self.transformers = [
            Transformer(tensors.within(f"1.{at}"), config.head_width, dtype) for at in range(config.transformers)
        ]
