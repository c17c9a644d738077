"""The special tokens that CosyVoice2 allows in text. Source: compatibility specification section
2.3.
"""

import re

END_OF_PROMPT = "<|endofprompt|>"
"""Separates the instruction or prompt from the text that is spoken."""
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", END_OF_PROMPT)
"""Tokens that steer the model; parsed in text only when allowed."""
MARKUP = (
    "[breath]", "<strong>", "</strong>", "[noise]", "[laughter]", "[cough]", "[clucking]", "[accent]", "[quick_breath]",
    "<laughter>", "</laughter>", "[hissing]", "[sigh]", "[vocalized-noise]", "[lipsmack]", "[mn]",
)  # fmt: skip
"""Tokens for sounds and stress; always parsed."""
_ANY_CONTROL = re.compile(r"<\|[A-Za-z0-9_]{1,32}\|>")


def without_controls(text: str) -> str:
    """`text` with a blank in place of everything in the form of a control token, known or not: an
    unparsed one is not spoken either.
    """
    return _ANY_CONTROL.sub(" ", text)
