"""`python -m bench.vocoder_operands`: what the type of the factors costs in the vocoder's filter,
on real speech, without a GPU.

The frames are those of a voice's prompt. Every convolution of the filter has its factors rounded,
and sums in float32, as matrix units do; `tf32, cut` leaves the last 13 bits out, as they do with
float32 that nobody has rounded.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.vocoder import Vocoder, load_vocoder

ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "float32": lambda x: x,
    "float16": lambda x: x.half().float(),
    "tf32, rounded": lambda x: ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32),
    "tf32, cut": lambda x: (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32),
    "bfloat16": lambda x: x.bfloat16().float(),
}


def rendered(vocoder: Vocoder, mel: Tensor, rounded: Callable[[Tensor], Tensor]) -> Tensor:
    """The sentence with the filter's factors rounded; the float64 convolutions of the pitch stay as
    they are.
    """
    plain, transposed = F.conv1d, F.conv_transpose1d

    def conv1d(x: Tensor, weight: Tensor, *more: Any, **options: Any) -> Tensor:
        given = (x, weight) if x.dtype == torch.float64 else (rounded(x), rounded(weight))
        return plain(*given, *more, **options)

    def conv_transpose1d(x: Tensor, weight: Tensor, *more: Any, **options: Any) -> Tensor:
        return transposed(rounded(x), rounded(weight), *more, **options)

    F.conv1d, F.conv_transpose1d = conv1d, conv_transpose1d  # type: ignore[assignment]
    try:
        return vocoder.offline(mel, 1, 0)
    finally:
        F.conv1d, F.conv_transpose1d = plain, transposed


def log_spectrum(sound: Tensor) -> Tensor:
    """Natural logarithm of the magnitudes, frames of 1024 samples."""
    return torch.stft(sound, 1024, window=torch.hann_window(1024), return_complex=True).abs().clamp_min(1e-3).log()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    options = parser.parse_args()
    vocoder = load_vocoder(ModelDirectory(options.model), torch.device("cpu"))
    voices = torch.load(options.model / "spk2info.pt", weights_only=True)
    for name, voice in voices.items():
        mel = voice["prompt_speech_feat"][0].T.float().contiguous()
        exact = rendered(vocoder, mel, ROUNDED["float32"])
        print(f"{name}: {mel.shape[1] / 50:.1f} s")
        for kind, rounded in ROUNDED.items():
            found = rendered(vocoder, mel, rounded)
            apart = float((found - exact).norm() / exact.norm())
            spectrum = float((log_spectrum(found) - log_spectrum(exact)).abs().mean())
            largest = float((found - exact).abs().max())
            print(
                f"  {kind:14s} relative {apart:.1e}, largest {largest:.1e} of {float(exact.abs().max()):.2f}, log "
                f"spectrum {spectrum:.4f}"
            )


if __name__ == "__main__":
    main()
