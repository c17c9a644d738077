"""English written forms as people read them, decided by context, in front of the grammars."""
