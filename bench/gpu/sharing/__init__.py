"""What a first pass of the flow takes beside a speech-token model that decodes on the same GPU, and
what of it is waiting in the host.
"""
