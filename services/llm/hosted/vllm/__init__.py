"""The backend on vLLM, and what vLLM loads of ours into its own processes."""
