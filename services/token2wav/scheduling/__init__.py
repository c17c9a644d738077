"""Which streams share the engine's next step, when their audio is delivered, and how much memory
they may hold.
"""
