"""The speech-token model as a checkpoint: read, described, and written for other engines."""
