"""The flow of CosyVoice3: a look-ahead layer in front of a diffusion transformer."""
