"""Weights read out of small quantised graphs do what ONNX Runtime does with those graphs, up to its
rounding of activations.
"""

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from recipes.demo_voice.teacher.layers import Recurrence
from recipes.demo_voice.teacher.weights import published_tensors

DICE = np.random.default_rng(7)


def model(nodes: list[object], constants: dict[str, NDArray[np.generic]]) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)], ir_version=9
    )


def answer(quantised: ModelProto, x: NDArray[np.float32]) -> torch.Tensor:
    session = onnxruntime.InferenceSession(quantised.SerializeToString(), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(["y"], {"x": x})[0])


def integer_layer(operator: str, name: str, weight: str, **attributes: object) -> list[object]:
    """The quantiser's usual four nodes around an integer product."""
    return [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "q_scale", "q_zero"]),
        helper.make_node(
            operator, ["q", f"{weight}_quantized", "q_zero", f"{weight}_zero_point"], ["sum"], name=name, **attributes
        ),
        helper.make_node("Cast", ["sum"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["q_scale", f"{weight}_scale"], ["scale"]),
        helper.make_node("Mul", ["real", "scale"], ["y"]),
    ]


def test_convolution() -> None:
    constants = {
        "/decoder/decoder/encode/Mul_quantized": DICE.integers(0, 256, (5, 4, 3)).astype(np.uint8),
        "/decoder/decoder/encode/Mul_zero_point": np.uint8(100) * np.ones((), np.uint8),
        "/decoder/decoder/encode/Mul_scale": np.float32(0.01) * np.ones((), np.float32),
    }
    nodes = integer_layer(
        "ConvInteger", "/decoder/decoder/encode/conv1/Conv_quant", "/decoder/decoder/encode/Mul", pads=[1, 1]
    )
    quantised = model(nodes, constants)
    tensors = dict(published_tensors(quantised.graph))
    assert set(tensors) == {"decoder.encode.conv1.weight"}
    x = DICE.standard_normal((1, 4, 9)).astype(np.float32)
    ours = F.conv1d(torch.from_numpy(x), tensors["decoder.encode.conv1.weight"], padding=1)
    torch.testing.assert_close(ours, answer(quantised, x), rtol=0, atol=0.1)
    assert ours.std() > 1


def test_linear_layer_with_a_scale_for_each_output() -> None:
    constants = {
        "onnx::MatMul_1_quantized": DICE.integers(-128, 128, (6, 3)).astype(np.int8),
        "onnx::MatMul_1_zero_point": np.array([-3, 0, 5], np.int8),
        "onnx::MatMul_1_scale": np.array([0.01, 0.02, 0.04], np.float32),
        "encoder.bert_encoder.bias": np.zeros(3, np.float32),
    }
    quantised = model(integer_layer("MatMulInteger", "/encoder/bert_encoder/MatMul_quant", "onnx::MatMul_1"), constants)
    tensors = dict(published_tensors(quantised.graph))
    assert set(tensors) == {"bert_encoder.weight", "bert_encoder.bias"}
    x = DICE.standard_normal((2, 6)).astype(np.float32)
    ours = F.linear(torch.from_numpy(x), tensors["bert_encoder.weight"])
    torch.testing.assert_close(ours, answer(quantised, x), rtol=0, atol=0.15)
    assert ours.std() > 1


def test_recurrence_has_its_gates_in_torchs_order() -> None:
    hidden, inputs = 16, 6
    constants = {
        "w": DICE.integers(-128, 128, (2, inputs, 4 * hidden)).astype(np.int8),
        "r": DICE.integers(-128, 128, (2, hidden, 4 * hidden)).astype(np.int8),
        "b": DICE.normal(0, 0.5, (2, 8 * hidden)).astype(np.float32),
        "state": np.zeros((2, 1, hidden), np.float32),
        "w_scale": np.array([0.01, 0.02], np.float32),
        "r_scale": np.array([0.004, 0.002], np.float32),
        "zero": np.zeros(2, np.int8),
    }
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["x", "w", "r", "b", "", "state", "state", "", "w_scale", "zero", "r_scale", "zero"],
        ["y"],
        name="/encoder/shared/LSTM_quant",
        domain="com.microsoft",
        direction="bidirectional",
        hidden_size=hidden,
    )
    quantised = model([node], constants)
    layer = Recurrence(inputs, 2 * hidden)
    layer.load_state_dict(
        {name.removeprefix("predictor.shared."): value for name, value in published_tensors(quantised.graph)}
    )
    x = DICE.standard_normal((5, 1, inputs)).astype(np.float32)
    with torch.inference_mode():
        ours = layer.over(torch.from_numpy(x).transpose(0, 1), [5])
    theirs = answer(quantised, x).permute(2, 0, 1, 3).flatten(2)
    # Without VNNI a processor saturates sums of 8-bit products; gates in another order differ more.
    assert (ours - theirs).abs().mean() < 0.1 * ours.abs().mean()
