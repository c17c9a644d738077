"""The decoder of Step-Audio2 compared with the dumps of its reference implementation."""
