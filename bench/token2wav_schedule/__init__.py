"""Requests and listeners on a virtual clock, for the simulation of token2wav's schedule; its clock
and engines are those of `tools.capacity.timing`.
"""
