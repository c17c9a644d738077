"""The weights of the model in the layout of the kernels: one number type, norms folded in, rotary
pairs adjacent, one embedding table.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.config import LlmConfig


@dataclass(frozen=True)
class PackedLayer:
    """qkv [heads' width, hidden] with bias float32; out [hidden, query width]; gate_up [2 MLP,
    hidden]; down [hidden, MLP].
    """

    qkv: Tensor
    bias: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class PackedModel:
    """`table`: the three embedding tables concatenated, [rows, hidden]; `starts`: the first row of
    each, in the order of `Table`.

    head, head_bias: float32, the last norm folded in. cosines, sines: float32 [positions, head_size
    / 2].
    """

    config: LlmConfig
    table: Tensor
    starts: tuple[int, int, int]
    layers: tuple[PackedLayer, ...]
    head: Tensor
    head_bias: Tensor
    cosines: Tensor
    sines: Tensor

    @property
    def device(self) -> torch.device:
        return self.head.device

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    @property
    def step_bytes(self) -> int:
        """Bytes of all weights that one decode step has to read: the floor of its time is this over
        the memory's bandwidth.
        """
        parts = [
            part for layer in self.layers for part in (layer.qkv, layer.bias, layer.out, layer.gate_up, layer.down)
        ]
        of_layers = sum(part.numel() * part.element_size() for part in parts)
        return of_layers + (self.head.numel() + self.head_bias.numel()) * 4

    @property
    def step_flops(self) -> int:
        """Floating-point operations of one row's step in the products, attention left out."""
        parts = [part for layer in self.layers for part in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        return 2 * sum(part.numel() for part in parts) + 2 * self.head.numel()


def pack(
    model: SpeechTokenModel, dtype: torch.dtype, positions: int, device: torch.device | None = None
) -> PackedModel:
    """A copy of the model on `device` (None: its own), matrices and embeddings in `dtype` (bfloat16
    or float32), the head in float32, rotary angles for `positions` positions. The folding is done
    in float32, a layer at a time.
    """
    config, device = model.config, device or model.device
    paired = _paired_rows(config).to(device)

    def cast(matrix: Tensor) -> Tensor:
        return matrix.to(dtype).contiguous()

    def here(tensor: Tensor) -> Tensor:
        return tensor.to(device)

    layers = tuple(
        PackedLayer(
            qkv=cast((here(layer.qkv) * here(layer.attention_norm))[paired]),
            bias=here(layer.qkv_bias)[paired].contiguous(),
            out=cast(here(layer.out)),
            gate_up=cast(here(layer.gate_up) * here(layer.mlp_norm)),
            down=cast(here(layer.down)),
        )
        for layer in model.layers
    )
    sizes = [len(table) for table in model.tables]
    angles = torch.arange(positions, device=device, dtype=torch.float32)[:, None] * here(model.rotary_frequencies)
    return PackedModel(
        config=config,
        table=torch.cat([here(table).to(dtype) for table in model.tables]),
        starts=(0, sizes[0], sizes[0] + sizes[1]),
        layers=layers,
        head=(here(model.head) * here(model.norm)).contiguous(),
        head_bias=here(model.head_bias).contiguous(),
        cosines=angles.cos(),
        sines=angles.sin(),
    )


def _paired_rows(config: LlmConfig) -> Tensor:
    """The source row of each row of the packed q, k, v. The model rotates numbers i and i + D / 2
    of a head as a pair; the packed one 2 i and 2 i + 1.

    Queries and keys are reordered alike, so their products do not change.
    """
    half, rotated = config.head_size // 2, config.heads + config.kv_heads
    inside = torch.stack([torch.arange(half), torch.arange(half) + half], dim=1).flatten()
    rows = torch.arange(rotated)[:, None] * config.head_size + inside
    value_rows = rotated * config.head_size
    return torch.cat([rows.flatten(), torch.arange(value_rows, value_rows + config.kv_width)])
