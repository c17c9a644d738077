"""Exported graphs, conversions and engines compared with the torch path."""
