"""The LLM engine on a GPU: fused decode steps recorded as CUDA graphs."""
