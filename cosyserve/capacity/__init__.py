"""How many pods, GPUs and dollars so many listeners take, by the times that engines were measured
to take.
"""
