"""Word timings: the table by which speech tokens are aligned with text ids."""
