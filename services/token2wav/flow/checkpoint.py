"""What the flows of all generations have in common on disk: `flow.pt`, whose tensors are read
without executing code and checked one by one, and the settings of the solver in the yaml.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.generations.separate_decoder import require_own_weights
from cosyserve.model_directory import ModelDirectory, check_tensors
from cosyserve.spec import (
    CHUNK_FRAMES,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    MEL_FRAMES_PER_TOKEN,
    SPEAKER_DIMENSION,
    SPEECH_VOCABULARY,
)
from services.token2wav.inputs.model_files import YamlSection, read_tensors

FILE = "flow.pt"
ESTIMATOR = "decoder.estimator."
COMMON_VALUES = {
    "vocab_size": SPEECH_VOCABULARY,
    "spk_embed_dim": SPEAKER_DIMENSION,
    "output_size": MEL_BINS,
    "token_mel_ratio": MEL_FRAMES_PER_TOKEN,
    "pre_lookahead_len": LOOKAHEAD_TOKENS,
    "decoder.spk_emb_dim": MEL_BINS,
    "decoder.cfm_params.content.solver": "euler",
    "decoder.cfm_params.content.t_scheduler": "cosine",
    "decoder.estimator.out_channels": MEL_BINS,
    "decoder.estimator.static_chunk_size": CHUNK_FRAMES,
    "decoder.estimator.num_decoding_left_chunks": -1,
}
"""Values that the arithmetic assumes; another value in the yaml means a different model."""
Shapes = dict[str, tuple[int, ...]]


def guidance_and_temperature(directory: ModelDirectory, flow: YamlSection) -> tuple[float, float]:
    """Weight of the guidance, and standard deviation of the noise. Raises ModelError naming the
    key.
    """
    # The reference's inference argument of that name; the published yaml has no such key.
    has_temperature = "temperature" in directory.section("flow", "decoder")
    temperature = flow.number("decoder.temperature") if has_temperature else 1.0
    if not 0 <= temperature <= 1:
        raise flow.wrong("decoder.temperature", temperature, ", expected a number from 0 to 1")
    return float(flow.number("decoder.cfm_params.content.inference_cfg_rate")), float(temperature)


def linear_shapes(name: str, out: int, into: int) -> Shapes:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def norm_shapes(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def convolution_shapes(name: str, out: int, into: int, taps: int) -> Shapes:
    return {f"{name}.weight": (out, into, taps), f"{name}.bias": (out,)}


def read_checked(
    directory: ModelDirectory,
    expected: Mapping[str, tuple[int, ...]],
    device: torch.device,
    dtype: torch.dtype,
    always_full: Iterable[str] = (),
) -> dict[str, Tensor]:
    """The tensors of `flow.pt` on `device`: the estimator's in `dtype` but for those in
    `always_full`, all others in float32; half-precision files are widened.

    expected: name and shape of every tensor. Raises ModelError naming the file and the tensor.
    """
    path = directory.file(FILE)
    tensors = read_tensors(path)
    require_own_weights(directory, path, tensors)
    check_tensors(path, tensors, expected)
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{path}: tensor {name} has values that are not finite")
    narrow = {name for name in tensors if name.startswith(ESTIMATOR)}.difference(always_full)
    return {
        # Cloned, because a view into the file's storage may start at any address; a new
        # allocation is aligned.
        name: tensor.to(device, dtype if name in narrow else torch.float32).clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
