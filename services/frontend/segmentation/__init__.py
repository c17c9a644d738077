"""Where a text is cut: sentence ends, units that are complete, stretches of one language, pauses,
the sentence splitter.
"""
