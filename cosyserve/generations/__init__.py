"""The generations of CosyVoice, and the decoders of others, that a model directory may hold, each
described as data, and what follows from a description.
"""
