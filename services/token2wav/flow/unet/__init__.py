"""The flow of CosyVoice2: a conformer in front of a causal U-Net."""
