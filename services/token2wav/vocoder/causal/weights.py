"""What causal HiFT reads from the yaml and from `hift.pt`: the names of HiFT, with other shapes.

Source: compatibility specification of CosyVoice3, sections 1 and 5.4.
"""

from dataclasses import dataclass

from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.inputs.model_files import YamlSection
from services.token2wav.vocoder.weights import (
    F0_KERNEL,
    Shape,
    VocoderConfig,
    check_sizes,
    load_weights,
    sizes_in_yaml,
)

NETWORK = "causal-hift"
PITCH = "f0_predictor."
"""The names of the f0 predictor begin so."""
PITCH_LOOKAHEAD = 3
"""Mel frames after a frame that its f0 depends on; no key of the yaml names it."""


@dataclass(frozen=True, kw_only=True)
class CausalVocoderConfig(VocoderConfig):
    """Section `hift` of the yaml, with its own key names."""

    conv_pre_look_right: int
    """Mel frames after a frame that the first convolution sees."""

    @property
    def pre_kernel(self) -> int:
        """Kernel of the first convolution."""
        return self.conv_pre_look_right + 1

    def f0_kernel(self, layer: int) -> int:
        """The first convolution of the f0 predictor looks ahead, the others look back."""
        return F0_KERNEL if layer else PITCH_LOOKAHEAD + 1

    def raising_shape(self, level: int) -> Shape:
        """Weight of an ordinary convolution over repeated columns: outputs come first."""
        return self.channels(level + 1), self.channels(level), self.upsample_kernel_sizes[level]

    def kernel_problem(self) -> str:
        """See `VocoderConfig`."""
        pairs = zip(self.upsample_kernel_sizes, self.upsample_rates, strict=True)
        return "no upsample kernel may be shorter than its rate" if any(k < r for k, r in pairs) else ""


def read_config(directory: ModelDirectory) -> CausalVocoderConfig:
    """Raises ModelError naming the yaml key that is missing, has the wrong type or a value that is
    not implemented.
    """
    sizes = sizes_in_yaml(directory, NETWORK)
    look_right = YamlSection(directory, "hift").size("conv_pre_look_right")
    config = CausalVocoderConfig(**sizes, conv_pre_look_right=look_right)
    check_sizes(directory, config)
    return config


def read_weights(directory: ModelDirectory, config: CausalVocoderConfig) -> dict[str, Tensor]:
    """Every tensor on the CPU with weight norm fused, float64 for the f0 predictor and float32 for
    the rest. Raises ModelError as `vocoder.weights.load_weights`.
    """
    return load_weights(directory, config, doubled=PITCH)
