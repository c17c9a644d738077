"""Written forms to spoken words: markup, addresses, rules for Chinese and English, and the grammars
for the rest.
"""
