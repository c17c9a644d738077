"""What the engine needs of a GPU: suitability, kernel launches, grid-wide barriers and pinned host
memory.
"""
