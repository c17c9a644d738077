"""Acoustic features of a voice prompt: mel, Kaldi filterbank, Whisper log-mel, and the resampler
before them.
"""
