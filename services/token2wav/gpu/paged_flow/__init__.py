"""The flow over paged state: batches of grid blocks through the encoder and the estimator, in CUDA
graphs.
"""
