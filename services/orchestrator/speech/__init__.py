"""One request as plain values: the utterance, its text while it arrives, its sentences, its
conditioning, its speech tokens, word times and silence.
"""
