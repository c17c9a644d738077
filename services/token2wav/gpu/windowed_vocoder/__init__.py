"""The vocoder over fixed windows of several streams at once, in CUDA graphs."""
