"""Values of SSML `say-as`, whose kind the caller names: parsed from their written form and put into
words of a language.
"""
