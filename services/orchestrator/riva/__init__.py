"""NVIDIA Riva's contract of speech synthesis, translated to our own."""
