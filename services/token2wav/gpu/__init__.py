"""token2wav on a GPU: block-exact flow over paged state, static shapes, one CUDA graph per batch
size.
"""
