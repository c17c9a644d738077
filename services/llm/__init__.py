"""The speech-token LLM: text ids to speech tokens."""
