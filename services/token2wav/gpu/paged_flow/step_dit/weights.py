"""Weights of Step-Audio2's diffusion transformer in the kernels' format, and all that its ten times
contribute, computed once.
"""

import torch
from torch import Tensor

from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.solver import euler_schedule
from services.token2wav.flow.step_dit.estimator import CosineFirstTimeEmbedding
from services.token2wav.flow.step_dit.weights import BLOCK_MODULATIONS
from services.token2wav.gpu.paged_flow.dit.weights import TimedProduct, modulations
from services.token2wav.gpu.paged_flow.weights import Norm, Product, product


class StepDitBlock:
    """Queries, keys and values in one product; head_norms float32 [2, 2, head width]: weight and
    bias for queries, which are scaled there, and for keys. gates float32 [steps, width].

    convolution_scale, convolution_shift float32 [steps, width]: of the norm in front of the two
    convolutions, one more than the scale; convolutions: [width, taps * width] each, with `between`
    the norm between them.
    """

    def __init__(self, tensors: Tensors, times: Tensor, head_width: int, dtype: torch.dtype) -> None:
        made = modulations(tensors.within("adaLN_modulation.1"), times, BLOCK_MODULATIONS)
        shift, scale, self.attention_gate, feed_shift, feed_scale, self.feed_gate = made[:6]
        self.convolution_shift, scale_more, self.convolution_gate = made[6:]
        self.convolution_scale = (1 + scale_more).contiguous()
        attention = tensors.within("attn")
        weight, bias = (torch.cat([attention[f"to_{name}.{kind}"] for name in "qkv"]) for kind in ("weight", "bias"))
        self.qkv = TimedProduct.of(weight, bias, scale, shift, dtype)
        self.head_norms = torch.stack(
            [
                factor * torch.stack([attention[f"{name}_norm.{kind}"].float() for kind in ("weight", "bias")])
                for name, factor in (("q", head_width**-0.5), ("k", 1.0))
            ]
        ).contiguous()
        self.out = product(attention["proj.weight"], attention["proj.bias"], dtype)
        inner = tensors.within("conv.block")
        self.convolutions = [_convolution(inner.within(str(at)), dtype) for at in (1, 6)]
        self.between = Norm.of(inner.within("3"))
        feed = tensors.within("mlp")
        self.widen = TimedProduct.of(feed["fc1.weight"], feed["fc1.bias"], feed_scale, feed_shift, dtype)
        self.narrow = product(feed["fc2.weight"], feed["fc2.bias"], dtype)


def last_product(tensors: Tensors, times: Tensor, dtype: torch.dtype) -> TimedProduct:
    """From the stream to a velocity. The shift comes first."""
    last = tensors.within("final_layer")
    shift, scale = modulations(last.within("adaLN_modulation.1"), times, 2)
    return TimedProduct.of(last["linear.weight"], last["linear.bias"], scale, shift, dtype)


def time_embeddings(tensors: Tensors, device: torch.device) -> Tensor:
    """float32 [steps, width] of the ten times."""
    embed = CosineFirstTimeEmbedding(*(Linear.of(tensors.within(f"t_embedder.mlp.{at}")) for at in (0, 2)))
    return torch.cat([embed(torch.tensor([t], device=device)) for t, _ in euler_schedule()])


def _convolution(tensors: Tensors, dtype: torch.dtype) -> Product:
    weight = tensors["weight"].transpose(1, 2).flatten(1)
    return Product(weight.to(dtype).contiguous(), tensors["bias"].float().contiguous())
