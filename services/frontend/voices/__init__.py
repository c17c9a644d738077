"""Voices as values and files, where they are stored, and how they are looked up."""
