"""The LLM engine in PyTorch: KV cache, scheduler and decode steps."""
