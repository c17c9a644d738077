"""The 25 Hz speech tokenizer of the bundled voice: log-mel to a few ternary digits, taught by what
was said and how it sounded.
"""
