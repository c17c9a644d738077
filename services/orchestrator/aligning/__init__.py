"""Times of words for models without an alignment table: forced alignment of the sound of a sentence
with its words, in processes of their own.
"""
