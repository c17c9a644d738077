"""Checks a capacity plan: the scheduling code that serves, between engines that only take time, on
a virtual clock.
"""
