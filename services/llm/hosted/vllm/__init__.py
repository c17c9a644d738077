"""The backend on vLLM, and the plugin and logits processor that vLLM loads into its processes."""
