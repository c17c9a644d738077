"""Weights of the diffusion transformer in the kernels' format, and all that its ten times
contribute, computed once.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.dit.block import Rotation
from services.token2wav.flow.dit.weights import BLOCK_MODULATIONS, FREQUENCIES
from services.token2wav.flow.layers import Linear, Tensors, TimeEmbedding
from services.token2wav.flow.solver import euler_schedule
from services.token2wav.gpu.paged_flow.weights import Product, product


@dataclass(frozen=True)
class TimedProduct:
    """A product behind a norm that the time scales and shifts, in each Euler step.

    weight: [N, K] in the operand type. gain float32 [steps, K]: one more than the scale. gained
    float32 [steps, N]: what the rounded weight makes of the gain. bias float32 [steps, N]: with
    what the weight makes of the shift.
    """

    weight: Tensor
    gain: Tensor
    gained: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, dtype: torch.dtype) -> "TimedProduct":
        """weight [N, K], bias [N]; scale and shift [steps, K]; all float32."""
        rounded, gain = weight.to(dtype).contiguous(), 1 + scale
        return cls(rounded, gain.contiguous(), gain @ rounded.to(gain.dtype).T, bias + shift @ weight.T)


class DitBlock:
    """Queries, keys and values in one product, the queries scaled. gates float32 [steps, width]: of
    the attention and of the feed-forward.
    """

    def __init__(self, tensors: Tensors, times: Tensor, head_width: int, dtype: torch.dtype) -> None:
        made = modulations(tensors.within("attn_norm.linear"), times, BLOCK_MODULATIONS)
        shift, scale, self.attention_gate, feed_shift, feed_scale, self.feed_gate = made
        attention, factors = tensors.within("attn"), (head_width**-0.5, 1.0, 1.0)
        weight, bias = (
            torch.cat([factor * attention[f"to_{name}.{kind}"] for name, factor in zip("qkv", factors, strict=True)])
            for kind in ("weight", "bias")
        )
        self.qkv = TimedProduct.of(weight, bias, scale, shift, dtype)
        self.out = _product(attention.within("to_out.0"), dtype)
        widen = tensors.within("ff.ff.0.0")
        self.widen = TimedProduct.of(widen["weight"], widen["bias"], feed_scale, feed_shift, dtype)
        self.narrow = _product(tensors.within("ff.ff.2"), dtype)


class DitInputs:
    """The map of the joined inputs, whose order is x, mu, speaker, condition here, and the two
    position convolutions, weight [width, taps, channels of a group].
    """

    def __init__(self, tensors: Tensors, dtype: torch.dtype) -> None:
        x, condition, mu, speaker = tensors["proj.weight"].chunk(4, dim=1)
        self.project = product(torch.cat((x, mu, speaker, condition), dim=1), tensors["proj.bias"], dtype)
        self.positions = [
            Product(each["weight"].transpose(1, 2).to(dtype).contiguous(), each["bias"].float().contiguous())
            for each in (tensors.within(f"conv_pos_embed.conv{at}.0") for at in (1, 2))
        ]


def last_product(tensors: Tensors, times: Tensor, dtype: torch.dtype) -> TimedProduct:
    """From the stream to a velocity. Here the scale comes first."""
    scale, shift = modulations(tensors.within("norm_out.linear"), times, 2)
    return TimedProduct.of(tensors["proj_out.weight"], tensors["proj_out.bias"], scale, shift, dtype)


def time_embeddings(tensors: Tensors, device: torch.device) -> Tensor:
    """float32 [steps, width] of the ten times."""
    embed = TimeEmbedding(*(Linear.of(tensors.within(f"time_embed.time_mlp.{at}")) for at in (0, 2)))
    return torch.cat([embed(torch.tensor([t], device=device)) for t, _ in euler_schedule()])


def modulations(tensors: Tensors, times: Tensor, count: int) -> list[Tensor]:
    """`count` parts of what a map makes of the times, float32 [steps, width] each."""
    made = F.linear(F.silu(times), tensors["weight"], tensors["bias"])
    return [part.contiguous() for part in made.chunk(count, dim=1)]


def turns(tensors: Tensors, places: int) -> Tensor:
    """float32 [2, places, pairs]: cosine and sine of the rotation of each frame of a stream."""
    frequencies = tensors[FREQUENCIES]
    angles = Rotation(torch.arange(places, device=frequencies.device)[None], frequencies.float()).angles[0]
    return torch.stack((angles.cos(), angles.sin()))


def _product(tensors: Tensors, dtype: torch.dtype) -> Product:
    return product(tensors["weight"], tensors["bias"], dtype)
