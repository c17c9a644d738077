"""A text tokenizer whose tokens are phonemes of American English: a lexicon, context rules, and
letter-to-sound for unknown words.
"""
