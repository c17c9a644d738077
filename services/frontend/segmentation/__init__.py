"""Segmentation of text: sentence ends, text units, language spans, pauses and the sentence
splitter.
"""
