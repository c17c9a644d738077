"""CosyVoice3's flow over paged state: the arithmetic of `flow.dit` as a sequence of kernels."""
