"""Scans of code, secrets and dependencies, and which findings are allowed for which reason."""
