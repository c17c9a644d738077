"""Exported graphs behind the decoder interface, executed by TensorRT, by ONNX Runtime, or by a fake
in tests.
"""
