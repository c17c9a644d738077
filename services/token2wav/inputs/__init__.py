"""What the decoder is given: a request and its schedule of hops, the voice, the signal to stop,
files of tensors.
"""
