"""Recognised words compared with the words that were to be spoken."""
