"""Models with random weights: of either generation, and of Step-Audio2's flow and vocoder."""
