"""A text to sentences with token ids, whole or while it is being written, plain or SSML."""
