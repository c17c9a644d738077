"""How many requests are admitted, and when a refused caller should come back."""
