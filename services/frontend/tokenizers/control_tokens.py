"""The marks that CosyVoice2 allows in text. Source: compatibility specification section 2.3."""

import re

END_OF_PROMPT = "<|endofprompt|>"
"""Stands between what the model is told and what it says."""
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", END_OF_PROMPT)
"""Tokens that steer the model; parsed in text only on demand."""
MARKUP = (
    "[breath]", "<strong>", "</strong>", "[noise]", "[laughter]", "[cough]", "[clucking]", "[accent]", "[quick_breath]",
    "<laughter>", "</laughter>", "[hissing]", "[sigh]", "[vocalized-noise]", "[lipsmack]", "[mn]",
)  # fmt: skip
"""Tokens for sounds and stress; always parsed."""
_ANY_CONTROL = re.compile(r"<\|[A-Za-z0-9_]{1,32}\|>")


def without_controls(text: str) -> str:
    """`text` with a blank for everything that has the form of a control token, known or not: what
    is not allowed is not spoken either.
    """
    return _ANY_CONTROL.sub(" ", text)
