"""English reading rules that decide by context; they run before the grammars."""
