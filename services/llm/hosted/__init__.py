"""The backend on a third-party engine: TensorRT-LLM, and vLLM in its own folder."""
