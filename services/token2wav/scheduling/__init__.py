"""Which streams share the next step of the engine, when their audio is delivered, and how much
memory they may hold.
"""
