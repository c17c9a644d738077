"""What a request and a model directory bring to the decoder: sentence and schedule of hops, voice,
stop signal, yaml sections and tensor files.
"""
