"""Measurements of speed, memory and scheduling, each a command."""
