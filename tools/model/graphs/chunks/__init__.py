"""The networks of a flow that is exported with its state: one block of several streams, and what
the blocks before it left, as ONNX graphs.
"""
