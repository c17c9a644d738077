"""The estimator that comes with the published model, `flow.decoder.estimator.fp32.onnx`, taken as
it is.

Source: compatibility specification section 4.8.
"""

from pathlib import Path

import onnx

from cosyserve.errors import ModelError
from cosyserve.spec import MEL_BINS

_EXPECTED = {
    "x": (2, MEL_BINS, None),
    "mask": (2, 1, None),
    "mu": (2, MEL_BINS, None),
    "t": (2,),
    "spks": (2, MEL_BINS),
    "cond": (2, MEL_BINS, None),
}
_LARGEST = 1 << 31


def read_published(path: Path) -> onnx.ModelProto:
    """The file, checked: one batch of 2, no attention mask, float32. Raises ModelError naming what
    differs.
    """
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    if path.stat().st_size >= _LARGEST:
        raise ModelError(
            f"{path}: {path.stat().st_size} bytes; the published estimator has 0.3 GB, and no ONNX file 2 GiB"
        )
    try:
        model = onnx.load(str(path), load_external_data=False)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf's and onnx's own, and what a damaged file leads to
        raise ModelError(
            f"{path}: no valid ONNX file: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
        ) from error
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: _shape(value) for value in model.graph.input if value.name not in weights}
    if inputs != _EXPECTED:
        raise ModelError(f"{path}: inputs are {inputs}, the published estimator has {_EXPECTED} (None: free)")
    if [value.name for value in model.graph.output] != ["estimator_out"]:
        raise ModelError(
            f"{path}: outputs are {[value.name for value in model.graph.output]}, the published estimator has "
            "estimator_out"
        )
    wrong = [
        value.name
        for value in (*model.graph.input, *model.graph.output)
        if value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT
    ]
    if wrong:
        raise ModelError(f"{path}: {', '.join(wrong)} are not float32")
    return model


def _shape(value: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    return tuple(
        length.dim_value if length.HasField("dim_value") else None for length in value.type.tensor_type.shape.dim
    )
