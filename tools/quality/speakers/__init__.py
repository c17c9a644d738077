"""Whom a voice sounds like, by speaker embeddings."""
