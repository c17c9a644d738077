"""A subset of SSML 1.1: a document becomes text, pauses and boundaries, parsed as it arrives in any
fragmentation.
"""
