"""Decode steps for a CPU, with buffers that are allocated once."""
