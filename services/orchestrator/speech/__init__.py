"""One request as plain values: the utterance, its sentences, its conditioning, its speech tokens,
word times and silence.
"""
