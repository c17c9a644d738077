"""English rules for what names something or stands for a word: abbreviations, codes, telephone
numbers, paths, signs.
"""
