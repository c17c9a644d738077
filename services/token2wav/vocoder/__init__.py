"""The HiFT vocoder: mel spectrograms to samples."""
