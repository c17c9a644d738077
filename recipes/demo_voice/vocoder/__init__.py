"""Adversarial training of the HiFT vocoder on clean speech."""
