"""Faults that a sentence's tokens give away, and the alignment of tokens and text that some of them
are found by.
"""
