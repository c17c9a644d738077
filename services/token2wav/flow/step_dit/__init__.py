"""The flow of Step-Audio2: the conformer of CosyVoice2 in front of a DiT of its own."""
