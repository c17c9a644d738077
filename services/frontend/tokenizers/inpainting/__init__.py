"""Pronunciations as marks in a text, for a tokenizer that has tokens for phonemes and for parts of
syllables.
"""
