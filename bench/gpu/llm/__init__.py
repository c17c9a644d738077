"""The speech-token engine on one GPU, with random weights of the published sizes."""
