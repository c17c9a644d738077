"""Model directories: fetch them, look into them, and turn them into what other engines load."""
