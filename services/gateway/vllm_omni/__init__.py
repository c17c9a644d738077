"""vLLM-Omni's WebSocket for speech: `/v1/audio/speech/stream`."""
