"""The flow matching model: speech tokens to mel spectrograms."""
