"""The encoder of a tokenizer that is already bundled, read back from `speech_tokenizer_v2.onnx`.

With it the readers of the codes are trained alone, so that more speech can be encoded and aligned
for a new language model while the flow, the vocoder and all voices stay as they are: they depend on
the codes and on nothing else of the tokenizer.
"""

from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from recipes.demo_voice.tokenizer.network import Encoder

_TRANSPOSED = ("wide.weight", "narrow.weight", "digits.weight")
"""Linear layers, which the file stores as [in, out]; torch wants [out, in]."""


def read_encoder(path: Path, encoder: Encoder) -> None:
    """Load the weights that `export.write_onnx` stored into `encoder`, and freeze it.

    Raises ValueError when the file is of another network.
    """
    stored = {each.name: numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}
    with torch.no_grad():
        for name, into in encoder.named_parameters():
            if name not in stored:
                raise ValueError(f"{path}: has no weights {name!r}; a speech tokenizer of this recipe is expected")
            tensor: Tensor = torch.from_numpy(stored[name].copy()).float()
            tensor = tensor.T if name.endswith(_TRANSPOSED) else tensor
            if tensor.shape != into.shape:
                raise ValueError(f"{path}: {name!r} is {list(tensor.shape)}, expected {list(into.shape)}")
            into.copy_(tensor)
    encoder.requires_grad_(False)
