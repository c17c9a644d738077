"""Layers that both halves of the teacher use: norms steered by the style, residual blocks, a
recurrent layer over padded rows.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from recipes.demo_voice.teacher.layers import Span

STYLE = 128
EPSILON = 1e-5
_HALF_POWER = 2**-0.5


class AdaIN(nn.Module):
    """Adaptive instance norm: each channel standardised over time, then scaled and shifted as the
    style says (Huang and Belongie 2017).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(STYLE, 2 * channels)

    def forward(self, x: Tensor, style: Tensor, span: Span) -> Tensor:
        """x [B, C, L], zero past the end of every row; style [B, 128]. Not cleared again."""
        gain, shift = self.fc(style).unsqueeze(2).chunk(2, dim=1)
        mean, variance = span.moments(x)
        scale = (1 + gain) * torch.rsqrt(variance + EPSILON)
        return torch.addcmul(shift - mean * scale, x, scale)


class AdaLayerNorm(nn.Module):
    """Layer norm over channels whose scale and shift come from the style."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.fc = nn.Linear(STYLE, 2 * channels)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """x [B, L, C], style [B, 128]."""
        gain, shift = self.fc(style).unsqueeze(1).chunk(2, dim=2)
        return torch.addcmul(shift, F.layer_norm(x, (self.channels,), eps=EPSILON), 1 + gain)


class StyledBlock(nn.Module):
    """Residual block of two convolutions of width 3, each after AdaIN and a leaky rectifier; may
    double the rate.
    """

    def __init__(self, inputs: int, outputs: int, *, upsample: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = AdaIN(inputs), AdaIN(outputs)
        self.conv1 = nn.Conv1d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv1d(outputs, outputs, 3, padding=1)
        self.conv1x1 = nn.Conv1d(inputs, outputs, 1, bias=False) if inputs != outputs else None
        self.pool = (
            nn.ConvTranspose1d(inputs, inputs, 3, stride=2, groups=inputs, padding=1, output_padding=1)
            if upsample
            else None
        )

    def forward(self, x: Tensor, style: Tensor, span: Span, after: Span) -> Tensor:
        """x [B, inputs, L] of `span` to [B, outputs, L'] of `after`, both zero past the end of
        every row.
        """
        y = span.clear(F.leaky_relu_(self.norm1(x, style, span), 0.2))
        if self.pool is not None:
            y = after.clear(self.pool(y))
            x = x.repeat_interleave(2, dim=2)
        y = after.clear(self.conv1(y))
        y = after.clear(F.leaky_relu_(self.norm2(y, style, after), 0.2))
        y = self.conv2(y)
        y = y.add_(x if self.conv1x1 is None else self.conv1x1(x)).mul_(_HALF_POWER)
        return after.clear(y)


class SnakeBlock(nn.Module):
    """Residual block of the vocoder: pairs of convolutions, the first of each dilated; AdaIN and
    Snake (Ziyin et al. 2020) before each.
    """

    def __init__(self, channels: int, kernel: int, dilations: Sequence[int] = (1, 3, 5)) -> None:
        super().__init__()
        reach = kernel // 2
        self.convs1 = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, dilation=d, padding=d * reach) for d in dilations
        )
        self.convs2 = nn.ModuleList(nn.Conv1d(channels, channels, kernel, padding=reach) for _ in dilations)
        self.adain1 = nn.ModuleList(AdaIN(channels) for _ in dilations)
        self.adain2 = nn.ModuleList(AdaIN(channels) for _ in dilations)
        self.alpha1 = nn.ParameterList(torch.ones(1, channels, 1) for _ in dilations)
        self.alpha2 = nn.ParameterList(torch.ones(1, channels, 1) for _ in dilations)

    def forward(self, x: Tensor, style: Tensor, span: Span) -> Tensor:
        """x [B, C, L], zero past the end of every row, as is the result."""
        for conv1, conv2, norm1, norm2, alpha1, alpha2 in zip(
            self.convs1, self.convs2, self.adain1, self.adain2, self.alpha1, self.alpha2, strict=True
        ):
            y = span.clear(conv1(span.clear(snake_(norm1(x, style, span), alpha1))))
            y = conv2(span.clear(snake_(norm2(y, style, span), alpha2)))
            x = span.clear(y.add_(x))
        return x


def snake_(x: Tensor, alpha: Tensor) -> Tensor:
    """x + sin^2(alpha x) / alpha; x itself, changed."""
    return x.addcmul_((alpha * x).sin_().square_(), alpha.reciprocal())


class Recurrence(nn.LSTM):
    """Bidirectional LSTM over rows of different lengths; half of the outputs belong to each
    direction.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs // 2, batch_first=True, bidirectional=True)

    def over(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """x [B, L, inputs] to [B, L, outputs]; zeros past the end of every row."""
        packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        y, _ = pad_packed_sequence(self(packed)[0], batch_first=True, total_length=x.shape[1])
        return y
