"""The generations of CosyVoice that a model directory may hold, each described as data, and what
follows from a description.
"""
