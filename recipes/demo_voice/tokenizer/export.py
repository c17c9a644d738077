"""The encoder as `speech_tokenizer_v2.onnx`, written and read back: log-mel and its length in,
speech token ids out.

Inputs by position as in the published file: `feats` float32 [1, 128, T] at 100 Hz, `feats_length`
int32 [1]; output `indices` int32 [1, ceil(length / 4)] at 25 Hz. Frames past the length are not
heard. Source: compatibility specification sections 1 and 2.5.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from recipes.demo_voice.model_files.onnx_graph import Graph, run
from recipes.demo_voice.tokenizer import codes
from recipes.demo_voice.tokenizer.network import Block, Encoder
from recipes.demo_voice.tokenizer.trained import TrainedTokenizer
from services.frontend.prompts.features import whisper_mel

FEATURES, LENGTH, IDS = "feats", "feats_length", "indices"
_LEAST_AGREEMENT = 0.999
_TRANSPOSED = ("wide.weight", "narrow.weight", "digits.weight")
"""Linear layers, which the file stores as [in, out]; torch wants [out, in]."""


def export(tokenizer: TrainedTokenizer, speech: Sequence[Tensor], path: Path) -> float:
    """Write the file and run it on `speech`: float32 [frames, 128] each. Returns the share of ids
    equal to torch's.

    Raises RuntimeError when fewer than 999 in 1000 are.
    """
    write_onnx(tokenizer.network.encoder, path)
    agreement = agreement_with(tokenizer, speech, path)
    if agreement < _LEAST_AGREEMENT:
        raise RuntimeError(f"{path}: only {agreement:.2%} of the ids are those of the trained network")
    return agreement


def agreement_with(tokenizer: TrainedTokenizer, speech: Sequence[Tensor], path: Path) -> float:
    """Share of frames whose id in ONNX Runtime is the trained network's on the CPU."""
    equal = total = 0
    for log_mel in speech:
        length = len(log_mel)
        ids = run(path, {FEATURES: log_mel.T[None].numpy(), LENGTH: np.array([length], np.int32)})
        expected = tokenizer.codes_of_speech(log_mel[None], torch.tensor([length])) + codes.first_id(tokenizer.digits)
        equal += int((ids == expected).sum())
        total += expected.numel()
    return equal / max(1, total)


def write_onnx(encoder: Encoder, path: Path) -> None:
    """`encoder` as a graph; weights are stored in half precision."""
    graph = _EncoderGraph()
    graph.write(
        path,
        "speech_tokenizer",
        [
            helper.make_tensor_value_info(FEATURES, TensorProto.FLOAT, [1, whisper_mel.BINS, "frames"]),
            helper.make_tensor_value_info(LENGTH, TensorProto.INT32, [1]),
        ],
        [helper.make_tensor_value_info(graph.encode(encoder), TensorProto.INT32, [1, "tokens"])],
    )


def read_encoder(path: Path, encoder: Encoder, *, further_digits: bool = False) -> None:
    """Load the weights that `write_onnx` stored into `encoder`.

    further_digits: `encoder` may have more digits than the file; those keep the weights that they
    have. Raises ValueError when the file is of another network.
    """
    stored = {each.name: numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}
    with torch.no_grad():
        for name, into in encoder.named_parameters():
            if name not in stored:
                raise ValueError(f"{path}: has no weights {name!r}; a speech tokenizer of this recipe is expected")
            tensor: Tensor = torch.from_numpy(stored[name].copy()).float()
            tensor = tensor.T if name.endswith(_TRANSPOSED) else tensor
            there = into[: len(tensor)] if further_digits and name.startswith("digits.") else into
            if tensor.shape != there.shape:
                raise ValueError(f"{path}: {name!r} is {list(tensor.shape)}, expected {list(into.shape)}")
            there.copy_(tensor)


class _EncoderGraph(Graph):
    def encode(self, encoder: Encoder) -> str:
        start, time = self.constant(np.array([0], np.int32)), self.constant(np.array([2], np.int32))
        hidden = self.add("Slice", FEATURES, start, LENGTH, time)
        for name in ("halve", "quarter"):
            hidden = self._gelu(self._convolution(name, getattr(encoder, name), hidden))
        hidden = self.add("Transpose", hidden, perm=[0, 2, 1])
        for place, block in enumerate(encoder.blocks):
            hidden = self._block(f"blocks.{place}", cast(Block, block), hidden)
        bound = self.add(
            "Tanh",
            self.linear("digits", encoder.digits.weight, encoder.digits.bias, self._norm("norm", encoder.norm, hidden)),
        )
        return self._ids(
            self.add("Mul", bound, self.constant(np.array([codes.REACH], np.float32))), encoder.digits.out_features
        )

    def _block(self, name: str, block: Block, inputs: str) -> str:
        frames = self.add("Transpose", inputs, perm=[0, 2, 1])
        hidden = self.add("Transpose", self._convolution(f"{name}.over_time", block.over_time, frames), perm=[0, 2, 1])
        normed = self._norm(f"{name}.norm", block.norm, hidden)
        hidden = self._gelu(self.linear(f"{name}.wide", block.wide.weight, block.wide.bias, normed))
        scale = self.weight(f"{name}.scale", block.scale)
        narrow = self.linear(f"{name}.narrow", block.narrow.weight, block.narrow.bias, hidden)
        return self.add("Add", inputs, self.add("Mul", narrow, scale))

    def _ids(self, bound: str, digits: int) -> str:
        """sum((round + 1) * 3^i) and the middle levels of the unused digits, in whole numbers."""
        weights = 3 ** np.arange(digits)
        base = codes.first_id(digits) + int(weights.sum())
        levels = self.add("Cast", self.add("Round", bound), to=TensorProto.INT32)
        last = self.constant(np.array([-1], np.int64))
        summed = self.add(
            "ReduceSum", self.add("Mul", levels, self.constant(weights.astype(np.int32))), last, keepdims=0
        )
        return self.add("Add", summed, self.constant(np.array([base], np.int32)), name=IDS)

    def _convolution(self, name: str, layer: nn.Conv1d, inputs: str) -> str:
        """[1, channels, time] -> [1, channels, time / stride]."""
        weight, bias = (
            self.weight(f"{name}.weight", layer.weight),
            self.weight(f"{name}.bias", cast(Tensor, layer.bias)),
        )
        side = int(layer.padding[0])
        return self.add("Conv", inputs, weight, bias, pads=[side, side], strides=list(layer.stride), group=layer.groups)

    def _norm(self, name: str, layer: nn.LayerNorm, inputs: str) -> str:
        weight, bias = self.weight(f"{name}.weight", layer.weight), self.weight(f"{name}.bias", layer.bias)
        return self.add("LayerNormalization", inputs, weight, bias, axis=-1, epsilon=layer.eps)

    def _gelu(self, inputs: str) -> str:
        """x / 2 * (1 + erf(x / sqrt 2)), torch's default."""
        half, one, root = (self.constant(np.array([value], np.float32)) for value in (0.5, 1.0, 2**-0.5))
        erf = self.add("Erf", self.add("Mul", inputs, root))
        return self.add("Mul", self.add("Mul", inputs, half), self.add("Add", erf, one))
