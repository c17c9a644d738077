"""Engines, requests and listeners on a virtual clock, for the simulation of token2wav's
schedule.
"""
