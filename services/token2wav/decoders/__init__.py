"""The decoder interface that the scheduler calls, what a loaded backend is, and the decoders of the
three profiles.
"""
