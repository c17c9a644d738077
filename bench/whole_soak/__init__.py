"""A soak of everything that `cosyserve up` runs: callers over every API, samples of every process,
a verdict and a plot.
"""
