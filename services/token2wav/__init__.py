"""token2wav: speech tokens to samples."""
