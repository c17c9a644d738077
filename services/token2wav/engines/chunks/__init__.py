"""Graphs of a flow that keeps its state between blocks: their shapes and inputs, and the flow's
network over them.
"""
