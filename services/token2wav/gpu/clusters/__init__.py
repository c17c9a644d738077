"""The estimator of CosyVoice2's flow for small batches, in CUDA C++ for thread-block clusters."""
