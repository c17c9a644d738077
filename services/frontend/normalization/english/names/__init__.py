"""English rules for names and symbols: abbreviations, codes, telephone numbers, paths, signs."""
