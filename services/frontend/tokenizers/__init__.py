"""Text to token ids: the interface, byte-level BPE, phonemes, and what may stand in a text besides
words.
"""
