"""Scans of the code, of secrets and of dependencies, and what is left out of them for which reason."""
