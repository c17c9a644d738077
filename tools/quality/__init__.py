"""How well a model speaks, measured on what comes out of the running services: words, naturalness,
seams, endings, speaker.
"""
