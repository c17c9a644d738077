"""A text tokenizer whose tokens are phonemes of American English: a lexicon, rules of context, and
letter-to-sound for the rest.
"""
