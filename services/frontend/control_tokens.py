"""The marks that CosyVoice2 allows in text. Source: compatibility specification section 2.3."""

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|endofprompt|>")
"""Tokens that steer the model; parsed in text only on demand."""
MARKUP = (
    "[breath]", "<strong>", "</strong>", "[noise]", "[laughter]", "[cough]", "[clucking]", "[accent]", "[quick_breath]", "<laughter>",
    "</laughter>", "[hissing]", "[sigh]", "[vocalized-noise]", "[lipsmack]", "[mn]",
)  # fmt: skip
"""Tokens for sounds and stress; always parsed."""
