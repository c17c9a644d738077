"""The HTTP API of CosyVoice's own server, with the fields that servers built on it add."""
