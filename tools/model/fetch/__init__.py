"""Downloading a published model: where its files are, which are wanted, and resumable transfers."""
