"""The backend on an engine that is not ours: TensorRT-LLM, and vLLM in its own folder."""
