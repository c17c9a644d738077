"""The exported graphs behind the decoder's seam, whoever executes them: TensorRT, ONNX Runtime, or
a test.
"""
