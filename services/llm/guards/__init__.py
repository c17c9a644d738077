"""Detection of unusable speech by its tokens, and the alignment of tokens and text that it uses."""
