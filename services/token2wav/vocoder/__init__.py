"""The vocoders: mel spectrograms to samples."""
