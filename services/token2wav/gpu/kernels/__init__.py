"""Triton kernels. Each processes whole static buffers; device tables define which rows are valid
(`services.token2wav.gpu.paged_flow.unit_table`).
"""
