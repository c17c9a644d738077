"""Characters, numbers, languages and warnings of text, reading rules, and the scheduling of text
work.
"""
