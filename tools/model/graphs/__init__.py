"""The networks of token2wav as ONNX graphs, and the TensorRT plans built from them."""
