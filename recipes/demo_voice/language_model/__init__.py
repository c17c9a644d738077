"""The speech-token language model of the bundled voice: phonemes to codes, trained through the
network that is served.
"""
