"""Facts about a text that every later step needs: language, characters, numbers in words, warnings,
and turns between callers.
"""
