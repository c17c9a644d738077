"""Sizes of a HiFT that no yaml describes: those of its tensors, and the defaults of its class for
the rest.

Source: github.com/stepfun-ai/Step-Audio2, flashcosyvoice/modules/hifigan.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cosyserve.errors import ModelError

_DEFAULTS = {
    "nsf_alpha": 0.1,
    "nsf_sigma": 0.003,
    "nsf_voiced_threshold": 10,
    "upsample_rates": (8, 5, 3),
    "upsample_kernel_sizes": (16, 11, 7),
    "n_fft": 16,
    "hop_len": 4,
    "resblock_kernel_sizes": (3, 7, 11),
    "resblock_dilation_sizes": ((1, 3, 5), (1, 3, 5), (1, 3, 5)),
    "source_resblock_kernel_sizes": (7, 7, 11),
    "source_resblock_dilation_sizes": ((1, 3, 5), (1, 3, 5), (1, 3, 5)),
    "lrelu_slope": 0.1,
    "audio_limit": 0.99,
}


def sizes_of_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The fields of VocoderConfig. Raises ModelError naming `path` and the tensor that is missing
    or no matrix.
    """

    def last_axis(name: str, axes: int) -> int:
        if name not in tensors or tensors[name].ndim != axes:
            raise ModelError(f"{path}: no tensor {name} with {axes} axes, from which its size would be read")
        return int(tensors[name].shape[-1])

    return {
        "base_channels": last_axis("conv_pre.bias", 1),
        "nb_harmonics": last_axis("m_source.l_linear.weight", 2) - 1,
        "f0_channels": last_axis("f0_predictor.classifier.weight", 2),
        **_DEFAULTS,
    }
