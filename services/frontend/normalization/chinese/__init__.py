"""Rules that put Chinese written forms into words."""
