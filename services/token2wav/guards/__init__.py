"""Checks of the generated audio: silence and saturation are faults of the networks."""
