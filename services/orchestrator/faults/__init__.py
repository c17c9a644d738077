"""What keeps one fault from becoming many: retry budget, hedged calls, quarantine, brown-out."""
