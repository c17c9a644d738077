"""Rules that convert Chinese written forms to words."""
