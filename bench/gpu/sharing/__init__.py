"""What a first pass of the flow takes while a speech-token model decodes on the same GPU, and
what of it is waiting in the host.
"""
