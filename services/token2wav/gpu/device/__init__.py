"""What the engine asks of a GPU: whether it is suitable, kernel launches, grid-wide barriers and
pinned host memory.
"""
