"""token2wav on one GPU, with random weights of the published sizes."""
