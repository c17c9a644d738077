"""What a request brings to the decoder: sentence and schedule of hops, voice, stop signal, tensor
files.
"""
