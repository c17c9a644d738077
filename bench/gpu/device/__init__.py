"""The GPU that is measured: its ceilings, how work on it is timed, and the services' settings for
it.
"""
