"""The flow over paged state: batches of grid blocks run through encoder and estimator in CUDA
graphs.
"""
