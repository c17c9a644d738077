"""Triton kernels of the speech-token model."""
