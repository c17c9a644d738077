"""The causal HiFT vocoder of CosyVoice3, which looks four frames and three samples ahead."""
