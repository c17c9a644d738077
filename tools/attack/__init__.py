"""Hostile callers against a running stack: `make attack`."""
