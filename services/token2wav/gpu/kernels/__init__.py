"""Triton kernels. Each takes whole static buffers; which rows mean something is in device tables
(`services.token2wav.gpu.paged_flow.unit_table`)."""
