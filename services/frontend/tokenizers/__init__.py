"""Text to token ids: the interface, byte-level BPE, phonemes, and the control tokens and
placeholders in a text.
"""
