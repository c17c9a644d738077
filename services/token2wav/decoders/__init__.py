"""The decoder interface that the scheduler calls, the description of a loaded backend, and the
decoders of the three profiles.
"""
