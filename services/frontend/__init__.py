"""The frontend: text to sentences of token ids, and voices."""
