"""The vocoder over fixed windows of several streams in one batch, in CUDA graphs."""
