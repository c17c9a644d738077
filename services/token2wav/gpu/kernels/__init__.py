"""Triton kernels that process whole static buffers, with device tables for which rows are valid."""
