"""Text on its way from the caller to the frontend, and what the frontend says about it."""
