"""A subset of SSML 1.1: a document becomes stretches of text, pauses and borders, read as it
arrives in any cutting.
"""
